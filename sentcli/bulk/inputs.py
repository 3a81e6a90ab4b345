"""What is read and where it will be written, checked before any work starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.atomic import check_output
from sentcli.io.dataset import MANIFEST, PART, PARTIAL, ShardShare
from sentcli.io.digests import file_digest
from sentcli.io.readers import ReadOptions, Survey, survey
from sentcli.io.sources import Source, open_source
from sentcli.io.writers import output_kind

RESERVED = ("id", "text", "embedding")
"""Columns that the output adds itself."""


@dataclass(frozen=True)
class Inputs:
    """Input files that have been read once and found in order."""

    sources: list[Source]
    options: ReadOptions
    survey: Survey

    def described(self) -> list[dict[str, Any]]:
        """Return what identifies each file."""
        return [
            {
                "name": Path(source.name).name,
                "format": source.format,
                "bytes": source.path.stat().st_size,
                "sha256": file_digest(source.path),
            }
            for source in self.sources
        ]


def check_target(
    output: str, *, overwrite: bool, resume: bool, append: bool = False, part: ShardShare | None = None
) -> None:
    """Refuse an output that may not be written, before anything is read.

    Raises:
        InputError: if it exists (without a flag), cannot be created, or is a single file to resume.
    """
    kind = output_kind(output)
    part = part or ShardShare()
    if kind != "directory" and (append or part.of > 1):
        flag = "--append" if append else "--shard"
        raise InputError(f"{flag} makes shards, so it needs a directory output (-o without a suffix)")
    if append and part.of > 1:
        raise InputError("--append and --shard do not go together: append on one machine")
    if overwrite and (resume or append):
        raise InputError("--overwrite starts again, --resume and --append go on: give one of them")
    if kind == "stdout":
        return
    path = Path(output)
    if kind == "directory":
        _check_directory(path, part, overwrite=overwrite, resume=resume, append=append)
    elif resume and path.exists():
        raise InputError(f"{path} exists and is complete; only a directory output (-o without a suffix) is resumed")
    else:
        check_output(path, overwrite=overwrite)


def _check_directory(path: Path, part: ShardShare, *, overwrite: bool, resume: bool, append: bool) -> None:
    names = [each.name for each in path.iterdir()] if path.is_dir() else []
    if part.of > 1 and MANIFEST in names:
        raise InputError(f"{path} holds a dataset that one machine made; choose another -o for --shard")
    others = {count for name in names if (found := PART.fullmatch(name)) and (count := int(found.group(2))) != part.of}
    if others and not append and not (overwrite and part.of == 1):
        count = others.pop()
        raise InputError(f"{path} holds parts of {count} machines: go on with --shard I/{count}, or choose another -o")
    begun = part.manifest in names if part.of > 1 else bool(names)  # other machines' parts may be there
    if path.exists() and (begun or not path.is_dir()) and not (overwrite or resume or append):
        raise InputError(f"{path} exists; --resume continues it, --overwrite replaces it")
    check_output(path, overwrite=overwrite, resume=True, folder=True)
    ours = any(name == MANIFEST or PART.fullmatch(name) or PARTIAL.fullmatch(name) for name in names)
    if names and not ours:
        raise InputError(f"{path} holds files, but no {MANIFEST} of sentcli encode; choose another -o")


def read_inputs(
    names: Sequence[str], options: ReadOptions, input_format: str | None = None, *, output: str = "vectors"
) -> Inputs:
    """Open and survey the input files.

    Args:
        names: paths, or ``-``.
        options: fields and null handling.
        input_format: as in `open_source`.
        output: where the vectors will go; formats that keep the other columns refuse one named like their own.

    Raises:
        InputError: as the readers: every bad row is found here, before any encoding.
    """
    sources = [open_source(name, input_format) for name in names]
    target = Path(output).resolve()
    for source in sources:
        if target in (source.path.resolve(), source.path.resolve().parent) and output_kind(output) != "stdout":
            raise InputError(f"-o {output} would replace {source.name}, which is read; choose another -o")
    found = survey(sources, options)
    if output_kind(output) in (".npy", ".safetensors"):  # they have no place for other columns
        found.column_types = {}
    clash = [name for name in found.column_types if name in RESERVED]
    if clash:
        fields = f"--text-field {options.text_field}, --id-field {options.id_field or 'id'}"
        raise InputError(f"{sources[0].name}: column {clash[0]!r} would stand twice in the output ({fields})")
    return Inputs(sources, options, found)
