"""Which kept probabilities hold for a search: those beside the corpus, else those beside the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.model.spec import EncoderSpec
from sentcli.search.calibration import CALIBRATION, Calibration, Least
from sentcli.search.local_corpus import LocalCorpus
from sentcli.search.vector_directory import VectorDirectory

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.corpus import Corpus

_ADVICE = "sentcli evaluate PAIRS|SET -m MODEL --threshold 0.9 --keep-threshold DIR learns and keeps it"


@dataclass(frozen=True)
class SearchFacts:
    """How a search compares queries and rows."""

    encoder: SentenceEncoder
    facts: Mapping[str, Any]
    """What `Corpus.prepare` said of the corpus."""
    prompt: str
    """The text in front of each query."""
    alike: bool = False
    """Whether the queries are rows of the corpus."""
    rescored: bool = False
    """Whether hits are compared by full vectors in the end."""


def probabilities_of(corpus: Corpus, search: SearchFacts, least: Least | None) -> Calibration | None:
    """Return what gives the hits of a search their probabilities; None if nothing that is kept holds for it.

    Args:
        corpus: that is searched.
        search: how.
        least: what hits have to have.

    Raises:
        InputError: if a probability is asked for and there is none.
    """
    reasons = []
    for folder in _folders(corpus, search.encoder):
        try:
            calibration = Calibration.read(folder)
        except InputError as error:  # damaged, or another program's file of that name
            reasons.append(str(error))
            continue
        if calibration is None:
            continue
        lack = _lack(calibration, corpus, search)
        if lack is None:
            _say(calibration)
            return calibration
        reasons.append(f"{folder / CALIBRATION} does not hold here: {lack}")
    if least is not None and least.is_probability:
        why = "; ".join(reasons) or f"no probability is kept beside {corpus.title} or {search.encoder.model}"
        raise InputError(f"--least {least.value:g}p: {why}. {_ADVICE}")
    for reason in reasons:
        console.note(f"{reason}; hits are shown without probabilities")
    return None


def _folders(corpus: Corpus, encoder: SentenceEncoder) -> Iterator[Path]:
    """Yield the folders that may keep probabilities: that of the corpus, then that of the model."""
    if isinstance(corpus, LocalCorpus) and isinstance(corpus.stored, VectorDirectory):
        yield corpus.stored.folder
    if isinstance(encoder.spec, EncoderSpec):
        yield encoder.spec.folder


def _lack(calibration: Calibration, corpus: Corpus, search: SearchFacts) -> str | None:
    """Return why what is kept does not hold for a search; None if it does."""
    learned = calibration.learned_from
    if search.alike and learned.kind == "retrieval":
        return "it was learned from queries, and --like compares rows"
    facts = search.facts
    lack = calibration.lack(search.encoder.identity, facts["similarity"], search.prompt, facts["document_prompt"])
    if lack is not None:
        return lack
    vectors = corpus.origin or VectorFacts()  # texts are encoded whole
    return learned.lack_of_vectors(vectors, rescored=search.rescored)


def _say(calibration: Calibration) -> None:
    """Say what the probabilities were learned from, since they hold only where as many hits are right."""
    learned = calibration.learned_from
    count = calibration.positives + calibration.negatives
    what = f"{count:,} pairs"
    if learned.depth is not None:
        what = f"the first {learned.depth} hits of queries, {count:,} in all"
    right = f"{100 * calibration.share_right:.0f} % were right"
    console.note(
        f"probabilities are learned from {learned.name}: {what}, of which {right}; they hold where as many are"
    )
