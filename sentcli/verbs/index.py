"""``index``: make a directory of vectors quick to search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.verbs.cluster_work import open_encoder
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.index_directory import (
    WORDS,
    check_buildable,
    check_indexes,
    encode_into,
    index_vectors,
    index_words,
    read_texts,
    with_queries,
)
from sentcli.verbs.options import (
    ClusterOptions,
    DatabaseOptions,
    DocPrompt,
    IndexOptions,
    OptionalModel,
    Overwrite,
    QueryPrompt,
    TextOptions,
)
from sentcli.verbs.result import Result

if TYPE_CHECKING:
    from sentcli.search.index import IndexRequest


@verb("index", common="inputs output model type recall queries append check to collection prune overwrite json")
def index(
    inputs: Annotated[list[str], Flag(metavar="INPUT...", positional=True)],
    what: Annotated[IndexOptions, Group("Index")] = IndexOptions(),
    output: Annotated[Path | None, Flag("-o", metavar="DIR")] = None,
    model: OptionalModel = None,
    check: bool = False,
    text: Annotated[TextOptions, Group("Input")] = TextOptions(),
    database: Annotated[DatabaseOptions, Group("Database")] = DatabaseOptions(),
    query_prompt: QueryPrompt = None,
    doc_prompt: DocPrompt = None,
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    overwrite: Overwrite = False,
    cluster: Annotated[ClusterOptions, Group("Cluster")] = ClusterOptions(),
) -> Result:
    """Build an index over encoded text once, for `retrieve --corpus` to use.

    The index stands beside the vectors, its recall@10 against exact search is
    measured and kept. The same command again adds rows that came since, and
    continues where it was interrupted.

    Args:
        inputs: A directory that encode wrote, or files of text, which are encoded into -o first.
        output: For files of text: the directory to encode into.
        check: Build nothing: compare the indexes of INPUT with their checksums.

    \b
    Examples:
      sentcli index documents.jsonl -o documents -m minilm --type hnsw
      sentcli retrieve -m minilm --corpus documents --query "how do I resume"
      sentcli index more.jsonl -o documents -m minilm --type hnsw --append
      sentcli index documents --type ivfpq --recall 0.98 --queries questions.txt -m minilm
      sentcli index documents --type bm25
      sentcli index documents --to milvus:reviews.db --collection reviews
    """  # noqa: D301
    from sentcli.encoder.announce import load_encoder
    from sentcli.io.copies import FolderCopy
    from sentcli.io.folder import local_place
    from sentcli.io.sources import open_source
    from sentcli.search.bm25 import LANGUAGE
    from sentcli.search.store import INDEX, INDEXES, WORDS_ROWS, Store

    settings = dict(map(_setting, what.set or []))
    if database.to is not None:
        from sentcli.verbs.index_collection import CollectionInput, index_collection

        given = CollectionInput(inputs, what, model, text, doc_prompt, options)
        return index_collection(given, database, overwrite=overwrite)
    place = local_place(inputs[0]) if len(inputs) == 1 else None
    directory = place.path if place is not None else Path()
    folder = directory if len(inputs) == 1 and directory.is_dir() else None
    _check_usage(folder, output, model, what.queries, text, check=check)
    request = _request(what, settings, query_prompt, overwrite=overwrite)
    if check:
        return check_indexes(directory)
    _check_ray(cluster.ray, what.type, inputs[0] if folder is not None else None)
    queries = open_source(what.queries) if what.queries is not None else None
    copy = place if isinstance(place, FolderCopy) else None
    with (
        copy.making(INDEXES) if copy is not None else nullcontext(),
        _folder_of_vectors(folder or output or Path(), replaced=folder is None and overwrite) as store_folder,
    ):
        with ExitStack() as workers:
            encoder = None
            if output is not None and model is not None:
                texts = read_texts(inputs, output, text, overwrite=overwrite)
                encoder, pool = workers.enter_context(open_encoder(model, options, cluster, most=texts.shards))
                if request is not None:
                    check_buildable(request, texts, encoder.dimension)
                encode_into(output, texts, encoder, pool, options, doc_prompt)
            elif request is not None and model is not None:
                encoder = load_encoder(model, options)
            store = Store.open(store_folder, str(output if place is None or folder is None else place))
            if request is not None and encoder is not None:
                request = with_queries(request, store, encoder, doc_prompt, queries)
        if request is None:
            outcome = index_words(store, what.language or LANGUAGE)
        else:
            outcome = index_vectors(store, request, cluster)
        if copy is not None:
            copy.upload(INDEXES, last=(WORDS_ROWS, INDEX))
            console.note(f"the index is in {inputs[0]}")
    return outcome


@contextmanager
def _folder_of_vectors(folder: Path, *, replaced: bool) -> Iterator[Path]:
    """Yield the folder of the vectors, or what replaces it after the block, when vectors and index are complete."""
    from sentcli.io.dataset import ShardShare
    from sentcli.io.folder import open_folder

    place = open_folder(folder)
    if not replaced or not place.holds(ShardShare()):
        yield folder
        return
    yield place.successor().path
    place.succeed()


def _request(
    what: IndexOptions, settings: dict[str, int], query_prompt: str | None, *, overwrite: bool
) -> IndexRequest | None:
    """Return the index of vectors that is asked for, or None for one of words.

    Raises:
        InputError: for an option of the other kind of index.
    """
    from sentcli.search.bm25 import LANGUAGE, check_language, require_bm25s
    from sentcli.search.exact import require_faiss
    from sentcli.search.index import IndexRequest

    if what.type != WORDS:
        if what.language is not None:
            raise InputError("--language goes with --type bm25")
        require_faiss()
        return IndexRequest(
            what.type, what.similarity, query_prompt, settings, what.file_rows, what.recall, overwrite=overwrite
        )
    of_vectors = {"--set": settings, "--queries": what.queries, "--file-rows": what.file_rows}
    if misplaced := [name for name, value in {**of_vectors, "--query-prompt": query_prompt}.items() if value]:
        raise InputError(f"{misplaced[0]} is of vectors; --type bm25 has none")
    require_bm25s()
    check_language(what.language or LANGUAGE)
    return None


def _check_ray(address: str | None, kind: str, folder: str | None) -> None:
    """Refuse ``--ray`` where there is nothing to do for it, or a cluster that is not there.

    Raises:
        InputError: with what is wrong.
    """
    from sentcli.cluster import check_address
    from sentcli.io.places import is_remote

    if address is None:
        return
    if folder is not None and kind in (WORDS, "flat"):
        raise InputError(f"--ray builds the files of an index of vectors; --type {kind} has none")
    if address != "local" and folder is not None and is_remote(folder):
        raise InputError(
            f"--ray {address}: an index in a store is built from a copy on this machine, which other nodes do not see; "
            "leave --ray out, take --ray local, or index on a disk that all nodes share"
        )
    check_address(address)


def _check_usage(
    folder: Path | None, output: Path | None, model: str | None, queries: str | None, text: TextOptions, *, check: bool
) -> None:
    if check and folder is None:
        raise InputError("--check reads the indexes of a directory, and builds nothing: name the directory alone")
    if folder is None and output is None:
        raise InputError("give a directory that encode wrote, or files of text with -o DIR")
    if folder is not None and output is not None:
        raise InputError("-o DIR goes with files of text; the index of a directory stands in it")
    if folder is not None and text != TextOptions():
        raise InputError("--append, --text-field and --id-field go with files of text, not with a directory")
    if model is None and (output is not None or queries is not None):
        first = "files of text are encoded first" if output is not None else "--queries are encoded"
        raise InputError(f"{first}: give the model with -m")


def _setting(text: str) -> tuple[str, int]:
    key, equals, value = text.partition("=")
    if not equals or not value.isascii() or not value.isdigit() or int(value) < 1:
        raise InputError(f"--set {text}: expected KEY=N with a whole number, such as efConstruction=200")
    return key.strip(), int(value)
