"""The groups of options of a training, declared once for flags, keywords and `TrainRequest`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from sentcli.bounds import Flag, Holds
from sentcli.errors import InputError
from sentcli.io.labelled_kinds import Kind


@dataclass(frozen=True)
class MethodOptions:
    """The method and its settings.

    Attributes:
        recipe: A paper's method, model and settings, such as micse-bert-base (models/recipes has them).
        set: Any setting of the method or of the training; objectives+=ami adds a term to the loss.
        stage: infocse: pretrain, its first stage.
        aux_init: infocse: where the auxiliary network starts; DIR is the result of --stage pretrain.
        after: sts-regression: train this method first on the sentences of the pairs; its settings are --set
            before.KEY=VALUE.
        teacher: What distill, static, rankcse and margin-mse learn from.
        layers: The layers of the start model that stay, counted from 0, such as 0,2,4.
    """

    recipe: Annotated[str | None, Holds.RECIPE, Flag(metavar="NAME|FILE.toml")] = None
    set: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="KEY=VALUE")] = None
    stage: str | None = None
    aux_init: Annotated[str | None, Flag(metavar="copy-top|random|DIR")] = None
    after: Annotated[str | None, Holds.METHOD_NAME, Flag(metavar="METHOD")] = None
    teacher: Annotated[list[str] | None, Holds.MODEL, Flag(metavar="M|URL#NAME|FILE")] = None
    layers: Annotated[str | None, Holds.WORDS, Flag(metavar="N,N,...")] = None

    @property
    def assignments(self) -> list[tuple[str, Any]]:
        """The settings of ``--set`` and ``--aux-init``, as `configure` takes them.

        Raises:
            InputError: if one is not KEY=VALUE.
        """
        assignments: list[tuple[str, Any]] = []
        for text in self.set or []:
            key, equals, value = text.partition("=")
            if not equals:
                raise InputError(f"--set {key}: expected KEY=VALUE, for example --set temperature=0.1")
            assignments.append((key.strip(), value))
        if self.layers is not None:
            assignments.append(("settings.keep_layers", self.layers))
        if self.aux_init is not None:
            assignments.append(("aux_init", self.aux_init))
        return assignments


@dataclass(frozen=True)
class DataOptions:
    """The texts of training.

    Attributes:
        text_field: Column of a table that holds the text.
        pair_fields: Columns of labelled data: anchor, positive and perhaps negatives, both sentences and the score or
            label, or text and class; by default the usual names (docs/labelled.md).
        text_of: Train on sentences of --data without their labels: of tasks such as MR,CR of a SentEval folder, or of
            pairs or triplets; each is one run for each of the seven transfer tasks.
        hold_out: sts-regression: leave out a file of --data or a fold, and score it at the end; topics and 10-fold are
            one run for each.
        score_range: sts-regression: the scores that stand for unrelated and for equal, if not the usual range (0 to
            1, 5, 10 or 100, or -1 to 1) that holds all of them.
        limit: Train on the first N sentences.
        fraction: Train on this share of the sentences, the first.
        subset_seed: Draw those of --limit or --fraction at random instead.
        no_leak: Leave out rows of labelled data that hold a text of the dev or test sets.
    """

    text_field: Annotated[str, Holds.WORDS] = "text"
    pair_fields: Annotated[str | None, Holds.WORDS, Flag(metavar="A,B[,C...]")] = None
    text_of: Annotated[str | None, Flag(metavar="TASK,...|each|pairs")] = None
    hold_out: Annotated[str | None, Holds.WORDS, Flag(metavar="NAME|N/K|topics|K-fold")] = None
    score_range: Annotated[str | None, Flag(metavar="LOW,HIGH")] = None
    limit: Annotated[int | None, Ge(1)] = None
    fraction: Annotated[float | None, Ge(0), Le(1)] = None
    subset_seed: Annotated[int | None, Ge(0)] = None
    no_leak: bool = False

    def __post_init__(self) -> None:
        _ = self.score_bounds

    @property
    def score_bounds(self) -> tuple[float, float] | None:
        """The two scores of ``--score-range``.

        Raises:
            InputError: if they are not two numbers of which the first is the lower one.
        """
        if self.score_range is None:
            return None
        try:
            low, high = map(float, self.score_range.split(","))
        except ValueError as error:
            raise InputError(f"--score-range {self.score_range}: expected two numbers, such as 0,1") from error
        if not -math.inf < low < high < math.inf:
            raise InputError(f"--score-range {self.score_range}: the first number has to be the lower one")
        return low, high


@dataclass(frozen=True)
class EvaluationOptions:
    """The texts of evaluation.

    Attributes:
        dev: Labelled tables and folders in BEIR layout, as for evaluate; the first one decides which weights are kept.
        kind: What the tables of --dev hold, and that of --data, if they do not tell: scored, binary, pairs, triplets
            or labels.
        dev_limit: Score on N items of each dev set; of a retrieval set on N queries with their relevant documents
            and the best hits of the start model and of BM25.
        eval_data: A SentEval data/downstream folder: scores STS-B dev, and keeps the best weights if there is no --dev.
        eval_text: mlm and other losses on masked words: log their perplexity on this text.
        sts: Score the seven STS tasks of --eval-data at the end.
        senteval: A SentEval data/downstream folder: score its transfer tasks at the end.
        senteval_tasks: Comma-separated, as for senteval; default: those of --text-of, else the seven of the papers.
        senteval_protocol: As for senteval: full is the papers', fast trains a quarter of the classifiers.
        check_start: Train 30 steps only and write nothing: does the method gain from this start? Exit code 3 if not.
    """

    dev: Annotated[list[str] | None, Holds.TEXT_FILE, Flag(metavar="FILE|DIR")] = None
    kind: Annotated[Kind | None, Flag(metavar="KIND")] = None
    dev_limit: Annotated[int | None, Ge(10)] = None
    eval_data: Annotated[Path | None, Flag(metavar="DIR")] = None
    eval_text: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE")] = None
    sts: Annotated[bool, Flag(needs="eval_data")] = False
    senteval: Annotated[Path | None, Flag(metavar="DIR")] = None
    senteval_tasks: Annotated[str | None, Flag(metavar="A,B", needs="senteval")] = None
    senteval_protocol: Annotated[Literal["full", "fast", "lbfgs"], Flag(needs="senteval")] = "full"
    check_start: Annotated[bool, Flag(needs="eval_data", excludes="seeds sweep resume hold_out")] = False


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of the training that have a flag of their own.

    Attributes:
        batch_size: Sentences in a step.
        learning_rate: Peak rate.
        epochs: Passes over the data.
        max_steps: Optimiser steps, instead of epochs.
        max_length: Maximum length of a sentence in training, in tokens; encoding keeps the start model's.
        eval_every: Steps between two scores.
        seed: Same seed, machine and versions: same weights.
    """

    batch_size: Annotated[int | None, Ge(1)] = None
    learning_rate: float | None = None
    epochs: Annotated[int | None, Ge(1)] = None
    max_steps: Annotated[int | None, Ge(1)] = None
    max_length: Annotated[int | None, Ge(3)] = None
    eval_every: Annotated[int | None, Ge(1)] = None
    seed: int | None = None

    @property
    def assignments(self) -> list[tuple[str, Any]]:
        """The settings that have a value, as `configure` takes them."""
        return [(f"settings.{key}", value) for key, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class SweepOptions:
    """Several runs with different seeds or settings.

    Attributes:
        seeds: One run for each seed, with mean and standard deviation.
        sweep: Many runs: a grid, or a paper's table (docs/sweeps.md).
        results: File with a line for each finished run, which is not run again; default: DIR/results.jsonl.
        dry_run: Write nothing: measure 5 steps of each kind of run, and say what all of them take.
    """

    seeds: Annotated[str | None, Flag(metavar="N,N,...")] = None
    sweep: Annotated[Path | None, Flag(metavar="NAME|FILE.toml")] = None
    results: Annotated[Path | None, Flag(metavar="FILE.jsonl")] = None
    dry_run: Annotated[bool, Flag(excludes="check_start ray log_to after")] = False


@dataclass(frozen=True)
class LogOptions:
    """Logs and checkpoints of a run.

    Attributes:
        log_geometry: Also log alignment and uniformity of STS-B dev at every evaluation (for analyze geometry).
        log_to: Also log to this tracker.
        save_every: Steps between two checkpoints; 0 for none.
        resume: Go on after an interruption, to the same weights.
        overwrite: Replace an output that exists.
    """

    log_geometry: Annotated[bool, Flag(needs="eval_data")] = False
    log_to: Annotated[list[str] | None, Flag(metavar="tensorboard|wandb", excludes="ray")] = None
    save_every: Annotated[int, Ge(0)] = 500
    resume: bool = False
    overwrite: bool = False
