"""``index``: make a directory of vectors quick to search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.verbs.cluster_work import open_cluster, open_encoder
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.index_options import DatabaseOptions, IndexOptions, TextOptions, recall_table
from sentcli.verbs.options import ClusterOptions, DocPrompt, OptionalModel, Overwrite, QueryPrompt
from sentcli.verbs.outcome import Outcome
from sentcli.verbs.retrieve_corpus import read_queries

if TYPE_CHECKING:
    from sentcli.bulk.encode import ShardMaker
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.index import IndexRequest
    from sentcli.search.store import IndexManifest, Store

    Prepare = Callable[[Callable[[int, int], None]], AbstractContextManager[SentenceEncoder | None]]
    """Encodes files of text, if there are any, after a check of rows and dimension, and returns the model or None."""

WORDS = "bm25"


@verb("index")
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
) -> Outcome:
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
    from sentcli.io.folder import local_path
    from sentcli.io.folder_copy import FolderCopy
    from sentcli.io.remote_names import is_remote
    from sentcli.search.index import IndexRequest
    from sentcli.search.store import INDEX, INDEXES

    settings = dict(map(_setting, what.set or []))
    if database.to is not None:
        from sentcli.verbs.index_collection import index_collection

        _check_database(what, output, query_prompt, text, cluster, check=check)
        return index_collection(inputs, what, database, model, text, doc_prompt, options, overwrite=overwrite)
    if database != DatabaseOptions():
        raise InputError("--collection and --prune go with --to milvus:URI")
    directory = local_path(inputs[0]) if len(inputs) == 1 else Path()
    folder = directory if len(inputs) == 1 and directory.is_dir() else None
    _check_usage(folder, output, model, text, check=check)
    _check_words(what, settings, query_prompt)
    if check:
        return _check(directory)
    _check_ray(cluster.ray, what.type, inputs[0] if folder is not None else None)

    @contextmanager
    def prepare(check: Callable[[int, int], None]) -> Iterator[SentenceEncoder | None]:
        if model is None:
            yield None
            return
        with ExitStack() as stack:

            def load(most: int) -> tuple[SentenceEncoder, ShardMaker | None]:
                elsewhere = cluster if output is not None else ClusterOptions()
                return stack.enter_context(open_encoder(model, options, elsewhere, most=most))

            if output is None:
                yield load(1)[0]
            else:
                yield _encode(inputs, output, text, doc_prompt, load, check, overwrite=overwrite)

    store_folder = folder or output or Path()
    if what.type == WORDS:
        outcome = _index_words(store_folder, what.language or "english", prepare if output is not None else None)
    else:
        request = IndexRequest(
            what.type, what.similarity, query_prompt, settings, what.file_rows, what.recall, overwrite=overwrite
        )
        outcome = _index_vectors(store_folder, request, what.queries, prepare, doc_prompt, cluster, append=text.append)
    if folder is not None and is_remote(inputs[0]):
        FolderCopy(inputs[0].rstrip("/"), folder).upload(INDEXES, last=INDEX)
        console.note(f"the index is in {inputs[0]}")
    return outcome


def _check_words(what: IndexOptions, settings: dict[str, int], query_prompt: str | None) -> None:
    """Refuse options of vectors for an index of words, and the other way round."""
    if what.type == WORDS:
        vector_options = {
            "--set": settings,
            "--queries": what.queries,
            "--file-rows": what.file_rows,
            "--query-prompt": query_prompt,
        }
        if misplaced := [name for name, value in vector_options.items() if value]:
            raise InputError(f"{misplaced[0]} is of vectors; --type bm25 has none")
    elif what.language is not None:
        raise InputError("--language goes with --type bm25")


def _check_database(
    what: IndexOptions,
    output: Path | None,
    query_prompt: str | None,
    text: TextOptions,
    cluster: ClusterOptions,
    *,
    check: bool,
) -> None:
    """Refuse options of indexes that stand beside the vectors."""
    others = {
        **{"--set": what.set, "--queries": what.queries, "--file-rows": what.file_rows, "-o": output},
        **{"--query-prompt": query_prompt, "--append": text.append, "--check": check},
        "--ray": cluster.ray,
    }
    if wrong := [name for name, value in others.items() if value]:
        raise InputError(f"{wrong[0]} does not go with --to: the rows and the index are in the database")


def _check_ray(address: str | None, kind: str, folder: str | None) -> None:
    """Refuse ``--ray`` where there is nothing to do for it, or a cluster that is not there.

    Raises:
        InputError: with what is wrong.
    """
    from sentcli.cluster import check_address
    from sentcli.io.remote_names import is_remote

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
    folder: Path | None, output: Path | None, model: str | None, text: TextOptions, *, check: bool
) -> None:
    if check and folder is None:
        raise InputError("--check reads the indexes of a directory, and builds nothing: name the directory alone")
    if folder is None and output is None:
        raise InputError("give a directory that encode wrote, or files of text with -o DIR")
    if folder is not None and output is not None:
        raise InputError("-o DIR goes with files of text; the index of a directory stands in it")
    if folder is not None and text != TextOptions():
        raise InputError("--append, --text-field and --id-field go with files of text, not with a directory")
    if output is not None and model is None:
        raise InputError("files of text are encoded first: give the model with -m")


def _setting(text: str) -> tuple[str, int]:
    key, equals, value = text.partition("=")
    if not equals or not value.isascii() or not value.isdigit() or int(value) < 1:
        raise InputError(f"--set {text}: expected KEY=N with a whole number, such as efConstruction=200")
    return key.strip(), int(value)


def _index_words(folder: Path, language: str, prepare: Prepare | None) -> Outcome:
    """Build the BM25 index of a directory of vectors, after encoding files of text into it if there are any."""
    from sentcli.search.bm25 import check_language, described, require_bm25s
    from sentcli.search.store import Store

    outcome = Outcome("index", WORDS, {"kind": WORDS, **described(language=language)})
    outcome.ran_on(None, None)
    require_bm25s()
    check_language(language)
    if prepare is not None:
        with prepare(lambda rows, dimension: None):
            pass
    store = Store.open(folder)
    with console.working("indexing (bm25)") as step:
        step(f"{len(store.rows)} rows")
        built = store.build_words(language)
    console.note(f"{store.origin.name}: {len(built)} rows in the index bm25")
    return outcome.finish({"kind": WORDS, "index": store.origin.name, "rows": len(built)})


def _index_vectors(
    folder: Path,
    request: IndexRequest,
    queries: str | None,
    prepare: Prepare,
    doc_prompt: str | None,
    cluster: ClusterOptions,
    *,
    append: bool,
) -> Outcome:
    """Build an index of faiss; an index that cannot be built is refused before text is encoded."""
    from sentcli.io.sources import open_source
    from sentcli.search import ann
    from sentcli.search import index as indexing
    from sentcli.search.exact import require_faiss
    from sentcli.search.store import Store

    outcome = Outcome("index")
    outcome.ran_on("cpu", "fp32")
    require_faiss()
    source = open_source(queries) if queries is not None else None

    def check(rows: int, dimension: int) -> None:
        least_rows = max(rows, ann.LEAST * 256) if append else rows  # the directory has rows already
        recipe = ann.recipe(request.kind, least_rows, dimension)
        indexing.check_recipe(recipe, dimension, request.similarity, request.settings)

    with prepare(check) as encoder:
        store = Store.open(folder)
        if encoder is not None:
            origin = store.origin
            origin.check_encoder(encoder, (origin.prompt or "") if doc_prompt is None else doc_prompt, store.dimension)
        if source is not None:
            if encoder is None:
                raise InputError("--queries are encoded: give the model with -m")
            texts = [text for _, text in read_queries(source)]
            prompt = encoder.role_prompt("query") if request.query_prompt is None else request.query_prompt
            vectors = encoder.encode(texts, prompt=prompt)
            request = replace(request, queries=store.origin.fitted(vectors, normalized=encoder.spec.normalizes))
    if cluster.ray is None or request.kind == ann.FLAT:
        manifest = _build(store, request)
    else:
        manifest = _build_on_ray(store, request, cluster)
    outcome.model = store.origin.model
    outcome.protocol = {
        **{key: getattr(manifest, key) for key in ("kind", "factory", "similarity", "query_prompt", "settings")},
        "target": request.target,
        **manifest.encoder,
    }
    results = {
        **{key: getattr(manifest, key) for key in ("kind", "factory", "rescore", "efforts", "recall", "built_for")},
        "index": store.origin.name,
        "rows": len(store.rows),
        "size_bytes": manifest.bytes,
    }
    return outcome.finish(
        results, [recall_table(manifest.kind, manifest.recall)] if manifest.recall is not None else []
    )


def _encode(
    files: list[str],
    folder: Path,
    text: TextOptions,
    doc_prompt: str | None,
    load: Callable[[int], tuple[SentenceEncoder, ShardMaker | None]],
    check: Callable[[int, int], None],
    *,
    overwrite: bool,
) -> SentenceEncoder:
    """Encode files of text as `encode` does; an interrupted directory is resumed.

    Args:
        files: of text.
        folder: the directory of vectors that is written.
        text: how the files are read.
        doc_prompt: text in front of each document; None is the model's own.
        load: loads the model, after the files have been read; given the number of shards, it returns the encoder and
            what makes shards with it, if that is not this process.
        check: is called with the numbers of rows and dimensions before anything is encoded.
        overwrite: replace a directory that exists.
    """
    from sentcli import bulk
    from sentcli.encoder.announce import warn_truncated
    from sentcli.io.readers import ReadOptions

    output, resume = str(folder), not (text.append or overwrite)
    bulk.check_target(output, overwrite=overwrite, resume=resume, append=text.append)
    types = {} if overwrite else bulk.types_of(output)
    inputs = bulk.read_inputs(files, ReadOptions(text.text_field, text.id_field, types=types), output=output)
    encoder, elsewhere = load(-(-inputs.survey.rows // bulk.EncodeSettings.shard_rows))
    check(inputs.survey.rows, encoder.dimension)
    prompt = encoder.role_prompt("document") if doc_prompt is None else doc_prompt
    settings = bulk.EncodeSettings(resume=resume, append=text.append, prompt=prompt, elsewhere=elsewhere)
    with console.resumable(output), console.encoding("encoding", inputs.survey.rows) as bar:
        summary = bulk.encode_files(encoder, inputs, output, settings, progress=bar)
    console.note(f"{summary.counts.rows} rows encoded -> {output}, which has {summary.rows}")
    warn_truncated(encoder.spec.max_length, summary.counts.truncated, summary.counts.tokens_lost, what="rows")
    return encoder


def _build(store: Store, request: IndexRequest) -> IndexManifest:
    from sentcli.search import ann
    from sentcli.search.index import GROWN, build

    if request.similarity == "dot" and request.kind == "hnsw":
        console.warn("a graph over vectors of different lengths misses many neighbours (dot): look at the recall below")
    if repeated := store.rows.repeated_ids():
        console.warn(f"{repeated} rows have an id that another row has, too: the ids of hits do not tell them apart")
    rows = len(store.blocks)
    with console.counting(f"indexing ({request.kind})", rows) as progress:
        manifest, added = build(store, request, progress, lambda step: console.detail(f"{request.kind}: {step}"))
    if manifest.kind == ann.FLAT:
        console.note(f"{store.origin.name}: {rows} rows are searched exactly; nothing had to be built")
        return manifest
    before = f" of {manifest.rows}" if added != manifest.rows else ""
    console.note(
        f"{store.origin.name}: {added}{before} rows added to the index {manifest.kind} ({manifest.factory}), "
        f"{manifest.bytes / 1e6:,.1f} MB"
    )
    recall = manifest.recall
    if recall is not None and recall["chosen"]["recall"] < request.target:
        console.warn(
            f"recall@{recall['k']} is {recall['chosen']['recall']:.3f}, not the {request.target:g} aimed at; "
            "another kind, or a factory string with more clusters or longer codes, may reach it"
        )
    if manifest.rows > GROWN * manifest.built_for:
        console.warn(f"the index was made for {manifest.built_for} rows: build it again with --overwrite")
    return manifest


def _build_on_ray(store: Store, request: IndexRequest, cluster: ClusterOptions) -> IndexManifest:
    """Build the files of an index on a cluster; there is one for each shard, if nothing else is asked for."""
    from sentcli.search.on_ray import filling_on_ray

    request = replace(request, file_rows=request.file_rows or store.manifest.shard_rows)
    files = -(-len(store.blocks) // (request.file_rows or 1))
    with open_cluster(cluster, most=files, on_cpu=True) as (_, workers):
        return _build(store, replace(request, fill=filling_on_ray(workers)))


def _check(folder: Path) -> Outcome:
    """Compare the files of all indexes of a directory with their checksums."""
    from sentcli.search.store import Store

    outcome, store = Outcome("index"), Store.open(folder)
    outcome.ran_on(None, None)
    outcome.model = store.origin.model
    problems = [problem for name in store.indexes for problem in store.check_index(name)]
    outcome.finish({"indexes": store.indexes, "problems": problems})
    if problems:
        raise outcome.failed("; ".join(problems) + ": build the index again with --overwrite")
    console.note(f"{store.origin.name}: {', '.join(store.indexes) or 'no indexes'}; all files are whole")
    return outcome
