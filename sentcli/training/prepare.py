"""The steps before a run starts: settings, data and model are read and checked, and nothing is written yet."""

from __future__ import annotations

import os
import random
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation import sts
from sentcli.evaluation.stores import digest
from sentcli.io.labelled import STSB_RANGE
from sentcli.io.weights import has_weights
from sentcli.methods import Method, configure, get_method
from sentcli.methods.method import changed
from sentcli.methods.views import BatchTexts, ScoredPairs
from sentcli.model import first_token, surgery
from sentcli.model.spec import check_pooling
from sentcli.model.tokenizing import position_limit
from sentcli.model.torch_backend import text_tokenizer
from sentcli.objectives import Parts, StatefulObjective, Vocabulary
from sentcli.precision import check_precision
from sentcli.processes import is_first, launched, process_count
from sentcli.training.batches import Batch, to_tensors
from sentcli.training.data import (
    Subset,
    TrainingSentences,
    read_corpus,
    read_pairs,
    read_task_text,
    repetitions,
)
from sentcli.training.held_out_text import HeldOutText
from sentcli.training.loop import run_order
from sentcli.training.run_folder import check_run_folder
from sentcli.training.training_model import TrainingModel

if TYPE_CHECKING:
    from sentcli.methods.recipes import Recipe
    from sentcli.methods.settings import Settings
    from sentcli.model.tokenizing import TextTokenizer

DEV_TASK = "STSBenchmark"
BEFORE = "before."
"""The prefix of settings that belong to the method of ``--after``, which is trained first."""

Tasks: TypeAlias = dict[str, list[sts.Pairs]]
"""Similarity tasks by name, each with its subsets."""


@dataclass(frozen=True)
class TrainRequest:
    """One run as the user asked for it; None stands for the method's own value."""

    method: str | Method
    """A method's name, or the method that a user's own file defines."""
    model: str
    data: list[str]
    output: Path
    stage: str | None = None
    pooling: str | None = None
    text_field: str = "text"
    text_of: str | None = None
    """The tasks whose sentences are trained on, as `read_task_text` takes them."""
    hold_out: str | None = None
    """The pairs that are left out and scored at the end, as `read_pairs` takes them."""
    score_range: tuple[float, float] | None = None
    """The scores of pairs that become cosines of 0 and 1; None takes the usual range that holds all of them."""
    after: str | None = None
    """A method that is trained first, on the sentences of the pairs."""
    first_stage: dict[str, Any] | None = None
    """The method, model and given settings of the training that `after` asked for, for the record."""
    subset: Subset = field(default_factory=Subset)
    eval_data: Path | None = None
    eval_text: str | None = None
    """Text whose masked words are predicted at every evaluation."""
    device: str = "auto"
    overwrite: bool = False
    resume: bool = False
    save_every: int = 500
    """The number of steps between two checkpoints; 0 writes none."""
    sts: bool = False
    """Whether the kept weights are scored on the seven STS tasks at the end."""
    log_geometry: bool = False
    """Whether alignment and uniformity of STS-B dev are logged at every evaluation."""
    assignments: list[tuple[str, Any]] = field(default_factory=list)
    """Settings of the method and of the training by name, as `configure` takes them; later ones win."""
    recipe: Recipe | None = None
    """A recipe, whose settings are applied before `assignments`."""

    def configured(self) -> Method:
        """Return the method with the settings of the recipe and then with `assignments`.

        Raises:
            InputError: for a setting that does not exist or a value that is not allowed.
        """
        method = get_method(self.method, self.stage)
        if self.recipe is not None:
            try:
                method = configure(method, self.recipe.assignments)
            except InputError as error:
                raise InputError(f"recipe {self.recipe.name}: {error}") from error
        if self.after is None:
            for key, _ in self.assignments:
                if key.startswith(BEFORE):
                    raise InputError(f"{key} is a setting of --after, which is missing")
        else:
            if not isinstance(method.views, ScoredPairs):
                raise InputError(f"--after goes with pairs, as of --method sts-regression, not with {method.name}")
            get_method(self.after, None)
        method = configure(method, [(key, value) for key, value in self.assignments if not key.startswith(BEFORE)])
        if self.pooling is not None and self.pooling != "own":
            check_pooling(self.pooling)
        return method

    def with_subset(self, method: Method) -> TrainRequest:
        """Return the request with the subset that is trained on, given the configured method; see `Subset.settled`."""
        recipe = Subset() if self.recipe is None else Subset(self.recipe.limit, None, self.recipe.subset_seed)
        return replace(self, subset=self.subset.settled(recipe, method.settings.seed))


@dataclass(frozen=True)
class Prepared:
    """A run whose every input has been read and checked; nothing has been written yet."""

    request: TrainRequest
    method: Method
    encoder: SentenceEncoder
    model: TrainingModel | None
    """Encoder, head and objectives; None for a method that is fitted."""
    tokenizer: TextTokenizer
    """Cuts texts to the training length."""
    start_fingerprint: str
    """The fingerprint of the start model."""
    corpus: TrainingSentences
    held_out: sts.Pairs | None
    """Pairs that are not trained on and scored at the end."""
    dev: Tasks | None
    test: Tasks | None
    """The seven STS tasks, if they are scored at the end."""
    held_out_text: HeldOutText | None = None
    notes: tuple[str, ...] = ()
    """Notes for the user, before the first step."""

    @property
    def steps(self) -> int:
        """The number of optimiser steps, 0 for a method that is fitted."""
        if self.model is None:
            return 0
        order = run_order(self.model, self.method.settings, len(self.corpus.sentences))
        return self.method.settings.total_steps(order.per_epoch)

    def identity(self, *, changed_only: bool = False) -> dict[str, Any]:
        """Return everything that decides the weights, which ``--resume`` compares.

        Args:
            changed_only: leave out settings that have their default.
        """
        request = self.request
        return {
            **method_identity(self.method, request.stage, changed_only=changed_only),
            "start_model": self.start_fingerprint,
            "encoder": self.encoder.describe(),
            "data": list(self.corpus.files),
            "subset": asdict(request.subset),
            "dev": digest([part for pairs in self.dev.values() for part in sts.content(pairs)]) if self.dev else None,
            "processes": process_count(),
            "device": self.encoder.backend.device.partition(":")[0],
            **({} if request.hold_out is None else {"hold_out": request.hold_out}),
            **({} if self.corpus.score_range == STSB_RANGE else {"score_range": self.corpus.score_range}),
        }


def method_identity(method: Method, stage: str | None, *, changed_only: bool = False) -> dict[str, Any]:
    """Return the part of a run's identity that follows from its method and settings alone."""
    settings = changed(method.settings) if changed_only else asdict(method.settings)
    return {
        "method": {**method.describe(changed_only=changed_only), "stage": stage},
        "settings": settings if method.fit is None else {},
    }


def prepare(request: TrainRequest) -> Prepared:
    """Read the settings, the data and the start model of a run, and check them, their fit and the output folder."""
    method = request.configured()
    request = request.with_subset(method)
    corpus, held_out, dev, test = read_inputs(request, method)
    seed_everything(method.settings.seed)  # for the random weights of a new head, of convolutions or of a whole model
    encoder, notes = load_encoder(method, request.model, pooling=request.pooling, device=request.device)
    method = _with_fitting_length(request, method, encoder, notes)
    settings = method.settings
    tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, settings.max_length)
    model = held_out_text = None
    if request.eval_text is not None and method.fit is not None:
        raise InputError(f"--eval-text measures how well masked words are predicted, and {method.name} predicts none")
    if method.fit is None:
        check_precision(torch.device(encoder.backend.device), settings.precision)
        model = make_model(method, encoder)
        if request.eval_text is not None:
            sentences = read_corpus([request.eval_text], text_field=request.text_field).sentences
            held_out_text = HeldOutText(sentences, tokenizer, model)
        _configure_torch(model, settings)
        same_text_twice = Batch([tokenizer([corpus.sentences[0]] * 2)], BatchTexts([]))
        device = next(model.parameters()).device
        _check_model(model, to_tensors(same_text_twice, tokenizer.pad_id, 1, device), settings)
        notes += _batch_notes(method, model, len(corpus.sentences))
        notes += _data_notes(method, corpus)
        notes += [part.note for part in model.stateful.values() if isinstance(part, StatefulObjective) and part.note]
    fingerprint = encoder.fingerprint()
    return Prepared(
        request=request,
        method=method,
        encoder=encoder,
        model=model,
        tokenizer=tokenizer,
        start_fingerprint=fingerprint,
        corpus=corpus,
        held_out=held_out,
        dev=dev,
        test=test,
        held_out_text=held_out_text,
        notes=tuple(notes),
    )


def read_inputs(
    request: TrainRequest, method: Method
) -> tuple[TrainingSentences, sts.Pairs | None, Tasks | None, Tasks | None]:
    """Check the output folder, and read and check the data.

    Returns:
        The training data, the pairs that are held out, the dev set and the test tasks.
    """
    if is_first():
        check_run_folder(request.output, overwrite=request.overwrite, resume=request.resume)
    of_objectives = [folder for objective in method.objectives.values() for folder in objective.reads()]
    for path in (*request.data, request.model, request.eval_data, request.eval_text, *of_objectives):
        if path is not None and Path(path).exists() and Path(path).resolve().is_relative_to(request.output.resolve()):
            # --overwrite would delete it
            raise InputError(f"-o {request.output} would replace {path}, which this run reads; choose another -o")
    corpus, held_out = _read_data(request, method)
    if method.fit is None:
        method.settings.check(len(corpus.sentences), launched())
        _check_objectives(method)
    dev = sts.load_tasks(request.eval_data, [DEV_TASK], "dev") if request.eval_data else None
    if request.log_geometry and request.eval_data is None:
        raise InputError("--log-geometry measures STS-B dev of --eval-data, which is missing")
    if request.sts and request.eval_data is None:
        raise InputError("--sts scores the STS tasks of --eval-data, which is missing")
    test = sts.load_tasks(request.eval_data, None, "test") if request.sts and request.eval_data else None
    return corpus, held_out, dev, test


def _check_objectives(method: Method) -> None:
    if not method.objectives:
        raise InputError(f"{method.name} has no objective left to train with")
    scored = [name for name, objective in method.objectives.items() if objective.needs_scores]
    if scored and not isinstance(method.views, ScoredPairs):
        raise InputError(
            f"{scored[0]} needs scored pairs, which --method sts-regression (or --set views=scored-pairs) reads"
        )


def _read_data(request: TrainRequest, method: Method) -> tuple[TrainingSentences, sts.Pairs | None]:
    """Return the training data, and the pairs that are held out."""
    if method.fit is not None and not method.fit.needs_data:
        if request.data:
            raise InputError(f"{method.name} computes nothing from text: leave --data out")
        return TrainingSentences([], (), 0), None
    if not request.data:
        raise InputError("--data is missing: text files with one sentence a line, or tables")
    if isinstance(method.views, ScoredPairs):
        if request.text_of is not None:
            raise InputError(f"--text-of is for methods that take plain text; {method.name} takes scored pairs")
        return read_pairs(
            request.data, subset=request.subset, hold_out=request.hold_out, score_range=request.score_range
        )
    if request.text_of is not None:
        return read_task_text(request.text_of, request.data, subset=request.subset, hold_out=request.hold_out), None
    if request.hold_out is not None:
        raise InputError("--hold-out leaves out scored pairs, which --method sts-regression and --text-of pairs read")
    return read_corpus(request.data, text_field=request.text_field, subset=request.subset), None


def seed_everything(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - libraries may draw from the global generator
    torch.manual_seed(seed)


def load_encoder(
    method: Method, model: str, *, pooling: str | None = None, device: str = "auto"
) -> tuple[SentenceEncoder, list[str]]:
    """Load a start model with the pooling, the convolutions and the dropout of a method.

    Returns:
        The encoder, and notes for the user.
    """
    notes = []
    pooling_name = pooling or method.pooling
    if method.cnn is not None:
        pooling_name = "own"
        if pooling:
            notes.append(f"{method.name} pools its own convolutions; --pooling {pooling} is not used")
    encoder = SentenceEncoder.load(
        model,
        backend="torch",
        device=device,
        precision="fp32",
        pooling=None if pooling_name == "own" else pooling_name,
        edit=method.cnn.extend if method.cnn is not None else None,
        untrained=method.fit is None and all(o.views == 0 for o in method.objectives.values()),
    )
    if not has_weights(encoder.spec.folder):
        notes.append(f"{model} has no weights: training starts from random ones")
    if method.settings.dropout is not None:
        surgery.set_dropout(encoder.torch_module, method.settings.dropout)
    return encoder, notes


def make_model(method: Method, encoder: SentenceEncoder) -> TrainingModel:
    """Put encoder, head and objectives together, on the encoder's device."""
    tokenizer = encoder.hf_tokenizer
    words = min(len(tokenizer), surgery.word_embeddings(encoder.torch_module.backbone).num_embeddings)
    special = frozenset(tokenizer.all_special_ids)
    vocabulary = Vocabulary(words, tokenizer.mask_token_id, special, encoder.tokenizer.pad_id)
    length = method.settings.max_length
    parts = Parts(encoder.torch_module, encoder.spec, vocabulary, encoder.dimension, length)
    return TrainingModel(method, parts).to(encoder.backend.device)


def _with_fitting_length(request: TrainRequest, method: Method, encoder: SentenceEncoder, notes: list[str]) -> Method:
    """Shorten the method's default length to the positions of the model; a length that the user chose stays."""
    length = method.settings.max_length
    positions = position_limit(encoder.spec, encoder.hf_tokenizer.pad_token_id)
    is_default = length == get_method(request.method, request.stage).settings.max_length
    if positions is None or length <= positions or not is_default:
        return method
    notes.append(f"{method.name} trains on {length} tokens a sentence, this model has {positions} positions")
    return replace(method, settings=replace(method.settings, max_length=positions))


def _data_notes(method: Method, corpus: TrainingSentences) -> list[str]:
    """Return notes about the range of the scores, or about repeated sentences."""
    if isinstance(method.views, ScoredPairs):
        low, high = corpus.score_range
        return [f"scores from {low:g} to {high:g} become cosines from 0 to 1; --score-range says another range"]
    if repeated := repetitions(corpus.sentences):
        what = "in a batch with it they are taken for different sentences"
        return [f"{repeated} of {len(corpus.sentences)} sentences repeat an earlier one: {what}"]
    return []


def _batch_notes(method: Method, model: TrainingModel, sentences: int) -> list[str]:
    """Check the batch size, and return notes about the last batch, the steps of an epoch and the warm-up."""
    settings, least, notes = method.settings, model.least_rows, []
    order = run_order(model, settings, sentences)
    if settings.batch_size < least:
        raise InputError(f"batch_size {settings.batch_size}: {method.name} with these settings needs at least {least}")
    rest = sentences % (settings.batch_size * order.processes)
    if 1 < rest < least * order.processes:
        notes.append(f"the last {rest} sentences of each epoch are left out: a batch needs at least {least}")
    steps = settings.total_steps(order.per_epoch)
    if not settings.max_steps and settings.accumulate > settings.epochs * order.per_epoch:
        notes.append(f"one step takes {settings.accumulate} batches, an epoch has {order.per_epoch}")
    if settings.warmup_steps >= steps:
        notes.append(f"the warm-up of {settings.warmup_steps} steps is not over when the run ends, after {steps}")
    return notes


def _configure_torch(model: TrainingModel, settings: Settings) -> None:
    """Compile the encoder, and restrict torch to deterministic kernels, if the settings say so."""
    if settings.compile:
        for encoder in filter(None, (model.encoder, model.second)):
            if encoder.first_token_suffices:
                # a layer with a forward function of its own cannot be compiled with the rest
                encoder.first_token_suffices = False
                first_token.remove(encoder.backbone)
            encoder.backbone.compile(dynamic=True)
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(settings.deterministic)  # also when false: an earlier run may have set it


def _check_model(model: TrainingModel, batch: dict[str, torch.Tensor], settings: Settings) -> None:
    """Run `TrainingModel.check`; if the machine cannot compile the model, the error says so."""
    if not settings.compile:
        model.check(batch)
        return
    from torch._dynamo.exc import TorchDynamoException

    try:
        model.check(batch)
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"compile=true: torch.compile does not work here ({reason}); it needs a C++ compiler. Leave it out, or "
            "install one, such as g++"
        ) from error
