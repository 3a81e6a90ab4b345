"""The steps before a run starts: settings, data and model are read and checked, and nothing is written yet."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sentcli.encoder.loading import finished_encoder
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import Task, for_model
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
from sentcli.objectives import ObjectiveContext, PairClasses, StatefulObjective, Vocabulary
from sentcli.precision import check_precision
from sentcli.processes import process_count
from sentcli.training import dev
from sentcli.training.batches import TrainingBatch, to_tensors
from sentcli.training.data import TrainingSentences, read_corpus
from sentcli.training.dev import HeldOutText
from sentcli.training.inputs import RunInputs, read_run_inputs
from sentcli.training.loop import run_order
from sentcli.training.made_start import made_start
from sentcli.training.notes import batch_notes, data_notes
from sentcli.training.pooling import PoolingChoice, choose_pooling, run_pooling
from sentcli.training.request import OWN_POOLING, TrainRequest
from sentcli.training.targets import check_answers
from sentcli.training.teachers import EncoderTeacher, check_teachers, identity_of, open_teachers, width_of
from sentcli.training.training_model import TrainingModel

if TYPE_CHECKING:
    from sentcli.methods.method import Settings
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.training.teachers import Teacher


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
    """Cuts the texts of the views after the first, where they have another template."""
    start_fingerprint: str
    """The fingerprint of the start model."""
    inputs: RunInputs
    pooling: PoolingChoice
    held_out_text: HeldOutText | None = None
    teachers: tuple[Teacher, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the user, before the first step."""

    @property
    def corpus(self) -> TrainingSentences:
        """The training data."""
        return self.inputs.corpus

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt in front of the texts of each view, as the model encodes texts in that role; empty without any."""
        spec = self.encoder.spec
        prompts = []
        for role in self.method.views.roles:
            prompt = spec.role_prompt(role) if role else spec.usual_prompt
            prompts.append(prompt)
        if not any(prompts):
            return ()
        return tuple(prompts)

    @property
    def revision(self) -> str | None:
        """The commit of a start model of the hub."""
        return self.encoder.provenance().get("revision")

    @property
    def has_random_weights(self) -> bool:
        """Whether the seed draws weights of the encoder, so that each seed begins with another one."""
        has_new_modules = self.method.cnn is not None or self.method.views.joint
        return has_new_modules or not has_weights(self.encoder.local.spec.folder)

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
        options = self.request.data
        facts = {
            **method_identity(self.method, self.request.stage, changed_only=changed_only),
            "start_model": self.start_fingerprint,
            "encoder": self.encoder.describe(),
            "data": list(self.corpus.files),
            "subset": asdict(self.inputs.subset),
            "dev": dev.identity(self.inputs.dev),
            "processes": process_count(),
            "device": self.encoder.backend.device.partition(":")[0],
        }
        if options.no_leak:
            facts["no_leak"] = self.inputs.leaked
        if self.prompts:
            facts["prompts"] = self.prompts
        if options.hold_out is not None:
            facts["hold_out"] = options.hold_out
        if self.corpus.score_range != STSB_RANGE:
            facts["score_range"] = self.corpus.score_range
        if self.teachers:
            facts["teachers"] = list(map(identity_of, self.teachers))
        return facts


def method_identity(method: Method, stage: str | None, *, changed_only: bool = False) -> dict[str, Any]:
    """Return the part of a run's identity that follows from its method and settings alone."""
    settings: dict[str, Any] = {}
    if method.fit is None:
        settings = changed(method.settings) if changed_only else asdict(method.settings)
    return {"method": {**method.describe(changed_only=changed_only), "stage": stage}, "settings": settings}


def prepare(request: TrainRequest) -> Prepared:
    """Read the settings, the data and the start model of a run, and check them, their fit and the output folder.

    Raises:
        InputError: if one of them cannot be read, or does not go with the others.
    """
    method = request.configured()
    inputs = read_run_inputs(request, method)
    method = _with_classes(method, inputs.corpus)
    if request.evaluation.dev_limit is not None:
        sampled = dev.limited(inputs.dev, request.evaluation.dev_limit, request.model)
        inputs = replace(inputs, dev=sampled)
    teachers = open_teachers(request.teachers, request.device, request.teacher_backend)
    check_teachers(method, teachers)
    check_answers(teachers, method, inputs.corpus)
    start = start_model(request, method, teachers, inputs)
    seed_everything(method.settings.seed)  # for the random weights of a new head, of convolutions or of a whole model
    pooling = run_pooling(request, method, start)
    encoder, notes = load_start(method, start, pooling=pooling, device=request.device)
    _check_evaluation(request, method, inputs, encoder)
    _refuse_start_as_teacher(request, method, teachers, encoder)
    method = _with_fitting_length(request, method, encoder, notes)
    tokenizer, second = view_tokenizers(method, encoder, method.settings.max_length)
    model = held_out_text = None
    if method.fit is None:
        check_precision(torch.device(encoder.backend.device), method.settings.precision)
        model = make_model(method, encoder, tuple(map(width_of, teachers)))
        if request.evaluation.eval_text is not None:
            text = read_corpus([request.evaluation.eval_text], text_field=request.data.text_field)
            held_out_text = HeldOutText(text.sentences, tokenizer, model)
        _configure_torch(model, method.settings)
        _check_model(method, model, inputs.corpus, tokenizer)
        notes += batch_notes(method, model, len(inputs.corpus.sentences))
        notes += data_notes(request, method, inputs)
        if method.start is not None and not inputs.dev:
            notes.append(f"--dev SET would say what {method.name} loses: it scores the teacher and the student")
        notes += [objective.note for objective in method.objectives.values() if objective.note]
        for part in model.stateful.values():
            if isinstance(part, StatefulObjective) and part.note:
                notes.append(part.note)
    return Prepared(
        request=request,
        method=method,
        encoder=encoder,
        model=model,
        tokenizer=tokenizer,
        second_tokenizer=second,
        start_fingerprint=encoder.fingerprint(),
        inputs=inputs,
        pooling=pooling,
        held_out_text=held_out_text,
        teachers=teachers,
        notes=tuple(notes),
    )


def start_model(request: TrainRequest, method: Method, teachers: Sequence[Teacher], inputs: RunInputs) -> str:
    """Return the name of the start model, or the folder of the one that is made of the teacher.

    A static model that is named by itself is trained further.
    """
    if method.start is None:
        return request.model
    if request.model in request.teachers:
        return str(made_start(method.start, teachers, inputs.corpus))
    finished = finished_encoder(request.model)
    if finished is None or not finished.is_static:
        raise InputError(
            f"--model {request.model}: {method.name} starts from its teacher, or from a static model: leave --model out"
        )
    return request.model


def _refuse_start_as_teacher(
    request: TrainRequest, method: Method, teachers: Sequence[Teacher], encoder: SentenceEncoder
) -> None:
    """Refuse a teacher that is the start itself with all its layers, from which nothing can be learnt."""
    if method.settings.keep_layers or request.learns_from_itself:
        return
    weights = encoder.provenance().get("weights")
    for teacher in teachers:
        is_start = isinstance(teacher, EncoderTeacher) and teacher.weights == weights
        if is_start and weights is not None:
            raise InputError(
                f"--teacher {teacher.name} is the start model itself, from which it cannot learn; --layers 0,2,4 "
                "makes a smaller student of it"
            )


def _check_evaluation(request: TrainRequest, method: Method, inputs: RunInputs, encoder: SentenceEncoder) -> None:
    """Refuse evaluations that the model or the method cannot be scored with."""
    tasks: list[Task] = [dev_set.task for dev_set in inputs.dev]
    tasks += inputs.transfer
    for task in tasks:
        for_model(task, encoder.spec)  # refuses what a cross-encoder is not scored on
    if request.log.log_geometry and encoder.spec.scores_pairs:
        raise InputError(f"--log-geometry measures vectors, and {method.name} makes none")
    if request.evaluation.eval_text is not None and method.fit is not None:
        raise InputError(f"--eval-text measures how well masked words are predicted, and {method.name} predicts none")


def seed_everything(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - libraries may draw from the global generator
    torch.manual_seed(seed)


def load_start(
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
    if method.cnn is not None:
        edit = method.cnn.extend
    elif method.views.joint:
        edit = as_cross_encoder
    pooling = pooling or choose_pooling(method, model)
    if pooling.unused is not None:
        notes.append(f"{pooling.reason}; --pooling {pooling.unused} is not used")
    reads_views = any(term.views > 0 for term in method.objectives.values())
    trains_encoder = method.fit is not None or reads_views
    encoder = SentenceEncoder.load(
        model,
        backend="torch",
        device=device,
        precision="fp32",
        pooling=None if pooling.name == OWN_POOLING else pooling.name,
        edit=edit,
        pairs=method.views.joint,
        untrained=not trains_encoder,
    )
    if method.template is not None:
        encoder = encoder.in_template(method.template.first)
    if not has_weights(encoder.local.spec.folder):
        notes.append(f"{model} has no weights: training starts from random ones")
    if method.settings.keep_layers:
        encoder.torch_module.keep_layers(method.settings.keep_layers)
    if method.settings.dropout is not None:
        surgery.set_dropout(encoder.torch_module, method.settings.dropout)
    return encoder, notes


def view_tokenizers(
    method: Method, encoder: SentenceEncoder, max_length: int | None = None
) -> tuple[TextTokenizer, TextTokenizer | None]:
    """Return what cuts texts to a length, for the first view and for those that have another template."""
    hf_tokenizer, spec = encoder.hf_tokenizer, encoder.local.spec
    first = text_tokenizer(hf_tokenizer, spec, max_length)
    if method.template is None or not method.template.second:
        return first, None
    in_template = tokenizer_in_template(hf_tokenizer, method.template.second)
    return first, text_tokenizer(in_template, spec, max_length)


def make_model(method: Method, encoder: SentenceEncoder, teacher_widths: tuple[int, ...] = ()) -> TrainingModel:
    """Put encoder, head and objectives together, on the encoder's device.

    Args:
        method: with its settings.
        encoder: the start.
        teacher_widths: the dimension of the vectors of each teacher.
    """
    template_tokens: tuple[tuple[int, int], ...] = ()
    if method.template is not None and method.template.denoise:
        first, second = view_tokenizers(method, encoder)
        later_views = second or first
        template_tokens = (first.around, *[later_views.around] * (method.views.count - 1))
    tokenizer = encoder.hf_tokenizer
    module = encoder.torch_module
    words = min(len(tokenizer), surgery.word_embeddings(module.backbone).num_embeddings)
    context = ObjectiveContext(
        encoder=module,
        spec=encoder.local.spec,
        vocabulary=Vocabulary.of(tokenizer, words, encoder.tokenizer.pad_id),
        dimension=encoder.dimension,
        max_length=method.settings.max_length,
        template_tokens=template_tokens,
        teacher_widths=teacher_widths,
    )
    return TrainingModel(method, context).to(encoder.backend.device)


def _with_fitting_length(request: TrainRequest, method: Method, encoder: SentenceEncoder, notes: list[str]) -> Method:
    """Shorten the method's default length to what the model can take; a length that the user chose stays.

    Views that are different texts are cut to the model's own maximum length at most, as in encoding; views of one
    sentence to the positions of the model.
    """
    length = method.settings.max_length
    positions = position_limit(encoder.local.spec, encoder.hf_tokenizer.pad_token_id)
    limits = []
    if positions is not None:
        limits.append(positions - method.views.longer)
    different_texts = method.views.different_texts() or method.views.joint
    if different_texts and encoder.spec.max_length:
        limits.append(encoder.spec.max_length)
    if not limits or length <= min(limits):
        return method
    longest = min(limits)
    if length != request.default_method().settings.max_length:
        if method.views.longer:
            raise InputError(
                f"--max-length {length} leaves no room for {method.views.longer} repeated tokens in the {positions} "
                f"positions of this model; at most {longest}"
            )
        return method
    if not different_texts:
        limit = f"this model has {positions} positions"
        notes.append(f"{method.name} trains on {length} tokens a sentence, here on {longest}: {limit}")
    return replace(method, settings=replace(method.settings, max_length=longest))


def _with_classes(method: Method, corpus: TrainingSentences) -> Method:
    """Return the method with the number of classes that the data has, where it was not chosen."""
    objectives = dict(method.objectives)
    count = len(set(corpus.scores or ()))
    for name, term in method.objectives.items():
        if isinstance(term, PairClasses):
            if 0 < term.classes < count:
                raise InputError(f"{name}.classes={term.classes}: the data has {count} classes")
            objectives[name] = replace(term, classes=term.classes or count)
    return replace(method, objectives=objectives)


def _configure_torch(model: TrainingModel, settings: Settings) -> None:
    """Compile the encoder, and restrict torch to deterministic kernels, if the settings say so."""
    if settings.compile:
        encoders = [model.encoder]
        if model.second is not None:
            encoders.append(model.second)
        for encoder in encoders:
            if encoder.first_token_suffices:
                # a layer with a forward function of its own cannot be compiled with the rest
                encoder.first_token_suffices = False
                surgery.remove(encoder.backbone)
            encoder.backbone.compile(dynamic=True)
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(settings.deterministic)  # also when false: an earlier run may have set it


def _check_model(method: Method, model: TrainingModel, corpus: TrainingSentences, tokenizer: TextTokenizer) -> None:
    """Run `TrainingModel.check` on the first text of the data; an error says if torch cannot compile the model here."""
    text = corpus.sentences[0]
    if method.views.joint:
        text = pair_text(*(column[0] for column in corpus.texts))
    same_text_twice = TrainingBatch([tokenizer([text] * 2)], BatchTexts([]))
    batch = to_tensors(same_text_twice, tokenizer.pad_id, 1, next(model.parameters()).device)
    if not method.settings.compile:
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
