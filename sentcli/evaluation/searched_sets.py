"""Retrieval sets scored with models, with BM25, with their fusions and rerankers, or by runs of other tools."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

from sentcli import console
from sentcli.data import dataset_path
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.known_sets import canonical
from sentcli.evaluation.measuring import score_model, score_without_model
from sentcli.evaluation.reranking import EvaluatedReranker
from sentcli.evaluation.retrieval import Collection, RetrievalSet, load_collection
from sentcli.evaluation.retrieval_metrics import Run, check_ids, read_run
from sentcli.evaluation.retrieval_tasks import RetrievalTask, mean_of, score_run
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.evaluation.set_search import SetSearch, search_protocol
from sentcli.io.atomic import check_output, replacing
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.model.spec import Similarity
from sentcli.search import ann
from sentcli.search.faiss_index import FaissIndex
from sentcli.search.options import SearchMode, SearchOptions
from sentcli.stores.options import PassageOptions

DIMENSIONS = (64, 384, 768)
"""Usual dimensions of models: a factory string that faiss accepts for none of them is refused."""


class Retriever(NamedTuple):
    """A model with a way of searching, and perhaps a reranker: what finds the documents of a query."""

    model: EvaluatedModel | None
    """None for BM25."""
    mode: SearchMode
    reranker: EvaluatedReranker | None = None

    def names(self, modes: Sequence[SearchMode]) -> tuple[str, str]:
        """Return the name and, among other ways of searching, the label."""
        name = "bm25" if self.model is None else self.model.name
        if self.mode in ("rrf", "weighted"):
            name += " + bm25"
        label = name
        if self.mode != "bm25" and set(modes) != {"dense"}:
            label += f", {self.mode}"
        if self.reranker is not None:
            name += f" + {self.reranker.name}"
            label += f" + {self.reranker.name}"
        return name, label


def load_sets(paths: Sequence[Path], split: str | None) -> list[Collection]:
    """Read all sets before anything is encoded, and print what is wrong in their files.

    Args:
        paths: folders in BEIR layout, or names of sets that were fetched.
        split: of the judgements; None is the usual one of each set.

    Raises:
        InputError: if two sets have one name; DataError for a file that cannot be read.
    """
    collections: list[Collection] = []
    for path in paths:
        folder_or_name = path if path.exists() else Path(canonical(str(path)))
        collection = load_collection(dataset_path(folder_or_name), split)
        if any(collection.name == other.name for other in collections):
            raise InputError(f"--beir {path}: there is a set {collection.name} already; rename the folder")
        collections.append(collection)
    for collection in collections:
        facts = collection.facts
        note = f"; {facts.note}" if facts.note else ""
        own = collection.protocol()["own_document"]
        console.detail(f"{collection.name}: {facts.title}, split {collection.split}, own documents {own}{note}")
        for name, data in collection.full_names.items():
            for problem in data.problems:
                console.warn(f"{name}: {problem}")
            if data.trust:
                console.note(f"{name}: {data.trust}")
            unjudged = data.unjudged_queries
            if unjudged:
                console.detail(f"{name}: {unjudged} queries have no judgement in {data.split} and are left out")
    return collections


class SearchedSets:
    """Sets on which retrievers are scored.

    Args:
        collections: the sets.
        options: how they are searched.
        passages: how documents are cut, of which the best passage counts; None encodes whole documents.
    """

    def __init__(
        self, collections: Sequence[Collection], options: SearchOptions, passages: PassageOptions | None = None
    ) -> None:
        self.collections = collections
        self.options = options
        self.passages = passages
        self.searches: dict[str, SetSearch] = {}
        """The search of each set, by the names of `Collection.full_names`."""
        for collection in collections:
            for name, data in collection.full_names.items():
                self.searches[name] = SetSearch(data, options, passages)

    def score(self, retriever: Retriever, files: Mapping[str, Path], *, rerun: bool, read_cache: bool) -> ModelScores:
        """Search and score the sets with a retriever.

        Args:
            retriever: finds the documents.
            files: the runs to write, by the name of the search.
            rerun: search and score anew, also what is kept of BM25.
            read_cache: take scores from the cache.
        """
        model, mode, reranker = retriever
        choices = search_protocol(self.options, mode, model, self.passages)
        if reranker is not None:
            choices |= reranker.protocol
        tasks = []
        for name, search in self.searches.items():
            task = RetrievalTask(
                name=f"{name} {mode}",
                search=search,
                mode=mode,
                protocol=choices,
                run_file=files.get(name),
                reranker=reranker,
            )
            tasks.append(task)
        if model is None:
            scores = score_without_model("bm25", tasks, "retrieve", choices, rerun=rerun, read_cache=read_cache)
        else:
            scores = score_model(model, tasks, "retrieve", choices, read_cache=read_cache)
        name, label = retriever.names(self.options.modes)
        cached = [task.partition(" ")[0].partition("/")[0] for task in scores.cached]
        of_collections = []
        remaining = iter(scores.tasks)
        for collection in self.collections:
            parts = list(islice(remaining, len(collection.members)))
            if len(parts) > 1:  # forums are replaced by their mean
                of_collections.append(mean_of(collection.name, parts))
            else:
                of_collections.append(replace(parts[0], task=collection.name))
        return replace(
            scores,
            model=name,
            label=label,
            protocol={**scores.protocol, **set_protocol(self.collections)},
            tasks=tuple(of_collections),
            cached=tuple(dict.fromkeys(cached)),
        )

    def check(self, model_options: LoadOptions) -> None:
        """Check before anything is encoded that the libraries are installed and the index can be built.

        Raises:
            InputError: if the index cannot be built over a set.
        """
        from sentcli.search.bm25 import require_bm25s
        from sentcli.search.faiss_border import require_faiss
        from sentcli.search.searcher import scan_refused

        options = self.options
        if options.by_words:
            require_bm25s()
        if options.needs_faiss:
            require_faiss()
        if options.index == ann.SCANNED and model_options.on_cpu:
            raise scan_refused("cpu")
        if options.index is None or options.exact:
            return
        for name, search in self.searches.items():
            recipe = ann.recipe(options.index, len(search.data.ids), 8)  # no kind of index depends on the dimension
            if recipe.kind not in (*ann.KINDS, ann.SCANNED):
                check_known_factory(recipe.factory, options.similarity or "cosine")
            if search.finds_all:
                reason = f"of its {len(search.data.ids)} documents the best {search.depth} are wanted"
                console.note(f"{name} is searched exactly, without the index: {reason}")


def retrievers(
    models: Sequence[EvaluatedModel], modes: Sequence[SearchMode], reranker: EvaluatedReranker | None
) -> list[Retriever]:
    """Return each model with each way of searching, and BM25 alone once; each also reranked."""
    models_or_none: Sequence[EvaluatedModel | None] = models or [None]
    distinct: dict[Retriever, None] = {}
    for model, mode in product(models_or_none, modes):
        plain = Retriever(None if mode == "bm25" else model, mode)
        distinct[plain] = None
        if reranker is not None:
            distinct[plain._replace(reranker=reranker)] = None
    return list(distinct)


def run_files(
    target: Path, sets: SearchedSets, retrievers: Sequence[Retriever], other_files: Sequence[Path], *, overwrite: bool
) -> dict[Retriever, dict[str, Path]]:
    """Return the file of the run of each retriever and set.

    Args:
        target: the file if there is a single run, else a folder of files.
        sets: the sets.
        retrievers: each finds the documents of a run in each set.
        other_files: files that are written beside the runs.
        overwrite: replace runs that exist.

    Raises:
        InputError: if the target exists or cannot be written, if two runs or a run and one of `other_files` have the
            same path, or if a TREC run cannot hold an id.
    """
    single = len(retrievers) * len(sets.searches) == 1
    check_output(target, overwrite=overwrite, folder=not single)
    models = {retriever.model for retriever in retrievers if retriever.model is not None}
    with_model = len(models) > 1
    reserved = {file.resolve() for file in other_files}
    runs_by_path: dict[Path, str] = {}
    files: dict[Retriever, dict[str, Path]] = {}
    for retriever, name in product(retrievers, sets.searches):
        path = target
        if not single:
            path = target / _run_name(retriever, name, with_model=with_model)
        run = name
        if retriever.model is not None:
            run = f"{retriever.model.name} of {name}"
        if path.resolve() in reserved:
            raise InputError(f"{path}: one of the runs is written there; choose another file")
        if path in runs_by_path:
            both = f"the runs of {runs_by_path[path]} and of {run}"
            raise InputError(f"--run: {both} would both be {path.name}; write one of them another time")
        runs_by_path[path] = run
        files.setdefault(retriever, {})[name] = path
    for search in sets.searches.values():
        check_ids(search.data.queries)
        check_ids(search.data.ids)
    return files


def _run_name(retriever: Retriever, name: str, *, with_model: bool) -> str:
    """Return the name of the file of a run in a folder of several."""
    parts = [name]
    if with_model and retriever.model is not None:
        parts.append(retriever.model.name)
    parts.append(retriever.mode)
    if retriever.reranker is not None:
        parts.append("reranked")
    parts.append("trec")
    return ".".join(re.sub(r"[^\w.-]+", "-", part).strip("-") for part in parts)


def check_known_factory(factory: str, similarity: Similarity) -> None:
    """Raise an InputError for a factory string that faiss accepts for no dimension that is tried.

    A product quantiser of m parts needs a multiple of m.
    """
    dimensions = []
    for digits in re.findall(r"PQ(\d+)", factory):
        if int(digits):
            dimensions.append(4 * min(int(digits), 1024))  # more parts than that are not tried
    *dimensions, last = (*dimensions, *DIMENSIONS)
    for dimension in dimensions:
        with suppress(InputError):
            FaissIndex.empty(factory, dimension, similarity)
            return
    FaissIndex.empty(factory, last, similarity)


def set_protocol(collections: Sequence[Collection]) -> dict[str, Any]:
    """Return the protocol of the sets; where they differ, ``sets`` has what is not usual of each."""
    first = collections[0].protocol()
    usual = {"split": "test", "own_document": "kept"}
    unusual = {}
    is_same = True
    for collection in collections:
        choices = collection.protocol()
        is_same &= choices == first
        differences = {key: value for key, value in choices.items() if usual.get(key) != value}
        if differences:
            unusual[collection.name] = differences
    if is_same:
        return first
    return {**usual, "sets": unusual}


def score_runs(files: Sequence[Path], collections: Sequence[Collection], top_k: int) -> list[ModelScores]:
    """Score TREC runs on one set; hits of queries without judgements are left out, which is printed.

    Raises:
        InputError: if there are several sets, a run is given twice, or it is one of another set.
    """
    (collection,) = collections
    if len(collection.members) > 1:
        raise InputError(
            f"--from-run scores runs of one set; {collection.name} has {len(collection.members)}: name one"
        )
    (data,) = collection.members.values()
    choices = {"search": "run", "top_k": top_k, **set_protocol(collections)}
    document_ids = set(data.ids)
    name_counts = Counter(file.name for file in files)
    scores: dict[str, ModelScores] = {}
    for file in files:
        started = time.perf_counter()
        name = file.name
        if name_counts[name] > 1:
            name = str(file)
        if name in scores:
            raise InputError(f"--from-run {file} is given twice")
        run = read_run(file)
        judged = {query: hits for query, hits in run.items() if query in data.qrels}
        if not judged:
            raise InputError(f"{file}: none of its {len(run)} queries is judged in {data.name}; a run of another set?")
        _say_unusual(name, run, judged, data, document_ids)
        for query in data.own_rows:
            judged.get(query, {}).pop(query, None)
        score = score_run(data, judged, top_k)
        scores[name] = ModelScores(
            command="retrieve",
            model=name,
            protocol=choices,
            tasks=(score,),
            environment=environment(None, None),
            seconds=time.perf_counter() - started,
        )
    return list(scores.values())


def _say_unusual(name: str, run: Run, judged: Run, data: RetrievalSet, document_ids: set[str]) -> None:
    """Say which queries and documents of a run are not those of its set."""
    not_judged = len(run) - len(judged)
    if not_judged:
        console.note(f"{name}: {not_judged} queries are not judged in {data.name} and were left out")
    unknown = 0
    for hits in judged.values():
        unknown += len(hits.keys() - document_ids)
    if unknown:
        console.warn(f"{name}: {unknown} hits are documents that are not in the corpus")
    missing = len(data.qrels.keys() - judged.keys())
    if missing:
        console.warn(f"{name}: {missing} of {len(data.qrels)} judged queries are not in the run: they score 0")


def write_queries(target: Path, scores: Sequence[ModelScores]) -> None:
    """Write a line of JSON for each query of each set: the values of its metrics."""
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for of_model in scores:
            for name, task in _single_sets(of_model):
                for row, query in enumerate(task.items):
                    line = {
                        "model": of_model.model,
                        "search": of_model.protocol["search"],
                        "set": name,
                        "query": query,
                    }
                    for metric, values in task.item_values.items():
                        line[metric] = float(values[row])
                    handle.write(json.dumps(line, ensure_ascii=False) + "\n")


def _single_sets(scores: ModelScores) -> Iterator[tuple[str, TaskScore]]:
    """Yield names and scores of the sets that a model was scored on, forums first, as ``cqadupstack/android``."""
    for task in scores.tasks:
        for part in task.parts:
            yield f"{task.task}/{part.task}", part
    for task in scores.tasks:
        if not task.parts:
            yield task.task, task
