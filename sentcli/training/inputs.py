"""Reading the data of a run, and checking that the method can learn from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.evaluation import sts, sts_pairs, transfer
from sentcli.evaluation.transfer_data import load_examples
from sentcli.io.atomic import check_kept
from sentcli.printable import as_text
from sentcli.processes import is_first, launched
from sentcli.training.data import Subset, TrainingSentences, leaked_rows, read_corpus, without_rows
from sentcli.training.dev import DevSet, read_dev
from sentcli.training.pairs import layout_of, read_adjacent, read_anchors, read_classes, read_training_pairs
from sentcli.training.run_folder import check_run_folder

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.request import TrainRequest


@dataclass(frozen=True)
class RunInputs:
    """Everything that a run reads besides its start model."""

    corpus: TrainingSentences
    subset: Subset
    """The choice of the rows of the data that the corpus has."""
    held_out: sts_pairs.Pairs | None
    """Pairs that are not trained on and scored at the end."""
    dev: tuple[DevSet, ...]
    """The dev sets, of which the first decides which weights are kept."""
    test: Sequence[sts.SimilarityTask] = ()
    """The seven STS tasks, if they are scored at the end."""
    leaked: int = 0
    """The number of labelled rows with a text of the dev or test sets."""
    transfer: tuple[transfer.TransferTask, ...] = ()
    """The transfer tasks that are scored at the end."""

    def lacks_scores(self, results: Mapping[str, Any]) -> bool:
        """Tell whether the results of a finished run, as JSON, lack scores that are asked for now."""
        if self.test and results.get("sts") is None:
            return True
        if self.held_out is not None and results.get("held_out_spearman") is None:
            return True
        scored_tasks = results.get("senteval") or {}
        protocol = results.get("senteval_protocol")
        return any(task.name not in scored_tasks or task.protocol != protocol for task in self.transfer)


def _source_of(request: TrainRequest) -> str:
    """Return what gives the sentences, in words: the option that takes a part of them, the one file, or the data."""
    if request.data.limit is not None:
        return f"--limit {request.data.limit}"
    if request.data.fraction is not None:
        return f"--fraction {request.data.fraction:g}"
    if len(request.files) == 1:
        return request.files[0]
    return "the data"


def read_run_inputs(request: TrainRequest, method: Method) -> RunInputs:
    """Check the output folder, and read and check the data.

    Raises:
        InputError: if the folder must not be written to, or the method cannot learn from the data.
    """
    if is_first():
        check_run_folder(request.output, overwrite=request.log.overwrite, resume=request.log.resume)
    check_kept(request.output, _files_read(request, method))
    evaluation = request.evaluation
    subset = request.subset(method.settings.seed)
    corpus, held_out = _read_data(request, method, subset)
    if method.fit is None:
        _check_objectives(method, corpus)
        method.settings.check(len(corpus.sentences), launched(), _source_of(request))
    test: list[sts.SimilarityTask] = []
    if evaluation.sts and evaluation.eval_data:
        test = sts.load_similarity_tasks(evaluation.eval_data)
    dev = read_dev(request)
    transfer_tasks = read_transfer(request)
    leaked: list[int] = []
    if len(corpus.texts) > 1 or corpus.scores is not None:
        tested: list[str] = []
        for dev_set in dev:
            tested += dev_set.texts
        for task in test:
            tested += task.texts
        leaked = leaked_rows(corpus, tested)
    if request.data.no_leak:
        corpus = without_rows(corpus, leaked)
        if not corpus.sentences:
            raise InputError("--no-leak leaves nothing to train on: every row holds a text of the dev or test sets")
    return RunInputs(corpus, subset, held_out, dev, test, len(leaked), transfer_tasks)


def _files_read(request: TrainRequest, method: Method) -> list[str | Path | None]:
    """Return the files and folders that a run reads, which its output must not replace; None stands for no file."""
    evaluation = request.evaluation
    places: list[str | Path | None] = [
        *request.files,
        *(evaluation.dev or []),
        request.model,
        evaluation.eval_text,
        evaluation.eval_data,
        evaluation.senteval,
    ]
    for objective in method.objectives.values():
        places += objective.reads()
    return places


def read_transfer(request: TrainRequest) -> tuple[transfer.TransferTask, ...]:
    """Read the transfer tasks of ``--senteval``: those that are named, else those of ``--text-of``, else the seven."""
    evaluation = request.evaluation
    if evaluation.senteval is None:
        return ()
    names = evaluation.senteval_tasks
    if not names and request.data.text_of != TEXT_OF_PAIRS:
        names = request.data.text_of
    return tuple(transfer.load_transfer_tasks(evaluation.senteval, names, evaluation.senteval_protocol))


NEEDED = {
    "scores": "scored pairs, which --method sts-regression (or --set views=scored-pairs)",
    "labels": "texts with a class, columns text and label, which --method supcon",
    "classed-pairs": "pairs with a class, which --method sbert-nli",
}
"""The data that objectives need, and the method that reads it, by `Objective.needs`."""


def _check_objectives(method: Method, corpus: TrainingSentences) -> None:
    """Refuse objectives that are missing, or that cannot learn from the data or its views."""
    if not method.objectives:
        raise InputError(f"{method.name} has no objective left to train with")
    views = method.views
    for name, term in method.objectives.items():
        if term.needs not in ("", views.reads):
            raise InputError(f"{name} needs {NEEDED[term.needs]} reads")
    for name, term in method.objectives.items():
        if term.views and term.joint != views.joint:
            needs = "vectors of texts" if views.joint else "pairs that are read as one text"
            makes = "none" if views.joint else "them"
            raise InputError(f"{name} needs {needs}, and --method cross-encoder makes {makes}")
    is_binary = set(corpus.scores or ()) <= {0.0, 1.0}
    for name, term in method.objectives.items():
        if term.needs_labels and not is_binary:
            raise InputError(f"{name} needs pairs with the labels 0 and 1; cosent and angle take other scores")
    if views.different_texts():
        _check_for_different_texts(method)


def _check_for_different_texts(method: Method) -> None:
    """Refuse objectives that cannot learn from views that are different texts."""
    terms = method.objectives
    for name, term in terms.items():
        if term.one_sentence:
            raise InputError(
                f"{name} compares two views of one sentence, and these views are different texts: leave it out with "
                f"--set objectives-={name}"
            )
    if all(term.views < 2 for term in terms.values()):
        raise InputError(
            f"{method.name} learns from single sentences, and the data are pairs: take a contrastive method such as "
            "simcse"
        )
    if method.views.count > 2 and not any(term.takes_hard_negatives for term in terms.values()):
        raise InputError(
            f"no objective of {method.name} takes hard negatives: take simcse, or leave them out with "
            "--pair-fields ANCHOR,POSITIVE"
        )


def _check_data_options(request: TrainRequest, method: Method) -> None:
    """Refuse options that do not go with what the method reads."""
    reads = method.views.reads
    options = request.data
    if not request.files:
        raise InputError("--data is missing: text files with one sentence a line, or tables")
    if options.text_of is not None and reads != "sentences":
        raise InputError(f"--text-of is for methods that take plain text; {method.name} takes pairs here")
    if options.hold_out is not None and reads != "scores" and options.text_of is None:
        raise InputError("--hold-out leaves out scored pairs, which --method sts-regression and --text-of pairs read")
    reads_columns = reads not in ("sentences", "adjacent") or options.text_of == TEXT_OF_PAIRS
    if options.pair_fields is not None and not reads_columns:
        raise InputError(f"--pair-fields names the columns of pairs, and {method.name} takes single texts here")


def _read_data(
    request: TrainRequest, method: Method, subset: Subset
) -> tuple[TrainingSentences, sts_pairs.Pairs | None]:
    """Return the training data, and the pairs that are held out."""
    if method.fit is not None and not method.fit.needs_data:
        if request.files:
            raise InputError(f"{method.name} computes nothing from text: leave --data out")
        return TrainingSentences(([],), (), 0), None
    _check_data_options(request, method)
    files = request.files
    options = request.data
    kind = request.evaluation.kind
    fields = options.pair_fields
    hold_out = options.hold_out
    match method.views.reads:
        case "scores":
            scores = options.score_bounds
            return read_training_pairs(
                files, fields=fields, subset=subset, hold_out=hold_out, score_range=scores, kind=kind
            )
        case "pairs":
            seed = method.settings.seed
            return read_anchors(files, fields=fields, subset=subset, kind=kind, seed=seed), None
        case "labels" | "classed-pairs" as classes:
            return read_classes(files, classes, fields=fields, subset=subset), None
        case "adjacent":
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
        hold_out: which pairs are left out, as for `read_training_pairs`.
    """
    if name == TEXT_OF_PAIRS:
        corpus = _read_any_pairs(data, fields, subset, hold_out)
        chosen = sentences = _distinct(chain.from_iterable(corpus.texts))
    elif len(data) != 1 or hold_out is not None:
        raise InputError(f"--text-of {name} reads one SentEval data/downstream folder, without --hold-out")
    else:
        try:
            tasks = load_examples(Path(data[0]), name)
        except InputError as error:
            raise InputError(f"--text-of {name}: {error}") from error
        texts: list[str] = []
        for task in tasks:
            for example in task.splits.get("all") or task.splits["train"]:
                texts += example.texts
        sentences = sorted(_distinct(texts), key=lambda text: hashlib.sha256(text.encode()).digest())
        subset = subset or Subset()
        chosen = [sentences[row] for row in subset.rows(len(sentences))]
    sha256 = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    facts = {"file": f"text of {as_text(name)}", "sha256": sha256, "sentences": len(chosen)}
    return TrainingSentences((chosen,), (facts,), 0)


def _read_any_pairs(
    data: Sequence[str], fields: str | None, subset: Subset | None, hold_out: str | None
) -> TrainingSentences:
    """Read a table of anchors, of pairs with a class, or of scored pairs, whichever it is."""
    layout = layout_of(data, fields)
    if layout is not None and hold_out is None:
        if layout.kind in ("pairs", "triplets"):
            return read_anchors(data, fields=fields, subset=subset)
        if layout.kind == "classed-pairs":
            return read_classes(data, "classed-pairs", fields=fields, subset=subset)
    corpus, _ = read_training_pairs(data, fields=fields, subset=subset, hold_out=hold_out)
    return corpus


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return each text once, in their order, without those that are nothing but white space."""
    return list(dict.fromkeys(text for text in texts if text.strip()))
