"""``sentcli retrieve``: what is asked for, and which way it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sentcli.cli import options, scores
from sentcli.cli.base import command
from sentcli.cli.retrieve_asked import Encoding, Output, Pairs, Search, Sets
from sentcli.errors import InputError

SETS, PAIRS, SEARCH = "Score sets", "Score pairs", "Search"
EXCLUDE: Literal["equal-text-except-gold"] = "equal-text-except-gold"


@command("retrieve")
def retrieve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A model folder, a short name (sentcli doctor lists them), or a hub id; --beir and --in-domain "
            "compare several.",
            show_default=False,
        ),
    ] = None,
    beir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR|NAME",
            help="Score a retrieval set: a folder in BEIR layout, or a name of sentcli data list. May be given several "
            "times.",
            rich_help_panel=SETS,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Which qrels of the sets: test, but dev of msmarco.", rich_help_panel=SETS),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            metavar="WAY,...",
            help="dense, bm25, or both fused: rrf (by rank) or weighted (by score). Several ways are set side by side.",
            rich_help_panel=options.MODEL,
        ),
    ] = "dense",
    dense_weight: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Share of the dense score in --search weighted: 0.5.",
            show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="Of bm25: english, or another that Snowball stems, or none.",
            show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the hits as a TREC run; a folder of runs for several sets or ways.",
            rich_help_panel=SETS,
        ),
    ] = None,
    from_run: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Score TREC runs of other tools or days, without a model; several are compared.",
            rich_help_panel=SETS,
        ),
    ] = None,
    per_query: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the scores of each query as JSON Lines.", rich_help_panel=SETS),
    ] = None,
    in_domain: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Find the second sentence of a pair by the first: STS-B's sts-test.csv, or a table of your own.",
            rich_help_panel=PAIRS,
        ),
    ] = None,
    exclude: Annotated[
        Literal["equal-text-except-gold", "own", "equal-text", "s2-only"],
        typer.Option(help="What is no answer; docs/retrieve.md explains them.", rich_help_panel=PAIRS),
    ] = EXCLUDE,
    pair_fields: Annotated[
        str | None,
        typer.Option(
            metavar="A,B[,SCORE]",
            help="Columns of a table of your own; default: sentence1,sentence2 and, if it is there, score.",
            rich_help_panel=PAIRS,
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Search a text file, or a directory that encode or index wrote.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="What to look for; may be given several times.", rich_help_panel=SEARCH),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Queries from a file (txt, jsonl, csv, ...), or - for stdin.", rich_help_panel=SEARCH
        ),
    ] = None,
    query_format: Annotated[
        Literal["txt", "csv", "tsv", "jsonl", "parquet"] | None,
        typer.Option(
            help="Read --queries as this, whatever its suffix; standard input is txt.",
            show_default=False,
            rich_help_panel=SEARCH,
        ),
    ] = None,
    text_field: Annotated[
        str, typer.Option(help="Column of the corpus that holds the text.", rich_help_panel=SEARCH)
    ] = "text",
    id_field: Annotated[
        str | None, typer.Option(help="Column of the corpus that holds the id.", rich_help_panel=SEARCH)
    ] = None,
    hits: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the hits as JSON Lines, one query a line; - is standard output.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="flat (exact), hnsw, ivf, ivfpq, sq8 or a faiss factory string; of a directory, one of its indexes.",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Hits a query: 10 for --corpus, 1,000 for --beir.")] = None,
    similarity: Annotated[
        Literal["cosine", "dot"] | None,
        typer.Option(
            help="Of query and document: cosine, or that of the index.",
            show_default=False,
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    query_prompt: options.QueryPrompt = None,
    doc_prompt: options.DocPrompt = None,
    query_length: Annotated[
        int | None,
        typer.Option(min=3, help="Tokens a query, where it is not to be --max-length.", rich_help_panel=options.MODEL),
    ] = None,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    against: scores.AgainstOption = None,
    rerun: options.Rerun = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
    pages: scores.Pages = None,
) -> None:
    """Search a corpus, or score retrieval: BEIR's sets with BEIR's metrics, or pairs of one domain.

    Search is exact unless an index is asked for.

    \b
    Examples:
      sentcli retrieve -m minilm --corpus documents.jsonl --query "how do I resume" --top-k 5
      sentcli index documents.jsonl -o documents -m minilm --type hnsw
      sentcli retrieve -m minilm --corpus documents --queries questions.txt --hits hits.jsonl
      sentcli retrieve -m minilm --beir data/scifact --search dense,bm25,rrf --run runs
      sentcli retrieve --beir data/scifact --from-run a.trec --from-run b.trec
      sentcli retrieve -m minilm --in-domain downstream/STS/STSBenchmark/sts-test.csv
    """  # noqa: D301
    encoding = Encoding(
        models=model or [],
        query_prompt=query_prompt,
        doc_prompt=doc_prompt,
        query_length=query_length,
        max_length=max_length,
        pooling=pooling,
        similarity=similarity or "cosine",
        backend=backend,
        precision=precision,
        device=device,
        rerun=rerun,
    )
    output = Output(json, pages or [], against, overwrite)
    _one_of({"--beir": beir, "--corpus": corpus, "--in-domain": in_domain})
    _only_with("--beir", beir, {"--run": run, "--from-run": from_run, "--per-query": per_query, "--split": split})
    _only_with("--corpus", corpus, {"--query": query, "--queries": queries, "--hits": hits, "--id-field": id_field})
    _only_with("--queries", queries, {"--query-format": query_format})
    _only_with("--in-domain", in_domain, {"--pair-fields": pair_fields, "--exclude": exclude != EXCLUDE})
    _only_with("--beir or --corpus", not in_domain, {"--index": index, "--search": search != "dense"})
    _only_with("--search bm25, rrf or weighted", search != "dense", {"--language": language})
    _only_with("--search weighted", "weighted" in search, {"--dense-weight": dense_weight is not None})
    if from_run and search != "dense":
        raise InputError("--from-run scores what was found before; --search does not go with it")
    without = _without_model(search, from_run)
    of_model = {
        "-m": model or None,
        "--index": index,
        "--similarity": similarity,
        "--query-prompt": query_prompt,
        "--doc-prompt": doc_prompt,
        "--query-length": query_length,
        "--max-length": max_length,
        "--pooling": pooling,
        "--run": run if from_run else None,
    }
    given = [name for name, value in of_model.items() if value is not None]
    if without is not None and given:
        raise InputError(f"{without}; {given[0]} does not go with it")
    weight = 0.5 if dense_weight is None else dense_weight
    if beir:
        from sentcli.cli import retrieve_sets

        sets = Sets(
            names=beir,
            split=split,
            ways=search,
            dense_weight=weight,
            language=language or "english",
            index=index,
            top_k=top_k or 1000,
            run=run,
            from_run=from_run or [],
            per_query=per_query,
        )
        retrieve_sets.score(sets, encoding, output)
    elif in_domain is not None:
        from sentcli.cli import retrieve_pairs

        retrieve_pairs.score(Pairs(in_domain, exclude, pair_fields, top_k), encoding, output)
    else:
        from sentcli.cli import retrieve_corpus

        asked = Search(
            corpus=corpus or "",
            queries=query or [],
            query_file=queries,
            query_format=query_format,
            text_field=text_field,
            id_field=id_field,
            way=search,
            dense_weight=weight,
            language=language,
            index=index,
            similarity=similarity,
            top_k=top_k or 10,
            hits=hits,
        )
        retrieve_corpus.search(asked, encoding, output)


def _one_of(ways: dict[str, object]) -> None:
    given = [name for name, value in ways.items() if value]
    if len(given) != 1:
        both = f", not {' and '.join(given)}" if given else ""
        raise InputError(
            "give --beir DIR to score a set, --in-domain FILE to score pairs, or --corpus FILE with --query TEXT to "
            f"search{both}"
        )


def _without_model(search: str, from_run: object) -> str | None:
    """Return why no model is needed, or None if one is."""
    from sentcli.search.ways import parse_ways

    if from_run:
        return "--from-run scores what was found before"
    return "--search bm25 needs no model" if parse_ways(search) == ["bm25"] else None


def _only_with(name: str, given: object, others: dict[str, object]) -> None:
    found = [other for other, value in others.items() if value]
    if not given and found:
        raise InputError(f"{found[0]} goes with {name}")
