"""Training methods by name. A method is data plus objectives."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from sentcli.errors import InputError, nearest
from sentcli.methods.simcse import SimCSE

if TYPE_CHECKING:
    from torch import nn

    from sentcli.methods.settings import Settings
    from sentcli.objectives import Objective


class Method(Protocol):
    """What the training loop asks of a method; the fields of its dataclass are its hyper-parameters."""

    views: int
    """How many times each sentence is encoded in a step."""

    def settings(self) -> Settings:
        """Return the paper's training settings."""

    def head_module(self, dimension: int) -> nn.Module:
        """Return the projection that exists in training only, ``[n, d]`` to ``[n, d']``."""

    def objectives(self) -> list[Objective]:
        """Return the terms of the loss."""


METHODS: dict[str, type[Method]] = {"simcse": SimCSE}


def get_method(name: str) -> Method:
    """Return a method with the paper's hyper-parameters.

    Raises:
        InputError: for an unknown name.
    """
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}{nearest(name, list(METHODS))}; one of: {', '.join(METHODS)}")
    return METHODS[name]()


def apply_settings(target: Any, values: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """Set the fields of a dataclass that `values` names, converted to the type of their default.

    Returns:
        The changed copy, and the values whose keys are not fields of it.

    Raises:
        InputError: for a value of the wrong type.
    """
    known = {f.name: getattr(target, f.name) for f in fields(target)}
    changes = {key: _convert(key, text, known[key]) for key, text in values.items() if key in known}
    return replace(target, **changes), {key: text for key, text in values.items() if key not in known}


def _convert(key: str, text: str, default: object) -> object:
    kind = type(default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return text if kind is str else kind(text)  # type: ignore[call-arg]
    except (ValueError, KeyError) as error:
        raise InputError(f"--set {key}={text}: expected a {kind.__name__}, like {default!r}") from error
