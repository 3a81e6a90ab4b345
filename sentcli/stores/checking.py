"""Whether the index of a collection finds what exact search finds, and whether a model makes its vectors."""

from __future__ import annotations

from typing import Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.search.corpus import Corpus
from sentcli.search.recall import sample, tune
from sentcli.stores.opening import load_query_encoder
from sentcli.stores.store import CheckedCorpus


def check_index(corpus: Corpus, target: float) -> dict[str, Any] | None:
    """Measure the index of a collection as it is, and with more effort.

    Args:
        corpus: the collection.
        target: the recall@10 that is aimed at.

    Returns:
        The result of `recall.tune`, with the kind of the index, and at ``present`` the recall and the effort that it
        has; None where rows are compared exactly.

    Raises:
        InputError: if its database offers no check.
    """
    index = _checked(corpus).to_check()
    if index is None:
        console.note(f"{corpus.title}: no index is there, so its {len(corpus):,} rows are compared exactly")
        return None
    with console.working("measuring") as step:
        step("exact search")
        reference = sample(index.blocks, index.similarity)
        measured = tune(index, reference, target, step=step)
    present = measured["points"][0]
    kind = index.record.kind
    console.note(
        f"{corpus.title}: the index {kind} finds {present['recall']:.3f} of the {measured['k']} nearest rows with "
        f"{measured['parameter']} {present['effort']}, as it is now"
    )
    chosen = measured["chosen"]
    if present["recall"] < target:
        console.warn(f"{measured['parameter']} {chosen['effort']} finds {chosen['recall']:.3f}: {target:g} is aimed at")
    return {**measured, "kind": kind, "present": present}


def check_model(corpus: Corpus, model: str | None, load: LoadOptions, doc_prompt: str | None) -> tuple[str, str | None]:
    """Compare the vectors of some rows with those that a model makes of their texts.

    Args:
        corpus: the collection.
        model: the name of the model; None takes the one that the collection names.
        load: how it is loaded.
        doc_prompt: the text in front of each text; None takes that of the collection, or else the model's own.

    Returns:
        The name of the model, which is empty where none is known, and what is wrong, if anything is.
    """
    origin = corpus.origin
    assert origin is not None
    if not len(corpus):
        console.note(f"{corpus.title} has no row that could be compared with a model")
        return "", None
    if model is None and not origin.known:
        console.note(f"{corpus.title} does not say which model made its vectors: -m compares them with one")
        return "", None
    models = []
    if model:
        models.append(model)
    encoder = load_query_encoder(models, corpus, load)
    prompt = doc_prompt
    if prompt is None:
        prompt = origin.document_prompt(encoder)
    texts, vectors = _checked(corpus).rows_to_compare()
    try:
        origin.check_encoder(encoder, prompt, vectors.shape[1])
        origin.check_texts(texts, vectors, encoder, prompt)
    except InputError as error:
        return encoder.model, str(error)
    console.note(f"{corpus.title}: the vectors of {len(texts)} of its texts are those of {encoder.model}")
    return encoder.model, None


def _checked(corpus: Corpus) -> CheckedCorpus:
    """Return a corpus that can be checked.

    Raises:
        InputError: if its database offers no check.
    """
    if not isinstance(corpus, CheckedCorpus):
        raise InputError(f"--check: {corpus.title} cannot be checked; its index is measured when it is written")
    return corpus
