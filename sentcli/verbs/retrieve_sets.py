"""``retrieve --beir`` and ``--in-domain``: retrieval, scored."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.evaluation import in_domain, pair_tables
from sentcli.evaluation.evaluated import EvaluatedModel, score_model
from sentcli.evaluation.retrieval import Collection, canonical, load_collection
from sentcli.evaluation.retrieval_tasks import Bench, SearchSettings, score_run
from sentcli.evaluation.scores import IN_DOMAIN, RETRIEVAL, ModelScores
from sentcli.io.atomic import check_output, replacing
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.search.fusion import Way
from sentcli.search.trec import Run, check_ids, read_run, write_run
from sentcli.verbs.scoring import Evaluation, ScoringOptions

if TYPE_CHECKING:
    from sentcli.verbs.options import PairOptions, SearchOptions, SetOptions

DIMENSIONS = (64, 384, 768)
"""Of models, some: a factory string that suits none of them suits no model."""
MOST_PARTS = 1024
"""The most parts of a product quantiser that a factory string is tried with."""
ODD = {
    "unknown_documents": "judgements name documents that are not in the corpus: they cannot be found",
    "unknown_queries": "judged queries are not in queries.jsonl and were left out",
    "without_relevant": "judged queries have no relevant document: they score 0",
    "empty_documents": "documents have neither title nor text; they are searched like others",
}
"""Counts of a set that are warned of."""


def score_sets(
    models: Sequence[str],
    sets: SetOptions,
    search: SearchOptions,
    options: LoadOptions,
    scoring: ScoringOptions,
    *,
    overwrite: bool,
    json_file: str | None,
) -> Evaluation:
    """Score models, BM25 and their fusions on sets, or runs on one set."""
    plan = SearchSettings(
        ways=tuple(search.ways),
        top_k=search.top_k or 1000,
        similarity=search.similarity or "cosine",
        query_prompt=search.query_prompt,
        document_prompt=search.doc_prompt,
        query_length=search.query_length,
        dense_weight=search.weight,
        language=search.language or "english",
        index=None if search.index == "flat" else search.index,
    )
    _check_usage(models, sets, plan.ways, overwrite=overwrite)
    collections = _load(sets)
    published = scoring.published(RETRIEVAL, [path.resolve().name for path in sets.beir or []])
    if published is not None:
        if len(plan.ways) > 1:
            raise InputError("--against takes several models as seeds of one: give one way of --search")
        if any(each.split != each.facts.split for each in collections) or plan.top_k < 10:
            raise InputError(
                "--against: papers print nDCG@10 on the usual splits, so leave --split and --top-k as they are"
            )
    if sets.from_run:
        scores = _score_runs(sets.from_run, collections, plan.top_k)
    else:
        bench = Bench(collections, plan)
        _check_search(bench, options.device)
        evaluated = scoring.models(models, options) or [EvaluatedModel(None, rerun=scoring.rerun)]
        others = [Path(file) for file in (sets.per_query, json_file) if file not in (None, "-")]
        scores = _search(evaluated, bench, sets.run, others, overwrite=overwrite)
    if sets.per_query is not None:
        _write_queries(sets.per_query, scores)
    return Evaluation(scores).compared(published, RETRIEVAL)


def _check_usage(models: Sequence[str], sets: SetOptions, ways: Sequence[Way], *, overwrite: bool) -> None:
    if sets.from_run and len(sets.beir or []) != 1:
        raise InputError(f"--from-run scores runs of one set, not of {len(sets.beir or [])} (--beir)")
    needing = [way for way in ways if way != "bm25"]
    if needing and not models and not sets.from_run:
        raise InputError(f"--search {needing[0]} needs a model (-m); bm25 needs none")
    if len(set(models)) < len(models):
        raise InputError("-m: a model is named twice")
    if sets.per_query is not None:
        runs = [path.resolve() for path in (sets.run, *(sets.from_run or [])) if path is not None]
        if sets.per_query.resolve() in runs:
            raise InputError(f"--per-query {sets.per_query} would replace the run; choose another file")
        check_output(sets.per_query, overwrite=overwrite)


def _load(sets: SetOptions) -> list[Collection]:
    """Read all sets, before anything is encoded, and say what is odd in their files."""
    from sentcli.data import located

    collections: list[Collection] = []
    for path in sets.beir or []:
        known = path if path.exists() else Path(canonical(str(path)))
        loaded = load_collection(located(known), sets.split)
        if any(loaded.name == other.name for other in collections):
            raise InputError(f"--beir {path}: there is a set {loaded.name} already; rename the folder")
        collections.append(loaded)
    for each in collections:
        own = "own documents left out" if each.facts.self_hits == "removed" else "own documents kept"
        note = f"; {each.facts.note}" if each.facts.note else ""
        console.detail(f"{each.name}: {each.facts.title}, split {each.split}, {own}{note}")
        for member, data in each.members.items():
            name = f"{each.name}/{member}" if len(each.members) > 1 else member
            for attribute, what in ODD.items():
                if count := getattr(data, attribute):
                    console.warn(f"{name}: {count} {what}")
            if unjudged := data.unjudged_queries:
                console.detail(f"{name}: {unjudged} queries have no judgement in {data.split} and are left out")
    return collections


def _search(
    models: Sequence[EvaluatedModel], bench: Bench, target: Path | None, others: Sequence[Path], *, overwrite: bool
) -> list[ModelScores]:
    """Search and score: each model with each way, BM25 alone once.

    Args:
        models: the models.
        bench: the sets and how they are searched.
        target: where runs are written, if anywhere.
        others: files that are written beside the runs.
        overwrite: replace runs that exist.
    """
    plan, ways = bench.plan, bench.plan.ways
    words = EvaluatedModel(None, rerun=models[0].rerun)
    searches = list(dict.fromkeys((words if way == "bm25" else model, way) for model in models for way in ways))
    files: dict[tuple[EvaluatedModel, Way], dict[str, Path]] = {}
    if target is not None:
        files = _run_files(target, bench, searches, others, several=len(models) > 1, overwrite=overwrite)
    scores = []
    for model, way in searches:
        needed = None if way == "bm25" else model
        tasks = bench.tasks(way, needed, partial(_write_run, files[model, way]) if files else None)
        each = score_model(model, tasks, "retrieve", plan.protocol(way, needed), keep=target is None)
        each.protocol |= _of_sets(bench.collections)
        each.tasks = bench.joined(each.tasks)
        each.cached = list(dict.fromkeys(name.partition(" ")[0].partition("/")[0] for name in each.cached))
        each.model = model.name if way in ("dense", "bm25") else f"{model.name} + bm25"
        each.label = model.name if set(ways) == {"dense"} or way == "bm25" else f"{each.model}, {way}"
        scores.append(each)
    return scores


def _run_files(
    target: Path,
    bench: Bench,
    searches: Sequence[tuple[EvaluatedModel, Way]],
    others: Sequence[Path],
    *,
    several: bool,
    overwrite: bool,
) -> dict[tuple[EvaluatedModel, Way], dict[str, Path]]:
    """Return where each search writes the run of each set: `target` for a single one, else a file in that folder.

    Raises:
        InputError: if the target exists or cannot be written, a run would be written where another one or one of
            `others` is, or an id does not fit.
    """
    single = len(searches) * len(bench.searches) == 1
    check_output(target, overwrite=overwrite, folder=not single)
    taken: dict[Path, str] = {}
    files: dict[tuple[EvaluatedModel, Way], dict[str, Path]] = {}
    for model, way in searches:
        for name in bench.searches:
            own = [model.name] if several and way != "bm25" else []
            plain = (re.sub(r"[^\w.-]+", "-", part).strip("-") for part in (name, *own, way, "trec"))
            path, run = (
                target if single else target / ".".join(plain),
                name if way == "bm25" else f"{model.name} of {name}",
            )
            if path.resolve() in {other.resolve() for other in others}:
                raise InputError(f"{path}: one of the runs is written there; choose another file")
            if path in taken:
                both = f"the runs of {taken[path]} and of {run}"
                raise InputError(f"--run: {both} would both be {path.name}; write one of them another time")
            taken[path] = run
            files.setdefault((model, way), {})[name] = path
    for search in bench.searches.values():
        check_ids(search.data.queries)
        check_ids(search.data.ids)
    return files


def _write_run(files: dict[str, Path], name: str, _: str, run: Run) -> None:
    files[name].parent.mkdir(parents=True, exist_ok=True)
    write_run(run, files[name])


def _check_search(bench: Bench, device: str) -> None:
    """Ask for the libraries, and refuse an index that cannot be built, before anything is encoded."""
    from sentcli.search import ann
    from sentcli.search.bm25 import require_bm25s
    from sentcli.search.exact import require_faiss

    plan = bench.plan
    if set(plan.ways) != {"dense"}:
        require_bm25s()
    if set(plan.ways) != {"bm25"} and (plan.index is not None or device in ("auto", "cpu")):
        require_faiss()
    if plan.index is None:
        return
    for name, search in bench.searches.items():
        recipe = ann.recipe(plan.index, len(search.data.ids), 8)  # no kind of index depends on the dimension
        if recipe.kind not in ann.KINDS:
            _check_factory(recipe.factory, plan)
        if search.all_wanted:
            wanted = f"of its {len(search.data.ids)} documents the best {plan.depth} are wanted"
            console.note(f"{name} is searched exactly, without the index: {wanted}")


def _check_factory(factory: str, plan: SearchSettings) -> None:
    """Refuse a factory string that faiss takes for no dimension; codes of m parts want a multiple of m."""
    from sentcli.search.ann import FaissIndex

    parts = [4 * min(int(m), MOST_PARTS) for m in re.findall(r"PQ(\d+)", factory) if int(m)]
    *others, last = (*parts, *DIMENSIONS)
    for dimension in others:
        with suppress(InputError):
            FaissIndex.empty(factory, dimension, plan.similarity)
            return
    FaissIndex.empty(factory, last, plan.similarity)


def _of_sets(collections: Sequence[Collection]) -> dict[str, Any]:
    """Return the protocol of the sets: what is common, and what is each one's own where they differ."""
    each = {collection.name: collection.protocol() for collection in collections}
    first, *others = each.values()
    if all(facts == first for facts in others):
        return first
    common = {"split": "test", "own_document": "kept"}
    own = {name: {key: facts[key] for key in facts if common.get(key) != facts[key]} for name, facts in each.items()}
    return {**common, "sets": {name: facts for name, facts in own.items() if facts}}


def _score_runs(files: Sequence[Path], collections: Sequence[Collection], top_k: int) -> list[ModelScores]:
    """Score runs that were written before; hits of other queries are left out, and what is odd is said."""
    (collection,) = collections
    if len(collection.members) > 1:
        raise InputError(
            f"--from-run scores runs of one set; {collection.name} has {len(collection.members)}: name one"
        )
    (data,) = collection.members.values()
    protocol = {"search": "run", "top_k": top_k, **_of_sets(collections)}
    there, times = set(data.ids), Counter(file.name for file in files)
    scores: dict[str, ModelScores] = {}
    for file in files:
        run = read_run(file)
        name = file.name if times[file.name] == 1 else str(file)
        if name in scores:
            raise InputError(f"--from-run {file} is given twice")
        judged = {query: dict(hits) for query, hits in run.items() if query in data.qrels}
        if not judged:
            raise InputError(f"{file}: none of its {len(run)} queries is judged in {data.name}; a run of another set?")
        if len(run) > len(judged):
            console.note(f"{name}: {len(run) - len(judged)} queries are not judged in {data.name} and were left out")
        if unknown := sum(document not in there for hits in judged.values() for document in hits):
            console.warn(f"{name}: {unknown} hits are documents that are not in the corpus")
        if lacking := sum(query not in judged for query in data.qrels):
            console.warn(f"{name}: {lacking} of {len(data.qrels)} judged queries are not in the run: they score 0")
        for query in data.own_rows:
            judged.get(query, {}).pop(query, None)
        scored = [score_run(data, judged, top_k)]
        scores[name] = ModelScores("retrieve", name, protocol, scored, environment(None, None))
        scores[name].finish()
    return list(scores.values())


def _write_queries(target: Path, scores: Sequence[ModelScores]) -> None:
    """Write one line of JSON for each query of each set and search; a forum's set is ``cqadupstack/android``."""
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for model in scores:
            sets = {f"{task.task}/{part.task}": part for task in model.tasks for part in task.parts}
            sets |= {task.task: task for task in model.tasks if not task.parts}
            for name, task in sets.items():
                for row, query in enumerate(task.items):
                    values = {metric: float(each[row]) for metric, each in task.item_values.items()}
                    line = {"model": model.model, "search": model.protocol["search"], "set": name, "query": query}
                    handle.write(json.dumps({**line, **values}, ensure_ascii=False) + "\n")


def score_pairs(
    models: Sequence[str], pairs: PairOptions, search: SearchOptions, options: LoadOptions, scoring: ScoringOptions
) -> Evaluation:
    """Score models on finding the second sentence of a pair, and compare them with the first."""
    if not models:
        raise InputError("--in-domain needs a model (-m); several are compared")
    same = {"--query-prompt": search.query_prompt, "--doc-prompt": search.doc_prompt}
    if given := [flag for flag, value in (same | {"--query-length": search.query_length}).items() if value is not None]:
        raise InputError(f"{given[0]}: with --in-domain queries and corpus are the same sentences, encoded alike")
    cutoffs = sorted({*in_domain.CUTOFFS, *([search.top_k] if search.top_k else [])})
    table = pair_tables.read(str(pairs.in_domain), pairs.pair_fields)
    if scoring.against is not None and not table.is_stsb:
        raise InputError("--against: papers print in-domain retrieval in STS-B's test pairs, not in other tables")
    published = scoring.published(IN_DOMAIN, [f"recall@{k}" for k in cutoffs])
    console.note(f"{pairs.in_domain}: the queries are the first sentences of {table.chosen}")
    console.note(f"no answer is {in_domain.EXCLUDED[pairs.exclude]} (--exclude {pairs.exclude})")
    similarity = search.similarity or "cosine"
    task = in_domain.InDomainTask(table, pairs.exclude, cutoffs, similarity)
    protocol = {
        "pairs": pairs.in_domain,
        "pair_fields": pairs.pair_fields,
        "queries": f"first sentences of {table.chosen}",
        "exclude": pairs.exclude,
        "excluded": in_domain.EXCLUDED[pairs.exclude],
        "ties": in_domain.TIES,
        "similarity": similarity,
        "top_k": search.top_k,
    }
    scores = [score_model(model, [task], "retrieve", protocol) for model in scoring.models(models, options)]
    return Evaluation(scores).compared(published, IN_DOMAIN)
