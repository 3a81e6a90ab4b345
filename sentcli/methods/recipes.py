"""Recipes: a paper's settings on one backbone as data, each with its source, and the scores that it should reach.

They are TOML files, those of ``models/recipes`` by name or any other by path:

    title = "miCSE, BERT-base"
    method = "micse"
    model = "bert-base"
    [settings]
    batch_size = { value = 50, source = "sec. 3.1" }
    "ami.weight" = { value = 2.5e-3, source = "sec. 3.1" }
    [published]
    "STS average" = { value = 78.13, source = "table 1" }
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentcli.errors import DataError, InputError, nearest
from sentcli.methods import refuse_file
from sentcli.zoo import models_folder

TABLES = ("settings", "published")
KEYS = ("title", "method", "model", "stage", "pooling", "data", "note", *TABLES)


@dataclass(frozen=True)
class Sourced:
    """A value and where it comes from."""

    value: Any
    source: str


@dataclass(frozen=True)
class Recipe:
    """One paper's training on one backbone."""

    name: str
    title: str
    method: str
    model: str
    stage: str | None = None
    pooling: str | None = None
    data: str = ""
    """What the paper trained on, in words."""
    note: str = ""
    settings: dict[str, Sourced] = field(default_factory=dict)
    """Settings by name, as `configure` takes them."""
    published: dict[str, Sourced] = field(default_factory=dict)
    """Scores by name, times 100."""

    @property
    def assignments(self) -> list[tuple[str, Any]]:
        """Return the settings for `configure`."""
        return [(key, setting.value) for key, setting in self.settings.items()]


def recipe_names() -> list[str]:
    """Return the names of all recipes that come with the package."""
    return sorted(path.stem for path in (models_folder() / "recipes").glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Read a recipe by name, or by the path of a TOML file."""
    path = Path(name)
    if path.suffix != ".toml":
        path = models_folder() / "recipes" / f"{name}.toml"
    if not path.is_file():
        names = recipe_names()
        raise InputError(
            f"unknown recipe {name!r}{nearest(path.stem, names)}; a .toml file, or one of: {', '.join(names)}"
        )
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(name, f"not valid TOML: {error}") from error
    return _recipe(path, table)


def _recipe(path: Path, table: dict[str, Any]) -> Recipe:
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        raise DataError(path, f"unknown key {unknown[0]!r}{nearest(unknown[0], list(KEYS))}; one of: {', '.join(KEYS)}")
    missing = [key for key in ("method", "model") if key not in table]
    if missing:
        raise DataError(path, f"it does not say its {missing[0]}")
    wrong = [key for key, value in table.items() if key not in TABLES and not isinstance(value, str)]
    if wrong:
        raise DataError(path, f"{wrong[0]} must be a text in quotes, not {table[wrong[0]]!r}")
    refuse_file(table["method"], path)
    settings, published = (_table(path, name, table.get(name, {})) for name in TABLES)
    for score, sourced in published.items():
        if not isinstance(sourced.value, (int, float)):
            raise DataError(path, f"the published {score} must be a number, not {sourced.value!r}")
    plain = {key: value for key, value in table.items() if key not in TABLES}
    return Recipe(**{"name": path.stem, "title": path.stem, **plain}, settings=settings, published=published)


def _table(path: Path, name: str, table: Any) -> dict[str, Sourced]:
    """Read ``{value, source}`` by name; a bare value has no source."""
    if not isinstance(table, dict):
        raise DataError(path, f"{name} must be a table, [{name}]")
    read = {}
    for key, value in table.items():
        if not isinstance(value, dict):
            value = {"value": value}
        if "value" not in value or set(value) - {"value", "source"}:
            inner = next(iter(set(value) - {"value", "source"}), "")
            hint = f'"{key}.{inner}" = ... with the quotes, or ' if inner else ""
            raise DataError(path, f"{name}.{key}: expected {hint}{key} = {{ value = ..., source = ... }}")
        read[key] = Sourced(value["value"], str(value.get("source", "")))
    return read
