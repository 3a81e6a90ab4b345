"""What a model finds similar in the user's own data, with whether it is right: what thresholds are learned from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sentcli import console
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.evaluation.beir_files import relevant_documents
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask, for_model
from sentcli.evaluation.labelled_tasks import BinaryTask
from sentcli.evaluation.observed_hits import Observed, groups_of_pairs, require_either
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.thresholds import FITS, Threshold
from sentcli.io.atomic import check_output
from sentcli.io.blocks import MANIFEST
from sentcli.io.digests import json_digest
from sentcli.search.calibration import CALIBRATION, Calibration, LearnedFrom
from sentcli.search.vector_directory import VectorDirectory
from sentcli.stores.passages import facts_of
from sentcli.zoo import local_path

_HITS = 10
"""The first documents of each query that are its hits."""
WHY_NONE = {
    "similarity": "its scores do not say of a pair whether it is right: a table with labels 0 and 1 does",
    "pairs": "it has no wrong pairs: label some with 0, or make a retrieval set of it",
    "triplets": "its negatives were chosen to be wrong, and others are not known: a table with labels 0 and 1 is",
    "labels": "its texts have classes and are no pairs",
}
"""Why there is no threshold of other kinds of data."""

OwnHits = BinaryTask | RetrievalTask


def tasks_with_hits(tasks: Sequence[OwnTask]) -> list[OwnHits]:
    """Return the tasks whose hits are right or wrong, before anything is encoded.

    Raises:
        InputError: for data of another kind, or with too few right or wrong hits whatever the model.
    """
    with_hits: list[OwnHits] = []
    for task in tasks:
        if isinstance(task, BinaryTask):
            right = int(task.right.sum())
            require_either(task.name, right, len(task) - right)
        elif isinstance(task, RetrievalTask):
            data = task.data
            relevant = sum(len(relevant_documents(judgements)) for judgements in data.qrels.values())
            shown = _HITS * len(data.queries)
            require_either(task.name, min(relevant, shown), shown)
        else:
            raise InputError(f"--threshold: {task.name} cannot carry one: {WHY_NONE[task.kind.name]}")
        with_hits.append(task)
    return with_hits


def observe(model: EvaluatedModel, task: OwnHits) -> Observed:
    """Return the hits of a model: pairs, or the first `_HITS` documents of each query.

    A document that nobody has judged counts as wrong, so that the precision of a set is a lower bound.
    """
    source = _source_of(model, task)
    adapted: Any = for_model(task, model.spec)
    if isinstance(adapted, BinaryTask):
        vectors = model.encode_shown(f"{task.name}: encoding", adapted.texts)
        return Observed(source, adapted.predicted(vectors), adapted.right, groups_of_pairs(*adapted.table.texts))
    values = []
    right = []
    groups = []
    for number, (query, documents) in enumerate(adapted.predicted(model).items()):
        relevant = relevant_documents(adapted.data.qrels[query])
        for document in list(documents)[:_HITS]:
            values.append(documents[document])
            right.append(document in relevant)
            groups.append(number)
    return Observed(source, np.array(values, np.float64), np.array(right, np.bool_), np.array(groups, np.int64))


def _source_of(model: EvaluatedModel, task: OwnHits) -> LearnedFrom:
    """Return what is known of the hits of a model before there are any."""
    adapted: Any = for_model(task, model.spec)
    if isinstance(adapted, BinaryTask):
        prompt = model.spec.usual_prompt
        digest = json_digest([adapted.table.texts, adapted.table.values])
        return LearnedFrom(task.name, "binary", digest, adapted.similarity, prompt, prompt)
    search = adapted.search
    query_prompt, document_prompt = search.options.prompts(model.spec)
    passages = search.passages_of(model)
    return LearnedFrom(
        name=task.name,
        kind="retrieval",
        digest=adapted.data.digest,
        similarity=search.options.similarity_of(model.spec),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        depth=_HITS,
        passages=facts_of(None if passages is None else passages.cut),
    )


def check_place(place: Path, models: Sequence[EvaluatedModel], tasks: Sequence[OwnHits], *, overwrite: bool) -> None:
    """Refuse a place that cannot keep what is learned, before the work.

    Args:
        place: an encoded corpus of the model, or the folder of the model itself.
        models: those of the command.
        tasks: those of the command.
        overwrite: replace what is kept there.

    Raises:
        InputError: if there is not one model and one file, the place is another one's or its vectors were made
            otherwise, or it keeps something already.
    """
    option = f"--keep-threshold {place}"
    if len(models) > 1 or len(tasks) > 1:
        raise InputError(f"{option} keeps what one model learns from one file, and there are several")
    model, task = models[0], tasks[0]
    folder = local_path(model.name)
    if (place / MANIFEST).is_file():
        lack = _lack_of_corpus(VectorDirectory.open(place).origin, model, task)
        if lack is not None:
            raise InputError(f"{option}: {lack}")
    elif folder is None or not folder.is_dir() or folder.resolve() != place.resolve():
        raise InputError(
            f"{option}: give a directory that sentcli encode or index wrote with {model.name}, or the folder of the "
            "model, named by -m"
        )
    check_output(place / CALIBRATION, overwrite=overwrite)
    if isinstance(task, RetrievalTask) and task.data.titled:
        console.warn(
            f"the documents of {task.name} are title and text together: what is learned holds where a column that has "
            "both was encoded"
        )


def _lack_of_corpus(facts: VectorFacts, model: EvaluatedModel, task: OwnHits) -> str | None:
    """Return why what a model learns does not hold for the vectors of a corpus; None if it does."""
    if not facts.known:
        return "it does not say which model made its vectors"
    if not _encoder_of(model, task).identity.is_named(facts.model_fingerprint):
        return f"its vectors are of another model ({facts.model}) than {model.name}"
    source = _source_of(model, task)
    if (facts.prompt or "") != source.document_prompt:
        return (
            f"it was encoded with the prompt {facts.prompt!r}, and texts of {task.name} have {source.document_prompt!r}"
        )
    return source.lack_of_vectors(facts)


def keep(place: Path, model: EvaluatedModel, task: OwnHits, observed: Observed, threshold: Threshold) -> None:
    """Write what was learned beside a corpus or a model that `check_place` has accepted, and say what reads it."""
    calibration = Calibration(
        curve=FITS[threshold.form](observed),
        model=model.name,
        model_fingerprint=_encoder_of(model, task).fingerprint(),
        learned_from=observed.source,
        positives=threshold.positives,
        negatives=threshold.negatives,
        precision=threshold.precision,
        threshold=threshold.similarity,
    )
    path = calibration.write(place)
    offered = threshold.precision
    if offered > calibration.highest:
        offered = math.floor(100 * calibration.highest) / 100
    console.note(
        f"{path}: retrieve shows the probability that a hit is right, at most {calibration.highest:.3f}, and takes "
        f"--least {offered:g}p"
    )


def _encoder_of(model: EvaluatedModel, task: OwnHits) -> SentenceEncoder:
    """Return the model with the maximum length of documents that a known set prescribes."""
    encoder = model.load()
    length = None
    if isinstance(task, RetrievalTask):
        length = task.data.facts.document_length
    if length is None:
        return encoder
    return encoder.with_max_length(length)
