"""The moves of corpora by where they are: a directory, or a collection of a database."""

from __future__ import annotations

from typing import Any

from sentcli.corpora import collection_move, directory_move
from sentcli.corpora.collection_move import CollectionMove
from sentcli.corpora.directory_move import DirectoryMove
from sentcli.corpora.move import Move, MoveTarget
from sentcli.corpora.opening import is_collection


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
    if is_collection(name, collection):
        return collection_move.go_back(name, collection, model)
    return directory_move.go_back(name, model)


def drop_before(name: str, collection: str | None) -> dict[str, Any]:
    """Let go of what a corpus was before it moved, and return what was done for the JSON.

    Raises:
        InputError: if there is nothing.
    """
    if is_collection(name, collection):
        return collection_move.drop_before(name, collection)
    return directory_move.drop_before(name)
