"""What `sentcli index` does: encode text, build an index, show its recall, check it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.cli import options
from sentcli.errors import InputError, SentcliError

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.io.sources import Source
    from sentcli.search.index import Wanted
    from sentcli.search.index_manifest import IndexManifest
    from sentcli.search.stored import Stored

Load = Callable[[], "SentenceEncoder | None"]
"""Loads the model, if one was named."""


@dataclass(frozen=True)
class Text:
    """Files that are encoded first."""

    inputs: list[str]
    text_field: str
    id_field: str | None
    doc_prompt: str | None
    append: bool
    overwrite: bool


def index_words(
    text: Text, folder: Path | None, output: Path | None, load: Load, language: str, json: str | None
) -> None:
    """Build the BM25 index."""
    from sentcli.cli.json_report import Report
    from sentcli.io.json_files import finite, write_json
    from sentcli.machine import environment
    from sentcli.search import words
    from sentcli.search.bm25 import check_language, described, require_bm25s
    from sentcli.search.stored import Stored

    report = Report("index", "bm25")
    require_bm25s()
    check_language(language)
    if output is not None:
        _encode(text, output, load, lambda rows, dimension: None)
    stored = Stored.open(folder or output or Path())
    with console.working("indexing (bm25)") as step:
        step(f"{len(stored.rows)} rows")
        found = words.build(stored, language)
    console.note(f"{stored.folder}: {len(found)} rows in the index bm25")
    if json is not None:
        report.protocol = {"kind": words.NAME, **described(language=language)}
        report.environment = environment(None, None)
        report.results = {"kind": words.NAME, "index": str(stored.folder), "rows": len(found)}
        write_json(json, finite(report.to_dict()))


def index_vectors(
    text: Text,
    folder: Path | None,
    output: Path | None,
    load: Load,
    wanted: Wanted,
    queries: str | None,
    json: str | None,
) -> None:
    """Build an index of faiss; what cannot be built is refused before text is encoded."""
    from sentcli.cli.json_report import Report
    from sentcli.io.json_files import finite, write_json
    from sentcli.io.sources import open_source
    from sentcli.machine import environment
    from sentcli.search import ann, index
    from sentcli.search.exact import require_faiss
    from sentcli.search.stored import Stored

    report = Report("index", "")
    require_faiss()
    source = open_source(queries) if queries is not None else None

    def fits(rows: int, dimension: int) -> None:
        enough = max(rows, ann.LEAST * 256) if text.append else rows  # others are there
        index.check_recipe(ann.recipe(wanted.kind, enough, dimension), dimension, wanted.similarity, wanted.settings)

    encoder = _encode(text, output, load, fits) if output is not None else load()
    stored = Stored.open(folder or output or Path())
    if encoder is not None:
        stored.check_encoder(encoder, stored.prompt if text.doc_prompt is None else text.doc_prompt)
    if source is not None:
        wanted = replace(wanted, queries=_measuring(source, encoder, wanted.query_prompt))
    manifest = _build(stored, wanted)
    report.model = str(stored.settings.get("model", ""))
    report.protocol = {
        "kind": manifest.kind,
        "factory": manifest.factory,
        "similarity": manifest.similarity,
        "query_prompt": manifest.query_prompt,
        "settings": manifest.settings,
        "target": wanted.target,
        **manifest.encoder,
    }
    report.environment = environment("cpu", "fp32")
    report.results = _results(manifest, stored)
    if json is not None:
        write_json(json, finite(report.to_dict()))


def _encode(text: Text, output: Path, load: Load, check: Callable[[int, int], None]) -> SentenceEncoder:
    """Encode files of text as `encode` does; what is there already is gone on with.

    Args:
        text: the files.
        output: the directory.
        load: loads the model.
        check: called with rows and dimension before anything is encoded.
    """
    from sentcli import bulk
    from sentcli.io.readers import ReadOptions

    resume = not text.append and not text.overwrite
    bulk.check_target(str(output), overwrite=text.overwrite, resume=resume, append=text.append)
    found = bulk.read_inputs(text.inputs, ReadOptions(text.text_field, text.id_field), output=str(output))
    encoder = load()
    if encoder is None:
        raise InputError("files of text are encoded first: give the model with -m")
    check(found.survey.rows, encoder.dimension)
    prompt = encoder.role_prompt("document") if text.doc_prompt is None else text.doc_prompt
    settings = bulk.Settings(resume=resume, append=text.append, prompt=prompt)
    with console.resumable(output), console.encoding("encoding", found.survey.rows) as bar:
        summary = bulk.encode_files(encoder, found, str(output), settings, progress=bar)
    console.note(f"{summary.counts.rows} rows encoded -> {output}, which has {summary.rows}")
    options.warn_truncated(encoder.spec.max_length, summary.counts.truncated, summary.counts.tokens_lost, what="rows")
    return encoder


def _measuring(source: Source, encoder: SentenceEncoder | None, prompt: str | None) -> Any:
    """Return the vectors of the queries to measure with."""
    if encoder is None:
        raise InputError("--queries are encoded: give the model with -m")
    from sentcli.io.readers import ReadOptions, blocks

    texts = [text for block in blocks([source], ReadOptions()) for text in block.texts]
    if not texts:
        raise InputError(f"{source.name}: the file is empty: there is no query")
    return encoder.encode(texts, prompt=encoder.role_prompt("query") if prompt is None else prompt)


def _build(stored: Stored, wanted: Wanted) -> IndexManifest:
    from sentcli.search import ann
    from sentcli.search.index import GROWN, build

    if wanted.similarity == "dot" and wanted.kind == "hnsw":
        console.warn("a graph over vectors of different lengths misses many neighbours (dot): look at the recall below")
    if repeated := stored.rows.repeated_ids():
        console.warn(f"{repeated} rows have an id that another row has, too: hits do not say which")
    rows = len(stored.blocks)
    with console.counting(f"indexing ({wanted.kind})", rows) as progress:
        manifest, added = build(stored, wanted, progress, lambda step: console.detail(f"{wanted.kind}: {step}"))
    if manifest.kind == ann.FLAT:
        console.note(f"{stored.folder}: {rows} rows are searched exactly; nothing had to be built")
        return manifest
    before = f" of {manifest.rows}" if added != manifest.rows else ""
    console.note(
        f"{stored.folder}: {added}{before} rows added to the index {manifest.kind} ({manifest.factory}), "
        f"{manifest.bytes / 1e6:,.1f} MB"
    )
    _show(manifest, wanted.target)
    if manifest.rows > GROWN * manifest.built_for:
        console.warn(f"the index was made for {manifest.built_for} rows: build it again with --overwrite")
    return manifest


def _show(manifest: IndexManifest, target: float) -> None:
    """Print the recall that was measured, and say whether it is what was wanted."""
    found = manifest.recall
    if found is None:
        return
    name, chosen = found["parameter"], found["chosen"]
    rows = [
        [
            str(point["effort"] or ""),
            f"{point['recall']:.4f}{'*' if point == chosen else ''}",
            f"{point['queries_per_second']:,.0f}",
        ]
        for point in found["points"]
    ]
    rows.append(["exact", "1.0000", f"{found['exact_queries_per_second']:,.0f}"])
    console.table(manifest.kind, [name or "", f"recall@{found['k']}", "queries/s"], rows)
    console.note(f"recall against exact search of {found['queries']} {found['of']}; * is what searches use")
    if chosen["recall"] < target:
        console.warn(
            f"recall@{found['k']} is {chosen['recall']:.3f}, not the {target:g} aimed at; another kind, or "
            "a factory string with more clusters or longer codes, may reach it"
        )


def _results(manifest: IndexManifest, stored: Stored) -> dict[str, Any]:
    return {
        **{key: getattr(manifest, key) for key in ("kind", "factory", "rescore", "efforts", "recall", "built_for")},
        "index": str(stored.folder),
        "rows": len(stored.rows),
        "size_bytes": manifest.bytes,
    }


def check(folder: Path, json: str | None) -> None:
    """Compare all files with their checksums."""
    from sentcli.cli.json_report import Report
    from sentcli.io.json_files import finite, write_json
    from sentcli.machine import environment
    from sentcli.search import index as stored_index
    from sentcli.search import words
    from sentcli.search.stored import Stored

    report, stored = Report("index", ""), Stored.open(folder)
    problems = []
    for name in stored.indexes:
        problems += words.check(stored) if name == words.NAME else stored_index.check(stored, name)
    if json is not None:
        report.model, report.environment = str(stored.settings.get("model", "")), environment(None, None)
        report.results = {"indexes": stored.indexes, "problems": problems}
        write_json(json, finite(report.to_dict()))
    if problems:
        raise SentcliError("; ".join(problems) + ": build the index again with --overwrite")
    console.note(f"{stored.folder}: {', '.join(stored.indexes) or 'no indexes'}; all files are whole")
