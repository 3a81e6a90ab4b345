"""``index``: make a directory of vectors quick to search; files of text are encoded into it first."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sentcli import console
from sentcli.bounds import Holds, Overwrite
from sentcli.bulk.encode import open_encoder
from sentcli.bulk.options import PassageOptions, TextOptions
from sentcli.bulk.passages import rows_into
from sentcli.cluster import ClusterOptions
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result, kept_if_interrupted
from sentcli.corpora.filling import TextInput, fill, read_texts
from sentcli.corpora.indexing import check_ray, folder_of_vectors, index_request, with_queries
from sentcli.corpora.opening import is_collection
from sentcli.corpora.updating import indexes_to_build
from sentcli.errors import InputError
from sentcli.model.options import DocPrompt, LoadOptions, OptionalModel, QueryPrompt
from sentcli.search.options import CorpusOptions, DatabaseOptions, IndexOptions
from sentcli.verbs.index_results import (
    build_all,
    check_collection,
    check_indexes,
    compare_collection,
    write_collection,
)

if TYPE_CHECKING:
    from sentcli.cluster.pool import Pool
    from sentcli.corpora.collection_rows import CollectionInput
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.places import Place
    from sentcli.search.index import IndexRequest


@verb(
    "index",
    common="inputs output model type recall queries append update check to collection prune compact overwrite json",
)
def index(
    inputs: Annotated[list[str], Holds.TEXT_FILE, Flag(metavar="INPUT...", positional=True)],
    index_options: Annotated[IndexOptions, Group("Index")] = IndexOptions(),
    output: Annotated[Path | None, Flag("-o", metavar="DIR")] = None,
    model: OptionalModel = None,
    check: Annotated[bool, Flag(excludes="output")] = False,
    text: Annotated[TextOptions, Group("Input")] = TextOptions(),
    passages: Annotated[PassageOptions, Group("Passages")] = PassageOptions(),
    update: Annotated[bool, Flag(panel="Input", needs="output to", excludes="overwrite append")] = False,
    dry_run: Annotated[bool, Flag(panel="Input", needs="update")] = False,
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
        inputs: A directory that encode wrote; or files of text, which are encoded into -o first; or a table or file
            with vectors, which go into -o as they are.
        output: For files of text or of vectors: the directory to write.
        check: Build nothing: compare the indexes of INPUT with their checksums. Of a collection that is the address of
            its database: measure its index against exact search, and with -m compare its vectors with the model's.
        update: Make of the directory what indexing INPUT anew would make: texts that it has keep their vectors, and the
            indexes that it has take in what is new and leave out what is gone.
            With --to: delete what INPUT has no more, as with --prune.
        dry_run: With --update: say what has changed and how long it takes, and write nothing.

    \b
    Examples:
      sentcli index documents.jsonl -o documents -m minilm --type hnsw
      sentcli retrieve -m minilm --corpus documents --query "how do I resume"
      sentcli index more.jsonl -o documents -m minilm --type hnsw --append
      sentcli index documents.jsonl -o documents -m minilm --update
      sentcli index documents --type ivfpq --recall 0.98 --queries questions.txt -m minilm
      sentcli index documents --type bm25
      sentcli index handbook/ -o handbook-vectors -m minilm --passages
      sentcli index chunks.parquet -o chunks --vector-field vector --type hnsw
      sentcli index documents --to milvus:reviews.db --collection reviews
      sentcli index documents --to lance:reviews --prune --compact
      sentcli index documents --to postgresql://me@localhost/app --collection reviews --type hnsw
      sentcli index postgresql://me@localhost/app --collection reviews --check -m minilm
    """  # noqa: D301
    from sentcli.corpora.collection_rows import CollectionInput
    from sentcli.io.copies import FolderCopy
    from sentcli.io.folder import rows_so_far
    from sentcli.io.sources import open_source
    from sentcli.search.bm25 import LANGUAGE
    from sentcli.search.index_files import INDEX
    from sentcli.search.vector_directory import INDEXES, WORDS_ROWS, VectorDirectory

    if database.to is not None:
        corpus = CollectionInput(inputs, index_options, model, text, passages, doc_prompt, options)
        return _into_database(corpus, database, overwrite=overwrite, update=update, dry_run=dry_run)
    if check and is_collection(inputs[0], database.collection):
        fields = CorpusOptions(
            corpus=inputs[0],
            collection=database.collection,
            text_field=text.text_field,
            id_field=text.id_field,
            vector_field=text.vector_field,
        )
        return check_collection(fields, model, options, doc_prompt, index_options.recall)
    place = _directory(inputs, output, passages)
    folder = None if place is None else place.path
    request = index_request(index_options, query_prompt, options, overwrite=overwrite)
    if check and folder is not None:
        return check_indexes(folder)
    rows_of = partial(
        rows_into,
        str(output),
        model,
        options,
        passages,
        lambda spec: spec.prompt_of_documents(doc_prompt),
        update=update,
        overwrite=overwrite,
    )
    if dry_run and output is not None:
        of_update = read_texts(inputs, output, text, *rows_of(), overwrite=False, update=True)
        return _dry_run(of_update, model, options, doc_prompt)
    check_ray(cluster.ray, index_options.type, inputs[0] if folder is not None else None)
    replaces = overwrite or update
    queries = None
    if index_options.queries is not None:
        queries = open_source(index_options.queries)
    copy = place if isinstance(place, FolderCopy) else None
    with (
        copy.making(INDEXES) if copy is not None else nullcontext(),
        folder_of_vectors(folder or output or Path(), replaced=folder is None and replaces) as store_folder,
    ):
        changes: dict[str, int] = {}
        texts = None
        if output is not None:
            texts = read_texts(inputs, output, text, *rows_of(), overwrite=overwrite, update=update)
            texts.check_model(model)
        to_build = indexes_to_build(output if update else None, request, index_options.language or LANGUAGE)
        # which has read the indexes that are there: one that is damaged is named before anything is encoded
        with _loading(model, texts, request, options, cluster) as (encoder, pool):
            if texts is not None:
                target = str(output)
                interrupted = kept_if_interrupted(
                    Record("index", str(model)), Clock(), lambda: rows_so_far(target, overwrite=replaces)
                )
                with interrupted:
                    changes = fill(texts, encoder, pool, options, doc_prompt, request)
            store = VectorDirectory.open(store_folder, str(output if folder is None else place))
            if request is not None and encoder is not None:
                to_build = to_build.measured_with(with_queries(request, store, encoder, doc_prompt, queries))
        result = build_all(store, to_build, cluster).with_results(changes)
        if copy is not None:
            copy.upload(INDEXES, last=(WORDS_ROWS, INDEX))
            console.note(f"the index is in {inputs[0]}")
    return result


def _into_database(
    corpus: CollectionInput, database: DatabaseOptions, *, overwrite: bool, update: bool, dry_run: bool
) -> Result:
    """Write a corpus into a collection of a database, or say what that would change."""
    from sentcli.corpora.collection_rows import read_rows
    from sentcli.corpora.collections import CollectionUpdating

    database = replace(database, prune=database.prune or update)
    updating = CollectionUpdating(partial(read_rows, corpus), database, corpus.index, overwrite=overwrite)
    if dry_run:
        return compare_collection(updating)
    return write_collection(updating)


def _dry_run(texts: TextInput, model: str | None, options: LoadOptions, doc_prompt: str | None) -> Result:
    """Say what an update would change and how long encoding would take; nothing is written."""
    from sentcli import bulk
    from sentcli.encoder import load_encoder

    clock = Clock()
    texts.check_model(model)
    encoder = load_encoder(str(model), options)
    settings = replace(texts.settings, prompt=encoder.spec.prompt_of_documents(doc_prompt))
    results = bulk.dry_run(encoder, texts.inputs, str(texts.folder), settings)
    record = Record("index", str(model), {"dry_run": True}, results, encoder.environment(), clock.seconds)
    return Result.of(record)


def _directory(inputs: list[str], output: Path | None, passages: PassageOptions) -> Place | None:
    """Return the directory that is indexed, or None if files are encoded into the output first.

    Raises:
        InputError: if there is neither or both, or passages are to be cut of what is encoded already.
    """
    from sentcli.io.dataset import holds_manifest
    from sentcli.io.folder import local_place
    from sentcli.io.table_folders import is_table

    place = local_place(inputs[0]) if len(inputs) == 1 else None
    if place is None or not place.path.is_dir() or is_table(place.path):
        place = None
    elif output is not None and not holds_manifest(path.name for path in place.path.iterdir()):
        place = None  # a folder of texts
    if (place is None) == (output is None):
        raise InputError("give a directory that encode wrote, or files of text or of vectors with -o DIR")
    if place is not None and passages.passages:
        raise InputError(f"--passages cuts documents before they are encoded, and {inputs[0]} is: name them, with -o")
    return place


def _loading(
    model: str | None,
    texts: TextInput | None,
    request: IndexRequest | None,
    options: LoadOptions,
    cluster: ClusterOptions,
) -> AbstractContextManager[tuple[SentenceEncoder | None, Pool | None]]:
    """Load the model where it is needed, and workers on a cluster where texts are encoded."""
    from sentcli.encoder import load_encoder

    if model is None or (texts is None and request is None):
        return nullcontext((None, None))
    if texts is None or texts.given_vectors is not None:
        return nullcontext((load_encoder(model, options), None))
    shards = -(-texts.inputs.survey.rows // texts.settings.shard_rows)
    return open_encoder(model, options, cluster, most=shards)
