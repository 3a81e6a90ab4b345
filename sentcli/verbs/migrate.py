"""``migrate``: move a corpus that is searched to another model, if it is shown to be as good."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result, kept_if_interrupted
from sentcli.errors import InputError, SentcliError
from sentcli.migrating.options import MoveOptions
from sentcli.model.options import DocPrompt, LoadOptions, OptionalModel, QueryPrompt
from sentcli.remaining import duration

if TYPE_CHECKING:
    from sentcli.migrating.gate import MoveComparison
    from sentcli.migrating.move import Move

COMPARED = ("metric", "old", "new", "difference", "interval", "passed", "same_hits")
"""The entries of the JSON that are null where the models were not compared."""
REFUSED = 3
"""The exit code where the other model is not shown to be as good."""


@verb("migrate", common="corpus collection model set allow anyway dry_run drop back json")
def migrate(
    corpus: Annotated[str, Holds.TEXT_FILE, Flag(metavar="CORPUS", positional=True)],
    collection: Annotated[str | None, Holds.WORDS, Flag(metavar="NAME")] = None,
    model: OptionalModel = None,
    moving: Annotated[MoveOptions, Group("Move")] = MoveOptions(),
    drop: Annotated[bool, Flag(panel="Before", excludes="back")] = False,
    back: Annotated[bool, Flag(panel="Before")] = False,
    query_prompt: QueryPrompt = None,
    doc_prompt: DocPrompt = None,
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
) -> Result:
    """Move a corpus of vectors, with its indexes, to another model.

    It says how long that takes, and compares both models on the same queries: a
    move that is not shown to be as good is refused (exit code 3), and nothing is
    written. The new vectors are made beside the old ones, which answer until all
    is whole; an interrupted move goes on with the same command. A directory is kept
    as CORPUS.before, a collection in its database.

    Args:
        corpus: A directory that encode or index wrote; or lance:PLACE, milvus:URI or
            postgresql://USER@HOST/DB.
        collection: The collection of lance:PLACE or milvus:URI, or the [SCHEMA.]TABLE of postgresql.
        drop: Delete what is kept from before: of an earlier move, or with -m of this one.
        back: Exchange CORPUS and what it was before in one step; the same again takes that back.

    \b
    Examples:
      sentcli migrate documents -m my-model --dry-run
      sentcli migrate documents -m my-model
      sentcli migrate documents -m my-model --set judged --allow 0.02
      sentcli migrate documents --back
      sentcli migrate documents --drop
      sentcli migrate lance:reviews -m my-model
    """  # noqa: D301
    from sentcli.migrating.move import MoveTarget
    from sentcli.migrating.moving import drop_before, go_back, open_move

    clock = Clock()
    if back:
        return _done(go_back(corpus, collection, model), clock)
    if model is None:
        if not drop:
            raise InputError("give the model that the corpus moves to with -m; --back and --drop go without")
        return _done(drop_before(corpus, collection), clock)
    target = MoveTarget(model, options, doc_prompt, query_prompt)
    move = open_move(corpus, collection, target)
    with move.held():
        result = _moved(move, moving, clock)
        was_moved = result.to_dict()["results"]["migrated"]
        old_is_there = move.has_before()
    if drop and (was_moved or old_is_there):
        drop_before(corpus, collection)
    return result


def _moved(move: Move, moving: MoveOptions, clock: Clock) -> Result:
    """Estimate, compare, and move a corpus if it may be."""
    model = move.target.model
    begun = Record("migrate", model, environment=move.encoder.environment())
    results: dict[str, Any] = {
        "output": move.title,
        "from": move.origin.model,
        "rows": move.row_count,
        **dict.fromkeys(COMPARED),
        "migrated": False,
    }
    if move.is_done:
        console.note(f"{move.title} has the vectors of {model} already")
        return Result.of(replace(begun, results=results, seconds=clock.seconds))
    move.check()
    results |= _estimated(move)
    comparison = _compared(move, moving)
    tables = []
    passed = False
    verdict = f"{model} was not compared with {move.origin.model}."
    if comparison is not None:
        results |= comparison.to_dict()
        tables = comparison.tables()
        verdict = comparison.sentence
        passed = comparison.passed
        _warn_of_few(len(comparison.data.queries))
    begun = replace(begun, protocol=_protocol(move, moving))
    if moving.dry_run or not (passed or moving.anyway):
        record = replace(begun, results=results, seconds=clock.seconds)
        verdict += " Nothing was written."
        if passed or moving.anyway:
            return Result.of(record, tables, verdict=verdict)
        if comparison is not None and not comparison.is_worse:
            verdict += " More queries (--set) may show it."
        verdict += " A greater --allow takes such a loss, --anyway moves."
        return Result.of(record, tables, verdict=verdict, exit_code=REFUSED)
    with kept_if_interrupted(begun, clock, lambda: results):
        results = {**results, **move.run(), "migrated": True}
    console.note(f"{move.title} answers with {model}; {move.before} is as it was (--back returns, --drop lets it go)")
    record = replace(begun, results=results, seconds=clock.seconds)
    return Result.of(record, tables, verdict=verdict)


def _warn_of_few(queries: int) -> None:
    """Warn of an interval over so few queries that it may be too narrow."""
    from sentcli.pages.comparisons import FEW_ITEMS

    if queries < FEW_ITEMS:
        console.warn(f"{queries} queries tell little, and their interval may be too narrow: --set takes more of them")


def _estimated(move: Move) -> dict[str, Any]:
    """Say what encoding the rows will take, and return it as JSON."""
    from sentcli.migrating.sets import DOCUMENTS

    estimates = move.estimate()
    estimate = estimates.models[0]
    compared = min(estimates.rows, DOCUMENTS)
    comparing = 2 * estimate.seconds * compared / estimates.rows
    console.note(
        f"{move.title}: {estimates.rows:,} rows take about {duration(estimate.seconds)} and "
        f"{estimate.bytes / 1e6:,.1f} MB with {move.target.model} ({estimate.dimension} dimensions), without indexes; "
        f"comparing both models on {compared:,} rows or fewer takes up to about {duration(comparing)} before"
    )
    if move.fate_of_passages:
        console.note(move.fate_of_passages)
    return {"seconds_estimated": estimate.seconds + comparing, "bytes_estimated": estimate.bytes}


def _compared(move: Move, moving: MoveOptions) -> MoveComparison | None:
    """Compare the models; with ``--anyway``, return None where that is not possible."""
    from sentcli.migrating.gate import compare_models
    from sentcli.migrating.sets import given_set, made_set, require_documents

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            served, new = move.serving()
            if moving.set is None:
                data = made_set(move.documents, folder / f"{Path(move.title).name}-set")
            else:
                data = given_set(moving.set)
                require_documents(data, move.documents)
            return compare_models(served, new, data, move.cut(served), moving.allow, folder)
        except SentcliError as error:
            if not moving.anyway:
                raise
            console.warn(f"the models are not compared: {error}")
            return None


def _protocol(move: Move, moving: MoveOptions) -> dict[str, Any]:
    """Return every choice that moves a score of the comparison, or decides the vectors."""
    encoder, settings = move.encoder, move.settings
    return {
        **encoder.describe(),
        **encoder.provenance(),
        "prompt": settings.prompt,
        "query_prompt": move.target.query_prompt,
        "on_long": settings.on_long,
        **settings.compression.protocol(),
        "set": moving.set,
        "anyway": moving.anyway,
    }


def _done(results: dict[str, Any], clock: Clock) -> Result:
    record = Record("migrate", str(results["model"]), results=results, seconds=clock.seconds)
    return Result.of(record)
