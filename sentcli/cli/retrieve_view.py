"""What `retrieve --beir` prints: warnings about sets, and tables of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentcli import console

if TYPE_CHECKING:
    from sentcli.evaluation.retrieval import Collection, RetrievalSet
    from sentcli.evaluation.retrieval_scores import RetrievalResult, Scores

METRICS = ("ndcg", "map", "recall", "r_cap", "precision", "mrr")


def introduce(collection: Collection) -> None:
    """Say what is known of a set, and what is odd in its files."""
    facts = collection.facts
    own = "own documents left out" if facts.self_hits == "removed" else "own documents kept"
    note = f"; {facts.note}" if facts.note else ""
    console.detail(f"{collection.name}: {facts.title}, split {collection.split}, {own}{note}")
    for name, data in collection.members.items():
        _warn(f"{collection.name}/{name}" if len(collection.members) > 1 else name, data)


def _warn(name: str, data: RetrievalSet) -> None:
    odd = (
        (data.unknown_documents, "judgements name documents that are not in the corpus: they cannot be found"),
        (data.unknown_queries, "judged queries are not in queries.jsonl and were left out"),
        (data.without_relevant, "judged queries have no relevant document: they score 0"),
        (data.empty_documents, "documents have neither title nor text; they are searched like others"),
    )
    for count, what in odd:
        if count:
            console.warn(f"{name}: {count} {what}")
    if data.unjudged_queries:
        console.detail(f"{name}: {data.unjudged_queries} queries have no judgement in {data.split} and are left out")


def show(label: str, result: RetrievalResult) -> None:
    """Print the scores of one search: all metrics of a set, or what matters of several."""
    if len(result.sets) == 1:
        _show_set(label, result.sets[0])
        return
    rows = [_row(one, result.main) for one in result.sets]
    low, high = _interval(result)
    rows.append(["average", "", "", f"{result.average:.4f}", f"{low:.4f} to {high:.4f}"])
    deep = _deep(result.sets[0])
    rows[-1] += [""] * len(deep)
    columns = ["set", "queries", "documents", result.main, "95 % interval", *deep]
    console.table(label, columns, rows)


def _deep(scores: Scores) -> list[str]:
    return [name for name in ("recall@100", "mrr@10") if name in scores.metrics]


def _row(scores: Scores, main: str) -> list[str]:
    from sentcli.evaluation.significance import interval

    low, high = interval(scores.draws)
    more = [f"{scores.metrics[name]:.4f}" for name in _deep(scores)]
    between = f"{low:.4f} to {high:.4f}"
    return [
        scores.name, f"{len(scores.queries):,}", f"{scores.documents:,}", f"{scores.metrics[main]:.4f}", between, *more
    ]  # fmt: skip


def _interval(result: RetrievalResult) -> tuple[float, float]:
    from sentcli.evaluation.significance import interval

    return interval(result.average_draws)


def _show_set(label: str, scores: Scores) -> None:
    from sentcli.evaluation.significance import interval

    cutoffs = sorted({int(name.split("@")[1]) for name in scores.metrics})
    rows = [[name, *(f"{scores.metrics[f'{name}@{k}']:.4f}" for k in cutoffs)] for name in METRICS]
    low, high = interval(scores.draws)
    title = (
        f"{label} on {scores.name}: {len(scores.queries)} queries, {scores.documents} documents; {scores.main} "
        f"{low:.4f} to {high:.4f} (95 %)"
    )
    console.table(title, ["metric", *(f"@{k}" for k in cutoffs)], rows)
    if scores.forums:
        found = [_row(forum, scores.main) for forum in scores.forums]
        columns = ["set", "queries", "documents", scores.main, "95 % interval", *_deep(scores)]
        console.table(f"{label}: the forums of {scores.name}", columns, found)
