"""``train``: learn a sentence encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc
from annotated_types import Ge, Le

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.labelled import Kind
from sentcli.methods import METHODS
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.options import ClusterOptions, OptionalModel, Overwrite
from sentcli.verbs.result import Result

if TYPE_CHECKING:
    from sentcli.methods.recipes import Recipe
    from sentcli.training.sweep_file import Sweep

METHODS_HELP = f"{', '.join(METHODS)}; or a Python file of your own (docs/add-a-method.md)."


@dataclass(frozen=True)
class MethodOptions:
    """The method and its settings.

    Attributes:
        recipe: A paper's method, model and settings, such as micse-bert-base (docs/recipes.md lists them).
        set: Any setting of the method or of the training; objectives+=ami adds a term to the loss.
        stage: infocse: pretrain, its first stage.
        aux_init: infocse: where the auxiliary network starts; DIR is the result of --stage pretrain.
        after: sts-regression: train this method first on the sentences of the pairs; its settings are --set
            before.KEY=VALUE.
    """

    recipe: Annotated[str | None, Flag(metavar="NAME|FILE.toml")] = None
    set: Annotated[list[str] | None, Flag(metavar="KEY=VALUE")] = None
    stage: str | None = None
    aux_init: Annotated[str | None, Flag(metavar="copy-top|random|DIR")] = None
    after: Annotated[str | None, Flag(metavar="METHOD")] = None


@dataclass(frozen=True)
class DataOptions:
    """The texts of training.

    Attributes:
        text_field: Column of a table that holds the text.
        pair_fields: Columns of labelled data: anchor, positive and perhaps negatives, both sentences and the score or
            label, or text and class; by default the usual names (docs/labelled.md).
        text_of: Train on sentences of --data without their labels: of tasks such as MR,CR of a SentEval folder, or of
            scored pairs.
        hold_out: sts-regression: leave out a file of --data or a fold, and score it at the end; topics and 10-fold are
            one run for each.
        score_range: sts-regression: the scores that stand for unrelated and for equal, if not the usual range (0 to
            1, 5, 10 or 100, or -1 to 1) that holds all of them.
        limit: Train on the first N sentences.
        fraction: Train on this share of the sentences, the first.
        subset_seed: Draw those of --limit or --fraction at random instead.
        no_leak: Leave out rows of labelled data that hold a text of the dev or test sets.
    """

    text_field: str = "text"
    pair_fields: Annotated[str | None, Flag(metavar="A,B[,C...]")] = None
    text_of: Annotated[str | None, Flag(metavar="TASK,...|pairs")] = None
    hold_out: Annotated[str | None, Flag(metavar="NAME|N/K|topics|K-fold")] = None
    score_range: Annotated[str | None, Flag(metavar="LOW,HIGH")] = None
    limit: Annotated[int | None, Ge(1)] = None
    fraction: Annotated[float | None, Ge(0), Le(1)] = None
    subset_seed: Annotated[int | None, Ge(0)] = None
    no_leak: bool = False


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
    """

    dev: Annotated[list[str] | None, Flag(metavar="FILE|DIR")] = None
    kind: Annotated[Kind | None, Flag(metavar="KIND")] = None
    dev_limit: Annotated[int | None, Ge(10)] = None
    eval_data: Annotated[Path | None, Flag(metavar="DIR")] = None
    eval_text: Annotated[str | None, Flag(metavar="FILE")] = None
    sts: bool = False


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


@dataclass(frozen=True)
class SweepOptions:
    """Several runs with different seeds or settings.

    Attributes:
        seeds: One run for each seed, with mean and standard deviation.
        sweep: Many runs: a grid over any setting (docs/sweeps.md).
        results: File with a line for each finished run, which is not run again; default: DIR/results.jsonl.
    """

    seeds: Annotated[str | None, Flag(metavar="N,N,...")] = None
    sweep: Annotated[Path | None, Flag(metavar="FILE.toml")] = None
    results: Annotated[Path | None, Flag(metavar="FILE.jsonl")] = None


@dataclass(frozen=True)
class LogOptions:
    """Logs and checkpoints of a run.

    Attributes:
        log_geometry: Also log alignment and uniformity of STS-B dev at every evaluation (for analyze geometry).
        log_to: Also log to this tracker.
        save_every: Steps between two checkpoints; 0 for none.
        resume: Go on after an interruption, to the same weights.
    """

    log_geometry: bool = False
    log_to: Annotated[list[str] | None, Flag(metavar="tensorboard|wandb")] = None
    save_every: Annotated[int, Ge(0)] = 500
    resume: bool = False
    overwrite: Overwrite = False


@verb(
    "train",
    common=(
        "output method model data pair_fields dev kind eval_data sts batch_size learning_rate epochs "
        "max_steps seed seeds sweep set recipe resume overwrite json"
    ),
)
def train(
    output: Annotated[Path, Flag("-o", metavar="DIR")],
    method: Annotated[str | None, Flag(metavar="NAME|FILE.py"), Doc(METHODS_HELP)] = None,
    model: OptionalModel = None,
    data: Annotated[list[str] | None, Flag(metavar="FILE...")] = None,
    more_data: Annotated[list[str] | None, Flag(metavar="FILE", positional=True)] = None,
    what: Annotated[MethodOptions, Group("Method")] = MethodOptions(),
    pooling: Annotated[str | None, Flag(panel="Model")] = None,
    device: Annotated[str, Flag(panel="Model")] = "auto",
    corpus: Annotated[DataOptions, Group("Data")] = DataOptions(),
    evaluation: Annotated[EvaluationOptions, Group("Evaluation")] = EvaluationOptions(),
    training: Annotated[TrainingOptions, Group("Training")] = TrainingOptions(),
    several: Annotated[SweepOptions, Group("Several runs")] = SweepOptions(),
    logging: Annotated[LogOptions, Group("Output")] = LogOptions(),
    cluster: Annotated[ClusterOptions, Group("Cluster")] = ClusterOptions(),
) -> Result:
    """Train a sentence encoder, on plain text unless the method is supervised.

    A table with the columns anchor and positive (and negative, negative_1 ...)
    is trained on as labelled pairs by every contrastive method.
    Every setting that is not given is the paper's; -v lists them all. The folder
    opens with this tool and with sentence-transformers, and its metrics.jsonl
    gets one line a step. The head of the training is stored apart and never
    encodes unasked.

    Args:
        output: The folder of the trained model.
        data: Text files, one sentence a line, or tables; - is standard input.
        more_data: More text files, as for --data.
        pooling: As for encode; own is what the folder says. By default cls, but is-bert's CNN, first-last-avg for
            whitening and the method of that name, own for sts-regression.
        device: auto, cpu, cuda, cuda:1, mps.

    \b
    Examples:
      sentcli train --method simcse -m minilm --data sentences.txt -o model
      sentcli train --method micse -m bert-base --data a.txt b.csv -o micse \\
        --eval-data SentEval/data/downstream --set ami.weight=1e-3
      sentcli train --method informin-cl --set objectives+=ami \\
        -m minilm --data sentences.txt -o both
      sentcli train --method simcse -m minilm --data train.csv --dev dev.csv -o faq
      sentcli train --recipe whitenedcse-bert-base --data wiki1m.txt -o white
      sentcli train --method micse -m minilm --data sentences.txt -o low-shot \\
        --fraction 0.01 --subset-seed 48 --max-steps 1000 --seeds 48,49,50
      sentcli train --method is-bert -m bert-base --data downstream --text-of MR -o is-bert-mr
      sentcli train --method sts-regression --after is-bert -m bert-base --data downstream \\
        --eval-data downstream -o ssl-ft
      sentcli train --method sts-regression -m bert-base --data AFS --hold-out topics -o cross-topic
      torchrun --nproc-per-node 8 -m sentcli train --method simcse -m bert-base \\
        --data wiki1m.txt -o big --set precision=bf16
    """  # noqa: D301
    from sentcli.data import located, located_name
    from sentcli.io.sources import input_files
    from sentcli.methods import get_method
    from sentcli.methods.method_file import load_method_file, naming_the_line
    from sentcli.methods.recipes import load_recipe
    from sentcli.processes import is_first, together
    from sentcli.training.data import Subset
    from sentcli.training.request import TrainRequest, methods_for
    from sentcli.verbs.train_runs import run_many, run_one, several_runs

    recipe = None if what.recipe is None else load_recipe(what.recipe)
    files = input_files(map(located_name, (*(data or []), *(more_data or []))))  # --data a b: b is an argument
    sweep = several_runs(several.sweep, several.seeds, corpus.hold_out, files)
    varied = {key for point in sweep.points for key in point}
    if several.results is not None and not sweep.points:
        raise InputError("--results belongs to --seeds or --sweep; a single run has metrics.jsonl and --json")
    if cluster.ray is not None:
        _check_ray(cluster.ray, method, sweep, logging.log_to)
    if sweep.asha is not None and cluster.ray is None:
        raise InputError(f"{several.sweep}: [asha] ends runs on Ray: add --ray local, or leave the table out")
    if sweep.asha is not None and not (evaluation.dev or evaluation.eval_data):
        raise InputError(f"{several.sweep}: [asha] compares runs by a dev set: give --dev or --eval-data")
    if training.seed is not None and sweep.seeds:
        raise InputError("--seed and the seeds of a sweep: give one of them")
    sized = corpus.limit or corpus.fraction or (recipe and recipe.limit) or varied & {"limit", "fraction", "recipe"}
    if corpus.subset_seed is not None and not sized:
        raise InputError("--subset-seed draws the sentences of --limit or --fraction: give one of them")
    method_file = Path(method) if method is not None and method.endswith(".py") else None
    with together(device) as device, naming_the_line(method_file):
        console.state.quiet |= not is_first()
        try:
            chosen = _choice("method", method, recipe, varied=bool(varied & {"method", "recipe"}))
            if chosen and method_file is None:
                get_method(chosen)
        except InputError as error:
            fit = f"; {methods_for(files, corpus.pair_fields, evaluation.kind)}" if files else ""
            raise InputError(f"{error}{fit}") from None
        request = TrainRequest(
            method=chosen if method_file is None else load_method_file(method_file),
            model=_choice("model", model, recipe, replaceable=True, varied=bool(varied & {"model", "recipe"})),
            data=files,
            output=output,
            stage=what.stage or (recipe.stage if recipe else None),
            pooling=pooling or (recipe.pooling if recipe else None),
            text_field=corpus.text_field,
            text_of=corpus.text_of,
            pair_fields=corpus.pair_fields,
            hold_out=corpus.hold_out,
            score_range=_range(corpus.score_range),
            after=what.after,
            subset=Subset(corpus.limit, corpus.fraction, corpus.subset_seed),
            no_leak=corpus.no_leak,
            dev=input_files(map(located_name, evaluation.dev or [])),
            kind=evaluation.kind,
            dev_limit=evaluation.dev_limit,
            eval_data=located(evaluation.eval_data) if evaluation.eval_data is not None else None,
            eval_text=located_name(evaluation.eval_text) if evaluation.eval_text is not None else None,
            device=device,
            overwrite=logging.overwrite,
            resume=logging.resume,
            save_every=logging.save_every,
            sts=evaluation.sts,
            log_geometry=logging.log_geometry,
            assignments=[
                *map(_key_value, what.set or []),
                *([("aux_init", what.aux_init)] if what.aux_init is not None else []),
                *((f"settings.{key}", value) for key, value in vars(training).items() if value is not None),
            ],
            recipe=recipe,
        )
        trackers = logging.log_to or []
        if sweep.points:
            return run_many(request, sweep, several.results or output / "results.jsonl", trackers, cluster)
        return run_one(request, trackers)


def _check_ray(address: str, method: str | None, sweep: Sweep, trackers: list[str] | None) -> None:
    """Refuse what does not go together with ``--ray``, or a cluster that is not there.

    Raises:
        InputError: with what to do instead.
    """
    from sentcli.cluster import check_address
    from sentcli.processes import launched

    if not sweep.points:
        raise InputError("--ray makes the runs of --seeds or --sweep; several processes on one run need torchrun")
    if launched() > 1:
        raise InputError("--ray starts processes itself: give the command without torchrun or accelerate")
    if method is not None and method.endswith(".py"):
        raise InputError("--ray and --method FILE.py: the nodes do not have the method; run them one after the other")
    if trackers:
        raise InputError("--ray and --log-to: several runs at a time have no tracker; each has its metrics.jsonl")
    check_address(address)


def _choice(
    option: str, value: str | None, recipe: Recipe | None, *, replaceable: bool = False, varied: bool = False
) -> str:
    """Return the value of ``--method`` or ``--model``, or else the recipe's.

    Args:
        option: ``method`` or ``model``.
        value: what the command line says.
        recipe: of ``--recipe``.
        replaceable: whether the value may differ from the recipe's.
        varied: whether a sweep sets it, so that it may be missing here.

    Raises:
        InputError: if it is missing, or differs from the recipe's.
    """
    recipe_value = getattr(recipe, option, None)
    if value is not None and recipe_value is not None and value != recipe_value and not replaceable:
        raise InputError(f"--{option} {value}: the recipe is for {recipe_value}")
    chosen = value or recipe_value
    if chosen is None and not varied:
        raise InputError(f"--{option} is missing (or a --recipe that says it)")
    return chosen or ""


def _key_value(pair: str) -> tuple[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise InputError(f"--set {pair}: expected KEY=VALUE, for example --set temperature=0.1")
    return key.strip(), value


def _range(text: str | None) -> tuple[float, float] | None:
    """Return the two ends of a range such as ``0,1``."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise InputError(f"--score-range {text}: expected two numbers, such as 0,1") from error
    if not -math.inf < low < high < math.inf:
        raise InputError(f"--score-range {text}: the first number has to be the lower one")
    return low, high
