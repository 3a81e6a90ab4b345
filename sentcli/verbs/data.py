"""``data list``, ``data get`` and ``data verify``: data sets by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc

from sentcli import console
from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result, failed
from sentcli.errors import InputError, SentcliError
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.data.get import FetchResult
    from sentcli.data.pins import FileCheck
    from sentcli.data.registry import DataSet, Pin

DataDir = Annotated[
    Path | None,
    Flag(metavar="DIR"),
    Doc("Where data is kept; default: $SENTCLI_DATA_DIR, else $SENTCLI_DATA, else data in the cache of sentcli."),
]
Names = Annotated[
    list[str] | None, Holds.DATA_SET, Flag(metavar="[NAME]...", positional=True), Doc("Sets; default: all.")
]


@verb("list")
def list_sets(names: Names = None, data_dir: DataDir = None) -> Result:
    """Show the known data sets, their licences, and which are on this machine.

    With names, also where each would be fetched from and where it is kept.

    \b
    Examples:
      sentcli data list
      sentcli data list scifact --json -
    """  # noqa: D301
    from sentcli.data.registry import data_folder, presence

    folder = data_folder(data_dir)
    clock = Clock()
    datasets = _sets(names)
    rows, results = [], []
    for dataset in datasets:
        size, present = dataset.size, presence(dataset, folder)
        rows.append([dataset.name, dataset.title, dataset.kind, _size(size), dataset.licence, present])
        results.append(asdict(dataset) | {"size": size, "present": present, "path": str(folder / dataset.folder)})
    tables = [Table(f"Data sets, kept in {folder}", ["name", "title", "kind", "size", "licence", "present"], rows)]
    if names:
        tables += [_dataset_table(dataset, folder) for dataset in datasets]
    protocol = {"data_dir": str(folder)}
    return Result.of(Record("data list", protocol=protocol, results=results, seconds=clock.seconds), tables)


def _dataset_table(dataset: DataSet, folder: Path) -> Table:
    """Return where a data set is kept and fetched from, and what its files are compared with."""
    from sentcli.data.registry import addresses

    parts = dataset.archives if dataset.archive_first else dataset.files
    checksums = sorted({_checksum(part.pin) for part in parts})
    rows = [
        ["kept in", str(folder / dataset.folder)],
        ["note", dataset.note],
        ["checked by", ", ".join(checksums)],
    ]
    rows += [["source", source] for source in addresses(dataset, list(dataset.files))]
    return Table(dataset.name, ["what", "value"], rows)


def _checksum(pin: Pin) -> str:
    """Return by what a file is known to be the right one."""
    if pin.sha256:
        return "SHA-256"
    if pin.md5:
        return "MD5"
    return "its first download"


@verb("get")
def get(
    names: Annotated[list[str], Holds.DATA_SET, Flag(metavar="NAME...", positional=True)],
    data_dir: DataDir = None,
    source: Annotated[str | None, Flag(metavar="URL")] = None,
    given: Annotated[Path | None, Flag(name="--from", metavar="FILE")] = None,
    offline: bool = False,
    overwrite: bool = False,
) -> Result:
    """Fetch data sets, checked and unpacked.

    What is there is left alone. Sources are asked in turn until one gives the
    right bytes. A file whose checksum nobody has published is pinned at its
    first download, in datasets.lock.json of the data folder.

    Args:
        names: What to fetch; see 'sentcli data list'.
        source: Another address: of the archive, or, with / at its end, of a folder.
        given: An archive or file that you have already.
        offline: Use no network; also with SENTCLI_OFFLINE=1 or HF_HUB_OFFLINE=1.
        overwrite: Fetch also what is there.

    \b
    Examples:
      sentcli data get senteval
      sentcli data get scifact nfcorpus --data-dir data
      sentcli data get scifact --from scifact.zip
    """  # noqa: D301
    from sentcli.data.registry import data_folder, is_offline

    folder = data_folder(data_dir)
    clock = Clock()
    datasets = _sets(names)
    if len(datasets) > 1 and (source or given):
        raise InputError("--source and --from are for one set at a time")
    offline = offline or is_offline()
    options = {"source": source, "local_file": given, "overwrite": overwrite, "offline": offline}
    results, problems = [], []
    for dataset in datasets:
        try:
            results.append(_get(dataset, folder, options).to_dict())
        except SentcliError as error:
            if len(datasets) == 1:
                raise
            problems.append(str(error))
    protocol = {"data_dir": str(folder), "source": source, "from": given and str(given)}
    result = Result.of(Record("data get", protocol=protocol, results=results, seconds=clock.seconds))
    if problems:
        raise failed(result, "\n".join(problems))
    return result


@verb("verify")
def verify(names: Names = None, data_dir: DataDir = None) -> Result:
    """Compare every file with its checksum: the published one, or that of its first download.

    Without names, all sets are checked as far as they were fetched; with
    names, a file that is not there is an error.

    \b
    Examples:
      sentcli data verify
      sentcli data verify scifact --json verify.json
    """  # noqa: D301
    from sentcli.data.pins import verify_files
    from sentcli.data.registry import data_folder

    folder = data_folder(data_dir)
    clock = Clock()
    datasets = _sets(names)
    by_path: dict[Path, FileCheck] = {}
    with console.counting("checking", sum(len(dataset.files) for dataset in datasets)) as progress:
        for dataset in datasets:
            for file in verify_files(dataset, folder, whole=bool(names), finished=progress):
                by_path.pop(file.path, None)  # sts is a part of senteval: its files stand where they come last
                by_path[file.path] = file
    checked = list(by_path.values())
    results = [file.to_dict() for file in checked]
    record = Record("data verify", protocol={"data_dir": str(folder)}, results=results, seconds=clock.seconds)
    result = Result.of(record)
    states = Counter(file.state for file in checked)
    if states["no checksum"]:
        console.note(f"{states['no checksum']} files were put there by hand and have no known checksum")
    bad = [file for file in checked if file.state in ("wrong", "missing")]
    if bad:
        sets = " ".join(dict.fromkeys(file.name for file in bad))
        advice = f"'sentcli data get {sets} --overwrite' fetches them again"
        lines = [f"{len(bad)} of {len(checked)} files are wrong or missing; {advice}"]
        lines += [f"  {file.path}: {file.problem or file.state}" for file in bad]
        raise failed(result, "\n".join(lines))
    if checked:
        console.note(f"{states['ok']} files in {folder} have the right checksums")
    else:
        console.note(f"no file of a data set is in {folder}")
    return result


def _sets(names: list[str] | None) -> list[DataSet]:
    from sentcli.data.registry import find_data_set, registry

    if not names:
        return list(registry().values())
    return [find_data_set(name) for name in dict.fromkeys(names)]


def _get(dataset: DataSet, folder: Path, options: dict[str, Any]) -> FetchResult:
    from sentcli.data.get import fetch_data_set

    try:
        with console.transferring(dataset.name) as meter:
            fetched = fetch_data_set(dataset, folder, meter, notice=console.note, **options)
    except (KeyboardInterrupt, SystemExit):
        console.note(f"{dataset.name} is not finished: the same command fetches what is missing")
        raise
    if not fetched.files:
        console.note(f"{dataset.name} is there already: {fetched.folder}")
        return fetched
    console.note(f"{dataset.name}: {len(fetched.files)} files, {_size(fetched.size)}, in {fetched.folder}")
    console.note(f"licence: {dataset.licence}")
    if fetched.first_use:
        names = ", ".join(fetched.first_use)
        console.warn(
            f"{names}: no checksum is published, so nothing says that these are the right bytes; from now on they are "
            f"compared with this download ({folder / 'datasets.lock.json'})"
        )
    return fetched


def _size(size: int | None) -> str:
    if size is None:
        return "not known"
    if size >= 1e9:
        return f"{size / 1e9:,.1f} GB"
    return f"{size / 1e6:,.1f} MB"
