"""A training method as data; `sentcli.methods` lists them and `sentcli.methods.configuring` changes their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from sentcli.bounds import AtLeastOne, Bounded, Fraction, NotNegative, Positive, WholeNumber
from sentcli.errors import InputError
from sentcli.methods.heads import HEADS, Head, MLPHead, NoHead
from sentcli.methods.modules import CNN, Fit, Matryoshka, SecondEncoder, Template
from sentcli.methods.static_start import StaticStart
from sentcli.methods.views import VIEWS, Copies, ViewMaker
from sentcli.objectives import OBJECTIVES, InBatchNegatives, Objective

if TYPE_CHECKING:
    from sentcli.io.labelled_kinds import Kind


@dataclass(frozen=True, kw_only=True)
class Settings(Bounded):
    """The settings of a training run.

    The defaults are SimCSE's, those of transformers' Trainer: linear decay to zero without warm-up.
    """

    batch_size: Annotated[int, Ge(2)] = 64
    """The sentences of a batch in each process; the other sentences of the batch are the negatives."""
    learning_rate: Positive = 3e-5
    epochs: AtLeastOne = 1
    max_steps: WholeNumber = 0
    """The number of optimiser steps, over as many epochs as they need; 0 takes as many steps as `epochs` have."""
    max_length: Annotated[int, Ge(3)] = 32
    """The maximum length of a sentence in training, in tokens with special tokens; it does not limit encoding."""
    accumulate: Annotated[int, Ge(1), Le(100_000)] = 1
    """The number of batches whose gradients are averaged in one step; each batch has its own negatives."""
    group_by_length: bool = False
    """Distribute the sentences of a step to its batches by length: less padding, but the negatives are not random."""
    mini_batch_size: WholeNumber = 0
    """How many sentences are encoded at a time with gradient caching, which computes the gradient of the whole batch in
    the memory of a small one, for one more forward pass (Gao et al. 2021); 0 encodes the batch at once."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The precision of matrix products; weights and losses stay in fp32."""
    compile: bool = False
    """Whether the encoder is compiled with torch.compile."""
    optimizer: Literal["adamw", "rmsprop"] = "adamw"
    schedule: Literal["linear", "constant", "staircase"] = "linear"
    """The learning rate after the warm-up: ``linear`` to zero, ``constant``, or the ``staircase`` of Contrastive
    Tension, which is 100, 80, 60, 40 and then 20 % of the rate, for 500 steps each."""
    warmup_steps: WholeNumber = 0
    warmup_share: Fraction = 0.0
    """The warm-up as a share of all steps, where `warmup_steps` is 0."""
    weight_decay: NotNegative = 0.0
    decay_all: bool = False
    """Whether biases and layer normalisations have weight decay, too."""
    adam_epsilon: Positive = 1e-8
    bias_correction: bool = True
    """Whether the bias of Adam's averages toward zero is corrected, as the first BERT code did not."""
    clip_norm: NotNegative = 1.0
    """The largest norm of the gradient; 0 does not clip."""
    keep_layers: tuple[int, ...] = ()
    """The layers of the start model that stay, counted from 0; none keeps all of them."""
    dropout: Fraction | None = None
    """The dropout rate everywhere in the encoder; none keeps the rates of the start model."""
    drop_heads: Fraction = 0.0
    """The rate at which whole attention heads are dropped (the drophead of Mirror-BERT's scripts)."""
    eval_every: AtLeastOne = 125
    """The number of steps between two scores on the dev set."""
    patience: WholeNumber = 0
    """The training stops after this many scores in a row that are not the best so far; 0 never stops it."""
    keep_start: bool = True
    """Whether the weights of the start model are kept if no later score is better. If not, the best trained weights are
    kept, as in the papers' code, whose first score comes after `eval_every` steps."""
    share_every: WholeNumber = 50
    """The number of steps between two measurements of each term's share of the gradient, which cost a backward pass for
    each term; 0 never measures."""
    deterministic: bool = False
    """Whether a GPU uses only deterministic kernels, which are slower; a CPU is always deterministic."""
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 42

    def check(self, sentences: int, processes: int = 1, source: str = "the data") -> None:
        """Refuse a batch size that this many sentences cannot fill in this many processes.

        Args:
            sentences: their number.
            processes: that train together.
            source: what gives them: a file, or the option that takes a part of the data, such as ``--limit 5``.
        """
        if sentences < self.batch_size * processes:
            times = f" in each of {processes} processes" if processes > 1 else ""
            raise InputError(
                f"--batch-size {self.batch_size}{times} is more than the {sentences} sentences of {source}: "
                "give a smaller one, or more data"
            )

    def total_steps(self, batches: int) -> int:
        """Return the number of optimiser steps, given the batches of an epoch."""
        return self.max_steps or max(1, self.epochs * batches // self.accumulate)

    def rate(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate at step number `step`, from 0, of `steps`."""
        warmup = self.warmup_steps or round(self.warmup_share * steps)
        if step < warmup:
            return step / warmup
        if self.schedule == "linear":
            return max(0.0, (steps - step) / max(1, steps - warmup))
        if self.schedule == "staircase":
            return max(5 - step // 500, 1) / 5
        return 1.0


_RESERVED_NAMES = {
    "head",
    "views",
    "cnn",
    "template",
    "twin",
    "fit",
    "start",
    "matryoshka",
    "settings",
    "objectives",
    "name",
    "title",
    "stage",
    "recipe",
    "file",
    "step",
    "loss",
    "learning_rate",
    "spread",
    "grad_norm",
    "sentences_per_second",
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
    template: Template | None = None
    """A template around each text that becomes part of the encoder."""
    twin: SecondEncoder | None = None
    """A second encoder for the second view."""
    fit: Fit | None = None
    """A transformation that is fitted instead of training."""
    start: StaticStart | None = None
    """A start that is made of the teacher, instead of a model's weights."""
    matryoshka: Matryoshka = field(default_factory=Matryoshka)
    """The first dimensions of the vectors that learn as the whole vectors do."""
    stages: Mapping[str, Method] = field(default_factory=dict)
    """Other trainings of the same paper, for ``--stage``."""
    file: Mapping[str, str] | None = None
    """Name and SHA-256 of the user's own file that made the method; None for the methods of the package."""

    def __post_init__(self) -> None:
        """Refuse an objective with a reserved name."""
        if reserved := sorted(_RESERVED_NAMES & set(self.objectives)):
            raise InputError(f"{self.name}: no objective can be called {reserved[0]}; choose another name")

    @property
    def fixed_pooling(self) -> str | None:
        """What it reads a vector from, in words, if that is a part of the method, which no ``--pooling`` replaces."""
        if self.template is not None:
            return "the mask token of its template"
        if self.cnn is not None:
            return "its own convolutions"
        return "what its classifier takes" if self.views.joint else None

    def sections(self) -> dict[str, Any]:
        """Return the parts that have settings, by their names in ``--set``."""
        if self.fit is not None:
            parts: dict[str, Any] = {"fit": self.fit, "template": self.template}
        else:
            parts = {
                **self.objectives,
                "head": self.head,
                "views": self.views,
                "cnn": self.cnn,
                "template": self.template,
                "twin": self.twin,
                "start": self.start,
                "settings": self.settings,
            }
            if self.matryoshka.dims:
                parts["matryoshka"] = self.matryoshka
        return {name: part for name, part in parts.items() if part is not None}

    def settable(self) -> dict[str, Any]:
        """Return the parts whose settings may be given by name: `sections`, and those that are off by default."""
        parts = self.sections()
        if self.fit is None:
            parts["matryoshka"] = self.matryoshka
        return parts

    def with_section(self, name: str, value: Any) -> Method:
        """Return the method with one section replaced."""
        if name in self.objectives:
            return replace(self, objectives={**self.objectives, name: value})
        return replace(self, **{name: value})

    def on_texts(self, views: ViewMaker) -> Method:
        """Return the method with its defaults for views that are different texts, such as labelled pairs.

        There is no MLP head, which would be new and is left out in encoding; the texts teach the vector itself.
        """
        objectives = dict(self.objectives)
        for name, objective in objectives.items():
            if isinstance(objective, InBatchNegatives):
                objectives[name] = replace(objective, mask_duplicates=True)
        settings = replace(self.settings, max_length=TEXT_LENGTH)
        head = NoHead() if isinstance(self.head, MLPHead) else self.head
        return replace(self, views=views, objectives=objectives, head=head, settings=settings)

    @property
    def needs(self) -> str:
        """The data that it learns from, in words."""
        if self.views.reads == "scores":
            return "pairs with the labels 0 and 1" if self._needs_labels else "scored pairs"
        if self.views.reads == "classed-pairs":
            return "pairs with a class"
        if self.views.reads == "labels":
            return "texts with a class"
        if self.views.reads == "pairs":
            return "triplets: anchors with a positive and hard negatives"
        return "plain text, or pairs of anchor and positive"

    @property
    def _needs_labels(self) -> bool:
        return any(term.needs_labels for term in self.objectives.values())

    def takes(self, kind: Kind | None) -> bool:
        """Return whether the method learns from a kind of table as it is; None stands for texts without labels."""
        reads = self.views.reads
        if kind is None:
            return reads == "sentences"
        if kind == "scored":
            return reads == "scores" and not self._needs_labels
        if kind == "binary":
            return reads in ("scores", "classed-pairs")
        if reads == "pairs":
            return kind == "triplets"
        if kind in ("classed-pairs", "labels") or reads != "sentences":
            return kind == reads
        terms = self.objectives.values()
        if any(term.one_sentence for term in terms) or not any(term.views >= 2 for term in terms):
            return False
        return kind == "pairs" or any(term.takes_hard_negatives for term in terms)

    def describe(self, *, changed_only: bool = False) -> dict[str, Any]:
        """Return the name and all settings except the shared ones, for reports and model cards.

        Args:
            changed_only: leave out settings with the default of their kind, so that new settings change no digest.
        """
        facts: dict[str, Any] = {"name": self.name}
        if self.file is not None:
            facts["file"] = dict(self.file)
        registries: dict[str, Mapping[str, type[Any]]] = {"head": HEADS, "views": VIEWS}
        registries.update(dict.fromkeys(self.objectives, OBJECTIVES))
        for section, part in self.sections().items():
            if section == "settings":
                continue
            values: dict[str, Any] = {}
            kind = _kind_of(part, registries.get(section, {}))
            if kind is not None and kind != section:
                values["kind"] = kind
            if section == "views":
                values["count"] = part.count
            facts[section] = values | (changed(part) if changed_only else asdict(part))
        return facts


def _kind_of(part: Any, registry: Mapping[str, type[Any]]) -> str | None:
    """Return the name of a part's class in a registry; None if it is not there, as a class of a user's file."""
    for name, kind in registry.items():
        if type(part) is kind:
            return name
    return None


def changed(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that do not have their default."""
    values = {}
    for setting in fields(part):
        value = getattr(part, setting.name)
        if value != setting.default:
            values[setting.name] = value
    return values
