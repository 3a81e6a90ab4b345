"""``data list``, ``data get`` and ``data verify``: data sets by name; ``data check``: a table of the user."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc

from sentcli import console
from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result, failed
from sentcli.errors import InputError, SentcliError, nearest
from sentcli.io.labelled_kinds import Kind
from sentcli.io.options import PairFields
from sentcli.io.text_checks import TITLES
from sentcli.model.options import OptionalModel
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.data.get import FetchResult
    from sentcli.data.registry import DataSet
    from sentcli.io.labelled import LabelledTable
    from sentcli.io.sources import Source
    from sentcli.io.text_checks import Found

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
    from sentcli.data.registry import addresses, data_folder, presence

    folder = data_folder(data_dir)
    clock = Clock()
    datasets = _sets(names)
    states = {dataset.name: presence(dataset, folder) for dataset in datasets}
    rows = [[d.name, d.title, d.kind, _size(d.size), d.licence, states[d.name]] for d in datasets]
    tables = [Table(f"Data sets, kept in {folder}", ["name", "title", "kind", "size", "licence", "present"], rows)]
    for dataset in datasets if names else ():
        parts = dataset.archives if dataset.archive_first else dataset.files
        sums = {"SHA-256" if p.pin.sha256 else "MD5" if p.pin.md5 else "its first download" for p in parts}
        facts = [["kept in", str(folder / dataset.folder)], ["note", dataset.note]]
        facts.append(["checked by", ", ".join(sorted(sums))])
        sources = [["source", source] for source in addresses(dataset, list(dataset.files))]
        tables.append(Table(dataset.name, ["what", "value"], [*facts, *sources]))
    results = [
        {**asdict(d), "size": d.size, "present": states[d.name], "path": str(folder / d.folder)} for d in datasets
    ]
    protocol = {"data_dir": str(folder)}
    return Result.of(Record("data list", protocol=protocol, results=results, seconds=clock.seconds), tables)


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
    options: dict[str, Any] = {"source": source, "given": given, "overwrite": overwrite}
    options["offline"] = offline or is_offline()
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
    from sentcli.data.pins import verify
    from sentcli.data.registry import data_folder

    folder = data_folder(data_dir)
    clock = Clock()
    datasets = _sets(names)
    checked = []
    with console.counting("checking", sum(len(dataset.files) for dataset in datasets)) as progress:
        for dataset in datasets:
            checked += verify(dataset, folder, whole=bool(names), finished=progress)
    checked = list({file.path: file for file in reversed(checked)}.values())[::-1]  # sts is a part of senteval
    results = [file.to_dict() for file in checked]
    protocol = {"data_dir": str(folder)}
    result = Result.of(Record("data verify", protocol=protocol, results=results, seconds=clock.seconds))
    if unknown := sum(file.state == "no checksum" for file in checked):
        console.note(f"{unknown} files were put there by hand and have no known checksum")
    if bad := [file for file in checked if file.state in ("wrong", "missing")]:
        lines = [f"  {file.path}: {file.problem or file.state}" for file in bad]
        sets = " ".join(dict.fromkeys(file.name for file in bad))
        advice = f"'sentcli data get {sets} --overwrite' fetches them again"
        summary = f"{len(bad)} of {len(checked)} files are wrong or missing; {advice}"
        raise failed(result, "\n".join([summary, *lines]))
    if checked:
        good = sum(file.state == "ok" for file in checked)
        console.note(f"{good} files in {folder} have the right checksums")
    else:
        console.note(f"no file of a data set is in {folder}")
    return result


@verb("check")
def check(
    file: Annotated[str, Flag(metavar="FILE", positional=True)],
    pair_fields: PairFields = None,
    kind: Kind | None = None,
    model: OptionalModel = None,
    id_field: Annotated[
        str | None, Holds.WORDS, Doc("The column of the ids; default: id or _id, if there is one.")
    ] = None,
) -> Result:
    """Say what a table of your own holds, before it trains or scores a model.

    Its kind, columns and rows, empty cells, equal rows, repeated ids, equal texts
    with different labels, broken characters, markup of HTML, lengths, labels, and
    the commands that would use it. Lines that are no UTF-8 and values that do not
    fit are errors, as they are for these commands, and all are named at once.

    Args:
        file: A table: csv, tsv, jsonl, parquet, arrow, feather, xlsx or ods.
        kind: The kind of the table; default: told from the names of the columns and from all values.
        model: Lengths are in tokens of this model, against its maximum length; else in words.

    \b
    Examples:
      sentcli data check faq.csv
      sentcli data check pairs.xlsx --pair-fields question1,question2,is_duplicate -m minilm --json -
    """  # noqa: D301
    from sentcli.errors import together
    from sentcli.evaluation.labelled_data import own_table
    from sentcli.io.formats import without_broken_lines
    from sentcli.io.labelled import NAMED_ROWS
    from sentcli.io.sources import open_source

    clock = Clock()
    source, broken = without_broken_lines(open_source(file))
    wrong: list[InputError] = []
    try:
        table = own_table(source, kind, pair_fields, "skip", problems=wrong)
    except InputError as error:
        raise together([*broken, *wrong, error]) from error
    counts = Counter(f"{value:g}" if isinstance(value, float) else value for value in table.values or [])
    groups = table.contradictions()
    methods = {"scored": "cosent", "binary": "online-contrastive", "labels": "supcon", "classed-pairs": "sbert-nli"}
    options = f"{f' --pair-fields {quote(pair_fields)}' if pair_fields else ''}{f' --kind {kind}' if kind else ''}"
    name, encoder = quote(table.name), quote(model or "MODEL")
    evaluate = f"sentcli evaluate {name} -m {encoder}{options}{' --skip-empty' if table.empty else ''}"
    id_column, found = _checks(source, table, id_field)
    results: dict[str, Any] = {
        "kind": table.kind,
        "columns": list(table.columns),
        "rows": len(table) + table.skipped + len(wrong),
        "broken_lines": len(broken),
        "wrong_values": len(wrong),
        "empty_cells": {"count": len(table.empty), "rows": table.skipped, "first": table.empty[:NAMED_ROWS]},
        "contradictions": {"count": len(groups), "first": [[table.lines[i] for i in g] for g in groups[:NAMED_ROWS]]},
        "id_column": id_column,
        **{what: each.to_dict() for what, each in found.items()},
        "labels": dict(counts.most_common()),
        "lengths": _lengths([text for column in table.texts for text in column], model),
        "commands": [
            *([] if table.kind == "classed-pairs" else [evaluate]),  # which nothing scores
            f"sentcli train --method {methods.get(table.kind, 'simcse')} -m {encoder} --data {name}{options} -o DIR",
        ],
    }
    protocol = {"pair_fields": pair_fields, "kind": kind}
    record = Record("data check", model or "", protocol, results, seconds=clock.seconds)
    result = Result.of(record, [_check_table(file, table, results, found)])
    if problems := [*broken, *wrong]:
        result.show()
        refused = together(problems)
        refused.outcome = result
        raise refused
    return result


def _check_table(file: str, table: LabelledTable, results: dict[str, Any], found: dict[str, Found]) -> Table:
    """Return what was found in a table of the user, a row for each fact."""
    from sentcli.evaluation.labelled_data import not_numbers
    from sentcli.io.labelled import NAMED_ROWS

    unit, counts, differing = table.unit, results["labels"], results["contradictions"]
    places = ", ".join(f"{unit} {line} ({column})" for line, column in table.empty[:NAMED_ROWS])
    same = "; ".join(f"{unit}s {', '.join(map(str, rows))}" for rows in differing["first"])
    labels = ", ".join(f"{label!s:.40}: {count:,}" for label, count in list(counts.items())[:NAMED_ROWS])
    lengths = ", ".join(f"{key} {value}" for key, value in results["lengths"].items() if value is not None)
    if results["id_column"] is None:
        found = {what: each for what, each in found.items() if what != "repeated_ids"}
    odd = not_numbers(counts)
    lines = [
        ["read as", table.taken],
        ["rows", results["rows"]],
        ["empty cells", f"{len(table.empty):,}{f': {places}' if places else ''}"],
        ["equal texts with different labels", f"{differing['count']:,}{f': {same}' if same else ''}"],
        *([CHECK_TITLES[what], _found_words(each, unit)] for what, each in found.items()),
        ["labels", f"{len(counts):,} different: {labels}" if labels else "none"],
        *([["labels among numbers that are none", ", ".join(map(repr, odd))]] if odd else []),
        ["lengths", lengths],
        *(["command", command] for command in results["commands"]),
    ]
    return Table(file, ["what", "value"], lines, wide=["value"])


CHECK_TITLES = {"equal_rows": "equal rows", "repeated_ids": "repeated ids", **TITLES}


def _checks(source: Source, table: LabelledTable, id_field: str | None) -> tuple[str | None, dict[str, Found]]:
    """Return the column of ids, and what may be wrong with rows, and where first: line and column, or two lines."""
    from sentcli.io.formats import records
    from sentcli.io.labelled_records import columns_of
    from sentcli.io.text_checks import TextChecks, repeated

    names = columns_of(source)
    if id_field is not None and id_field not in names:
        raise InputError(f"no column {id_field!r} for ids{nearest(id_field, names)}; it has {', '.join(names)}")
    id_column = id_field or next((name for name in ("id", "_id") if name in names), None)
    values = table.values or [None] * len(table)
    rows = zip(zip(*table.texts, values, strict=True), table.lines, strict=True)
    ids = ((record.get(id_column), line) for line, record in records(source)) if id_column is not None else ()
    checks = TextChecks()
    for column, texts in zip(table.columns, table.texts, strict=False):
        for line, text in zip(table.lines, texts, strict=True):
            checks.look(text, [line, column])
    of_ids = repeated((str(key), line) for key, line in ids if key is not None)
    return id_column, {"equal_rows": repeated(rows), "repeated_ids": of_ids, **checks.found}


def _found_words(found: Found, unit: str) -> str:
    """Return how often something was found, and where."""
    places = (f"{unit} {a} ({b})" if isinstance(b, str) else f"{unit}s {a} and {b}" for a, b in found.first)
    return f"{found.count:,}: {', '.join(places)}" if found.count else "0"


def _lengths(texts: list[str], model: str | None) -> dict[str, Any]:
    """Return median and greatest length: in tokens, with how many texts a model would cut, or without it in words."""
    if model is None:
        lengths, limit = [len(text.split()) for text in texts], None
    else:
        from sentcli import SentenceEncoder

        tokenizer = SentenceEncoder.load(model, device="cpu", make_export=False).tokenizer
        tokens, limit = tokenizer(texts), tokenizer.max_length
        lengths = (tokens.lengths + tokens.beyond).tolist()
    longer = None if limit is None else sum(length > limit for length in lengths)
    facts = {"median": int(median(lengths)), "longest": max(lengths), "limit": limit, "longer": longer}
    return {"unit": "words" if model is None else "tokens", **facts}


def _sets(names: list[str] | None) -> list[DataSet]:
    from sentcli.data.registry import find, registry

    return [find(name) for name in dict.fromkeys(names)] if names else list(registry().values())


def _get(dataset: DataSet, folder: Path, options: dict[str, Any]) -> FetchResult:
    from sentcli.data.get import get

    try:
        with console.transferring(dataset.name) as meter:
            fetched = get(dataset, folder, meter, notice=console.note, **options)
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
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
