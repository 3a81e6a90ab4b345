"""What an adaptation learns from, and the queries that choose and judge: no query is in two of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.arrays import components
from sentcli.errors import InputError
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_tasks import SampledSet, sampled
from sentcli.io.digests import json_digest
from sentcli.io.served import Served
from sentcli.migrating.sets import given_set
from sentcli.search.words import plain
from sentcli.testset.queries import OTHER_QUERIES, near_equal, structural_queries
from sentcli.testset.reading import read_documents
from sentcli.testset.trust import trust_in
from sentcli.testset.writing import write_set
from sentcli.testset.written import ask_for_queries, written_queries

if TYPE_CHECKING:
    from sentcli.adapting.options import AdaptOptions
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.testset.queries import JudgedQuery, QuerySet

_LEAST_QUERIES = 10
"""The queries that each part has at least."""
DEV_SHARE = TEST_SHARE = 0.2
"""The shares of the made queries that are held out, where no set is given."""
MOST_DOCUMENTS = 2000
"""The documents of a set from which on candidates are chosen on a part of it."""
MOST_CHOOSING = 100
"""The queries of that part."""
MOST_HELD_OUT = 500
"""The most made queries that choose, and the most that judge."""


@dataclass(frozen=True)
class Material:
    """The queries of an adaptation, and the documents that it trains on."""

    documents: tuple[str, ...]
    """The texts of the documents, without what became a query."""
    queries: tuple[str, ...]
    """The queries of training."""
    positives: tuple[tuple[int, ...], ...]
    """The numbers of the relevant documents of each."""
    dev: RetrievalSet
    test: RetrievalSet
    left_out: int
    """The queries of the test set that are near copies of queries of training, and are left out."""
    structures: dict[str, int]
    """How many queries of training were made of what."""
    digest: str
    """Of the documents as they were read."""

    @property
    def sources(self) -> dict[str, str]:
        """Where the queries that choose and judge come from."""
        return {"dev": self.dev.name, "test": self.test.name}


def read_material(corpus: Sequence[str], options: AdaptOptions, folder: Path) -> Material:
    """Read documents and sets, make queries of the documents, and hold out those that choose and judge.

    Args:
        corpus: files and folders, as ``data make-set`` takes them.
        options: the sets, and how queries are made.
        folder: an existing folder for the sets that are made.

    Raises:
        InputError: if there are too few queries, or a set is none, or two parts share queries.
    """
    query_set, digest = _made_queries(corpus, options)
    dev, test = _given(options)
    held_out = {"dev": DEV_SHARE if dev is None else 0.0, "test": TEST_SHARE if test is None else 0.0}
    parts = _split(query_set, held_out, options.seed)
    if dev is None:
        dev = _written_set(query_set, parts["dev"], folder / "made-dev")
    if test is None:
        test = _written_set(query_set, parts["test"], folder / "made-test")
    training = parts["training"]
    _refuse_shared(dev, test)
    near = _near_copies([query.text for query in training], test.queries)
    test = _without(test, near)
    for part in (dev, test):
        if len(part.queries) < _LEAST_QUERIES:
            raise InputError(f"{part.name}: {len(part.queries)} queries are too few to choose or judge by")
    places = query_set.documents.places
    structures: dict[str, int] = {}
    positives = []
    queries = []
    for query in training:
        structures[query.structure] = structures.get(query.structure, 0) + 1
        positives.append(tuple(map(places.__getitem__, query.relevant)))
        queries.append(query.text)
    documents = map(query_set.documents.title_and_text, range(len(places)))
    return Material(tuple(documents), tuple(queries), tuple(positives), dev, test, len(near), structures, digest)


def _made_queries(corpus: Sequence[str], options: AdaptOptions) -> tuple[QuerySet, str]:
    """Return the queries of the documents, from their structure or from a model, and a digest of the documents."""
    documents = read_documents(corpus, options.text_field, options.title_field)
    digest = json_digest(documents.origins)
    if options.write_with is not None:
        writer = Served.parse(options.write_with) or options.write_with
        answers = ask_for_queries(writer, documents, options.limit, options.seed)
        return written_queries(answers, documents, " ".join(corpus)), digest
    try:
        return structural_queries(documents, " ".join(corpus), options.limit, options.seed), digest
    except InputError as error:
        reason = str(error).removesuffix(f". {OTHER_QUERIES}")
        raise InputError(
            f"{reason}. So nothing is learnt from it: name a column with --title-field, or let a model write queries "
            "with --write-with"
        ) from error


def _given(options: AdaptOptions) -> tuple[RetrievalSet | None, RetrievalSet | None]:
    """Return the sets that choose and judge, of those that were given; a dev set alone does both by halves."""
    dev = _named(options.dev, "dev")
    test = _named(options.test, "test")
    if dev is None or test is not None:
        return dev, test
    keys_of_text: dict[str, list[str]] = {}
    for key, text in dev.queries.items():
        keys_of_text.setdefault(plain(text), []).append(key)
    texts = list(keys_of_text)
    random.Random(options.seed).shuffle(texts)
    chosen: set[str] = set()
    judging: set[str] = set()
    for text in texts:
        smaller = min(chosen, judging, key=len)
        smaller.update(keys_of_text[text])
    return _without(dev, judging, "first half"), _without(dev, chosen, "second half")


def _named(name: str | None, split: str) -> RetrievalSet | None:
    """Return a set that was given with the option of a split's name, in that split if it has several."""
    if name is None:
        return None
    return given_set(name, f"--{split}", split)


def _without(data: RetrievalSet, keys: Iterable[str], name: str = "") -> RetrievalSet:
    """Return a set without some of its queries."""
    left_out = set(keys)
    if not left_out:
        return data
    queries = {}
    qrels = {}
    for key, text in data.queries.items():
        if key not in left_out:
            queries[key] = text
            qrels[key] = data.qrels[key]
    if name:
        name = f" ({name})"
    name = data.name + name
    return replace(data, name=name, queries=queries, qrels=qrels, digest=json_digest([data.digest, sorted(queries)]))


def _split(query_set: QuerySet, shares: dict[str, float], seed: int) -> dict[str, list[JudgedQuery]]:
    """Distribute queries so that those whose documents are equal or nearly, or lead to such ones, are in one part."""
    by_group: dict[int, list[JudgedQuery]] = {}
    for query, group in zip(query_set.queries, _groups(query_set), strict=True):
        by_group.setdefault(group, []).append(query)
    groups = list(map(by_group.__getitem__, sorted(by_group)))
    random.Random(seed).shuffle(groups)
    wanted = {}
    for part, share in shares.items():
        wanted[part] = min(MOST_HELD_OUT, round(share * len(query_set.queries)))
    parts: dict[str, list[JudgedQuery]] = {"dev": [], "test": [], "training": []}
    for queries in groups:
        part = next((part for part, count in wanted.items() if len(parts[part]) < count), "training")
        parts[part] += queries
    return parts


def _groups(query_set: QuerySet) -> list[int]:
    """Return the number of the group of each query: those of connected documents have the same."""
    places = query_set.documents.places
    firsts: list[int] = []
    seconds: list[int] = []
    for group in {id(group): group for group in query_set.near_equal.values()}.values():
        firsts += [min(group)] * len(group)
        seconds += group
    relevant = []
    for query in query_set.queries:
        positions = [places[key] for key in query.relevant]
        relevant.append(positions[0])
        firsts += [positions[0]] * len(positions)
        seconds += positions
    group_of = components(firsts, seconds, len(places))
    return [int(group_of[position]) for position in relevant]


def _written_set(query_set: QuerySet, queries: list[JudgedQuery], folder: Path) -> RetrievalSet:
    """Write some of the made queries as a set, and read it."""
    if len(queries) < _LEAST_QUERIES:
        raise InputError(
            f"{len(query_set.queries)} queries could be made of the documents, too few to hold some of them out: "
            "give sets of judged queries with --dev and --test, or let a model write more with --write-with"
        )
    part = replace(query_set, queries=queries)
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted adaptation, which made the same set
    write_set(folder, part, trust_in(part), {})
    return given_set(str(folder))


def _refuse_shared(dev: RetrievalSet, test: RetrievalSet) -> None:
    """Refuse a test set that has queries of the dev set."""
    known = {plain(text) for text in dev.queries.values()}
    shared = [text for text in test.queries.values() if plain(text) in known]
    if shared:
        raise InputError(
            f"--test: {len(shared)} of its {len(test.queries)} queries are in --dev, too, such as {shared[0][:60]!r}: "
            "what has chosen cannot judge"
        )


def _near_copies(training: Sequence[str], queries: dict[str, str]) -> list[str]:
    """Return the keys of queries that are equal or nearly to a query of training."""
    texts = [*training, *queries.values()]
    near = near_equal(texts)
    known = {plain(text) for text in training}
    copies = []
    for place, (key, text) in enumerate(queries.items(), len(training)):
        group = near.get(place, {place})
        if plain(text) in known or min(group) < len(training):
            copies.append(key)
    return copies


def choosing_set(data: RetrievalSet, start: EvaluatedModel, seed: int) -> SampledSet:
    """Return the set that candidates are chosen on: of a large one some queries, with the documents that matter.

    Args:
        data: the whole set.
        start: the start, whose best hits are among the documents.
        seed: of which queries.
    """
    if len(data.ids) <= MOST_DOCUMENTS:
        return in_memory(data)
    count = len(data.queries)
    rows = random.Random(seed).sample(range(count), min(count, MOST_CHOOSING))
    return sampled(data, sorted(rows), start)


def in_memory(data: RetrievalSet) -> SampledSet:
    """Return a set whose documents are kept in memory, for one that is searched many times."""
    values = {each.name: getattr(data, each.name) for each in fields(RetrievalSet)}
    return SampledSet(**values, documents=tuple(data.texts()))
