"""``sentcli retrieve --beir``: retrieval sets, scored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sentcli import console
from sentcli.cli import options, retrieve_files, retrieve_view, scores
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.cli.json_report import Report
    from sentcli.cli.retrieve_asked import Encoding, Output, Sets
    from sentcli.evaluation.candidate import Candidate
    from sentcli.evaluation.retrieval import Collection
    from sentcli.evaluation.retrieval_bench import Bench, WithoutModel
    from sentcli.evaluation.retrieval_scores import RetrievalResult
    from sentcli.evaluation.retrieval_ways import Plan
    from sentcli.search.ways import Way

DIGITS = 4
ANY_DIMENSION = 8
"""The model's is not known yet; no kind of index depends on it."""
DIMENSIONS = (64, 384, 768)
"""Of models, some: a factory string that suits none of them suits no model."""
MOST_PARTS = 1024
"""Of a code, in that check."""


@dataclass(frozen=True)
class Column:
    """One way of searching with one model, or a run that was read."""

    report: Report
    way: Way | Literal["run"]
    result: RetrievalResult


def score(sets: Sets, encoding: Encoding, output: Output) -> None:
    """Score models, BM25 and their fusions on sets, or runs on one set."""
    from sentcli.search.ways import parse_ways

    ways = parse_ways(sets.ways)
    _check_usage(sets, encoding, ways)
    _check_outputs(sets, output)
    names = [path.resolve().name for path in sets.names]
    collections = _load(sets)
    found = scores.system(output.against, "retrieve", names)
    if found is not None:
        _check_comparable(collections, ways, sets)
    columns = _scored_runs(sets, collections) if sets.from_run else _searched(sets, encoding, output, ways, collections)
    for label, column in zip(_labels(columns), columns, strict=True):
        retrieve_view.show(label, column.result)
    if sets.per_query is not None:
        each = [(column.report.model, column.way, column.result) for column in columns]
        retrieve_files.write_queries(sets.per_query, each)
    scores.finish([column.report for column in columns], [_measured(columns)], found, output.json, output.pages)


def _check_usage(sets: Sets, encoding: Encoding, ways: Sequence[Way]) -> None:
    if sets.from_run:
        if len(sets.names) != 1:
            raise InputError(f"--from-run scores runs of one set, not of {len(sets.names)} (--beir)")
        return
    needing = [way for way in ways if way != "bm25"]
    if needing and not encoding.models:
        raise InputError(f"--search {needing[0]} needs a model (-m); bm25 needs none")
    if len(set(encoding.models)) < len(encoding.models):
        raise InputError("-m: a model is named twice")


def _check_outputs(sets: Sets, output: Output) -> None:
    """Refuse values of queries that would replace something; of runs in a folder, `RunFiles` does."""
    if sets.per_query is None:
        return
    from sentcli.io.atomic import check_output

    if sets.per_query.resolve() in [path.resolve() for path in (sets.run, *sets.from_run) if path is not None]:
        raise InputError(f"--per-query {sets.per_query} would replace the run; choose another file")
    check_output(sets.per_query, overwrite=output.overwrite)


def _check_comparable(collections: Sequence[Collection], ways: Sequence[Way], sets: Sets) -> None:
    if len(ways) > 1:
        raise InputError("--against takes several models as seeds of one: give one way of --search")
    other = [one.name for one in collections if one.split != one.facts.split]
    if other or sets.top_k < 10:
        raise InputError(
            "--against: papers print nDCG@10 on the usual splits, so leave --split and --top-k as they are"
        )


def _load(sets: Sets) -> list[Collection]:
    """Read all sets, before anything is encoded."""
    from sentcli.data import located
    from sentcli.evaluation.retrieval import load_collection
    from sentcli.evaluation.set_facts import canonical

    found: list[Collection] = []
    for path in sets.names:
        known = path if path.exists() else Path(canonical(str(path)))
        loaded = load_collection(located(known), sets.split)
        if any(loaded.name == other.name for other in found):
            raise InputError(f"--beir {path}: there is a set {loaded.name} already; rename the folder")
        found.append(loaded)
    for one in found:
        retrieve_view.introduce(one)
    return found


def _searched(
    sets: Sets, encoding: Encoding, output: Output, ways: Sequence[Way], collections: Sequence[Collection]
) -> list[Column]:
    """Search and score: each model with each way, BM25 alone once."""
    from sentcli.evaluation.candidate import Candidate
    from sentcli.evaluation.retrieval_bench import Bench, WithoutModel

    plan = _plan(sets, encoding, ways)
    _require(ways, sets, encoding.device)
    bench = Bench(collections, plan)
    _check_index(plan, bench)
    candidates = [encoding.candidate(model) for model in encoding.models]
    files = None
    if sets.run is not None:
        names: list[str | None] = [candidate.name for candidate in candidates]
        searches = [(model, way) for way in ways for model in (names if way != "bm25" else [None])]
        runs = [(name, model, way) for name, _ in bench.sets() for model, way in searches]
        files = retrieve_files.RunFiles(sets.run, len(runs) == 1, len(names) > 1)
        others = [Path(path) for path in (sets.per_query, output.json, *output.pages) if path is not None]
        files.check(runs, others, overwrite=output.overwrite)
        _check_ids(bench)
    lexical = WithoutModel(rerun=encoding.rerun)
    owners: list[Candidate | WithoutModel] = [*candidates] or [lexical]
    order = {(lexical if way == "bm25" else owner, way): None for owner in owners for way in ways}
    columns: dict[tuple[Candidate | WithoutModel, str], Column] = {}
    for owner in dict.fromkeys(owner for owner, _ in order):
        mine = [way for one, way in order if one is owner]
        candidate = owner if isinstance(owner, Candidate) else None
        reports = {way: _report(candidate, way) for way in mine}
        write = files.writer(candidate.name if candidate else None) if files is not None else None
        found = bench.measure(owner, mine, console.encoding_texts, write)
        for way in mine:
            columns[owner, way] = Column(reports[way], way, found[way])
            _fill(columns[owner, way], way, owner, plan, collections)
        if candidate is not None:
            _end(candidate, found)
    return [columns[key] for key in order]


def _plan(sets: Sets, encoding: Encoding, ways: Sequence[Way]) -> Plan:
    from sentcli.evaluation.retrieval_ways import Plan

    return Plan(
        ways=tuple(ways),
        top_k=sets.top_k,
        similarity=encoding.similarity,
        query_prompt=encoding.query_prompt,
        document_prompt=encoding.doc_prompt,
        query_length=encoding.query_length,
        dense_weight=sets.dense_weight,
        language=sets.language,
        index=None if sets.index == "flat" else sets.index,
    )


def _require(ways: Sequence[Way], sets: Sets, device: str) -> None:
    """Ask for the libraries before the work."""
    if set(ways) != {"dense"}:
        from sentcli.search.bm25 import require_bm25s

        require_bm25s()
    if set(ways) != {"bm25"} and (sets.index is not None or device in ("auto", "cpu")):
        from sentcli.search.exact import require_faiss

        require_faiss()


def _check_index(plan: Plan, bench: Bench) -> None:
    """Refuse an index that cannot be built, before anything is encoded, and say where none will be needed."""
    if plan.index is None:
        return
    from sentcli.search import ann

    for _, data in bench.sets():
        recipe = ann.recipe(plan.index, len(data.ids), ANY_DIMENSION)
    if recipe.kind not in ann.KINDS:
        _check_factory(recipe.factory, plan)
    for name, search in bench.searches():
        if search.all_wanted:
            wanted = f"of its {len(search.data.ids)} documents the best {plan.depth} are wanted"
            console.note(f"{name} is searched exactly, without the index: {wanted}")


def _check_factory(factory: str, plan: Plan) -> None:
    """Refuse a factory string that faiss takes for no dimension; codes of m parts want a multiple of m."""
    from sentcli.search.ann import FaissIndex

    parts = [4 * min(int(m), MOST_PARTS) for m in re.findall(r"PQ(\d+)", factory) if int(m)]
    for i, dimension in enumerate((*parts, *DIMENSIONS), 1):
        try:
            FaissIndex.empty(factory, dimension, plan.similarity)
            return
        except InputError:
            if i == len(parts) + len(DIMENSIONS):
                raise


def _check_ids(bench: Bench) -> None:
    from sentcli.search.trec import check_ids

    for _, data in bench.sets():
        check_ids(data.queries)
        check_ids(data.ids)


def _report(candidate: Candidate | None, way: str) -> Report:
    from sentcli.cli.json_report import Report

    model = "bm25" if candidate is None else candidate.name
    return Report("retrieve", model if way in ("dense", "bm25") else f"{model} + bm25")


def _fill(
    column: Column, way: Way, owner: Candidate | WithoutModel, plan: Plan, collections: Sequence[Collection]
) -> None:
    """Fill in a report, but for its comparisons."""
    from sentcli.evaluation.candidate import Candidate
    from sentcli.machine import environment

    report, result = column.report, column.result
    candidate = owner if isinstance(owner, Candidate) else None
    described = candidate.described if candidate is not None else {}
    protocol = plan.protocol(way, candidate)
    protocol |= {key: value for key, value in described.items() if key != "device"}
    truncated = {"truncated_texts": sum(one.truncated for one in result.sets)} if candidate is not None else {}
    report.protocol = {**protocol, **_of_sets(collections), **truncated}
    report.environment = environment(described.get("device", "cpu"), described.get("precision"))
    measured = [name.partition("/")[0] for name, _ in result.each() if f"{name} {column.way}" not in owner.remembered]
    report.cached = [one.name for one in result.sets if one.name not in measured]
    _close(report, result)


def _close(report: Report, result: RetrievalResult) -> None:
    from sentcli.evaluation.significance import interval

    report.results = {one.name: one.to_dict() for one in result.sets}
    report.average = result.average
    if result.average is not None:
        report.average_interval = interval(result.average_draws)
    report.finish()


def _of_sets(collections: Sequence[Collection]) -> dict[str, Any]:
    """Return the protocol of the sets: what is common, and what is each one's own where they differ."""
    each = {one.name: one.protocol() for one in collections}
    first = next(iter(each.values()))
    usual = {"split": "test", "own_document": "kept"}
    same = all(facts == first for facts in each.values())
    common = first if same else usual
    own = {
        name: {key: value for key, value in facts.items() if common.get(key) != value} for name, facts in each.items()
    }
    different = {name: facts for name, facts in own.items() if facts}
    return {**common, **({"sets": different} if different else {})}


def _end(candidate: Candidate, found: dict[str, RetrievalResult]) -> None:
    """Say what the user should know of a model's run, and let go of it."""
    result = next(iter(found.values()))
    truncated = sum(one.truncated for one in result.sets)
    options.warn_truncated(candidate.described.get("max_length"), truncated)
    done = len(set(candidate.remembered))
    if done:
        total = len(found) * sum(1 for _ in result.each())
        console.note(f"{done} of {total} scores were measured before (--rerun measures again)")
    candidate.release()


def _scored_runs(sets: Sets, collections: Sequence[Collection]) -> list[Column]:
    """Score runs that were written before."""
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.retrieval_scores import RetrievalResult, score_run
    from sentcli.machine import environment

    (collection,) = collections
    if len(collection.members) > 1:
        raise InputError(
            f"--from-run scores runs of one set; {collection.name} has {len(collection.members)}: name one"
        )
    (data,) = collection.members.values()
    columns = []
    for name, run in retrieve_files.read_runs(sets.from_run, data).items():
        report = Report("retrieve", name)
        result = RetrievalResult((score_run(data, run, sets.top_k),))
        report.protocol = {"search": "run", "top_k": sets.top_k, **_of_sets(collections)}
        report.environment = environment(None, None)
        _close(report, result)
        columns.append(Column(report, "run", result))
    return columns


def _labels(columns: Sequence[Column]) -> list[str]:
    """Return what tables call the columns: the way is named if there are several."""
    if {column.way for column in columns} == {"dense"}:
        return [column.report.model for column in columns]
    alone = ("bm25", "run")
    return [c.report.model if c.way in alone else f"{c.report.model}, {c.way}" for c in columns]


def _measured(columns: Sequence[Column]) -> scores.Measured:
    """Return the main scores of all columns, and what sets the later ones apart from the first."""
    from sentcli.evaluation.retrieval_scores import compare
    from sentcli.evaluation.significance import interval

    first, *others = [column.result for column in columns]
    each = [column.result.scores() for column in columns]
    return scores.Measured(
        what=first.main.replace("ndcg", "nDCG"),
        scores={name: [found[name] for found in each] for name in each[0]},
        intervals={name: interval(draws) for name, draws in first.draws().items()},
        differences=[compare(result, first) for result in others],
        digits=DIGITS,
        labels=_labels(columns),
    )
