"""The moves of corpora by where they are: a directory, or a collection of a database."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.migrating.collection import CollectionMove, MovedCollection
from sentcli.migrating.directory import DirectoryMove, moved_directory
from sentcli.migrating.move import Move, Moved, MoveTarget
from sentcli.stores.opening import is_collection


def open_move(name: str, collection: str | None, target: MoveTarget) -> Move:
    """Open a corpus that is to move.

    Args:
        name: of a directory, or the address of a database.
        collection: of the database.
        target: the model that it moves to.

    Raises:
        InputError: if there is no such corpus, or it cannot move.
    """
    if is_collection(name, collection):
        return CollectionMove.open(name, collection, target)
    return DirectoryMove.open(name, target)


def go_back(name: str, collection: str | None, model: str | None) -> dict[str, Any]:
    """Exchange a corpus with what it was before it moved; the same again takes that back.

    Args:
        name: of a directory, or the address of a database.
        collection: of the database.
        model: the one that it is to return to, or to leave; None takes what is there.

    Returns:
        What was done, for the JSON.

    Raises:
        InputError: if there is nothing to return to.
    """
    with _moved(name, collection) as moved:
        left, returned = moved.models
        if model not in (None, left, returned):
            raise InputError(f"{moved.title} goes back from {left} to {returned}, and not to {model}: leave -m out")
        facts = moved.exchange()
    console.note(f"{moved.title} answers with {returned} again; {moved.before} has {left}")
    return {"output": moved.title, "model": returned, **facts, "before": moved.before}


def drop_before(name: str, collection: str | None) -> dict[str, Any]:
    """Let go of what a corpus was before it moved, and return what was done for the JSON.

    Raises:
        InputError: if there is nothing.
    """
    with _moved(name, collection) as moved:
        facts = moved.let_go()
    now, before = moved.models
    console.note(f"{moved.before} is dropped, whose vectors {before} had made")
    return {"output": moved.title, "model": now, "dropped": moved.before, **facts}


def _moved(name: str, collection: str | None) -> AbstractContextManager[Moved]:
    """Open a corpus that has moved, and hold it as far as its place can.

    Raises:
        InputError: if there is none, it has not moved, or another process moves it.
    """
    if is_collection(name, collection):
        return nullcontext(MovedCollection.open(name, collection))
    return moved_directory(name)
