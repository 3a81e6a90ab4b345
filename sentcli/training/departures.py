"""In which settings a run departs from those of its method, which are the paper's, or of its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.request import TrainRequest

OF_NO_PAPER = frozenset(
    {"seed", "eval_every", "patience", "keep_start", "share_every", "precision", "mini_batch_size", "compile",
     "deterministic"}
)  # fmt: skip
"""The settings that say how a run is made and watched, and not what it learns."""


def departures(request: TrainRequest) -> dict[str, str]:
    """Return the settings that the user has chosen otherwise, each with its value here and there in words.

    The name of a term or another part that is here or there alone stands for all of its settings.
    """
    there = _parts(replace(request, assignments=[]).configured())
    here = _parts(request.configured())
    found: dict[str, str] = {}
    for part in dict.fromkeys([*there, *here]):
        if part not in here:
            found[part] = "left out"
        elif part not in there:
            found[part] = "added"
        else:
            found |= _of_part(part, here[part], there[part])
    return found


def _of_part(part: str, here: dict[str, Any], there: dict[str, Any]) -> dict[str, str]:
    """Return the settings of one part that differ."""
    found = {}
    for name in dict.fromkeys([*there, *here]):
        if here.get(name) != there.get(name):
            found[f"{part}.{name}".removeprefix("settings.")] = f"{here.get(name)} in place of {there.get(name)}"
    return found


def _parts(method: Method) -> dict[str, dict[str, Any]]:
    """Return the settings of each part of a method."""
    parts = {name: values for name, values in method.describe().items() if isinstance(values, dict)}
    if method.fit is None:
        settings = asdict(method.settings)
        parts["settings"] = {name: value for name, value in settings.items() if name not in OF_NO_PAPER}
    return parts


def in_words(found: Mapping[str, str], source: str) -> str:
    """Return a clause on the departures of a run from its recipe or its method; empty if there are none."""
    if not found:
        return ""
    words = ", ".join(f"{name} {change}" for name, change in found.items())
    return f"departs from {source}: {words}"


def departure_source(recipe: str | None, title: str) -> str:
    """Return what a run may depart from: its recipe, or the method with the title of its paper."""
    if recipe is not None:
        return f"the recipe {recipe}"
    return f"the settings of {title}"
