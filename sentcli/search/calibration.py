"""Which probability a similarity stands for: what ``evaluate --threshold`` has learned and kept, for hits of a search.

calibration.json     in a directory of `encode`, or in the folder of a model
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le
from pydantic import Field

from sentcli import console
from sentcli.arrays import Float64Array
from sentcli.encoder.vector_facts import Passages, VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import Count
from sentcli.io.forms import Number, read_json_form, write_json
from sentcli.model.identity import EncoderIdentity
from sentcli.model.spec import Similarity
from sentcli.search.options import SearchMode

if TYPE_CHECKING:
    from sentcli.search.corpus import Hit

Share = Annotated[float, Ge(0), Le(1)]
CALIBRATION = "calibration.json"
MOST_SIMILAR: dict[str, float] = {"cosine": 1.0}
"""The highest value of similarities that have one."""
BEYOND_ALL = 1e9
PER_CENT = 2
"""From here on a number in the place of a similarity between -1 and 1 looks like per cent."""
SAME_SIMILARITIES = ("float32", "float16")
"""The output types of vectors whose similarities are those that were learned from, but for rounding."""


@dataclass(frozen=True)
class Isotonic:
    """A probability that never falls: straight lines between knots, level before the first and behind the last."""

    knots: Annotated[list[tuple[Number, Share]], Field(min_length=1)]
    """Similarities, each greater than the one before it, with their probabilities."""
    form: Literal["isotonic"] = "isotonic"

    def __post_init__(self) -> None:
        for (similarity, probability), (following, next_probability) in pairwise(self.knots):
            if following <= similarity or next_probability < probability:
                raise ValueError("similarities have to rise from knot to knot, and probabilities must not fall")

    def __call__(self, similarities: Float64Array) -> Float64Array:
        """Return the probabilities of similarities ``[n]``."""
        places, values = zip(*self.knots, strict=True)
        return np.interp(similarities, places, values)


@dataclass(frozen=True)
class Logistic:
    """Platt's sigmoid ("Probabilistic outputs for support vector machines", 1999): 1 / (1 + exp(-(slope s + c)))."""

    slope: Annotated[Number, Ge(0)]
    intercept: Number
    form: Literal["logistic"] = "logistic"

    def __call__(self, similarities: Float64Array) -> Float64Array:
        """Return the probabilities of similarities ``[n]``."""
        log_odds = np.clip(self.slope * np.asarray(similarities, np.float64) + self.intercept, -500, 500)
        return 1 / (1 + np.exp(-log_odds))


Curve = Isotonic | Logistic


@dataclass(frozen=True)
class LearnedFrom:
    """The data that a probability was learned from, and how its texts were compared."""

    name: str
    kind: Literal["binary", "retrieval"]
    """Pairs with labels 0 and 1, or the first hits of the queries of a retrieval set."""
    digest: str
    """A digest of the data."""
    similarity: Similarity
    query_prompt: str = ""
    """The text in front of each query; of pairs, in front of every text."""
    document_prompt: str = ""
    depth: Annotated[int, Ge(1)] | None = None
    """Hits of each query; None for pairs."""
    passages: Passages | None = None
    """How documents were cut; None if they are whole."""

    def lack_of_vectors(self, facts: VectorFacts, *, rescored: bool = False) -> str | None:
        """Return why the similarities of stored vectors are not those that were learned from; None if they are.

        Args:
            facts: how the vectors were made.
            rescored: whether hits are compared by full vectors in the end.
        """
        is_smaller = facts.truncate_dim is not None or facts.output_dtype not in SAME_SIMILARITIES
        if is_smaller and not rescored:
            return f"{self.name} was searched by full vectors, and these were made smaller"
        if self.kind == "retrieval" and self.passages != facts.passages:
            return f"{self.name} was searched by {_how_cut(self.passages)}, and this is {_how_cut(facts.passages)}"
        return None


def _how_cut(passages: Passages | None) -> str:
    """Return in words how documents were cut."""
    if passages is None:
        return "whole documents"
    tokens = f"passages of {passages.tokens} tokens, overlap {passages.overlap}"
    return f"{tokens}, context {passages.context}"


@dataclass(frozen=True)
class Calibration:
    """The probability that a hit is right, by its similarity.

    It holds for one model, and where as large a share of hits is right as in the data that it was learned from.
    """

    curve: Annotated[Curve, Field(discriminator="form")]
    model: str
    """The name that the user gave."""
    model_fingerprint: str
    """See `SentenceEncoder.fingerprint`."""
    learned_from: LearnedFrom
    positives: Count
    negatives: Count
    precision: Share
    """The precision that was asked for."""
    threshold: Number | None
    """The similarity from which on hits have this precision; None if it is not reached."""
    version: Literal[1] = 1

    @classmethod
    def read(cls, folder: Path) -> Calibration | None:
        """Return what is kept in a folder; None if there is nothing.

        Raises:
            InputError: if the file is damaged.
        """
        path = folder / CALIBRATION
        if not path.exists():
            return None
        remedy = "delete it, or make it again: sentcli evaluate --threshold P --keep-threshold PLACE --overwrite"
        return read_json_form(cls, path, missing=f"{path} is missing", remedy=remedy)

    def write(self, folder: Path) -> Path:
        """Write the file into a folder, whole or not at all, and return its path."""
        path = folder / CALIBRATION
        write_json(path, asdict(self))
        return path

    def probabilities(self, similarities: npt.ArrayLike) -> Float64Array:
        """Return the probability of each similarity ``[n]`` that a hit is right, from 0 to 1."""
        return self.curve(np.asarray(similarities, np.float64))

    @property
    def highest(self) -> float:
        """The highest probability that a hit can have."""
        return float(self.probabilities(MOST_SIMILAR.get(self.learned_from.similarity, BEYOND_ALL)))

    @property
    def share_right(self) -> float:
        """The share of hits that were right in the data that it was learned from."""
        return self.positives / (self.positives + self.negatives)

    def lack(self, identity: EncoderIdentity, similarity: str, query_prompt: str, document_prompt: str) -> str | None:
        """Return why the similarities of a search are not those that were learned from; None if they are.

        Args:
            identity: of the model that encodes the queries.
            similarity: of query and row.
            query_prompt: the text in front of each query.
            document_prompt: the text in front of each row.
        """
        if not identity.is_named(self.model_fingerprint):
            return f"it was learned from vectors of another model ({self.model})"
        learned = self.learned_from
        searched = {"similarity": similarity, "query_prompt": query_prompt, "document_prompt": document_prompt}
        for name, value in searched.items():
            there = getattr(learned, name)
            if there != value:
                return f"it was learned with {name} {there!r}, and this is {value!r}"
        return None


@dataclass(frozen=True)
class Least:
    """What a hit has to have at least: a similarity, or a probability."""

    value: float
    is_probability: bool = False

    @classmethod
    def parse(cls, text: str | None, modes: list[SearchMode]) -> Least | None:
        """Read ``--least``: ``0.42`` is a similarity, ``0.9p`` a probability.

        Args:
            text: the value of the option; None if it is not given.
            modes: the ways of searching.

        Raises:
            InputError: if it is neither, or hits are ranked by something else than their similarity.
        """
        if text is None:
            return None
        number = text.removesuffix("p")
        is_probability = number != text
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        in_bounds = not is_probability or 0 <= value <= 1
        if not (math.isfinite(value) and in_bounds):
            raise InputError(f"--least {text}: give a similarity, as 0.42, or a probability from 0 to 1, as 0.9p")
        if modes != ["dense"]:
            ways = ",".join(modes)
            raise InputError(
                f"--least {text} is of similarities, and scores of --search {ways} are none: leave one out"
            )
        return cls(value, is_probability)

    def check(self, similarity: str, calibration: Calibration | None) -> None:
        """Refuse what looks like per cent, and warn of a similarity or a probability that no hit can have.

        Args:
            similarity: by which rows are searched.
            calibration: what gives hits their probabilities.

        Raises:
            InputError: which says what the highest similarity is.
        """
        if self.is_probability:
            if calibration is not None and self.value > calibration.highest:
                source = calibration.learned_from.name
                most = f"the highest one that was learned from {source} is {calibration.highest:.3f}"
                console.warn(f"--least {self.value:g}p: no hit has this probability, {most}")
            return
        most_similar = MOST_SIMILAR.get(similarity, math.inf)
        if self.value <= most_similar:
            return
        problem = f"--least {self.value:g}: no hit has it, a similarity by {similarity} is {most_similar:g} at most"
        if self.value >= PER_CENT:
            raise InputError(f"{problem}; a probability is written as 0.9p")
        console.warn(problem)

    def keeps(self, hit: Hit) -> bool:
        """Tell whether a hit is shown, by its similarity or its probability."""
        if not self.is_probability:
            return hit.score >= self.value
        return hit.probability is not None and hit.probability >= self.value
