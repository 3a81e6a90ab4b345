"""``retrieve --beir`` and ``--in-domain``: scoring retrieval."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.command.result import Result
from sentcli.command.scoring import scores_if_interrupted, scores_result
from sentcli.errors import InputError
from sentcli.evaluation import positives
from sentcli.evaluation.evaluated import EvaluatedModel, score_model, score_without_model
from sentcli.evaluation.files import is_stsb, read_pair_table
from sentcli.evaluation.options import ScoringOptions
from sentcli.evaluation.reranking import EvaluatedReranker
from sentcli.evaluation.retrieval import Collection, canonical, load_collection
from sentcli.evaluation.retrieval_metrics import check_ids, read_run
from sentcli.evaluation.retrieval_tasks import TOP_K, Bench, protocol, score_run
from sentcli.evaluation.score_kinds import IN_DOMAIN, RETRIEVAL
from sentcli.evaluation.scores import ModelScores
from sentcli.io.atomic import check_output, replacing
from sentcli.io.sources import open_source
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.model.spec import Similarity
from sentcli.search.options import Way

if TYPE_CHECKING:
    from sentcli.evaluation.options import PairOptions, RerankOptions, SetOptions
    from sentcli.search.options import SearchOptions

Search = tuple[EvaluatedModel | None, Way, EvaluatedReranker | None]
"""A model, a way of searching with it, and what orders its hits anew; for BM25 there is no model."""
DIMENSIONS = (64, 384, 768)
"""Usual dimensions of models: a factory string that faiss accepts for none of them is refused."""


def score_sets(
    models: Sequence[str],
    sets: SetOptions,
    search: SearchOptions,
    options: LoadOptions,
    reranking: RerankOptions,
    scoring: ScoringOptions,
    *,
    overwrite: bool,
    json_file: str | None,
) -> Result:
    """Score models, BM25 and their fusions on sets, or runs on one set."""
    _check_usage(models, sets, search.ways, overwrite=overwrite)
    collections = _load(sets)
    published = scoring.published(RETRIEVAL, [path.resolve().name for path in sets.beir or []])
    if published is not None:
        if len(search.ways) > 1:
            raise InputError("--against takes several models as seeds of one: give one way of --search")
        unusual = any(collection.split != collection.facts.split for collection in collections)
        if unusual or (search.top_k or TOP_K) < 10:
            raise InputError(
                "--against: papers print nDCG@10 on the usual splits, so leave --split and --top-k as they are"
            )
    if sets.from_run:
        scores = _score_runs(sets.from_run, collections, search.top_k or TOP_K)
    else:
        reranker = reranking.load(options, rerun=scoring.rerun)
        if reranker is not None and published is not None:
            raise InputError("--against takes several models as seeds of one, and --rerank makes two of each")
        if reranker is not None and reranker.depth > (search.top_k or TOP_K):
            reranker.depth = search.top_k or TOP_K
            console.note(f"{reranker.name} reads the {reranker.depth} hits of each query that are found (--top-k)")
        bench = Bench(collections, search)
        _check_search(bench, options)
        evaluated = scoring.models(models, options)
        other_files = [Path(file) for file in (sets.per_query, json_file) if file not in (None, "-")]
        scores = _search(evaluated, bench, reranker, sets.run, other_files, rerun=scoring.rerun, overwrite=overwrite)
    if sets.per_query is not None:
        _write_queries(sets.per_query, scores)
    return scores_result(scores, published, RETRIEVAL)


def _check_usage(models: Sequence[str], sets: SetOptions, ways: Sequence[Way], *, overwrite: bool) -> None:
    if sets.from_run and len(sets.beir or []) != 1:
        raise InputError(f"--from-run scores runs of one set, not of {len(sets.beir or [])} (--beir)")
    with_model = [way for way in ways if way != "bm25"]
    if with_model and not models and not sets.from_run:
        raise InputError(f"--search {with_model[0]} needs a model (-m); bm25 needs none")
    if len(set(models)) < len(models):
        raise InputError("-m: a model is named twice")
    if sets.per_query is not None:
        run_files = [path.resolve() for path in (sets.run, *(sets.from_run or [])) if path is not None]
        if sets.per_query.resolve() in run_files:
            raise InputError(f"--per-query {sets.per_query} would replace the run; choose another file")
        check_output(sets.per_query, overwrite=overwrite)


def _load(sets: SetOptions) -> list[Collection]:
    """Read all sets before anything is encoded, and print what is wrong in their files."""
    from sentcli.data import located

    collections: list[Collection] = []
    for path in sets.beir or []:
        folder_or_name = path if path.exists() else Path(canonical(str(path)))
        collection = load_collection(located(folder_or_name), sets.split)
        if any(collection.name == other.name for other in collections):
            raise InputError(f"--beir {path}: there is a set {collection.name} already; rename the folder")
        collections.append(collection)
    for collection in collections:
        facts = collection.facts
        own = "own documents left out" if facts.self_hits == "removed" else "own documents kept"
        note = f"; {facts.note}" if facts.note else ""
        console.detail(f"{collection.name}: {facts.title}, split {collection.split}, {own}{note}")
        for member, data in collection.members.items():
            name = f"{collection.name}/{member}" if len(collection.members) > 1 else member
            for problem in data.problems:
                console.warn(f"{name}: {problem}")
            if data.trust:
                console.note(f"{name}: {data.trust}")
            if unjudged := data.unjudged_queries:
                console.detail(f"{name}: {unjudged} queries have no judgement in {data.split} and are left out")
    return collections


def _search(
    models: Sequence[EvaluatedModel],
    bench: Bench,
    reranker: EvaluatedReranker | None,
    target: Path | None,
    other_files: Sequence[Path],
    *,
    rerun: bool,
    overwrite: bool,
) -> list[ModelScores]:
    """Search and score the sets with each model in each way, and with BM25 alone once; each also reranked.

    Args:
        models: the models.
        bench: the sets and how they are searched.
        reranker: orders the first hits anew.
        target: file or folder of the runs; None writes none.
        other_files: files that are written beside the runs.
        rerun: search and score anew, also what is kept of BM25.
        overwrite: replace runs that exist.
    """
    ways = bench.options.ways
    searched: Sequence[EvaluatedModel | None] = models or [None]
    plain = dict.fromkeys((None if way == "bm25" else model, way) for model in searched for way in ways)
    rerankers = (None,) if reranker is None else (None, reranker)
    searches = [(model, way, second) for model, way in plain for second in rerankers]
    files: dict[Search, dict[str, Path]] = {}
    if target is not None:
        files = _run_files(target, bench, searches, other_files, overwrite=overwrite)
    with scores_if_interrupted() as all_scores:
        for model, way, second in searches:
            tasks = bench.tasks(way, model, files.get((model, way, second), {}), second)
            choices, read_cache = protocol(bench.options, way, model), target is None
            choices |= {} if second is None else second.protocol
            if model is None:
                scores = score_without_model("bm25", tasks, "retrieve", choices, rerun=rerun, read_cache=read_cache)
            else:
                scores = score_model(model, tasks, "retrieve", choices, read_cache=read_cache)
            name, label = _named(scores.model, way, ways, second)
            whole = replace(
                scores,
                model=name,
                label=label,
                protocol={**scores.protocol, **_set_protocol(bench.collections)},
                tasks=tuple(bench.joined(scores.tasks)),
                cached=tuple(dict.fromkeys(task.partition(" ")[0].partition("/")[0] for task in scores.cached)),
            )
            all_scores.append(whole)
    return all_scores


def _named(model: str, way: Way, ways: Sequence[Way], reranker: EvaluatedReranker | None) -> tuple[str, str]:
    """Return the name and the label of a search with a model."""
    name = model
    if way in ("rrf", "weighted"):
        name += " + bm25"
    label = name
    if way != "bm25" and set(ways) != {"dense"}:
        label += f", {way}"
    if reranker is None:
        return name, label
    return f"{name} + {reranker.name}", f"{label} + {reranker.name}"


def _run_files(
    target: Path, bench: Bench, searches: Sequence[Search], other_files: Sequence[Path], *, overwrite: bool
) -> dict[Search, dict[str, Path]]:
    """Return the file of the run of each search and set: `target` if there is a single run, else a file in that folder.

    Raises:
        InputError: if the target exists or cannot be written, if two runs or a run and one of `other_files` have the
            same path, or if a TREC run cannot hold an id.
    """
    single = len(searches) * len(bench.searches) == 1
    compares_models = len({model for model, *_ in searches if model is not None}) > 1
    check_output(target, overwrite=overwrite, folder=not single)
    runs_by_path: dict[Path, str] = {}
    files: dict[Search, dict[str, Path]] = {}
    for model, way, second in searches:
        for name in bench.searches:
            more = ("reranked", "trec") if second is not None else ("trec",)
            model_part = [model.name] if compares_models and model is not None else []
            parts = (re.sub(r"[^\w.-]+", "-", part).strip("-") for part in (name, *model_part, way, *more))
            path = target if single else target / ".".join(parts)
            run = name if model is None else f"{model.name} of {name}"
            if path.resolve() in {file.resolve() for file in other_files}:
                raise InputError(f"{path}: one of the runs is written there; choose another file")
            if path in runs_by_path:
                both = f"the runs of {runs_by_path[path]} and of {run}"
                raise InputError(f"--run: {both} would both be {path.name}; write one of them another time")
            runs_by_path[path] = run
            files.setdefault((model, way, second), {})[name] = path
    for search in bench.searches.values():
        check_ids(search.data.queries)
        check_ids(search.data.ids)
    return files


def _check_search(bench: Bench, model_options: LoadOptions) -> None:
    """Check before anything is encoded that the libraries are installed and the index can be built."""
    from sentcli.search import ann
    from sentcli.search.bm25 import require_bm25s
    from sentcli.search.faiss_border import require_faiss
    from sentcli.search.searcher import scan_refused

    options = bench.options
    if options.by_words:
        require_bm25s()
    if options.needs_faiss:
        require_faiss()
    if options.index == ann.SCANNED and model_options.on_cpu:
        raise scan_refused("cpu")
    if options.index is None or options.exact:
        return
    for name, search in bench.searches.items():
        recipe = ann.recipe(options.index, len(search.data.ids), 8)  # no kind of index depends on the dimension
        if recipe.kind not in (*ann.KINDS, ann.SCANNED):
            _check_factory(recipe.factory, options.similarity or "cosine")
        if search.finds_all:
            reason = f"of its {len(search.data.ids)} documents the best {search.depth} are wanted"
            console.note(f"{name} is searched exactly, without the index: {reason}")


def _check_factory(factory: str, similarity: Similarity) -> None:
    """Raise an InputError for a factory string that faiss accepts for no dimension that is tried.

    A product quantiser of m parts needs a multiple of m.
    """
    from sentcli.search.ann import FaissIndex

    # the greatest number of parts of a product quantiser that a factory string is tried with
    multiples = [4 * min(int(m), 1024) for m in re.findall(r"PQ(\d+)", factory) if int(m)]
    *dimensions, last = (*multiples, *DIMENSIONS)
    for dimension in dimensions:
        with suppress(InputError):
            FaissIndex.empty(factory, dimension, similarity)
            return
    FaissIndex.empty(factory, last, similarity)


def _set_protocol(collections: Sequence[Collection]) -> dict[str, Any]:
    """Return the protocol of the sets; where they differ, ``sets`` has what is not usual of each."""
    protocols = {collection.name: collection.protocol() for collection in collections}
    first, *others = protocols.values()
    if all(protocol == first for protocol in others):
        return first
    usual = {"split": "test", "own_document": "kept"}
    unusual = {
        name: {key: value for key, value in protocol.items() if usual.get(key) != value}
        for name, protocol in protocols.items()
    }
    return {**usual, "sets": {name: choices for name, choices in unusual.items() if choices}}


def _score_runs(files: Sequence[Path], collections: Sequence[Collection], top_k: int) -> list[ModelScores]:
    """Score TREC runs on one set; hits of queries without judgements are left out, which is printed."""
    (collection,) = collections
    if len(collection.members) > 1:
        raise InputError(
            f"--from-run scores runs of one set; {collection.name} has {len(collection.members)}: name one"
        )
    (data,) = collection.members.values()
    protocol = {"search": "run", "top_k": top_k, **_set_protocol(collections)}
    document_ids, name_counts = set(data.ids), Counter(file.name for file in files)
    scores: dict[str, ModelScores] = {}
    for file in files:
        started = time.perf_counter()
        run = read_run(file)
        name = file.name if name_counts[file.name] == 1 else str(file)
        if name in scores:
            raise InputError(f"--from-run {file} is given twice")
        judged = {query: dict(hits) for query, hits in run.items() if query in data.qrels}
        if not judged:
            raise InputError(f"{file}: none of its {len(run)} queries is judged in {data.name}; a run of another set?")
        if len(run) > len(judged):
            console.note(f"{name}: {len(run) - len(judged)} queries are not judged in {data.name} and were left out")
        if unknown := sum(document not in document_ids for hits in judged.values() for document in hits):
            console.warn(f"{name}: {unknown} hits are documents that are not in the corpus")
        if missing := sum(query not in judged for query in data.qrels):
            console.warn(f"{name}: {missing} of {len(data.qrels)} judged queries are not in the run: they score 0")
        for query in data.own_rows:
            judged.get(query, {}).pop(query, None)
        score = score_run(data, judged, top_k)
        facts, seconds = environment(None, None), time.perf_counter() - started
        scores[name] = ModelScores("retrieve", name, protocol, (score,), facts, seconds=seconds)
    return list(scores.values())


def _write_queries(target: Path, scores: Sequence[ModelScores]) -> None:
    """Write one line of JSON for each query of each set and search; a forum is named as ``cqadupstack/android``."""
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for model in scores:
            sets = {f"{task.task}/{part.task}": part for task in model.tasks for part in task.parts}
            sets |= {task.task: task for task in model.tasks if not task.parts}
            for name, task in sets.items():
                for row, query in enumerate(task.items):
                    values = {metric: float(by_query[row]) for metric, by_query in task.item_values.items()}
                    line = {"model": model.model, "search": model.protocol["search"], "set": name, "query": query}
                    handle.write(json.dumps({**line, **values}, ensure_ascii=False) + "\n")


def score_pairs(
    models: Sequence[str], pairs: PairOptions, search: SearchOptions, options: LoadOptions, scoring: ScoringOptions
) -> Result:
    """Score models on finding the second sentence of a pair by the first."""
    if not models:
        raise InputError("--in-domain needs a model (-m); several are compared")
    role_options = {
        "--query-prompt": search.query_prompt,
        "--doc-prompt": search.doc_prompt,
        "--query-length": search.query_length,
    }
    if misplaced := [flag for flag, value in role_options.items() if value is not None]:
        raise InputError(f"{misplaced[0]}: with --in-domain queries and corpus are the same sentences, encoded alike")
    cutoffs = sorted({*positives.RECALL_CUTOFFS, *([search.top_k] if search.top_k else [])})
    table = read_pair_table(str(pairs.in_domain), pairs.pair_fields)
    query_columns = positives.positive_choice(table)
    if scoring.against is not None and (pairs.pair_fields or not is_stsb(open_source(str(pairs.in_domain)))):
        raise InputError("--against: papers print in-domain retrieval in STS-B's test pairs, not in other tables")
    published = scoring.published(IN_DOMAIN, [f"recall@{k}" for k in cutoffs])
    console.note(f"{pairs.in_domain}: the queries are the first sentences of {query_columns}")
    console.note(f"not counted as answers: {positives.EXCLUDED[pairs.exclude]} (--exclude {pairs.exclude})")
    evaluated = scoring.models(models, options)
    similarities = [search.similarity_of(model.spec) for model in evaluated]
    protocol = {
        "pairs": pairs.in_domain,
        "pair_fields": pairs.pair_fields,
        "queries": f"first sentences of {query_columns}",
        "exclude": pairs.exclude,
        "excluded": positives.EXCLUDED[pairs.exclude],
        "ties": positives.IN_DOMAIN_TIES,
        "top_k": search.top_k,
    }
    with scores_if_interrupted() as scores:
        for model, similarity in zip(evaluated, similarities, strict=True):
            task = positives.InDomainTask(table, pairs.exclude, cutoffs, similarity)
            score_model(model, [task], "retrieve", {**protocol, "similarity": similarity}, done=scores)
    return scores_result(scores, published, IN_DOMAIN)
