"""The steps before a run starts: settings, data and model are read and checked, and nothing is written yet."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import for_model
from sentcli.evaluation.files import STSB_RANGE
from sentcli.io.weights import has_weights
from sentcli.methods import Method
from sentcli.methods.method import changed
from sentcli.methods.views import BatchTexts
from sentcli.model import surgery
from sentcli.model.cross_encoder_files import as_cross_encoder
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import pair_text, position_limit
from sentcli.model.torch_backend import text_tokenizer, tokenizer_in_template
from sentcli.objectives import PairClasses, Parts, StatefulObjective, Vocabulary
from sentcli.precision import check_precision
from sentcli.processes import process_count
from sentcli.training import dev
from sentcli.training.batches import Batch, to_tensors
from sentcli.training.data import TrainingSentences, read_corpus, repetitions
from sentcli.training.dev import HeldOutText
from sentcli.training.inputs import RunInputs, read_inputs
from sentcli.training.loop import run_order
from sentcli.training.pooling import PoolingChoice, choose_pooling, pooling_of
from sentcli.training.request import OWN, TrainRequest, fitting
from sentcli.training.training_model import TrainingModel

WARM_UP = "the warm-up"
"""How the note on a learning rate that is still rising at the end begins."""

if TYPE_CHECKING:
    from sentcli.methods.method import Settings
    from sentcli.model.tokenizing import TextTokenizer


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
    second_tokenizer: TextTokenizer | None
    """Does so for the views after the first, where they have another template."""
    start_fingerprint: str
    """The fingerprint of the start model."""
    inputs: RunInputs
    pooling: PoolingChoice
    held_out_text: HeldOutText | None = None
    notes: tuple[str, ...] = ()
    """Notes for the user, before the first step."""

    @property
    def corpus(self) -> TrainingSentences:
        """The training data."""
        return self.inputs.corpus

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt in front of the texts of each view, as the model encodes texts in that role."""
        spec = self.encoder.spec
        return tuple(spec.role_prompt(role) if role else spec.usual_prompt for role in self.method.views.roles)

    @property
    def revision(self) -> str | None:
        """The commit of a start model of the hub."""
        return self.encoder.provenance().get("revision")

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
            "subset": asdict(self.inputs.subset),
            "dev": dev.identity(self.inputs.dev),
            "processes": process_count(),
            "device": self.encoder.backend.device.partition(":")[0],
            **({"no_leak": self.inputs.leaked} if request.data.no_leak else {}),
            **({} if not any(self.prompts) else {"prompts": self.prompts}),
            **({} if request.data.hold_out is None else {"hold_out": request.data.hold_out}),
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
    inputs = read_inputs(request, method)
    corpus = inputs.corpus
    method = _with_classes(method, corpus)
    dev_limit, eval_text = request.evaluation.dev_limit, request.evaluation.eval_text
    if dev_limit is not None:
        inputs = replace(inputs, dev=dev.limited(inputs.dev, dev_limit, request.model))
    seed_everything(method.settings.seed)  # for the random weights of a new head, of convolutions or of a whole model
    pooling = pooling_of(request, method)
    encoder, notes = load_encoder(method, request.model, pooling=pooling, device=request.device)
    for task in (*(dev_set.task for dev_set in inputs.dev), *inputs.transfer):
        for_model(task, encoder.spec)  # refuses what a cross-encoder is not scored on
    if request.log.log_geometry and encoder.spec.scores_pairs:
        raise InputError(f"--log-geometry measures vectors, and {method.name} makes none")
    method = _with_fitting_length(request, method, encoder, notes)
    settings = method.settings
    tokenizer, second = view_tokenizers(method, encoder, settings.max_length)
    model = held_out_text = None
    if eval_text is not None and method.fit is not None:
        raise InputError(f"--eval-text measures how well masked words are predicted, and {method.name} predicts none")
    if method.fit is None:
        check_precision(torch.device(encoder.backend.device), settings.precision)
        model = make_model(method, encoder)
        if eval_text is not None:
            sentences = read_corpus([eval_text], text_field=request.data.text_field).sentences
            held_out_text = HeldOutText(sentences, tokenizer, model)
        _configure_torch(model, settings)
        text = corpus.sentences[0] if not method.views.joint else pair_text(*(column[0] for column in corpus.texts))
        same_text_twice = Batch([tokenizer([text] * 2)], BatchTexts([]))
        device = next(model.parameters()).device
        _check_model(model, to_tensors(same_text_twice, tokenizer.pad_id, 1, device), settings)
        notes += _batch_notes(method, model, len(corpus.sentences))
        if inputs.leaked:
            rows = f"{inputs.leaked} {corpus.unit} hold a text of the dev or test sets"
            notes.append(f"{rows} and were left out" if request.data.no_leak else f"{rows}; --no-leak leaves them out")
        notes += _data_notes(request, method, corpus)
        notes += [objective.note for objective in method.objectives.values() if objective.note]
        notes += [part.note for part in model.stateful.values() if isinstance(part, StatefulObjective) and part.note]
    fingerprint = encoder.fingerprint()
    return Prepared(
        request, method, encoder, model, tokenizer, second, fingerprint, inputs, pooling, held_out_text, tuple(notes)
    )


def seed_everything(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - libraries may draw from the global generator
    torch.manual_seed(seed)


def load_encoder(
    method: Method, model: str, *, pooling: PoolingChoice | None = None, device: str = "auto"
) -> tuple[SentenceEncoder, list[str]]:
    """Load a start model with a pooling and with the convolutions and the dropout of a method.

    Args:
        method: with its settings.
        model: the name of the start model.
        pooling: None takes what `choose_pooling` chooses.
        device: as ``--device``.

    Returns:
        The encoder, and notes for the user.
    """
    notes: list[str] = []
    edit: Callable[[EncoderSpec], EncoderSpec] | None = None
    pooling = pooling or choose_pooling(method, model)
    if method.cnn is not None:
        edit = method.cnn.extend
    elif method.views.joint:
        edit = as_cross_encoder
    if pooling.unused is not None:
        notes.append(f"{pooling.reason}; --pooling {pooling.unused} is not used")
    encoder = SentenceEncoder.load(
        model,
        backend="torch",
        device=device,
        precision="fp32",
        pooling=None if pooling.name == OWN else pooling.name,
        edit=edit,
        pairs=method.views.joint,
        untrained=method.fit is None and all(o.views == 0 for o in method.objectives.values()),
    )
    if method.template is not None:
        encoder = encoder.in_template(method.template.first)
    if not has_weights(encoder.local.spec.folder):
        notes.append(f"{model} has no weights: training starts from random ones")
    if method.settings.dropout is not None:
        surgery.set_dropout(encoder.torch_module, method.settings.dropout)
    return encoder, notes


def view_tokenizers(
    method: Method, encoder: SentenceEncoder, max_length: int | None = None
) -> tuple[TextTokenizer, TextTokenizer | None]:
    """Return what cuts texts to a length, for the first view and for those that have another template."""
    first, spec, second = encoder.hf_tokenizer, encoder.local.spec, None
    if method.template is not None and method.template.second:
        second = text_tokenizer(tokenizer_in_template(first, method.template.second), spec, max_length)
    return text_tokenizer(first, spec, max_length), second


def make_model(method: Method, encoder: SentenceEncoder) -> TrainingModel:
    """Put encoder, head and objectives together, on the encoder's device."""
    around: tuple[tuple[int, int], ...] = ()
    if method.template is not None and method.template.denoise:
        first, second = view_tokenizers(method, encoder)
        around = (first.around, *((second or first).around,) * (method.views.count - 1))
    tokenizer = encoder.hf_tokenizer
    words = min(len(tokenizer), surgery.word_embeddings(encoder.torch_module.backbone).num_embeddings)
    vocabulary = Vocabulary.of(tokenizer, words, encoder.tokenizer.pad_id)
    module, length = encoder.torch_module, method.settings.max_length
    parts = Parts(module, encoder.local.spec, vocabulary, encoder.dimension, length, around)
    return TrainingModel(method, parts).to(encoder.backend.device)


def _with_fitting_length(request: TrainRequest, method: Method, encoder: SentenceEncoder, notes: list[str]) -> Method:
    """Shorten the method's default length to what the model can take; a length that the user chose stays.

    Views that are different texts are cut to the model's own maximum length at most, as in encoding; views of one
    sentence to the positions of the model.
    """
    length = method.settings.max_length
    positions = position_limit(encoder.local.spec, encoder.hf_tokenizer.pad_token_id)
    own = None if positions is None else positions - method.views.longer
    different_texts = method.views.different_texts() or method.views.joint
    if different_texts:
        own = min(filter(None, (own, encoder.spec.max_length)), default=None)
    is_default = length == request.default_method().settings.max_length
    if own is None or length <= own:
        return method
    if not is_default:
        if method.views.longer:
            raise InputError(
                f"--max-length {length} leaves no room for {method.views.longer} repeated tokens in the {positions} "
                f"positions of this model; at most {own}"
            )
        return method
    if not different_texts:
        limit = f"this model has {positions} positions"
        notes.append(f"{method.name} trains on {length} tokens a sentence, here on {own}: {limit}")
    return replace(method, settings=replace(method.settings, max_length=own))


def _with_classes(method: Method, corpus: TrainingSentences) -> Method:
    """Return the method with the number of classes that the data has, where it was not chosen."""
    count, found = len(set(corpus.scores or ())), dict(method.objectives)
    for name, term in method.objectives.items():
        if isinstance(term, PairClasses):
            if 0 < term.classes < count:
                raise InputError(f"{name}.classes={term.classes}: the data has {count} classes")
            found[name] = replace(term, classes=term.classes or count)
    return replace(method, objectives=found)


def _data_notes(request: TrainRequest, method: Method, corpus: TrainingSentences) -> list[str]:
    """Return notes about unused labels, the range of the scores, or repeated sentences."""
    layout = request.layout(method) if method.views.reads == "sentences" else None
    if layout is not None:
        return [f"{method.name} does not use the column {layout.columns[-1]}; {fitting(layout.kind)}"]
    if method.views.reads == "scores":
        become = {"regression": "cosines", "pair-score": "probabilities"}
        kind = next((become[name] for name in method.objectives if name in become), None)
        low, high = corpus.score_range
        text = f"scores from {low:g} to {high:g} become {kind} from 0 to 1; --score-range says another range"
        return [] if kind is None else [text]
    masked = all(getattr(objective, "mask_duplicates", False) for objective in method.objectives.values())
    if not masked and (repeated := repetitions(corpus.sentences)):
        repeats = f"{repeated} of {len(corpus.sentences)} sentences repeat an earlier one"
        return [f"{repeats}: in a batch with it they are taken for different sentences"]
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
        notes.append(f"{WARM_UP} of {settings.warmup_steps} steps is not over when the run ends, after {steps}")
    return notes


def _configure_torch(model: TrainingModel, settings: Settings) -> None:
    """Compile the encoder, and restrict torch to deterministic kernels, if the settings say so."""
    if settings.compile:
        for encoder in filter(None, (model.encoder, model.second)):
            if encoder.first_token_suffices:
                # a layer with a forward function of its own cannot be compiled with the rest
                encoder.first_token_suffices = False
                surgery.remove(encoder.backbone)
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
        cause = getattr(error, "inner_exception", error)
        reason = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise InputError(
            f"compile=true: torch.compile does not work here ({reason}); it needs a C++ compiler. Leave it out, or "
            "install one, such as g++"
        ) from error
