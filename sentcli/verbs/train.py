"""``train``: learn a sentence encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_doc import Doc

from sentcli import console
from sentcli.bounds import Holds
from sentcli.cluster import ClusterOptions
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.methods import METHODS
from sentcli.model.options import OptionalModel
from sentcli.training.options import (
    DataOptions,
    EvaluationOptions,
    LogOptions,
    MethodOptions,
    SweepOptions,
    TrainingOptions,
)

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.sweep_file import Sweep

METHODS_HELP = f"{', '.join(METHODS)}; or a Python file of your own (docs/add-a-method.md)."


@verb(
    "train",
    common=(
        "output method model data pair_fields dev kind eval_data sts batch_size learning_rate epochs "
        "max_steps seed seeds sweep set recipe teacher resume overwrite json"
    ),
)
def train(
    output: Annotated[Path, Flag("-o", metavar="DIR")],
    method: Annotated[str | None, Holds.METHOD, Flag(metavar="NAME|FILE.py"), Doc(METHODS_HELP)] = None,
    model: OptionalModel = None,
    data: Annotated[list[str] | None, Holds.TEXT_FILE, Flag(metavar="FILE...")] = None,
    more_data: Annotated[list[str] | None, Holds.TEXT_FILE, Flag(metavar="FILE", positional=True)] = None,
    changes: Annotated[MethodOptions, Group("Method")] = MethodOptions(),
    pooling: Annotated[str | None, Flag(panel="Model")] = None,
    device: Annotated[str, Flag(panel="Model")] = "auto",
    reading: Annotated[DataOptions, Group("Data")] = DataOptions(),
    evaluation: Annotated[EvaluationOptions, Group("Evaluation")] = EvaluationOptions(),
    training: Annotated[TrainingOptions, Group("Training")] = TrainingOptions(),
    runs: Annotated[SweepOptions, Group("Several runs")] = SweepOptions(),
    log: Annotated[LogOptions, Group("Output")] = LogOptions(),
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
        data: Text, one sentence a line, or tables; - is standard input.
        more_data: More text files, as for --data.
        pooling: As for encode, own, or auto: a finished encoder keeps its own, any other start takes its method's.
        device: auto, cpu, cuda, cuda:1, mps.

    \b
    Examples:
      sentcli train --method simcse -m minilm --data sentences.txt -o model
      sentcli train --method micse -m bert-base --data a.txt b.csv -o micse \\
        --eval-data SentEval/data/downstream --set ami.weight=1e-3
      sentcli train --method static --teacher minilm --data documents.txt -o fast
      sentcli train --method simcse -m minilm --data train.csv --dev dev.csv -o faq
      sentcli train --recipe whitenedcse-bert-base --data wiki1m.txt -o white
      sentcli train --method micse -m minilm --data sentences.txt -o low-shot \\
        --fraction 0.01 --subset-seed 48 --max-steps 1000 --seeds 48,49,50
      sentcli train --method is-bert -m bert-base --data downstream --text-of MR -o is-bert-mr
      sentcli train --method cross-encoder -m minilm --data pairs.csv -o reranker
      sentcli train --method sts-regression -m bert-base --data AFS --hold-out topics -o cross-topic
      torchrun --nproc-per-node 8 -m sentcli train --method simcse -m bert-base \\
        --data wiki1m.txt -o big --set precision=bf16
    """  # noqa: D301
    from sentcli.data import located_name
    from sentcli.io.sources import input_files
    from sentcli.methods import get_method
    from sentcli.methods.method_file import load_method_file, naming_the_line
    from sentcli.methods.recipes import load_recipe
    from sentcli.processes import is_first, joined_processes
    from sentcli.training.planned import sweep_of
    from sentcli.training.records import RESULTS_FILE
    from sentcli.training.request import AUTO, TrainRequest, methods_for
    from sentcli.verbs.train_runs import estimate_runs, run_many, run_one, start_check_result

    recipe = None if changes.recipe is None else load_recipe(changes.recipe)
    files = input_files(map(located_name, (*(data or []), *(more_data or []))))  # --data a b: b is an argument
    sweep = sweep_of(runs, reading, files)
    varied: set[str] = set()
    for point in sweep.points:
        varied |= point.keys()
    _check_runs(sweep, runs, training.seed, cluster.ray, method)
    if sweep.asha is not None and not (evaluation.dev or evaluation.eval_data):
        raise InputError(f"{sweep.file}: [asha] compares runs by a dev set: give --dev or --eval-data")
    limit = reading.limit or (recipe.limit if recipe else None)
    sized = limit or reading.fraction or varied & {"limit", "fraction", "recipe"}
    if reading.subset_seed is not None and not sized:
        raise InputError("--subset-seed draws the sentences of --limit or --fraction: give one of them")
    method_file = Path(method) if method is not None and method.endswith(".py") else None
    with joined_processes(device) as device, naming_the_line(method_file):
        console.state.quiet |= not is_first()
        try:
            if method and recipe is not None and method != recipe.method:
                raise InputError(f"--method {method}: the recipe is for {recipe.method}")
            method_name = _choice("method", method or (recipe.method if recipe else None), varied)
            if method_name and method_file is None:
                get_method(method_name)
        except InputError as error:
            fit = f"; {methods_for(files, reading.pair_fields, evaluation.kind)}" if files else ""
            raise InputError(f"{error}{fit}") from None
        chosen_method = method_name if method_file is None else load_method_file(method_file)
        model = model or (recipe.model if recipe else None) or _teacher_to_start_from(chosen_method, changes)
        request = TrainRequest(
            method=chosen_method,
            model=_choice("model", model, varied),
            files=files,
            output=output,
            stage=changes.stage or (recipe.stage if recipe else None),
            pooling=pooling or (recipe and recipe.pooling) or AUTO,
            after=changes.after,
            device=device,
            data=reading,
            evaluation=_located(evaluation),
            log=log,
            assignments=[*changes.assignments, *training.assignments],
            recipe=recipe,
            teachers=tuple(changes.teacher or (recipe.teachers if recipe else ())),
        )
        if evaluation.check_start:
            return start_check_result(request)
        results = runs.results or output / RESULTS_FILE
        if runs.dry_run:
            return estimate_runs(request, sweep, results)
        if sweep.points:
            return run_many(request, sweep, results, cluster)
        return run_one(request)


def _teacher_to_start_from(method: str | Method, changes: MethodOptions) -> str | None:
    """Return the teacher that a student without a model of its own is made of: as a table, or of some of its layers."""
    from sentcli.methods import get_method

    if not method:
        return None
    is_made = get_method(method).start is not None
    if is_made and not changes.teacher:
        raise InputError(f"{get_method(method).name} is made of a teacher: name an encoder with --teacher")
    if not changes.teacher:
        return None
    return changes.teacher[0] if is_made or changes.layers is not None else None


def _located(evaluation: EvaluationOptions) -> EvaluationOptions:
    """Return the options with the places of their files: data sets may be given by their names."""
    from sentcli.data import dataset_path, located_name
    from sentcli.io.sources import input_files

    evaluation = replace(evaluation, dev=input_files(map(located_name, evaluation.dev or [])))
    if evaluation.eval_data is not None:
        evaluation = replace(evaluation, eval_data=dataset_path(evaluation.eval_data))
    if evaluation.senteval is not None:
        evaluation = replace(evaluation, senteval=dataset_path(evaluation.senteval))
    if evaluation.eval_text is not None:
        evaluation = replace(evaluation, eval_text=located_name(evaluation.eval_text))
    return evaluation


def _check_runs(sweep: Sweep, runs: SweepOptions, seed: int | None, address: str | None, method: str | None) -> None:
    """Refuse options that do not go with one run, with several runs, or with runs on Ray."""
    from sentcli.cluster.joining import check_address
    from sentcli.processes import launched

    if runs.results is not None and not sweep.points:
        raise InputError("--results belongs to --seeds or --sweep; a single run has metrics.jsonl and --json")
    if seed is not None and sweep.seeds:
        raise InputError("--seed and the seeds of a sweep: give one of them")
    if address is None:
        if sweep.asha is not None:
            raise InputError(f"{sweep.file}: [asha] ends runs on Ray: add --ray local, or leave the table out")
        return
    if not sweep.points:
        raise InputError("--ray makes the runs of --seeds or --sweep; several processes on one run need torchrun")
    if launched() > 1:
        raise InputError("--ray starts processes itself: give the command without torchrun or accelerate")
    if method is not None and method.endswith(".py"):
        raise InputError("--ray and --method FILE.py: the nodes do not have the method; run them one after the other")
    check_address(address)


def _choice(option: str, value: str | None, varied: set[str]) -> str:
    """Return the method or the model, which may be missing if each run of a sweep has its own."""
    if value is None and not varied & {option, "recipe"}:
        raise InputError(f"--{option} is missing (or a --recipe that says it)")
    return value or ""
