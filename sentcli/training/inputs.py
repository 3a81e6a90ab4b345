"""Reading the data of a run, and checking that the method can learn from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sentcli.errors import InputError
from sentcli.evaluation import sts
from sentcli.evaluation.transfer import AVERAGED, TransferTask, load_tasks
from sentcli.io.atomic import check_kept
from sentcli.processes import is_first, launched
from sentcli.training.data import Subset, TrainingSentences, leaked_rows, read_corpus, without_rows
from sentcli.training.dev import DevSet, read_dev
from sentcli.training.pairs import layout_of, read_adjacent, read_anchors, read_classes, read_pairs
from sentcli.training.run_folder import check_run_folder

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.request import TrainRequest

Tasks: TypeAlias = dict[str, list[sts.Pairs]]
"""Similarity tasks by name, each with its subsets."""


@dataclass(frozen=True)
class RunInputs:
    """Everything that a run reads besides its start model."""

    corpus: TrainingSentences
    subset: Subset
    """Which rows of the data it has."""
    held_out: sts.Pairs | None
    """Pairs that are not trained on and scored at the end."""
    dev: tuple[DevSet, ...]
    """The dev sets, of which the first decides which weights are kept."""
    test: Tasks | None
    """The seven STS tasks, if they are scored at the end."""
    leaked: int = 0
    """The number of labelled rows with a text of the dev or test sets."""
    transfer: tuple[TransferTask, ...] = ()
    """The transfer tasks that are scored at the end."""

    def lacks_scores(self, results: Mapping[str, Any]) -> bool:
        """Tell whether the results of a finished run, as JSON, lack scores that are asked for now."""
        lacks_sts = self.test is not None and results.get("sts") is None
        lacks_held_out = self.held_out is not None and results.get("held_out_spearman") is None
        known = {(task, results.get("senteval_protocol")) for task in results.get("senteval") or {}}
        return lacks_sts or lacks_held_out or any((task.name, task.protocol) not in known for task in self.transfer)


def read_inputs(request: TrainRequest, method: Method) -> RunInputs:
    """Check the output folder, and read and check the data."""
    if is_first():
        check_run_folder(request.output, overwrite=request.log.overwrite, resume=request.log.resume)
    of_objectives = [folder for objective in method.objectives.values() for folder in objective.reads()]
    scored = request.evaluation
    folders = (scored.eval_data, scored.senteval, *of_objectives)
    check_kept(request.output, (*request.files, *(scored.dev or []), request.model, scored.eval_text, *folders))
    subset = request.subset(method.settings.seed)
    corpus, held_out = _read_data(request, method, subset)
    if method.fit is None:
        _check_objectives(method, corpus)
        method.settings.check(len(corpus.sentences), launched())
    test = sts.load_tasks(scored.eval_data, None, "test") if scored.sts and scored.eval_data else None
    dev, transfer = read_dev(request), read_transfer(request)
    leaked = []
    if len(corpus.texts) > 1 or corpus.scores is not None:
        tested = sts.sentences([pairs for subsets in (test or {}).values() for pairs in subsets])
        leaked = leaked_rows(corpus, [*tested, *(text for dev_set in dev for text in dev_set.texts)])
    if request.data.no_leak:
        corpus = without_rows(corpus, leaked)
        if not corpus.sentences:
            raise InputError("--no-leak leaves nothing to train on: every row holds a text of the dev or test sets")
    return RunInputs(corpus, subset, held_out, dev, test, len(leaked), transfer)


def read_transfer(request: TrainRequest) -> tuple[TransferTask, ...]:
    """Read the transfer tasks of ``--senteval``: those that are named, else those of ``--text-of``, else the seven."""
    scored, text_of = request.evaluation, request.data.text_of
    if scored.senteval is None:
        return ()
    named = scored.senteval_tasks or (text_of if text_of != TEXT_OF_PAIRS else None) or ",".join(AVERAGED)
    return tuple(
        TransferTask(examples, scored.senteval_protocol) for examples in load_tasks(scored.senteval, _names(named))
    )


def _names(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


NEEDED = {
    "scores": "scored pairs, which --method sts-regression (or --set views=scored-pairs)",
    "labels": "texts with a class, columns text and label, which --method supcon",
    "classed-pairs": "pairs with a class, which --method sbert-nli",
}
"""What objectives need, and what reads it, by `Objective.needs`."""


def _check_objectives(method: Method, corpus: TrainingSentences) -> None:
    """Refuse objectives that are missing, or that cannot learn from the data or its views."""
    if not method.objectives:
        raise InputError(f"{method.name} has no objective left to train with")
    views, terms = method.views, method.objectives.items()
    if unmet := [(name, term.needs) for name, term in terms if term.needs not in ("", views.reads)]:
        name, needs = unmet[0]
        raise InputError(f"{name} needs {NEEDED[needs]} reads")
    if wrong := [name for name, term in terms if term.views and term.joint != views.joint]:
        joint = f"{wrong[0]} needs " + ("vectors of texts" if views.joint else "pairs that are read as one text")
        raise InputError(f"{joint}, and --method cross-encoder makes {'none' if views.joint else 'them'}")
    labelled = [name for name, objective in terms if objective.needs_labels]
    if labelled and not set(corpus.scores or ()) <= {0.0, 1.0}:
        raise InputError(f"{labelled[0]} needs pairs with the labels 0 and 1; cosent and angle take other scores")
    if not views.different_texts():
        return
    if of_one := [name for name, objective in terms if objective.one_sentence]:
        raise InputError(
            f"{of_one[0]} compares two views of one sentence, and these views are different texts: leave it out with "
            f"--set objectives-={of_one[0]}"
        )
    if all(objective.views < 2 for _, objective in terms):
        raise InputError(
            f"{method.name} learns from single sentences, and the data are pairs: take a contrastive method such as "
            "simcse"
        )
    if views.count > 2 and not any(objective.takes_hard_negatives for _, objective in terms):
        raise InputError(
            f"no objective of {method.name} takes hard negatives: take simcse, or leave them out with "
            "--pair-fields ANCHOR,POSITIVE"
        )


def _check_data_options(request: TrainRequest, method: Method) -> None:
    """Refuse options that do not go with what the method reads."""
    reads, options = method.views.reads, request.data
    if not request.files:
        raise InputError("--data is missing: text files with one sentence a line, or tables")
    if options.text_of is not None and reads != "sentences":
        raise InputError(f"--text-of is for methods that take plain text; {method.name} takes pairs here")
    if options.hold_out is not None and reads != "scores" and options.text_of is None:
        raise InputError("--hold-out leaves out scored pairs, which --method sts-regression and --text-of pairs read")
    if options.pair_fields is not None and reads in ("sentences", "adjacent") and options.text_of != TEXT_OF_PAIRS:
        raise InputError(f"--pair-fields names the columns of pairs, and {method.name} takes single texts here")


def _read_data(request: TrainRequest, method: Method, subset: Subset) -> tuple[TrainingSentences, sts.Pairs | None]:
    """Return the training data, and the pairs that are held out."""
    if method.fit is not None and not method.fit.needs_data:
        if request.files:
            raise InputError(f"{method.name} computes nothing from text: leave --data out")
        return TrainingSentences(([],), (), 0), None
    _check_data_options(request, method)
    reads, files, options, kind = method.views.reads, request.files, request.data, request.evaluation.kind
    fields, hold_out = options.pair_fields, options.hold_out
    if reads == "scores":
        scores = options.score_bounds
        return read_pairs(files, fields=fields, subset=subset, hold_out=hold_out, score_range=scores, kind=kind)
    if reads == "pairs":
        return read_anchors(files, fields=fields, subset=subset, kind=kind), None
    if reads == "labels" or reads == "classed-pairs":
        return read_classes(files, reads, fields=fields, subset=subset), None
    if reads == "adjacent":
        return read_adjacent(files, text_field=options.text_field, subset=subset), None
    if options.text_of is not None:
        return read_task_text(options.text_of, files, fields=fields, subset=subset, hold_out=hold_out), None
    return read_corpus(files, text_field=options.text_field, subset=subset), None


TEXT_OF_PAIRS = "pairs"
"""The value of ``--text-of`` that trains on the sentences of pairs or triplets, without scores and labels."""
EACH = "each"
"""The value of ``--text-of`` that makes one run for each of the transfer tasks that papers average."""


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
        name: ``pairs`` for tables of pairs and triplets, whatever their labels, or transfer tasks such as ``MR,CR``. A
            task with a test set gives its training sentences, one that is tested by cross-validation gives
            all.
        data: for tasks, a SentEval ``data/downstream`` folder.
        fields: other names of the columns of pairs, as ``A,B,SCORE``.
        subset: which of the sentences, or of the pairs, are trained on.
        hold_out: which pairs are left out, as for `read_pairs`.
    """
    if name == TEXT_OF_PAIRS:
        layout = layout_of(data, fields)
        if layout is not None and layout.kind in ("pairs", "triplets") and hold_out is None:
            corpus = read_anchors(data, fields=fields, subset=subset)
        elif layout is not None and layout.kind == "classed-pairs" and hold_out is None:
            corpus = read_classes(data, "classed-pairs", fields=fields, subset=subset)
        else:
            corpus, _ = read_pairs(data, fields=fields, subset=subset, hold_out=hold_out)
        subset, texts = None, [text for column in corpus.texts for text in column]
    elif len(data) != 1 or hold_out is not None:
        raise InputError(f"--text-of {name} reads one SentEval data/downstream folder, without --hold-out")
    else:
        tasks = load_tasks(Path(data[0]), _names(name))
        parts = [task.splits.get("all") or task.splits["train"] for task in tasks]
        texts = [text for examples in parts for example in examples for text in example.texts]
    sentences = list(dict.fromkeys(text for text in texts if text.strip()))
    if name != TEXT_OF_PAIRS:
        sentences.sort(key=lambda text: hashlib.sha256(text.encode()).digest())
    chosen = [sentences[row] for row in (subset or Subset()).rows(len(sentences))]
    whole = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    return TrainingSentences((chosen,), ({"file": f"text of {name}", "sha256": whole, "sentences": len(chosen)},), 0)
