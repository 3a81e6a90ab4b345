"""``sentcli data``: list, get, verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli import console
from sentcli.cli import options
from sentcli.cli.base import app, command
from sentcli.errors import InputError, SentcliError

if TYPE_CHECKING:
    from sentcli.data.get import Got
    from sentcli.data.registry import DataSet

group = typer.Typer(no_args_is_help=True)


@group.callback()
def data() -> None:
    """List, fetch and check evaluation and training data.

    \b
    Examples:
      sentcli data list
      sentcli data get sts scifact
      sentcli data verify
    """  # noqa: D301


app.add_typer(group, name="data")

DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where data is kept; default: $SENTCLI_DATA_DIR, else data in the cache of sentcli.",
        show_default=False,
    ),
]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Sets; default: all.", show_default=False)]


@command("list", group)
def list_sets(names: Names = None, data_dir: DataDir = None, json: options.Json = None) -> None:
    """Show the known data sets, their licences, and which are on this machine.

    With names, also where each would be fetched from and where it is kept.

    \b
    Examples:
      sentcli data list
      sentcli data list scifact --json -
    """  # noqa: D301
    from sentcli.cli.json_report import Report
    from sentcli.data.place import addresses, data_folder, presence
    from sentcli.io.json_files import finite, write_json

    folder = data_folder(data_dir)
    report = Report("data list", "", {"data_dir": str(folder)})
    found = _sets(names)
    states = {dataset.name: presence(dataset, folder) for dataset in found}
    rows = [[d.name, d.title, d.kind, _size(d.size), d.licence, states[d.name]] for d in found]
    columns = ["name", "title", "kind", "size", "licence", "present"]
    console.table(f"Data sets, kept in {folder}", columns, rows, left=6)
    for dataset in found if names else ():
        facts = [
            ["kept in", str(folder / dataset.folder)],
            ["note", dataset.note],
            ["checked by", _checked_by(dataset)],
        ]
        sources = [["source", source] for source in addresses(dataset, list(dataset.files))]
        console.table(dataset.name, ["", ""], [*facts, *sources], left=2)
    if json is not None:
        report.results = [_described(dataset, folder, states[dataset.name]) for dataset in found]
        write_json(json, finite(report.to_dict()))


@command("get", group)
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="What to fetch; see 'sentcli data list'.")],
    data_dir: DataDir = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Another address: of the archive, or, with / at its end, of a folder."),
    ] = None,
    given: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="An archive or file that you have already.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use no network; also with SENTCLI_OFFLINE=1 or HF_HUB_OFFLINE=1.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Fetch also what is there.")] = False,
    json: options.Json = None,
) -> None:
    """Fetch data sets: resumed after a stop, checked, unpacked.

    What is there is left alone. Sources are asked in turn until one gives the
    right bytes. A file whose checksum nobody has published is pinned at its
    first download, in datasets.lock.json of the data folder.

    \b
    Examples:
      sentcli data get senteval
      sentcli data get scifact nfcorpus --data-dir data
      sentcli data get scifact --from scifact.zip
    """  # noqa: D301
    from sentcli.cli.json_report import Report
    from sentcli.data.place import data_folder, is_offline
    from sentcli.io.json_files import finite, write_json

    folder = data_folder(data_dir)
    report = Report("data get", "", {"data_dir": str(folder), "source": source, "from": given and str(given)})
    found = _sets(names)
    if len(found) > 1 and (source or given):
        raise InputError("--source and --from are for one set at a time")
    arguments: dict[str, Any] = {"source": source, "given": given, "overwrite": overwrite}
    arguments["offline"] = offline or is_offline()
    done, failed = [], []
    for dataset in found:
        try:
            done.append(_get(dataset, folder, arguments))
        except SentcliError as error:
            if len(found) == 1:
                raise
            failed.append(str(error))
    if json is not None:
        report.results = [got.to_dict() for got in done]
        write_json(json, finite(report.to_dict()))
    if failed:
        raise SentcliError("\n".join(failed))


@command("verify", group)
def verify(names: Names = None, data_dir: DataDir = None, json: options.Json = None) -> None:
    """Compare every file with its checksum: the published one, or that of its first download.

    Without names, all sets are checked as far as they were fetched; with
    names, a file that is not there is an error.

    \b
    Examples:
      sentcli data verify
      sentcli data verify scifact --json verify.json
    """  # noqa: D301
    from sentcli.cli.json_report import Report
    from sentcli.data import verify as checking
    from sentcli.data.place import data_folder
    from sentcli.io.json_files import finite, write_json

    folder = data_folder(data_dir)
    report = Report("data verify", "", {"data_dir": str(folder)})
    found = _sets(names)
    checked = []
    with console.counting("checking", sum(len(dataset.files) for dataset in found)) as finished:
        for dataset in found:
            checked += checking.verify(dataset, folder, whole=bool(names), finished=finished)
    checked = list({one.path: one for one in reversed(checked)}.values())[::-1]  # sts is a part of senteval
    if json is not None:
        report.results = [one.to_dict() for one in checked]
        write_json(json, finite(report.to_dict()))
    counts = {state: sum(one.state == state for one in checked) for state in (checking.OK, checking.UNKNOWN)}
    if counts[checking.UNKNOWN]:
        console.note(f"{counts[checking.UNKNOWN]} files were put there by hand and have no known checksum")
    if bad := [one for one in checked if one.state in (checking.WRONG, checking.MISSING)]:
        lines = [f"  {one.path}: {one.problem or one.state}" for one in bad]
        sets = " ".join(dict.fromkeys(one.name for one in bad))
        advice = f"'sentcli data get {sets} --overwrite' fetches them again"
        raise SentcliError("\n".join([f"{len(bad)} of {len(checked)} files are wrong or missing; {advice}", *lines]))
    if not checked:
        console.note(f"no file of a data set is in {folder}")
        return
    console.note(f"{counts[checking.OK]} files in {folder} are what they should be")


def _sets(names: list[str] | None) -> list[DataSet]:
    from sentcli.data.registry import find, registry

    return [find(name) for name in dict.fromkeys(names)] if names else list(registry().values())


def _get(dataset: DataSet, folder: Path, arguments: dict[str, Any]) -> Got:
    from sentcli.data.get import get

    try:
        with console.transferring(dataset.name) as meter:
            got = get(dataset, folder, meter, notice=console.note, **arguments)
    except (KeyboardInterrupt, SystemExit):
        console.note(f"{dataset.name} is not finished: the same command goes on with it")
        raise
    if not got.files:
        console.note(f"{dataset.name} is there already: {got.folder}")
        return got
    console.note(f"{dataset.name}: {len(got.files)} files, {_size(got.size)}, in {got.folder}")
    console.note(f"licence: {dataset.licence}")
    if got.first_use:
        names = ", ".join(got.first_use)
        console.warn(
            f"{names}: no checksum is published, so nothing says that these are the right bytes; from now on they are "
            f"compared with this download ({folder / 'datasets.lock.json'})"
        )
    return got


def _size(size: int | None) -> str:
    if size is None:
        return "not known"
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _checked_by(dataset: DataSet) -> str:
    parts = dataset.archives if dataset.archive_first else dataset.files
    kinds = {"SHA-256" if p.pin.sha256 else "MD5" if p.pin.md5 else "its first download" for p in parts}
    return ", ".join(sorted(kinds))


def _described(dataset: DataSet, folder: Path, present: str) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(dataset), "size": dataset.size, "present": present, "path": str(folder / dataset.folder)}
