"""Reading the data of a run, and checking that the method can learn from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sentcli.errors import InputError
from sentcli.evaluation import sts
from sentcli.processes import is_first, launched
from sentcli.training.data import TrainingSentences, read_corpus
from sentcli.training.dev import DevSet, read_dev
from sentcli.training.leaks import leaked_rows, without_rows
from sentcli.training.pairs import read_adjacent, read_anchors, read_classes, read_pairs
from sentcli.training.run_folder import check_run_folder
from sentcli.training.task_text import PAIRS, read_task_text

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.request import TrainRequest

Tasks: TypeAlias = dict[str, list[sts.Pairs]]
"""Similarity tasks by name, each with its subsets."""


@dataclass(frozen=True)
class RunInputs:
    """Everything that a run reads besides its start model."""

    corpus: TrainingSentences
    held_out: sts.Pairs | None
    """Pairs that are not trained on and scored at the end."""
    dev: tuple[DevSet, ...]
    """The dev sets, of which the first decides which weights are kept."""
    test: Tasks | None
    """The seven STS tasks, if they are scored at the end."""
    leaked: int = 0
    """The number of labelled rows with a text of the dev or test sets."""


def read_inputs(request: TrainRequest, method: Method) -> RunInputs:
    """Check the output folder, and read and check the data."""
    if is_first():
        check_run_folder(request.output, overwrite=request.overwrite, resume=request.resume)
    of_objectives = [folder for objective in method.objectives.values() for folder in objective.reads()]
    files = (*request.data, *request.dev, request.model, request.eval_data, request.eval_text, *of_objectives)
    for path in files:
        if path is not None and Path(path).exists() and Path(path).resolve().is_relative_to(request.output.resolve()):
            # --overwrite would delete it
            raise InputError(f"-o {request.output} would replace {path}, which this run reads; choose another -o")
    corpus, held_out = _read_data(request, method)
    if method.fit is None:
        _check_objectives(method)
        method.settings.check(len(corpus.sentences), launched())
        _check_labels(method, corpus)
    if request.log_geometry and request.eval_data is None:
        raise InputError("--log-geometry measures STS-B dev of --eval-data, which is missing")
    if request.sts and request.eval_data is None:
        raise InputError("--sts scores the STS tasks of --eval-data, which is missing")
    test = sts.load_tasks(request.eval_data, None, "test") if request.sts and request.eval_data else None
    dev = read_dev(request)
    leaked = []
    if len(corpus.texts) > 1 or corpus.scores is not None:
        tested = sts.sentences([pairs for subsets in (test or {}).values() for pairs in subsets])
        leaked = leaked_rows(corpus, [*tested, *(text for dev_set in dev for text in dev_set.texts)])
    if request.no_leak:
        corpus = without_rows(corpus, leaked)
        if not corpus.sentences:
            raise InputError("--no-leak leaves nothing to train on: every row holds a text of the dev or test sets")
    return RunInputs(corpus, held_out, dev, test, len(leaked))


def _check_objectives(method: Method) -> None:
    """Refuse objectives that are missing, or that cannot learn from the views of the data."""
    if not method.objectives:
        raise InputError(f"{method.name} has no objective left to train with")
    views, terms = method.views, method.objectives.items()
    scored = [name for name, objective in terms if objective.needs_scores]
    if scored and views.reads != "scores":
        raise InputError(
            f"{scored[0]} needs scored pairs, which --method sts-regression (or --set views=scored-pairs) reads"
        )
    if views.reads != "classes" and (classed := [name for name, term in terms if term.needs_classes]):
        raise InputError(f"{classed[0]} needs texts with a class, columns text and label, which --method supcon reads")
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


def _check_labels(method: Method, corpus: TrainingSentences) -> None:
    """Refuse scores that are no labels for an objective that needs labels."""
    for name, objective in method.objectives.items():
        if objective.needs_labels and not set(corpus.scores or ()) <= {0.0, 1.0}:
            raise InputError(f"{name} needs pairs with the labels 0 and 1; cosent and angle take other scores")


def _check_data_options(request: TrainRequest, method: Method) -> None:
    """Refuse options that do not go with what the method reads."""
    reads = method.views.reads
    if not request.data:
        raise InputError("--data is missing: text files with one sentence a line, or tables")
    if request.text_of is not None and reads != "sentences":
        raise InputError(f"--text-of is for methods that take plain text; {method.name} takes pairs here")
    if request.hold_out is not None and reads != "scores" and request.text_of is None:
        raise InputError("--hold-out leaves out scored pairs, which --method sts-regression and --text-of pairs read")
    if request.pair_fields is not None and reads in ("sentences", "adjacent") and request.text_of != PAIRS:
        raise InputError(f"--pair-fields names the columns of pairs, and {method.name} takes single texts here")


def _read_data(request: TrainRequest, method: Method) -> tuple[TrainingSentences, sts.Pairs | None]:
    """Return the training data, and the pairs that are held out."""
    options: dict[str, Any]
    if method.fit is not None and not method.fit.needs_data:
        if request.data:
            raise InputError(f"{method.name} computes nothing from text: leave --data out")
        return TrainingSentences(([],), (), 0), None
    _check_data_options(request, method)
    reads, files, subset = method.views.reads, request.data, request.subset
    if reads == "scores":
        options = {"hold_out": request.hold_out, "score_range": request.score_range, "kind": request.kind}
        return read_pairs(files, fields=request.pair_fields, subset=subset, **options)
    if reads == "pairs":
        return read_anchors(files, fields=request.pair_fields, subset=subset, kind=request.kind), None
    if reads == "classes":
        return read_classes(files, fields=request.pair_fields, subset=subset), None
    if reads == "adjacent":
        return read_adjacent(files, text_field=request.text_field, subset=subset), None
    if request.text_of is not None:
        fields, hold_out = request.pair_fields, request.hold_out
        return read_task_text(request.text_of, files, fields=fields, subset=subset, hold_out=hold_out), None
    return read_corpus(files, text_field=request.text_field, subset=subset), None
