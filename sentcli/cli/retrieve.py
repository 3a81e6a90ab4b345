"""``sentcli retrieve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentcli.cli import console, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation.retrieval import RetrievalResult, RetrievalSet


@command("retrieve")
def retrieve(
    model: options.Model,
    beir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|NAME",
            help="Score a retrieval set: a folder in BEIR layout, or a name of sentcli data list.",
            rich_help_panel="Score a set",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Which qrels of the set.", rich_help_panel="Score a set")] = "test",
    run: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the hits as a TREC run.", rich_help_panel="Score a set"),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Search a text file, or a directory written by encode.",
            rich_help_panel="Search",
        ),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="What to look for; may be given several times.", rich_help_panel="Search"),
    ] = None,
    text_field: Annotated[
        str, typer.Option(help="Column of the corpus that holds the text.", rich_help_panel="Search")
    ] = "text",
    id_field: Annotated[
        str | None, typer.Option(help="Column of the corpus that holds the id.", rich_help_panel="Search")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Hits a query: 10 for --query, 1,000 for --beir.")] = None,
    query_prompt: Annotated[
        str | None,
        typer.Option(help="Text in front of each query; default: the model's own.", rich_help_panel="Model"),
    ] = None,
    doc_prompt: Annotated[
        str | None,
        typer.Option(help="Text in front of each document; default: the model's own.", rich_help_panel="Model"),
    ] = None,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Search a corpus, or score a retrieval set with BEIR's metrics. Search is exact, by cosine similarity.

    \b
    Examples:
      sentcli retrieve -m minilm --corpus documents.jsonl --query "how do I resume" --top-k 5
      sentcli encode documents.jsonl -o vectors -m minilm
      sentcli retrieve -m minilm --corpus vectors --query "first" --query "second" --json -
      sentcli retrieve -m minilm --beir data/scifact --run scifact.trec
    """  # noqa: D301
    from sentcli.report import Report, environment, write_report
    from sentcli.search.exact import require_faiss
    from sentcli.search.trec import check_ids

    report = Report("retrieve", model)
    _check_usage(beir, corpus, query, run)
    if run is not None:
        from sentcli.io.atomic import check_output

        check_output(run, overwrite=overwrite)
    require_faiss()
    loaded = _load_set(beir, split) if beir is not None else None
    if loaded is not None and run is not None:
        check_ids([*loaded.queries, *loaded.documents])
    encoder = options.load(model, backend, precision, device, pooling, None, max_length)
    prompts = {
        "query_prompt": encoder.role_prompt("query") if query_prompt is None else query_prompt,
        "document_prompt": encoder.role_prompt("document") if doc_prompt is None else doc_prompt,
    }
    k = top_k or (1000 if beir is not None else 10)
    protocol = {"similarity": "cosine", "index": "exact", "top_k": k, **prompts, **encoder.describe()}
    report.protocol, report.environment = protocol, environment(encoder.backend.device, encoder.backend.precision)
    if loaded is not None:
        from sentcli.evaluation import retrieval

        protocol["split"] = split
        protocol["own_document"] = "left out" if loaded.name.lower() in retrieval.SELF_RETRIEVAL else "kept"
        with console.encoding(
            "encoding", len(set(loaded.documents.values())) + len(set(loaded.queries.values()))
        ) as bar:
            result = retrieval.evaluate(encoder, loaded, k, progress=bar, **prompts)
        report.results = {result.name: result.to_dict()}
        protocol["truncated_texts"] = result.stats.truncated
        _show_scores(model, result)
        options.warn_truncated(encoder.spec.max_length, result.stats.truncated, result.stats.tokens_lost)
        if run is not None:
            from sentcli.search.trec import write_run

            write_run(result.run, run)
    else:
        report.results = _search(encoder, corpus or "", query or [], text_field, id_field, k, prompts)
    if json is not None:
        write_report(report.to_dict(), json)


def _check_usage(beir: Path | None, corpus: str | None, query: list[str] | None, run: Path | None) -> None:
    if (beir is None) == (corpus is None):
        raise InputError("give either --beir DIR to score a set, or --corpus FILE with --query TEXT to search")
    if corpus is not None and not query:
        raise InputError("--corpus needs at least one --query TEXT")
    if corpus is not None and run is not None:
        raise InputError("--run goes with --beir, not with --corpus")
    if beir is not None and query:
        raise InputError("--query goes with --corpus, not with --beir")


def _load_set(beir: Path, split: str) -> RetrievalSet:
    from sentcli.data import located
    from sentcli.evaluation import retrieval

    loaded = retrieval.load_set(located(beir), split)
    if loaded.unknown_documents:
        console.warn(
            f"{loaded.unknown_documents} judgements name documents that are not in the corpus: they cannot be found"
        )
    if loaded.unknown_queries:
        console.warn(f"{loaded.unknown_queries} judged queries are not in queries.jsonl and were left out")
    return loaded


def _show_scores(model: str, result: RetrievalResult) -> None:
    cutoffs = sorted({int(name.split("@")[1]) for name in result.metrics})
    names = ("ndcg", "map", "recall", "precision", "mrr")
    rows = [[name, *(f"{result.metrics[f'{name}@{k}']:.4f}" for k in cutoffs)] for name in names]
    title = f"{model} on {result.name}: {result.queries} queries, {result.documents} documents"
    console.table(title, ["metric", *(f"@{k}" for k in cutoffs)], rows)


def _search(
    encoder: SentenceEncoder,
    corpus: str,
    queries: list[str],
    text_field: str,
    id_field: str | None,
    k: int,
    prompts: dict[str, str],
) -> list[dict[str, object]]:
    from sentcli.io.readers import ReadOptions
    from sentcli.search.corpus import encode_documents, open_corpus, read_documents

    if Path(corpus).is_dir():
        found = open_corpus(Path(corpus), encoder)
        if found.prompt != prompts["document_prompt"]:
            wanted = prompts["document_prompt"]
            console.warn(f"{corpus} was encoded with the prompt {found.prompt!r}, documents should have {wanted!r}")
    else:
        documents = read_documents(corpus, ReadOptions(text_field, id_field))
        with console.encoding("encoding", len(set(documents.texts))) as bar:
            found = encode_documents(documents, encoder, prompt=prompts["document_prompt"], progress=bar)
        if found.stats is not None:
            options.warn_truncated(encoder.spec.max_length, found.stats.truncated, found.stats.tokens_lost)
    answers = found.search(encoder.encode(queries, prompt=prompts["query_prompt"]), k)
    for query, hits in zip(queries, answers, strict=True):
        rows = [[hit.rank, hit.id, f"{hit.score:.4f}", hit.text] for hit in hits]
        console.hits(query, rows)
    return [
        {"query": query, "hits": [hit.to_dict() for hit in hits]} for query, hits in zip(queries, answers, strict=True)
    ]
