"""``index``: make a directory of vectors quick to search; files of text are encoded into it first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sentcli.bounds import Holds, Overwrite
from sentcli.cluster import ClusterOptions
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.model.options import DocPrompt, LoadOptions, OptionalModel, QueryPrompt
from sentcli.search.options import CorpusOptions, DatabaseOptions, IndexOptions
from sentcli.stores.options import PassageOptions, TextOptions

if TYPE_CHECKING:
    from sentcli.io.places import Place


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
    from sentcli.stores.collection_rows import CollectionInput
    from sentcli.stores.opening import is_collection
    from sentcli.stores.passages import Cutting
    from sentcli.stores.updating import CollectionUpdating
    from sentcli.verbs.index_collection import check_collection, compare_collection, write_collection
    from sentcli.verbs.index_directory import IndexJob, check_indexes, compare_files, index_directory, index_files

    cutting = Cutting(passages, model, options, lambda spec: spec.prompt_of_documents(doc_prompt))
    if database.to is not None:
        corpus = CollectionInput(inputs, index_options, text, cutting, doc_prompt)
        database = replace(database, prune=database.prune or update)
        updating = CollectionUpdating(corpus.read, database, index_options, overwrite=overwrite)
        return compare_collection(updating) if dry_run else write_collection(updating)
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
    if check and place is not None:
        return check_indexes(place.path)
    job = IndexJob(inputs, index_options, text, cutting, update, overwrite, query_prompt, doc_prompt, cluster)
    if place is not None:
        return index_directory(job, place)
    assert output is not None  # _directory asks for it
    return compare_files(job, output) if dry_run else index_files(job, output)


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
