"""The vectors of a few fixed texts, kept beside all others: they tell later whether a model is still the same.

Names, versions and checksums of files cannot tell it: a library may compute otherwise than before, a service may change
its model under the same name, and the same weights may be saved in other bytes.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le
from pydantic import Field, ValidationError

from sentcli.arrays import Float32Array, Float64Array, Vectors
from sentcli.errors import InputError
from sentcli.io.forms import adapter_of
from sentcli.model.encoding import LoadedModel
from sentcli.model.identity import ModelSource
from sentcli.model.served import ServedModel
from sentcli.model.spec import EncoderSpec

Agreement = Literal["equal", "rounding", "another precision", "another pooling or prompt", "another model"]
_WIDTH = 16
"""The numbers that are kept of each vector: its products with as many fixed random directions."""
SUM_ORDER = 1e-5
"""Differences below this share of the length of a vector are those of sums in another order."""
SAME_WEIGHTS = 1e-5
"""Weights that were saved in other bytes count as the same where 1 minus the cosine is below this on average; half
precision makes about 1e-7 of it, a step of training more."""
PRECISION = 0.02
"""Where weights are unknown, a model whose 1 minus cosine is below this on average counts as the same in another
precision: int8 makes less than 0.01 of it."""
ANY_PRECISION = 0.2
"""The same weights that differ by more are not only computed in another precision."""
PROBE_TEXTS = (
    "A man is playing a guitar.",
    "The cat sat on the mat.",
    "Two dogs run through the snow.",
    "A woman is slicing an onion.",
    "Children are playing in the park.",
    "The train to Paris leaves at nine.",
    "She bought a red bicycle last week.",
    "It has been raining since Tuesday.",
    "Nobody knows where the key is.",
    "The old bridge was closed for repairs.",
    "Water boils at 100 degrees Celsius.",
    "The committee will meet again in March.",
    "He denied that he had ever been there.",
    "Prices rose by 3.5 percent in 2021.",
    "A plane is landing.",
    "The soup is too hot to eat.",
    "How do I reset my password?",
    "What is the capital of Australia?",
    "Why is the sky blue?",
    "Can I return an item without a receipt?",
    "When does the museum open on Sundays?",
    "Is there a vegetarian option?",
    "Who wrote the first computer program?",
    "Where can I park near the station?",
    "symptoms of a vitamin D deficiency",
    "best hiking boots for wide feet",
    "python read csv file line by line",
    "flights from Berlin to Lisbon in May",
    "interest rate",
    "apple pie",
    "COVID-19 vaccine side effects",
    "wifi keeps disconnecting",
    "The enzyme catalyses the hydrolysis of peptide bonds.",
    "We propose a contrastive objective for sentence representations.",
    "Patients were randomised to receive either drug or placebo.",
    "The defendant appealed against the decision of the court.",
    "The boundary layer separates from the wing at high angles of attack.",
    "Revenue for the quarter exceeded expectations.",
    "This film is a complete waste of time.",
    "I loved every minute of it!",
    "Not bad, but the ending was disappointing.",
    "Great phone, terrible battery.",
    "the quick brown fox jumps over the lazy dog",
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG",
    "lorem ipsum dolor sit amet",
    "def add(a, b): return a + b",
    "SELECT name FROM users WHERE id = 7;",
    "<p>Hello, <b>world</b>!</p>",
    "https://example.org/a/b?c=d&e=f",
    "Error 404: page not found",
    "12345",
    "3.14159",
    "2024-02-29T12:00:00Z",
    "a",
    "?!",
    "naïve café façade",
    "Der Zug fährt um neun Uhr ab.",
    "Où se trouve la bibliothèque ?",
    "El perro duerme en el sofá.",
    "Быстрая коричневая лиса",
    "今天天气很好。",
    "東京は日本の首都です。",
    "مرحبا بالعالم",
    "नमस्ते दुनिया 🙂",
)
"""The fixed texts: sentences, questions, words to search for, prose of several fields, code, numbers, other scripts."""


@dataclass(frozen=True)
class ProbeVectors:
    """What is kept of the vectors of `PROBE_TEXTS`."""

    sha256: str
    """Of the vectors in float32, little endian, ``[64, dim]``."""
    dimension: Annotated[int, Ge(1), Le(2**24)]
    vectors: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*={0,2}$")]
    """Their products with fixed directions, float32 ``[64, 16]`` in base64: lengths and cosines stay nearly the same
    (Johnson and Lindenstrauss, 1984), in a sixtieth of the bytes."""
    weights: str
    """A hash of the weights; empty where they are unknown, as those of a model that is served."""
    choices: dict[str, Any]
    """Pooling, normalisation, prompt and maximum length."""
    precision: str
    """What ran the model, and its precision."""

    def __post_init__(self) -> None:
        """Refuse vectors of another size."""
        whole = len(base64.b64decode(self.vectors)) == 4 * len(PROBE_TEXTS) * _WIDTH
        if not whole or not np.isfinite(self._numbers).all():
            raise ValueError("vectors are not those of the fixed texts")

    @classmethod
    def of(cls, model: LoadedModel | ServedModel, prompt: str) -> ProbeVectors:
        """Encode the texts with a prompt in front of each; a host is sent them."""
        vectors, spec = model.encode(PROBE_TEXTS, prompt).vectors.astype("<f4"), model.spec
        weights = ModelSource.of(spec).weights if isinstance(spec, EncoderSpec) else ()
        length = model.tokenizer.max_length if isinstance(model, LoadedModel) else None
        return cls(
            sha256=hashlib.sha256(vectors.tobytes()).hexdigest(),
            dimension=vectors.shape[1],
            vectors=base64.b64encode(_projected(vectors).tobytes()).decode(),
            weights=hashlib.sha256("".join(weights).encode()).hexdigest() if weights else "",
            choices={"pooling": spec.pooling, "normalize": spec.normalizes, "prompt": prompt, "max_length": length},
            precision=f"{model.backend.name} {model.backend.precision}",
        )

    @classmethod
    def read(cls, title: str, value: dict[str, Any] | None) -> ProbeVectors:
        """Read what `of` returned from JSON.

        Raises:
            InputError: if there is nothing, as in files of earlier versions, or it is damaged.
        """
        if value is None:
            raise InputError(
                f"{title} keeps no vectors of fixed texts, like all .npy files and what earlier versions wrote: make "
                "it again, in a form that does"
            )
        try:
            form: Any = cls
            made: ProbeVectors = adapter_of(form).validate_python(value)
            return made
        except ValidationError as error:
            raise InputError(f"{title}: its vectors of fixed texts are damaged; make it again") from error

    @property
    def in_int8(self) -> bool:
        """Whether the model computed in int8."""
        return self.precision.endswith(" int8")

    @property
    def _numbers(self) -> Float64Array:
        return np.frombuffer(base64.b64decode(self.vectors), "<f4").reshape(len(PROBE_TEXTS), _WIDTH).astype(np.float64)

    def compare(self, other: ProbeVectors) -> tuple[Agreement, str]:
        """Tell what another model is to the one that these are of, in a word and in a sentence."""
        if self.dimension != other.dimension:
            return "another model", f"another model: {self.dimension} dimensions there, {other.dimension} here"
        mine, others = self._numbers, other._numbers
        lengths = np.linalg.norm(mine, axis=1) * np.linalg.norm(others, axis=1)
        farthest = float(np.linalg.norm(mine - others, axis=1).max() / max(np.sqrt(lengths.max()), 1e-30))
        apart = 1 - float(((mine * others).sum(axis=1) / np.maximum(lengths, 1e-30)).mean())
        measured, known = f"(mean cosine about {1 - apart:.4f})", bool(self.weights and other.weights)
        if known and self.weights != other.weights and apart > SAME_WEIGHTS:
            return "another model", f"another model {measured}"
        if changed := [key for key, value in self.choices.items() if other.choices.get(key) != value]:
            named = ", ".join(f"{key} {self.choices[key]!r} there, {other.choices.get(key)!r} here" for key in changed)
            return "another pooling or prompt", f"used otherwise: {named} {measured}"
        if self.sha256 == other.sha256:
            return "equal", "equal to the bit"
        if farthest < SUM_ORDER:
            return "rounding", f"equal up to rounding (by {farthest:.0e} of their lengths)"
        if apart < (ANY_PRECISION if known else PRECISION):
            precisions = f"{self.precision} there, {other.precision} here"
            return "another precision", f"another precision: {precisions} {measured}"
        return "another model", f"another model {measured}"


def _projected(vectors: Vectors) -> Float32Array:
    """Return the products of vectors ``[n, dim]`` with fixed directions ``[n, 16]``."""
    directions = np.random.default_rng(0).standard_normal((vectors.shape[1], _WIDTH)) / _WIDTH**0.5
    return np.asarray(vectors.astype(np.float64) @ directions, "<f4")
