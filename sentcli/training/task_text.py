"""Text of evaluation tasks to train on without its labels, as IS-BERT's paper does ("IS-BERT-task")."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sentcli.errors import InputError
from sentcli.evaluation.transfer_tasks import Examples, load_tasks
from sentcli.training.data import Corpus, Subset
from sentcli.training.pairs import read_pairs

PAIRS = "pairs"
"""The sentences of scored pairs."""


def read_task_text(
    name: str, data: Sequence[str], *, subset: Subset | None = None, hold_out: str | None = None
) -> Corpus:
    """Read the distinct sentences of some tasks.

    Those of tasks come in an order that depends on their text alone, so that a subset of the first is as good as any:
    the files are sorted by label, and SentEval sorts by length.

    Args:
        name: ``pairs`` for what `read_pairs` reads of `data`, or transfer tasks such as ``MR,CR``; of a task with a
            test set the training sentences, of one that is tested by folds all.
        data: for tasks, a SentEval ``data/downstream`` folder.
        subset: which of the sentences; of pairs, which of the pairs.
        hold_out: pairs to leave out.

    Raises:
        InputError: for a task that there is not, or several folders.
    """
    if name == PAIRS:
        corpus, _ = read_pairs(data, subset=subset, hold_out=hold_out)
        assert corpus.partners is not None
        subset = None
        found = {PAIRS: [*corpus.sentences, *corpus.partners]}
    elif len(data) != 1 or hold_out is not None:
        raise InputError(f"--text-of {name} reads one SentEval data/downstream folder, without --hold-out")
    else:
        names = [part.strip() for part in name.split(",") if part.strip()]
        found = {task.name: _sentences(task) for task in load_tasks(Path(data[0]), names)}
    sentences = list(dict.fromkeys(text for texts in found.values() for text in texts if text.strip()))
    if name != PAIRS:
        sentences.sort(key=_digest)
    chosen = (subset or Subset()).rows(len(sentences))
    kept = [sentences[row] for row in chosen]
    whole = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    files: tuple[dict[str, object], ...] = ({"file": f"text of {name}", "sha256": whole, "sentences": len(kept)},)
    return Corpus(kept, files, 0)


def _sentences(task: Examples) -> list[str]:
    learned = task.splits.get("all") or task.splits["train"]
    return [text for example in learned for text in example.texts]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
