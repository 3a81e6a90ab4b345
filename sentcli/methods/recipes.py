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
from sentcli.zoo import models_folder

KEYS = ("title", "method", "model", "stage", "pooling", "data", "note", "settings", "published")


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
    """Read a recipe by name, or by the path of a TOML file.

    Raises:
        InputError: if there is none; DataError if it is broken.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = models_folder() / "recipes" / f"{name}.toml"
        if not path.exists():
            names = recipe_names()
            raise InputError(
                f"unknown recipe {name!r}{nearest(name, names)}; a .toml file, or one of: {', '.join(names)}"
            )
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no such recipe: {name}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(name, f"not valid TOML: {error}") from error
    return _recipe(path, table)


def _recipe(path: Path, table: dict[str, Any]) -> Recipe:
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        raise DataError(path, f"unknown key {unknown[0]!r}{nearest(unknown[0], list(KEYS))}; one of: {', '.join(KEYS)}")
    missing = [key for key in ("method", "model") if not isinstance(table.get(key), str)]
    if missing:
        raise DataError(path, f"it does not say its {missing[0]}")
    tables = {
        name: {key: _sourced(value) for key, value in table.get(name, {}).items()} for name in ("settings", "published")
    }
    return Recipe(**{"name": path.stem, "title": path.stem, **table, **tables})


def _sourced(value: Any) -> Sourced:
    """Read ``{value, source}``; a bare value has no source."""
    return Sourced(value["value"], str(value.get("source", ""))) if isinstance(value, dict) else Sourced(value, "")
