"""The ways of encoding a set and of keeping its vectors that ``evaluate --variants`` tries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import AfterValidator, BaseModel, ConfigDict, StrictBool

from sentcli.compression import Compression, OutputType
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.readings import Reading
from sentcli.io.forms import read_toml
from sentcli.model.options import MIN_LENGTH, BackendName, Precision
from sentcli.model.spec import POOLINGS
from sentcli.search import ann
from sentcli.search.options import SearchOptions

LEAST_DIMENSIONS = 32
MOST_TRUNCATIONS = 4
"""Without a file, the powers of two below the model's dimension down to this one are tried, and at most so many."""
OFTEN_CUT = 0.05
"""Without a file, half the maximum length is tried where a larger share of the documents is longer than that."""
WORTH = {"hnsw": 10_000, "ivf": 10_000, "ivfpq": 100_000}
"""The kinds of index that are tried without a file, with the number of documents from which each may be worth it: exact
search compares fewer in a moment, and learning product codes takes a minute or two whatever their number."""


def _known(pooling: str) -> str:
    """Refuse an unknown pooling."""
    if pooling not in POOLINGS:
        raise ValueError(f"no pooling {pooling!r}; one of {', '.join(POOLINGS)}")
    return pooling


class VariantGrid(BaseModel):
    """The ways that are tried: the content of the file of ``--variants FILE.toml``."""

    model_config = ConfigDict(extra="forbid")

    dimensions: list[Annotated[int, Ge(1)]] | None = None
    """Numbers of leading dimensions; None takes powers of two."""
    types: list[Literal[OutputType, "binary rescored"]] = ["float32", "float16", "int8", "binary", "binary rescored"]
    """Types of the numbers in vectors, each with all dimensions; rescored bits have float16 vectors beside them."""
    indexes: list[str] | None = None
    """Kinds of index over whole vectors; None takes those of `WORTH` for which there are enough documents."""
    lengths: list[Annotated[int, Ge(MIN_LENGTH)]] | None = None
    """Maximum lengths in tokens; None takes half of the model's where many documents are longer."""
    poolings: list[Annotated[str, AfterValidator(_known)]] = []
    precisions: list[Precision] | None = None
    """Precisions of the computation; None takes int8 on a CPU."""
    backends: list[BackendName] = []
    readings: list[Reading] | None = None
    """Ways of reading documents that are longer than the model reads; None takes all where many documents are."""
    prompts: StrictBool = True
    """Encode without prompts as well, where the model has some."""

    @classmethod
    def read(cls, name: str) -> VariantGrid:
        """Read the file of a name; ``default`` stands for none."""
        if name == "default":
            return cls()
        if Path(name).suffix != ".toml":
            raise InputError(f"--variants {name}: expected a .toml file, or none; data stand in front of it")
        return read_toml(cls, Path(name))


@dataclass(frozen=True)
class Encoding:
    """How texts are encoded: what differs from the options of the command."""

    options: dict[str, Any] = field(default_factory=dict)
    """Fields of `LoadOptions`."""
    reading: Reading = "cut"
    """How documents are read that are longer than the model reads."""
    prompts: bool = True
    """Whether queries and documents have the prompts of the model."""

    @property
    def name(self) -> str:
        """The difference in words; empty for none."""
        words = {"max_length": "{} tokens", "precision": "{} weights", "pooling": "{} pooling", "backend": "{}"}
        parts = [words[key].format(value) for key, value in self.options.items()]
        if self.reading != "cut":
            parts.append(self.reading)
        if not self.prompts:
            parts.append("without prompts")
        return ", ".join(parts)


@dataclass(frozen=True)
class Storage:
    """How vectors are kept and searched."""

    compression: Compression = field(default_factory=Compression)
    rescored: bool = False
    """Whether the best hits are compared by whole vectors in float16."""
    index: str = ann.FLAT

    def name(self, dimension: int) -> str:
        """Return the way in words, of a model with so many dimensions."""
        numbers: str = self.compression.output_type
        if numbers == "binary":
            numbers = "bits"
        parts = [f"{numbers} x {self.compression.truncate_dim or dimension}"]
        if self.rescored:
            parts.append("rescored")
        if self.index != ann.FLAT:
            parts.append(self.index)
        return ", ".join(parts)


def storages(grid: VariantGrid, documents: int, dimension: int) -> list[Storage]:
    """Return the ways of keeping so many vectors of a dimension, first the whole ones."""
    dimensions = grid.dimensions
    if dimensions is None:
        powers = [2**power for power in range(20, 0, -1)]
        smaller = [power for power in powers if LEAST_DIMENSIONS <= power < dimension]
        dimensions = smaller[:MOST_TRUNCATIONS]
    indexes = grid.indexes
    if indexes is None:
        indexes = [kind for kind, least in WORTH.items() if documents >= least]
    for kind in indexes:
        ann.recipe(kind, max(documents, 100_000), dimension)  # refuses an unknown one, whatever the number of rows
    for size in dimensions:
        if size > dimension:
            raise InputError(f"--variants: {size} dimensions are more than the {dimension} of the model")
    ways = [Storage()]
    for truncated in (None, *dimensions):
        if truncated == dimension:
            continue
        for type_name in grid.types:
            output_type: Any = type_name.removesuffix(" rescored")
            ways.append(Storage(Compression(output_type, truncated), rescored=type_name.endswith(" rescored")))
    for kind in indexes:
        ways.append(Storage(index=kind))
    return list(dict.fromkeys(ways))


def encodings(grid: VariantGrid, model: EvaluatedModel, cut: float, *, titled: bool = False) -> list[Encoding]:
    """Return the ways of encoding besides that of the command.

    Args:
        grid: what is tried.
        model: with the options of the command.
        cut: the share of the documents that it cuts.
        titled: whether documents have titles.
    """
    spec = model.spec
    options = model.options
    lengths = grid.lengths or []
    if grid.lengths is None and spec.max_length and cut > OFTEN_CUT:
        lengths = [spec.max_length // 2]
    precisions = grid.precisions or []
    if grid.precisions is None and _int8_is_a_choice(model):
        precisions = ["int8"]
    candidates: dict[str, tuple[Iterable[Any], Any]] = {
        "max_length": (lengths, spec.max_length),
        "pooling": (grid.poolings, spec.pooling),
        "precision": (precisions, options.precision),
        "backend": (grid.backends, options.backend),
    }
    ways = []
    for option, (values, value_of_command) in candidates.items():
        for value in values:
            if value != value_of_command:
                ways.append(Encoding({option: value}))
    ways += _readings(grid, model, cut, titled=titled)
    if grid.prompts and any(SearchOptions().prompts(spec)):
        ways.append(Encoding(prompts=False))
    return ways


def _readings(grid: VariantGrid, model: EvaluatedModel, cut: float, *, titled: bool) -> list[Encoding]:
    """Return the ways of reading long documents that are tried."""
    readings = grid.readings
    if readings is None:
        readings = []
        if cut > OFTEN_CUT and not model.is_served:
            readings = ["chunk-mean", "passages"]
            if titled:
                readings[1] = "passages with titles"
    return [Encoding(reading=reading) for reading in readings if reading != "cut"]


def _int8_is_a_choice(model: EvaluatedModel) -> bool:
    """Tell whether a model runs on the CPU of this machine, by a backend that may take int8."""
    options = model.options
    if model.is_served or not options.on_cpu:
        return False
    return options.backend != "torch" and options.precision == "auto"
