"""``sentcli retrieve --in-domain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentcli import console
from sentcli.cli import scores
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.cli.retrieve_asked import Encoding, Output, Pairs
    from sentcli.evaluation.in_domain import InDomainScore


def score(pairs: Pairs, encoding: Encoding, output: Output) -> None:
    """Score models on finding the second sentence of a pair, and compare them with the first.

    Raises:
        InputError: for options that have no meaning here, and for what `pair_tables.read` refuses.
    """
    from sentcli.cli.json_report import Report
    from sentcli.evaluation import in_domain, pair_tables

    _check(encoding)
    cutoffs = sorted({*in_domain.CUTOFFS, *([pairs.top_k] if pairs.top_k else [])})
    table = pair_tables.read(pairs.file, pairs.fields)
    if output.against is not None and not table.is_stsb:
        raise InputError("--against: papers print in-domain retrieval in STS-B's test pairs, not in other tables")
    found = scores.system(output.against, in_domain.TASK, [in_domain.named(k) for k in cutoffs])
    console.note(f"{pairs.file}: the queries are the first sentences of {table.chosen}")
    console.note(f"no answer is {in_domain.EXCLUDED[pairs.exclude]} (--exclude {pairs.exclude})")
    measurement = in_domain.measurement(table, pairs.exclude, cutoffs, encoding.similarity)
    protocol = {
        "pairs": pairs.file,
        "pair_fields": pairs.fields,
        "queries": f"first sentences of {table.chosen}",
        "exclude": pairs.exclude,
        "excluded": in_domain.EXCLUDED[pairs.exclude],
        "ties": in_domain.TIES,
        "similarity": encoding.similarity,
        "top_k": pairs.top_k,
    }
    reports, results = [], []
    for candidate in [encoding.candidate(name) for name in encoding.models]:
        report = Report("retrieve", candidate.name)
        (result,) = candidate.measure([measurement], console.encoding_texts)
        _show(candidate.name, result)
        scores.end(report, candidate, protocol, {in_domain.TASK: result.to_dict()})
        reports.append(report)
        results.append(result)
    scores.finish(reports, [_measured(results)], found, output.json, output.pages, kind=in_domain.TASK)


def _check(encoding: Encoding) -> None:
    if not encoding.models:
        raise InputError("--in-domain needs a model (-m); several are compared")
    given = {
        "--query-prompt": encoding.query_prompt,
        "--doc-prompt": encoding.doc_prompt,
        "--query-length": encoding.query_length,
    }
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise InputError(f"{named[0]}: with --in-domain queries and corpus are the same sentences, encoded alike")


def _measured(results: list[InDomainScore]) -> scores.Measured:
    from sentcli.evaluation import in_domain

    first = results[0]
    return scores.Measured(
        "Recall",
        {in_domain.named(k): [result.recall(k) for result in results] for k in first.cutoffs},
        {in_domain.named(k): first.interval(k) for k in first.cutoffs},
        [in_domain.compare(result, first) for result in results[1:]],
    )


def _show(model: str, result: InDomainScore) -> None:
    from sentcli.evaluation.in_domain import named

    rows = [
        [
            named(k),
            f"{result.recall(k):.2f}",
            "{:.2f} to {:.2f}".format(*result.interval(k)),
            f"{result.bound(k):.2f}",
        ]
        for k in result.cutoffs
    ]
    console.table(
        f"{model}: recall in {result.corpus} sentences", ["measure", "score", "95 % interval", "at most"], rows
    )
