"""Recipes: a paper's settings for one backbone, each with its source, and the scores that the paper reports.

A recipe is a TOML file, one of ``models/recipes`` by name or any other by path:

    title = "miCSE, BERT-base"
    method = "micse"
    model = "bert-base"
    limit = 1000
    subset_seed = "seed"
    [settings]
    batch_size = { value = 50, source = "sec. 3.1" }
    "ami.weight" = { value = 2.5e-3, source = "sec. 3.1" }
    [published]
    "STS average" = { value = 78.13, source = "table 1" }
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, NonNegativeInt, PositiveInt, field_validator, model_validator

from sentcli.errors import InputError, nearest
from sentcli.io.forms import read_toml
from sentcli.methods import refuse_file
from sentcli.zoo import models_folder


class Sourced(BaseModel):
    """A value and its source, such as a section of the paper."""

    value: Any
    source: str = ""

    @model_validator(mode="before")
    @classmethod
    def _or_bare(cls, value: Any) -> Any:
        """Accept a bare value, which has no source."""
        if not isinstance(value, dict):
            return {"value": value}
        expected = "expected { value = ..., source = ... }"
        for key in value:
            if key not in cls.model_fields:
                raise ValueError(f'{expected}, or "NAME.{key}" = ... with the quotes')
        if "value" not in value:
            raise ValueError(expected)
        return value


class Recipe(BaseModel, extra="forbid"):
    """A paper's training of one backbone."""

    name: str = ""
    title: str = ""
    method: str
    model: str
    teachers: list[str] = []
    """The models that the training learns from, if the method has any."""
    stage: str | None = None
    pooling: str | None = None
    data: str = ""
    """The training data of the paper, in words."""
    note: str = ""
    limit: PositiveInt | None = None
    """The number of sentences that are trained on, of those of the data."""
    subset_seed: NonNegativeInt | Literal["seed"] | None = None
    """The seed that draws them; ``seed`` takes the seed of the training, and None takes the first ones."""
    settings: dict[str, Sourced] = {}
    """The settings by name, as `configure` takes them."""
    published: dict[str, Sourced] = {}
    """The published scores by name, times 100."""

    @field_validator("published")
    @classmethod
    def _numbers(cls, published: dict[str, Sourced]) -> dict[str, Sourced]:
        """Refuse a score that is not a number."""
        for name, score in published.items():
            if not isinstance(score.value, int | float):
                raise ValueError(f"{name} must be a number, not {score.value!r}")
        return published

    @property
    def assignments(self) -> list[tuple[str, Any]]:
        """The settings with their values, as `configure` takes them."""
        return [(key, setting.value) for key, setting in self.settings.items()]


def recipe_names() -> list[str]:
    """Return the names of all recipes that come with the package."""
    return sorted(path.stem for path in (models_folder() / "recipes").glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Read a recipe by name, or by the path of a TOML file.

    Raises:
        InputError: if there is no such recipe, or the file is not one.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = models_folder() / "recipes" / f"{name}.toml"
    if not path.is_file():
        names = recipe_names()
        raise InputError(
            f"unknown recipe {name!r}{nearest(path.stem, names)}; a .toml file, or one of: {', '.join(names)}"
        )
    recipe = read_toml(Recipe, path)
    refuse_file(recipe.method, path)
    return recipe.model_copy(update={"name": path.stem, "title": recipe.title or path.stem})
