"""Unlabelled sentences of tasks, which IS-BERT's paper trains on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sentcli.errors import InputError
from sentcli.evaluation.transfer import load_tasks
from sentcli.training.data import Subset, TrainingSentences
from sentcli.training.pairs import read_pairs

PAIRS = "pairs"
"""The value of ``--text-of`` that trains on the sentences of scored pairs, without the scores."""


def read_task_text(
    name: str,
    data: Sequence[str],
    *,
    fields: str | None = None,
    subset: Subset | None = None,
    hold_out: str | None = None,
) -> TrainingSentences:
    """Read the distinct sentences of some tasks without their labels, as IS-BERT's paper does ("IS-BERT-task").

    The sentences of tasks are ordered by a hash of their text, so that the first of them are as good a subset as any:
    the files are sorted by label, and SentEval sorts by length.

    Args:
        name: ``pairs`` for the pairs that `read_pairs` reads, or transfer tasks such as ``MR,CR``. A task with a test
            set gives its training sentences, one that is tested by cross-validation gives all.
        data: for tasks, a SentEval ``data/downstream`` folder.
        fields: other names of the columns of pairs, as ``A,B,SCORE``.
        subset: which of the sentences, or of the pairs, are trained on.
        hold_out: which pairs are left out, as for `read_pairs`.
    """
    if name == PAIRS:
        corpus, _ = read_pairs(data, fields=fields, subset=subset, hold_out=hold_out)
        subset, texts = None, [*corpus.texts[0], *corpus.texts[1]]
    elif len(data) != 1 or hold_out is not None:
        raise InputError(f"--text-of {name} reads one SentEval data/downstream folder, without --hold-out")
    else:
        names = [part.strip() for part in name.split(",") if part.strip()]
        parts = [task.splits.get("all") or task.splits["train"] for task in load_tasks(Path(data[0]), names)]
        texts = [text for examples in parts for example in examples for text in example.texts]
    sentences = list(dict.fromkeys(text for text in texts if text.strip()))
    if name != PAIRS:
        sentences.sort(key=lambda text: hashlib.sha256(text.encode()).digest())
    chosen = [sentences[row] for row in (subset or Subset()).rows(len(sentences))]
    whole = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    return TrainingSentences((chosen,), ({"file": f"text of {name}", "sha256": whole, "sentences": len(chosen)},), 0)
