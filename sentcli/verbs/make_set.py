"""``data make-set``: a retrieval set out of a corpus, to choose models by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli import console
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.evaluation.set_manifest import SetManifest
    from sentcli.testset.documents import Documents
    from sentcli.testset.queries import QuerySet
    from sentcli.testset.written import Answer

JUDGE_TABLE, JUDGE_PAGE = "judge.tsv", "judge.html"


@verb("make-set")
def make_set(
    corpus: Annotated[list[str], Holds.TEXT_FILE, Flag(metavar="CORPUS...", positional=True)],
    output: Annotated[Path, Flag("-o", metavar="SET")],
    text_field: Annotated[str | None, Holds.WORDS, Flag()] = None,
    title_field: Annotated[str | None, Holds.WORDS, Flag()] = None,
    limit: Annotated[int, Ge(10)] = 1000,
    seed: Annotated[int, Ge(0)] = 0,
    write_with: Annotated[str | None, Flag(metavar="URL#MODEL|MODEL|FILE", excludes="queries judgements")] = None,
    queries: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE", needs="judge")] = None,
    judge: Annotated[int | None, Ge(1), Flag(metavar="N", needs="model", excludes="judgements")] = None,
    model: Annotated[list[str] | None, Holds.MODEL, Flag("-m", needs="judge")] = None,
    judgements: Annotated[str | None, Flag(metavar="FILE")] = None,
    overwrite: Overwrite = False,
) -> Result:
    """Make a retrieval set of your own documents, which 'sentcli evaluate' compares models on.

    The queries are what the documents have already: titles, questions, headings,
    link texts, file names, else a summary or the first sentence, which are
    weaker. What stands in a query is taken out of its document; documents that
    are equal or nearly are relevant together. set.json says how the set was made,
    what was left out, and how far to trust it.

    With --write-with, a model writes them instead: one behind an OpenAI-compatible
    address, to which the documents are sent (its key is in SENTCLI_API_KEY), or a
    seq2seq model on this machine, such as doc2query. Queries that do not find
    their document among the first 20 by BM25 are left out. The answers are kept
    in written.jsonl, from which --write-with makes the set again.

    With --judge, a page (judge.html) and a table (judge.tsv) have the first five
    documents of all models for N queries, without saying which model found them;
    30 to 50 queries take a person an hour. --judgements makes a set of the table.

    Args:
        corpus: Tables (csv, tsv, jsonl, parquet), folders of Markdown or text files, or folders in BEIR layout.
        output: The folder of the set, in BEIR layout, with its queries in the split test.
        text_field: Column of the text; default: told from the names.
        title_field: Column of the title or question; default: told from the names.
        limit: The most queries; more are drawn at random.
        seed: Of what is drawn at random.
        write_with: Let a model write the queries: http://HOST/v1#MODEL, a seq2seq model, or answers of one (.jsonl).
        queries: Real queries to judge, a line each; default: those of a folder in BEIR layout, else made ones.
        judge: Let people judge N queries.
        model: A model that searches for the documents to judge; may be given several times.
        judgements: The table, filled in: 0 for not relevant, and more the better a document answers.

    \b
    Examples:
      sentcli data make-set articles.csv -o articles-set
      sentcli data make-set docs/ -o docs-set --limit 300
      sentcli data make-set docs/ -o docs-set --write-with http://localhost:8080/v1#name
      sentcli data make-set docs/ -o to-judge --queries asked.txt --judge 40 -m minilm -m my-model
      sentcli data make-set to-judge -o judged --judgements to-judge/judge.tsv
    """  # noqa: D301
    from sentcli.evaluation.set_manifest import SET_MANIFEST
    from sentcli.io.atomic import OwnFiles, check_kept, check_output, replacing
    from sentcli.io.served import Served
    from sentcli.pages.comparisons import FEW_ITEMS
    from sentcli.testset.reading import read_documents
    from sentcli.testset.trust import trust_in
    from sentcli.testset.writing import CORPUS_FILE, JUDGEMENTS_FILE, QUERIES_FILE, write_jsonl, write_set
    from sentcli.testset.written import ANSWERS, PROMPT, ask_for_queries

    check_kept(output, [*corpus, *(model or []), write_with, queries, judgements])
    names = (CORPUS_FILE, QUERIES_FILE, JUDGEMENTS_FILE, SET_MANIFEST, ANSWERS, JUDGE_TABLE, JUDGE_PAGE)
    check_output(output, overwrite=overwrite, folder=True, own=OwnFiles(names, markers=(SET_MANIFEST,)))
    choices: dict[str, Any] = {"text_field": text_field, "title_field": title_field, "limit": limit, "seed": seed}
    writer: Served | str | None = write_with
    if write_with is not None:
        writer = Served.parse(write_with) or write_with
        choices["write_with"] = str(writer)
    if isinstance(writer, Served):
        choices["prompt"] = PROMPT
    choices |= {"queries": queries, "judge": judge, "models": model, "judgements": judgements}
    settings = {key: value for key, value in choices.items() if value is not None}
    clock = Clock()
    protocol = {"corpus": corpus, **settings}
    documents = read_documents(corpus, text_field, title_field)
    for taken in documents.taken:
        console.note(taken)
    checks = _checks(documents)
    answers = None
    if writer is not None:
        answers = ask_for_queries(writer, documents, limit, seed)
    query_set = _query_set(corpus, documents, answers, protocol)
    trust = trust_in(query_set)
    with replacing(output) as folder:
        manifest = write_set(folder, query_set, trust, settings)
        if answers is not None:
            write_jsonl(folder / ANSWERS, map(vars, answers))
        if judge is not None:
            _write_judging(folder, output, query_set, model or [], seed)
    commands = [f"sentcli evaluate {quote(str(output))} -m MODEL -m OTHER_MODEL"]
    if judge is not None:
        command = _command(output)
        console.note(f"judge the documents in {output / JUDGE_PAGE} or {output / JUDGE_TABLE}, then: {command}")
        commands = [command]
    elif len(query_set.queries) < FEW_ITEMS:
        console.warn(f"{len(query_set.queries)} queries tell only large differences between models")
    results: dict[str, Any] = {"output": str(output)}
    for key in ("documents", "queries", "judgements", "queries_from", "left_out", "near_equal_pairs", "trust"):
        results[key] = getattr(manifest, key)
    results |= {"checks": checks, "commands": commands}
    record = Record("data make-set", protocol=protocol, results=results, seconds=clock.seconds)
    return Result.of(record, [_table(output, manifest)])


def _checks(documents: Documents) -> dict[str, Any]:
    """Count what may be wrong with the documents, warn of it, and return it as JSON."""
    from sentcli.io.text_checks import TITLES, TextChecks, repeated

    checks = TextChecks()
    whole_texts = [documents.title_and_text(position) for position in range(len(documents.ids))]
    for key, text in zip(documents.ids, whole_texts, strict=True):
        checks.look(text, key)
    results: dict[str, Any] = {}
    for name, broken in checks.occurrences.items():
        _warn(TITLES[name], broken.count, broken.first)
        results[name] = broken.to_dict()
    equal = repeated(zip(whole_texts, documents.ids, strict=True))
    _warn("the text of an earlier one", equal.count, [" and ".join(both_ids) for both_ids in equal.first])
    blank = sum(not text.strip() for text in documents.texts)
    if blank:
        console.warn(f"{blank:,} documents have an empty text")
    return results | {"equal": equal.to_dict(), "empty": blank}


def _warn(problem: str, count: int, places: Sequence[str]) -> None:
    """Say how many documents have a problem, and the first three of them; nothing if none has it."""
    if count:
        console.warn(f"{count:,} documents have {problem}, first {', '.join(places[:3])}")


def _query_set(
    corpus: list[str], documents: Documents, answers: list[Answer] | None, protocol: dict[str, Any]
) -> QuerySet:
    """Return the queries and the documents of the set.

    Raises:
        InputError: if there are fewer queries than people are to judge.
    """
    from sentcli.evaluation.beir_files import beir_file
    from sentcli.testset.judging import judged_queries, read_unjudged_queries
    from sentcli.testset.queries import QuerySet, random_sample, structural_queries
    from sentcli.testset.written import written_queries

    judge, seed = protocol.get("judge"), protocol["seed"]
    file = protocol.get("queries")
    if judge and not file and len(corpus) == 1:
        file = beir_file(Path(corpus[0]), "queries.jsonl")
    if "judgements" in protocol:
        query_set = judged_queries(protocol["judgements"], documents)
    elif answers is not None:
        query_set = written_queries(answers, documents, protocol["write_with"])
    elif file:
        query_set = QuerySet(read_unjudged_queries(str(file)), documents, {}, {})
    else:
        query_set = structural_queries(documents, ", ".join(corpus), protocol["limit"], seed)
    if not judge:
        return query_set
    if len(query_set.queries) < judge:
        source = file or ", ".join(corpus)
        raise InputError(f"--judge {judge}: {source} gives only {len(query_set.queries)} queries")
    return replace(query_set, queries=random_sample(query_set.queries, judge, seed))


def _write_judging(folder: Path, output: Path, query_set: QuerySet, models: list[str], seed: int) -> None:
    from sentcli.pages.judging import write_judging_page
    from sentcli.testset.judging import pooled, write_table

    pool = pooled(output.name, folder / "corpus.jsonl", query_set.documents, query_set.queries, models, seed)
    write_table(folder / JUDGE_TABLE, pool)
    write_judging_page(folder / JUDGE_PAGE, f"Judgements for {output.name}", pool, _command(output))


def _command(output: Path) -> str:
    return (
        f"sentcli data make-set {quote(str(output))} -o {quote(f'{output}-judged')} "
        f"--judgements {quote(str(output / JUDGE_TABLE))}"
    )


def _table(output: Path, manifest: SetManifest) -> Table:
    counts = {"documents": manifest.documents, "queries": manifest.queries}
    for source, queries in manifest.queries_from.items():
        counts[f"made of: {source}"] = queries
    counts |= {"relevant documents": manifest.judgements, "near-equal pairs": manifest.near_equal_pairs}
    for reason, count in manifest.left_out.items():
        counts[f"left out: {reason}"] = count
    rows = [[name, f"{count:,}"] for name, count in counts.items()]
    rows.append(["trust", manifest.trust])
    return Table(str(output), ["what", "value"], rows, wide=["value"])
