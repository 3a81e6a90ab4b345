"""A training method as data; `sentcli.methods` lists them and `sentcli.methods.configuring` changes their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.methods.heads import HEADS, Head, MLPHead, NoHead
from sentcli.methods.modules import CNN, Fit, Twin
from sentcli.methods.settings import Settings
from sentcli.methods.views import VIEWS, Copies, ViewMaker
from sentcli.objectives import OBJECTIVES, InBatchNegatives, Objective

if TYPE_CHECKING:
    from sentcli.io.labelled_kinds import Kind

RESERVED = {
    *("head", "views", "cnn", "twin", "fit", "settings", "objectives", "name", "title", "stage", "recipe", "file"),
    *("step", "loss", "learning_rate", "grad_norm", "sentences_per_second"),
}
"""The names that no objective can have, because settings, reports or metrics use them."""
TEXT_LENGTH = 256
"""The greatest length in training of views that are different texts, unless the user says another, in tokens."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A training method: its views, its head, the terms of its loss and its settings.

    The name of each objective is its key in ``--set`` and in ``metrics.jsonl``.
    """

    name: str
    title: str
    """The paper, its authors and its venue."""
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
        """Refuse an objective with a reserved name."""
        if reserved := sorted(RESERVED & set(self.objectives)):
            raise InputError(f"{self.name}: no objective can be called {reserved[0]}; choose another name")

    def sections(self) -> dict[str, Any]:
        """Return the parts that have settings, by their names in ``--set``."""
        if self.fit is not None:
            return {"fit": self.fit}
        parts = {"head": self.head, "views": self.views, "cnn": self.cnn, "twin": self.twin}
        chosen = {name: part for name, part in parts.items() if part is not None}
        return {**self.objectives, **chosen, "settings": self.settings}

    def with_section(self, name: str, value: Any) -> Method:
        """Return the method with one section replaced."""
        if name in self.objectives:
            return replace(self, objectives={**self.objectives, name: value})
        return replace(self, **{name: value})

    def on_texts(self, views: ViewMaker) -> Method:
        """Return the method with its defaults for views that are different texts, such as labelled pairs.

        There is no MLP head, which would be new and is left out in encoding; the texts teach the vector itself.
        """
        objectives = {
            name: replace(objective, mask_duplicates=True) if isinstance(objective, InBatchNegatives) else objective
            for name, objective in self.objectives.items()
        }
        settings = replace(self.settings, max_length=TEXT_LENGTH)
        head = NoHead() if isinstance(self.head, MLPHead) else self.head
        return replace(self, views=views, objectives=objectives, head=head, settings=settings)

    @property
    def needs(self) -> str:
        """The data that it learns from, in words."""
        if self.views.reads == "scores":
            labels = any(term.needs_labels for term in self.objectives.values())
            return "pairs with the labels 0 and 1" if labels else "scored pairs"
        return "texts with a class" if self.views.reads == "classes" else "plain text, or pairs of anchor and positive"

    def takes(self, kind: Kind | None) -> bool:
        """Return whether the method learns from a kind of table as it is; None stands for texts without labels."""
        terms, reads = self.objectives.values(), self.views.reads
        if kind in ("scored", "binary"):
            return reads == "scores" and (kind == "binary" or not any(term.needs_labels for term in terms))
        if kind == "labels" or reads != "sentences":
            return kind == "labels" and reads == "classes"
        if kind is None or self.fit is not None:
            return kind is None
        contrasts = any(term.views >= 2 for term in terms) and not any(term.one_sentence for term in terms)
        return contrasts and (kind == "pairs" or any(term.takes_hard_negatives for term in terms))

    def describe(self, *, changed_only: bool = False) -> dict[str, Any]:
        """Return the name and all settings except the shared ones, for reports and model cards.

        Args:
            changed_only: leave out settings with the default of their kind, so that new settings change no digest.
        """
        registries: dict[str, Mapping[str, type[Any]]] = {"head": HEADS, "views": VIEWS}
        registries.update(dict.fromkeys(self.objectives, OBJECTIVES))
        facts: dict[str, Any] = {"name": self.name, **({} if self.file is None else {"file": dict(self.file)})}
        for section, part in self.sections().items():
            if section == "settings":
                continue
            kind = next((k for k, cls in registries.get(section, {}).items() if type(part) is cls), None)
            kind_fact = {"kind": kind} if kind not in (None, section) else {}
            count = {"count": part.count} if section == "views" else {}
            facts[section] = {**kind_fact, **count, **(changed(part) if changed_only else asdict(part))}
        return facts


def changed(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that do not have their default."""
    return {f.name: value for f in fields(part) if (value := getattr(part, f.name)) != f.default}
