"""What a method is: data. `sentcli.methods` lists them, `sentcli.methods.configuring` changes their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sentcli.errors import InputError
from sentcli.methods.heads import HEADS, Head, MLPHead
from sentcli.methods.modules import CNN, Fit, Twin
from sentcli.methods.settings import Settings
from sentcli.methods.views import VIEWS, Copies, ViewMaker
from sentcli.objectives import OBJECTIVES, Objective

TAKEN = {"head", "views", "cnn", "twin", "fit", "settings", "objectives", "name", "title", "stage", "recipe", "file"}
TAKEN |= {"step", "loss", "learning_rate", "grad_norm", "sentences_per_second"}


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to train: which views, which head, which terms of the loss, which settings.

    The name of each objective is its key in ``--set`` and in ``metrics.jsonl``.
    """

    name: str
    title: str
    """Paper, authors, venue."""
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    views: ViewMaker = field(default_factory=Copies)
    head: Head = field(default_factory=MLPHead)
    settings: Settings = field(default_factory=Settings)
    pooling: str = "cls"
    """A value of ``--pooling``; ``own`` takes what the start model's folder says."""
    cnn: CNN | None = None
    """Convolutions over the token vectors that become part of the encoder."""
    twin: Twin | None = None
    """A second encoder for the second view."""
    fit: Fit | None = None
    """A transformation that is fitted instead of training."""
    stages: Mapping[str, Method] = field(default_factory=dict)
    """Other trainings of the same paper, for ``--stage``."""
    file: Mapping[str, str] | None = None
    """Name and SHA-256 of the user's own file that made the method; None for the methods of the package."""

    def __post_init__(self) -> None:
        """Refuse a term whose name stands for something else in settings, reports or metrics."""
        if taken := sorted(TAKEN & set(self.objectives)):
            raise InputError(f"{self.name}: no objective can be called {taken[0]}; choose another name")

    def sections(self) -> dict[str, Any]:
        """Return everything that has settings, by the name that ``--set`` calls it."""
        if self.fit is not None:
            return {"fit": self.fit}
        parts = {"head": self.head, "views": self.views, "cnn": self.cnn, "twin": self.twin}
        return {
            **self.objectives,
            **{name: part for name, part in parts.items() if part is not None},
            "settings": self.settings,
        }

    def with_section(self, name: str, value: Any) -> Method:
        """Return the method with one section replaced."""
        if name in self.objectives:
            return replace(self, objectives={**self.objectives, name: value})
        return replace(self, **{name: value})

    def describe(self, *, changed_only: bool = False) -> dict[str, Any]:
        """Return name and every setting but the shared ones, for reports and model cards.

        Args:
            changed_only: leave out settings with the default of their kind, so that new ones change no digest.
        """
        kinds: dict[str, Mapping[str, type[Any]]] = {"head": HEADS, "views": VIEWS}
        kinds.update(dict.fromkeys(self.objectives, OBJECTIVES))
        described: dict[str, Any] = {"name": self.name, **({} if self.file is None else {"file": dict(self.file)})}
        for section, part in self.sections().items():
            if section == "settings":
                continue
            kind = next((k for k, cls in kinds.get(section, {}).items() if type(part) is cls), None)
            shown = {"kind": kind} if kind not in (None, section) else {}
            counts = {"count": part.count} if section == "views" else {}
            described[section] = {**shown, **counts, **(changed(part) if changed_only else asdict(part))}
        return described


def changed(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that do not have their default."""
    return {f.name: value for f in fields(part) if (value := getattr(part, f.name)) != f.default}
