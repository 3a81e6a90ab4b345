"""Inputs of texts that are folders: what `encode` wrote, and folders of files. Files are those of `sources`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from glob import has_magic
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.packed import unpacked_name
from sentcli.io.places import OBJECT_STORES, is_remote, scheme_of
from sentcli.io.sources import FORMATS, MARKDOWN_SUFFIXES, Source, input_files, is_markdown, open_source, say_once

if TYPE_CHECKING:
    from sentcli.io.folder import Folder

OF_MODELS = ("config.json", "modules.json")
"""Files by which the folder of a model is known, whose vocabulary is a text file, too."""
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The value in the name of a folder whose rows have none."""
_PAGE_SUFFIXES = (*MARKDOWN_SUFFIXES, ".txt")


def text_sources(
    names: Iterable[str], file_format: str | None = None, *, pages: bool = False, delimiter: str | None = None
) -> list[Source]:
    """Find inputs of texts.

    Args:
        names: as for `open_source`, and patterns, as for `input_files`; also directories that `encode` wrote, here or
            in a store, whose texts are taken, and folders of text files and tables.
        file_format: as for `open_source`.
        pages: take a Markdown file, and each Markdown or text file of a folder, for one document.
        delimiter: what separates csv; None tells it from each file.

    Raises:
        InputError: if there is no such file, a folder holds no texts, or no file is csv that has a delimiter.
        SentcliError: if a host fails.
    """
    sources: list[Source] = []
    for given in names:
        for name in input_files([given]):
            for file in _files(name, pages=pages):
                source = replace(open_source(file, file_format), partition=_partition(given, file))
                if pages and file_format is None:
                    source = _page(source, name)
                if source.format == "csv":
                    source = replace(source, delimiter=_sign(delimiter))
                sources.append(source)
    if delimiter is not None and not any(source.format == "csv" for source in sources):
        raise InputError("--delimiter says what separates csv, and no input is csv")
    by_line = [source.name for source in sources if source.format != "page" and is_markdown(source.path)]
    if by_line:
        others = f" and {len(by_line) - 1:,} more" if len(by_line) > 1 else ""
        say_once(
            f"{by_line[0]}{others}: Markdown is read line by line here, headings and blank lines included; 'sentcli "
            "data make-set FOLDER -o SET' reads its sections, whose texts are in SET/corpus.jsonl then"
        )
    return sources


def _sign(delimiter: str | None) -> str | None:
    """Return the one character that separates csv, which the word ``tab`` may stand for.

    Raises:
        InputError: for anything that cannot separate.
    """
    sign = delimiter
    if delimiter in ("tab", "\\t"):
        sign = "\t"
    if sign is not None and (len(sign) != 1 or sign in '"\r\n'):
        raise InputError(f"--delimiter {delimiter}: give one character, such as ';', or tab")
    return sign


def _partition(name: str, file: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns that folders such as ``year=2024`` name, as Hive, Spark and DuckDB write them.

    Args:
        name: of a folder, or a pattern: folders below it are looked at.
        file: one of its files.
    """
    above = list(takewhile(lambda part: not has_magic(part), Path(name).parts))
    columns: list[tuple[str, str | None]] = []
    for folder in Path(file).parts[len(above) : -1]:
        column, equals, value = folder.partition("=")
        if column and equals:
            text = None if value in ("", NO_PARTITION) else unquote(value)
            columns.append((unquote(column), text))
    return tuple(columns)


def _page(source: Source, name: str) -> Source:
    """Return a Markdown file, or a text file of a folder, as one document whose id is its path in the folder."""
    is_of_folder = Path(name).is_dir()
    if source.format != "txt" or not (is_markdown(source.path) or is_of_folder):
        return source
    path = Path(source.path.name)
    if is_of_folder:
        path = source.path.relative_to(name)
    return replace(source, format="page", page=path.as_posix())


def _files(name: str, *, pages: bool) -> list[str]:
    """Return the files of texts of a folder, or the name itself if it is none."""
    if is_remote(name):
        may_be_folder = scheme_of(name) in OBJECT_STORES and not Path(name).suffix
    else:
        may_be_folder = name != "-" and Path(name).is_dir()
    if not may_be_folder:
        return [name]
    from sentcli.io.dataset import holds_manifest
    from sentcli.io.folder import open_folder
    from sentcli.io.table_folders import is_table

    if not is_remote(name) and is_table(Path(name)):
        return [name]
    folder = open_folder(name)
    if holds_manifest(folder.names()):
        return _of_shards(folder)
    if is_remote(name):
        return [name]
    return _of_folder(Path(name), pages=pages)


def _of_shards(folder: Folder) -> list[str]:
    """Return the files of rows of a directory that `encode` wrote.

    Raises:
        InputError: if it is not finished, or holds no texts.
    """
    from sentcli.io.dataset import read_manifest

    manifest = read_manifest(folder)
    if manifest.rows_done < manifest.rows_total:
        counts = f"{manifest.rows_done:,} of {manifest.rows_total:,} rows"
        raise InputError(f"{folder} is unfinished ({counts}): finish it with --resume first")
    context = (manifest.settings.get("passages") or {}).get("context", "none")
    if context != "none":
        console.warn(
            f"{folder} holds passages that were encoded behind their {context} (--context); their texts are read "
            "without: sentcli migrate encodes them as they were with another model"
        )
    files = [f"{str(folder).rstrip('/')}/{shard.rows}" for shard in manifest.shards]
    if files and "text" not in _columns(open_source(files[0])):
        names = ", ".join(str(entry.get("name")) for entry in manifest.inputs)
        raise InputError(f"{folder} kept no texts: encode what it was made of, {names}")
    return files


def _columns(source: Source) -> list[str]:
    import pyarrow.parquet as pq

    return list(pq.read_schema(source.path).names)


def _of_folder(folder: Path, *, pages: bool) -> list[str]:
    """Return the text files and tables of a folder, and say what is no such file.

    Args:
        folder: it is searched with the folders in it.
        pages: where it has Markdown or text files, take these alone; of a set in BEIR layout take the documents.

    Raises:
        InputError: if there are none, or it is the folder of a model or a retrieval set.
    """
    if any((folder / name).is_file() for name in OF_MODELS):
        raise InputError(f"{folder} is the folder of a model, not of texts; -m takes models")
    if pages and (folder / "corpus.jsonl").is_file():
        return [str(folder / "corpus.jsonl")]
    if (folder / "queries.jsonl").is_file():
        raise InputError(f"{folder} is a retrieval set: name its documents, {folder}/corpus.jsonl")
    read_suffixes = (*FORMATS, *MARKDOWN_SUFFIXES)
    files = visible_files(folder)
    if pages and any(_suffix(path) in _PAGE_SUFFIXES for path in files):
        read_suffixes = _PAGE_SUFFIXES
    texts = []
    left_out: Counter[str] = Counter()
    for path in files:
        if _suffix(path) in read_suffixes:
            texts.append(str(path))
        else:
            left_out[path.suffix or "without suffix"] += 1
    if not texts:
        not_encoded = "'sentcli encode' did not write it (it has no manifest.json)"
        raise InputError(f"{folder} holds no texts: {not_encoded}, and it has no files {', '.join(read_suffixes)}")
    message = f"{folder}: {len(texts):,} files are read"
    if left_out:
        counts = ", ".join(f"{suffix} {count:,}" for suffix, count in left_out.most_common())
        message += f"; others are left out ({counts})"
    say_once(message)
    return texts


def _suffix(path: Path) -> str:
    """Return the suffix that tells the format of a file, in front of one of compression."""
    return Path(unpacked_name(path.name.lower())).suffix


def visible_files(folder: Path) -> list[Path]:
    """Return the files below a folder that are not hidden, in the order of their paths.

    Raises:
        OSError: for a folder below it that cannot be read.
    """
    return sorted(_walk(folder))


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                yield Path(place, name)
