"""Building an index over the vectors of a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.bounds import whole_number
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.search.asking import read_queries
from sentcli.search.options import IndexOptions, search_device

if TYPE_CHECKING:
    from sentcli.cluster.pool import Pool
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.sources import Source
    from sentcli.search.index import IndexRequest
    from sentcli.search.index_files import IndexManifest
    from sentcli.search.vector_directory import VectorDirectory


def index_request(
    options: IndexOptions, query_prompt: str | None, load: LoadOptions, *, overwrite: bool
) -> IndexRequest | None:
    """Return the request for an index of vectors, or None for one of words, whose libraries are there.

    Raises:
        InputError: for a setting that is no ``KEY=N``, or an unknown language.
    """
    from sentcli.search.bm25 import LANGUAGE, check_language, require_bm25s
    from sentcli.search.faiss_border import require_faiss
    from sentcli.search.index import IndexRequest

    if options.type == "bm25":
        require_bm25s()
        check_language(options.language or LANGUAGE)
        return None
    settings = {}
    for setting in options.set or []:
        key, _, value = setting.partition("=")
        number = whole_number(value)
        if not number:
            raise InputError(f"--set {setting}: expected KEY=N with a whole number, such as efConstruction=200")
        settings[key.strip()] = number
    device = search_device(load) if require_faiss().get_num_gpus() else "cpu"
    kind, similarity = options.type, options.similarity
    return IndexRequest(
        kind,
        similarity,
        query_prompt,
        settings,
        options.file_rows,
        options.recall,
        overwrite=overwrite,
        device=device,
    )


def check_ray(address: str | None, kind: str, folder: str | None) -> None:
    """Refuse ``--ray`` where there is nothing to do for it, or a cluster that is not there.

    Raises:
        InputError: with what is wrong.
    """
    from sentcli.cluster.joining import check_address
    from sentcli.io.places import is_remote

    if address is None:
        return
    if folder is not None and kind in ("bm25", "flat"):
        raise InputError(f"--ray builds the files of an index of vectors; --type {kind} has none")
    if address != "local" and folder is not None and is_remote(folder):
        raise InputError(
            f"--ray {address}: an index in a store is built from a copy on this machine, which other nodes do not see; "
            "leave --ray out, take --ray local, or index on a disk that all nodes share"
        )
    check_address(address)


@contextmanager
def folder_of_vectors(folder: Path, *, replaced: bool) -> Iterator[Path]:
    """Yield the folder of the vectors, or what replaces it after the block, when vectors and index are complete."""
    from sentcli.io.blocks import ShardShare
    from sentcli.io.folder import open_folder

    place = open_folder(folder)
    if not replaced or not place.holds(ShardShare()):
        yield folder
        return
    with place.staging_held():
        yield place.staging().path
        place.promote()


def with_queries(
    request: IndexRequest,
    store: VectorDirectory,
    encoder: SentenceEncoder,
    doc_prompt: str | None,
    queries: Source | None,
) -> IndexRequest:
    """Return a request with the vectors of the queries of ``--queries``, after comparing the model with the vectors."""
    store.check_made_by(encoder, store.document_prompt(encoder, doc_prompt))
    if queries is None:
        return request
    prompt = request.query_prompt
    if prompt is None:
        prompt = encoder.role_prompt("query")
    vectors = encoder.encode([text for _, text in read_queries(queries)], prompt=prompt)
    return replace(request, queries=store.origin.compress(vectors, normalized=bool(encoder.spec.normalizes)))


def check_request(request: IndexRequest, rows: int, encoder: SentenceEncoder, *, appended: bool) -> None:
    """Refuse an index that cannot be built over the vectors of a model, before anything is encoded.

    Args:
        request: the index.
        rows: how many rows it will have.
        encoder: the model.
        appended: whether the rows are appended to others.

    Raises:
        InputError: with the reason.
    """
    from sentcli.search import ann
    from sentcli.search.index import check_recipe

    if appended:
        rows = max(rows, ann.LEAST_ROWS_PER_CLUSTER * 256)
    recipe = ann.recipe(request.kind, rows, encoder.dimension)
    check_recipe(recipe, encoder.dimension, request.similarity or encoder.spec.similarity, request.settings)


def build_index(store: VectorDirectory, request: IndexRequest, pool: Pool | None) -> tuple[IndexManifest, int]:
    """Build an index, in workers on a cluster if there are some, and say what was built and how well it finds rows.

    Returns:
        The manifest of the index, and the number of rows that were added to it.
    """
    from sentcli.search import ann
    from sentcli.search.index import build, rebuild_due

    if request.similarity_of(store.origin) == "dot" and request.kind == "hnsw":
        console.warn("a graph over vectors of different lengths misses many neighbours (dot): look at the recall below")
    if repeated := store.rows.repeated_ids():
        console.warn(f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart")
    rows = len(store.blocks)
    with console.counting(f"indexing ({request.kind})", rows) as progress:
        manifest, added = build(store, request, progress, lambda step: console.detail(f"{request.kind}: {step}"), pool)
    if manifest.kind == ann.FLAT:
        console.note(f"{store.origin.name}: {rows} rows are searched exactly; nothing had to be built")
        return manifest, added
    before = ""
    if added != manifest.rows:
        before = f" of {manifest.rows}"
    console.note(
        f"{store.origin.name}: {added}{before} rows added to the index {manifest.kind} ({manifest.factory}), "
        f"{manifest.bytes / 1e6:,.1f} MB"
    )
    if manifest.has_nodes:
        nodes = manifest.rows + manifest.dead
        console.note(f"{store.origin.name}: the graph was kept; {manifest.dead:,} of its {nodes:,} nodes are dead")
    due = rebuild_due(manifest, request.target)
    anew = f"build it anew: sentcli index {store.origin.name} --type {manifest.kind} --overwrite"
    recall = manifest.recall
    if "recall" in due:
        console.warn(f"{manifest.kind} misses the recall of {request.target:g} since rows have changed: {anew}")
    if recall is not None and recall["chosen"]["recall"] < request.target:
        console.warn(
            f"recall@{recall['k']} is {recall['chosen']['recall']:.3f}, not the {request.target:g} aimed at; "
            "another kind, or a factory string with more clusters or longer codes, may reach it"
        )
    if "growth" in due:
        console.warn(f"the index was made for {manifest.built_for} rows: {anew}")
    return manifest, added
