"""Convolutions, a template and a second encoder, which a method may add, and what is fitted instead of training."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol
from zlib import crc32

import numpy as np
from annotated_types import Ge, Le

from sentcli.arrays import Float32Array
from sentcli.bounds import Bounded, WholeNumber
from sentcli.errors import InputError
from sentcli.io.word_vectors import write_static_folder
from sentcli.model.modules import CNNSpec, DenseSpec, PoolingSpec
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import check_template

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

RELU = "torch.nn.modules.activation.ReLU"


@dataclass(frozen=True, kw_only=True)
class CNN(Bounded):
    """Convolutions over the token vectors and their mean, as part of the encoder (IS-BERT)."""

    kernels: tuple[int, ...] = (1, 3, 5)
    channels: Annotated[int, Ge(1), Le(65_536)] = 256
    """The number of filters of each kernel."""
    relu: bool = False
    """Whether a ReLU follows the convolutions, as in the paper but not in the authors' code."""

    def __post_init__(self) -> None:
        """Refuse even kernels, which would shift the tokens."""
        super().__post_init__()
        if not self.kernels or any(kernel < 1 or kernel % 2 == 0 for kernel in self.kernels):
            raise InputError(f"kernels {self.kernels} must be odd, so that a token stays in the middle")

    def extend(self, spec: EncoderSpec) -> EncoderSpec:
        """Return the spec with new convolutions and mean pooling, or unchanged if it has these convolutions already.

        Raises:
            InputError: if it has other convolutions.
        """
        for module in spec.modules:
            if isinstance(module, CNNSpec):
                self._check_equal(module, spec)
                return spec
        cnn = CNNSpec(spec.hidden_size, self.channels, self.kernels, (1,) * len(self.kernels))
        modules = [cnn, PoolingSpec(("mean",)), *spec.ending]
        if self.relu:
            width = cnn.output_width(spec.hidden_size)
            modules.insert(1, DenseSpec(width, width, bias=False, activation=RELU, on_tokens=True))
        return replace(spec, modules=tuple(modules), assumed_pooling=False)

    def _check_equal(self, existing: CNNSpec, spec: EncoderSpec) -> None:
        """Refuse convolutions of the start model that are not these."""
        relu = any(isinstance(module, DenseSpec) and module.on_tokens for module in spec.modules)
        if (existing.kernel_sizes, existing.out_channels, relu) != (self.kernels, self.channels, self.relu):
            kernels = ",".join(map(str, existing.kernel_sizes))
            raise InputError(
                f"the start model has other convolutions: --set cnn.kernels={kernels} --set "
                f"cnn.channels={existing.out_channels} --set cnn.relu={str(relu).lower()}"
            )


@dataclass(frozen=True, kw_only=True)
class Template(Bounded):
    """A template around each text, whose mask token is pooled, as part of the encoder (PromptBERT)."""

    first: str = 'This sentence of "[X]" means [MASK].'
    """The template in encoding and of the first view; ``[X]`` stands for the text."""
    second: str = 'This sentence : "[X]" means [MASK].'
    """The template of the further views in training; empty for the first one."""
    denoise: bool = True
    """Whether the vector of the template alone is subtracted in training, before the head."""

    def __post_init__(self) -> None:
        """Refuse what is no template."""
        super().__post_init__()
        if self.first:
            check_template(self.first)
        if self.second:
            check_template(self.second)


@dataclass(frozen=True, kw_only=True)
class SecondEncoder(Bounded):
    """A second encoder, equal to the first at the start and trained beside it (Contrastive Tension)."""

    keep: Literal["best", "first", "second"] = "best"
    """Which encoder is kept: the ``best`` on the dev set (authors), ``first``, or ``second`` (sentence-transformers).
    Without a dev set, ``best`` is the second."""


@dataclass(frozen=True, kw_only=True)
class Matryoshka(Bounded):
    """The first dimensions of a vector learn what the whole vector does (Kusupati et al., NeurIPS 2022, eq. 1)."""

    dims: tuple[int, ...] = ()
    """How many of the first dimensions are trained by themselves, besides all of them; empty for none."""
    weights: tuple[float, ...] = ()
    """The weight of each of `dims` beside the 1 of all dimensions; 1 for all if it is empty."""

    def __post_init__(self) -> None:
        """Refuse dimensions that are none, or repeat, and another number of weights."""
        super().__post_init__()
        if any(dimension < 1 for dimension in self.dims) or len(set(self.dims)) < len(self.dims):
            raise InputError(f"matryoshka.dims={self.dims}: expected different dimensions, such as 256,128,64")
        if self.weights and len(self.weights) != len(self.dims):
            raise InputError(f"matryoshka.weights={self.weights}: expected {len(self.dims)}, one for each of dims")

    def parts(self) -> list[tuple[int, float]]:
        """Return each number of dimensions and its weight."""
        weights = self.weights or (1.0,) * len(self.dims)
        return list(zip(self.dims, weights, strict=True))


class Fit(Protocol):
    """A transformation of an encoder that is fitted to the data instead of training."""

    needs_data: bool

    def fit(self, encoder: SentenceEncoder, sentences: list[str]) -> SentenceEncoder:
        """Return the fitted encoder."""


@dataclass(frozen=True, kw_only=True)
class PoolingOnly:
    """Changes only the pooling of the start model, or puts its texts into a template: nothing is computed."""

    needs_data = False

    def fit(self, encoder: SentenceEncoder, sentences: list[str]) -> SentenceEncoder:
        """Return the encoder unchanged; it was loaded with the pooling or the template of the method."""
        return encoder


@dataclass(frozen=True, kw_only=True)
class WhiteningFit(Bounded):
    """x -> (x - mean) U S^-1/2: vectors of the data get mean 0 and covariance I (Su et al. 2021, algorithm 1)."""

    dimensions: WholeNumber = 0
    """The number of principal axes that are kept, the largest first; 0 keeps all that the vectors span."""

    needs_data = True

    def fit(self, encoder: SentenceEncoder, sentences: list[str]) -> SentenceEncoder:
        """Return the encoder with the transformation as a dense layer after its pooling."""
        encoder = encoder.with_normalize(False)
        width = encoder.dimension
        if self.dimensions > width:
            raise InputError(f"dimensions={self.dimensions} is more than the {width} of this model")
        different = len(set(sentences))
        if different <= width:
            raise InputError(
                f"whitening {width} dimensions needs more than {width} different sentences, not {different}"
            )
        matrix, bias = whitening_transform(encoder.encode(sentences), self.dimensions)
        return encoder.with_dense(matrix, bias)


def whitening_transform(vectors: Float32Array, dimensions: int) -> tuple[Float32Array, Float32Array]:
    """Return ``weight [k, d]`` and ``bias [k]`` so that ``weight x + bias`` has mean 0 and covariance I.

    Args:
        vectors: ``[n, d]``.
        dimensions: k; 0 takes as many as the vectors span.

    Raises:
        InputError: if the vectors span fewer dimensions.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    centred = vectors - mean
    values, axes = np.linalg.eigh(centred.T @ centred / len(vectors))
    values, axes = values[::-1], axes[:, ::-1]  # the largest first
    smallest = values[0] * len(values) * np.finfo(np.float32).eps
    rank = int((values > smallest).sum())
    if rank < dimensions:
        raise InputError(f"the vectors of the data span {rank} dimensions: --set dimensions={rank} or fewer")
    size = dimensions or rank
    weight = (axes[:, :size] / np.sqrt(values[:size])).T
    bias = -weight @ mean
    return weight.astype(np.float32), bias.astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class BagOfWordsFit(Bounded):
    """A vector of weighted words, which needs no training: the baseline that every model has to beat.

    The start model only says how a text is cut into words. If there are more words than dimensions, they are hashed
    (Weinberger et al., Feature hashing for large scale multitask learning, ICML 2009).
    """

    weights: Literal["tf-idf", "counts", "content-words"] = "tf-idf"
    """What a word counts: ``tf-idf`` ln((1 + n) / (1 + df)) + 1, for n sentences of which df have it, as scikit-learn
    does; ``counts`` 1; ``content-words`` 1, but 0 for function words and for what has no letter or digit.
    """
    dimensions: Annotated[int, Ge(1), Le(65_536)] = 1024
    words: Annotated[int, Ge(1), Le(1_000_000)] = 30_000
    """The most words of the vocabulary, the ones that are in most sentences first."""

    needs_data = True

    def fit(self, encoder: SentenceEncoder, sentences: list[str]) -> SentenceEncoder:
        """Return an encoder whose vector is the mean of the vectors of a text's words."""
        from sentcli.encoder.sentence_encoder import SentenceEncoder

        tokenizer = encoder.hf_tokenizer.backend_tokenizer
        normalizer, word_cutter = tokenizer.normalizer, tokenizer.pre_tokenizer
        if encoder.local.spec.lowercase or word_cutter is None:
            raise InputError("bag-of-words needs a start model whose tokenizer cuts texts into words, such as minilm")
        counts: Counter[str] = Counter()
        for text in sentences:
            if normalizer is not None:
                text = normalizer.normalize_str(text)
            counts.update({word for word, _ in word_cutter.pre_tokenize_str(text)})
        frequent = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[: self.words]
        words = [word for word, _ in frequent]
        table = self._table(frequent, len(sentences))
        with tempfile.TemporaryDirectory() as folder:
            write_static_folder(Path(folder), words, table, normalizer, word_cutter)
            return SentenceEncoder.load(folder, backend="torch", device=encoder.backend.device)

    def _table(self, frequent: list[tuple[str, int]], sentences: int) -> Float32Array:
        """Return the vectors of words ``[words, dimensions]``, given how many of the sentences each word is in."""
        width = min(self.dimensions, len(frequent))
        table = np.zeros((len(frequent), width), np.float32)
        for row, (word, count) in enumerate(frequent):
            column, sign = row, 1
            if len(frequent) > width:
                column = crc32(word.encode()) % width
                sign = 1 - 2 * (crc32(word.encode(), 1) & 1)
            table[row, column] = sign * self.weight(word, count, sentences)
        return table

    def weight(self, word: str, count: int, sentences: int) -> float:
        """Return the weight of a word that is in `count` of the sentences."""
        if self.weights == "tf-idf":
            return math.log((1 + sentences) / (1 + count)) + 1
        if self.weights == "counts":
            return 1.0
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        is_word = any(map(str.isalnum, word))
        return float(is_word and word.lower() not in ENGLISH_STOP_WORDS)
