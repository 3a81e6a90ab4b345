"""Encoder, head and objectives as one module: the rows of all views in, the loss and its terms out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from sentcli.errors import InputError, SentcliError
from sentcli.methods.heads import NoHead
from sentcli.methods.views import Copies
from sentcli.model import attention, surgery
from sentcli.model.ahead import queued_to, runs_ahead
from sentcli.model.kernels import CpuKernels
from sentcli.objectives import StatefulObjective, Views
from sentcli.objectives.base import CPU_ROWS, by_length
from sentcli.objectives.masked_lm import WordPrediction
from sentcli.precision import computing_in, widened
from sentcli.training.targets import TEACHER, TEACHER_SCORES

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.model.modules import Features
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.objectives import ObjectiveContext
    from sentcli.objectives.base import Loss

SPREAD_TEXTS = 16
"""How many texts of a batch have their vectors compared."""
BatchTensors: TypeAlias = dict[str, Tensor]
"""Tensors of a batch by name, each a row for every view of every sentence."""


class TrainingModel(nn.Module):
    """The encoder, the training head and the objectives of a method.

    Attributes:
        encoder: the encoder that the run trains.
        second: the encoder of the second view, if a method trains two.
        passes: how many views of a sentence one encoder encodes.
        template_tokens: how many tokens of its template each view has in front of the sentence and behind it, where
            the vector of the template is subtracted.
        head: the head, which exists in training only.
        objectives: the terms of the loss by name.
        stateful: the objectives that are modules, with parameters or memory.
    """

    def __init__(self, method: Method, context: ObjectiveContext) -> None:
        super().__init__()
        self.method = method
        self.views = method.views.count
        self.attention_layers = self._install_attention(context.backbone)
        self.encoder = context.encoder
        self.second: TorchEncoder | None = None
        if method.twin is not None:
            self.second = copy.deepcopy(context.encoder)
        self.head = method.head.build(context.dimension, method.settings.batch_size)
        self.single_pass = bool(getattr(self.head, "single_pass", False))
        self.template_tokens = context.template_tokens
        self.passes = 1 if self.single_pass or self.second is not None else self.views
        self._check_views()
        self.objectives = {}
        self.stateful = nn.ModuleDict()
        self.weights = {}
        self.requires = set()
        self.encodes = False
        for name, settings in method.objectives.items():
            loss = settings.build(context)
            self.objectives[name] = loss
            if isinstance(loss, nn.Module):
                self.stateful[name] = loss
            self.weights[name] = settings.weight
            self.requires.add(settings.requires)
            self.encodes |= settings.views > 0
        self.least_rows = self._least_rows(context.dimension)
        self._check_caching()
        self._check_matryoshka(context.dimension)

    def _install_attention(self, backbone: Any) -> list[int]:
        """Give the encoder the attention that the method needs, and return the layers whose weights objectives read.

        Raises:
            InputError: if heads are to be dropped in a model whose attention is out of reach.
        """
        layers: set[int] = set()
        depth = surgery.layer_count(backbone)
        for objective in self.method.objectives.values():
            layers.update(objective.attention_layers(depth))
        settings = self.method.settings
        # its mask is made without a wait for a GPU; a compiled encoder keeps the attention that torch.compile knows
        is_ahead = runs_ahead(next(backbone.parameters()).device) and not settings.compile
        if settings.compile:
            attention.uninstall(backbone)
        is_needed = bool(layers) or is_ahead or settings.drop_heads > 0
        if is_needed and not attention.install(backbone) and settings.drop_heads:
            raise InputError(f"drop_heads: the attention of a {backbone.config.model_type} model is out of reach")
        return sorted(layers)

    def _least_rows(self, dimension: int) -> int:
        """Return the smallest number of rows on which the head and all objectives can be computed."""
        least = self.method.head.least_rows(dimension)
        for objective in self.method.objectives.values():
            rows = objective.least_rows()
            if not objective.all_rows:
                rows = self.method.views.rows_with(rows)
            least = max(least, rows)
        return least

    def _check_views(self) -> None:
        """Refuse views that the objectives, the head or a second encoder cannot serve."""
        positives = self.views - 1 if self.method.views.one_sentence else 1
        hard_negatives = self.views - 1 - positives
        for objective in self.method.objectives.values():
            objective.check_views(positives, hard_negatives)
        is_plain = isinstance(self.method.views, Copies) and not self.attention_layers and self.second is None
        if self.single_pass and not is_plain:
            raise InputError(
                "views_from=shuffle encodes a sentence once: there is no second text, encoder or attention"
            )
        if self.second is not None and self.views != 2:
            raise InputError(f"{self.method.name} trains two encoders on two views, not on {self.views}")

    def _check_caching(self) -> None:
        """Refuse gradient caching for losses that depend on more of the encoder than its sentence vectors."""
        if not self.method.settings.mini_batch_size:
            return
        for name, objective in self.method.objectives.items():
            if objective.requires != "vectors":
                raise InputError(
                    f"mini_batch_size: gradient caching works on sentence vectors, and {name} looks at the "
                    f"{objective.requires}; accumulate=N adds up the gradients of N batches instead"
                )

    def _check_matryoshka(self, dimension: int) -> None:
        """Refuse first dimensions that the vectors, the head or an objective do not have."""
        dims = self.method.matryoshka.dims
        if not dims:
            return
        if max(dims) >= dimension:
            raise InputError(f"matryoshka.dims: {max(dims)} is not less than the {dimension} dimensions of this model")
        if not isinstance(self.method.head, NoHead):
            raise InputError("matryoshka.dims trains the first dimensions of the vectors themselves: --set head=none")
        for name, objective in self.method.objectives.items():
            if not objective.can_truncate():
                raise InputError(f"matryoshka.dims: {name} cannot be computed on fewer dimensions")

    def forward(self, batch: BatchTensors) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the objectives and each unweighted term.

        Args:
            batch: model inputs ``[m * B, T]``, view by view, perhaps ``labels`` and ``matched`` ``[B]``.
        """
        return self.losses(self.encode_views(batch))

    def encode_views(self, batch: BatchTensors) -> Views:
        """Encode the m * B rows of all views in one pass, or by two encoders, and apply the head."""
        masked_words = None
        for objective in self.stateful.values():
            if isinstance(objective, WordPrediction) and objective.in_place:
                masked, masked_words = objective.masked(batch["input_ids"])
                batch = {**batch, "input_ids": masked}
        return replace(self._encoded(batch), masked_words=masked_words)

    def _encoded(self, batch: BatchTensors) -> Views:
        inputs = model_inputs(batch)
        if not self.encodes:
            return Views(
                inputs,
                self.encoder,
                self.second,
                self.head,
                labels=batch.get("labels"),
                matched=batch.get("matched"),
            )
        needs_tokens = "tokens" in self.requires
        on_cpu = inputs["input_ids"].device.type == "cpu"
        if on_cpu and not self.attention_layers and not needs_tokens:
            encoded = []
            for encoder, rows, numbers in self.parts(inputs):
                encoded.append((self.vectors(encoder, rows), numbers))
            return self.views_of(batch, in_order(encoded))
        features = []
        for encoder, rows in self.encoders_and_rows(inputs):
            features.append(self._features(encoder, rows))
        pooled = torch.cat([part.sentence for part in features if part.sentence is not None])
        tokens = torch.empty(0)
        if needs_tokens:
            tokens = self.by_view(torch.cat([part.tokens for part in features]))
        attentions = {}
        for layer in self.attention_layers:
            weights = torch.cat([part.attentions[layer] for part in features])
            attentions[layer] = self.by_view(weights)
        return replace(self.views_of(batch, pooled), tokens=widened(tokens), attentions=attentions)

    def encoders_and_rows(self, inputs: BatchTensors) -> list[tuple[TorchEncoder, BatchTensors]]:
        """Return each encoder with its rows: of the first view alone if the head makes the views of one encoding."""
        rows = len(inputs["input_ids"]) // self.views
        if self.second is not None:
            return [(self.encoder, _rows(inputs, 0, rows)), (self.second, _rows(inputs, rows, 2 * rows))]
        return [(self.encoder, _rows(inputs, 0, rows * self.passes))]

    def parts(self, inputs: BatchTensors, sentences: int = CPU_ROWS) -> list[tuple[TorchEncoder, BatchTensors, Tensor]]:
        """Cut the rows into parts of similar length.

        Args:
            inputs: the model inputs of all views.
            sentences: a part has the views of at most this many sentences; on a CPU also at most `CPU_ROWS` rows.

        Returns:
            For each part: its encoder, its rows ``[P, longest]``, and their numbers ``[P]`` as `by_view` counts them.
        """
        parts = []
        first = 0
        for encoder, rows in self.encoders_and_rows(inputs):
            for numbers, part in by_length(rows, sentences * self.passes):
                parts.append((encoder, part, numbers + first))
            first += len(rows["attention_mask"])
        return parts

    def views_of(self, batch: BatchTensors, pooled: Tensor) -> Views:
        """Return the `Views` of a batch, given its sentence vectors ``[rows, d]``."""
        pooled = self.by_view(widened(pooled))
        noise = self.template_vectors(batch) if self.template_tokens else 0.0
        return Views(
            model_inputs(batch),
            self.encoder,
            self.second,
            self.head,
            projected=self.head(pooled - noise),
            pooled=pooled,
            labels=batch.get("labels"),
            matched=batch.get("matched"),
            paired=not self.method.views.one_sentence,
            teachers=tuple(map(batch.__getitem__, teacher_names(batch))),
            teacher_scores=batch.get(TEACHER_SCORES),
        )

    def template_vectors(self, batch: BatchTensors) -> Tensor:
        """Return the vectors of the templates alone ``[m, B, d]``, with each token where it stands around the sentence.

        The sentence is hidden from the attention. Rows of one view with equally long sentences share a vector, as in
        PromptBERT's code.
        """
        mask = batch["attention_mask"]
        views = torch.arange(self.views, device=mask.device).repeat_interleave(len(mask) // self.views)
        before, after = queued_to(torch.tensor(self.template_tokens), mask.device)[views].T
        lengths = mask.sum(dim=1)
        ends = lengths - after
        places = torch.arange(mask.shape[1], device=mask.device)
        is_sentence = (places >= before[:, None]) & (places < ends[:, None])
        kinds, kind_of_row = torch.unique(torch.stack([views, lengths]), dim=1, return_inverse=True)
        numbers = torch.arange(kinds.shape[1], device=mask.device)
        one_of_each = (kind_of_row == numbers[:, None]).int().argmax(dim=1)
        without_sentences = {**model_inputs(batch), "attention_mask": mask.masked_fill(is_sentence, 0)}
        rows = {name: values[one_of_each] for name, values in without_sentences.items()}
        vectors = self.vectors(self.encoder, rows)
        return self.by_view(vectors[kind_of_row])

    def losses(self, views: Views) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the objectives and each unweighted term.

        Only objectives with networks of their own are computed in half precision.

        Raises:
            SentcliError: if an objective returns something else than one number, or nothing has a gradient.
        """
        terms = {}
        for name, objective in self.objectives.items():
            rows = views if self.method.objectives[name].all_rows else views.same_sentence
            with self.computing(half=name in self.stateful):
                terms[name] = self._on_all_dimensions(objective, rows)
        weighted = []
        for name, term in terms.items():
            weighted.append(self.weights[name] * term)
        total = torch.stack(weighted).sum()
        if torch.is_grad_enabled() and not total.requires_grad:
            places = "; ".join(f"{name}: {_place_of(objective)}" for name, objective in self.objectives.items())
            raise SentcliError(
                f"the loss has no gradient, so that nothing can be learned ({places}): what it returns does not depend "
                "on the vectors, as after detach() or item()"
            )
        return total, terms

    def _on_all_dimensions(self, objective: Loss, views: Views) -> Tensor:
        """Return an objective on whole vectors, or with `Matryoshka` its weighted sum with that on first dimensions."""
        term = objective(views)
        _check_term(objective, term)
        for dimensions, weight in self.method.matryoshka.parts():
            term = term + weight * objective(views.truncated(dimensions))
        return term

    @contextmanager
    def computing(self, *, half: bool = True) -> Iterator[None]:
        """Run networks in the precision of the settings, if `half`, and with their rate of dropped heads."""
        settings = self.method.settings
        precision = settings.precision if half else "fp32"
        device = next(self.encoder.parameters()).device
        kernels = CpuKernels() if device.type == "cpu" and not settings.compile else nullcontext()
        with attention.dropping_heads(settings.drop_heads), computing_in(precision, device), kernels:
            yield

    def _features(self, encoder: TorchEncoder, rows: BatchTensors) -> Features:
        sentence_only = "tokens" not in self.requires
        with self.computing():
            return encoder.features(
                rows, normalize=False, attention_layers=self.attention_layers, sentence_only=sentence_only
            )

    def vectors(self, encoder: TorchEncoder, rows: BatchTensors) -> Tensor:
        """Return the sentence vectors ``[rows, d]`` of some rows."""
        sentence = self._features(encoder, rows).sentence
        assert sentence is not None
        return widened(sentence)

    @property
    def has_spread(self) -> bool:
        """Whether the method trains vectors of texts, which may collapse."""
        return self.encodes and not self.encoder.scores_pairs

    @torch.no_grad()
    def spread(self, batch: BatchTensors) -> Tensor | None:
        """Return how far the vectors of some texts of a batch are apart, without dropout and in float32.

        It is the root of the mean squared distance of vectors of length 1 from their mean, so that it is 0 where all
        vectors are equal, and at most 1 (after Chen and He, Exploring Simple Siamese Representation Learning, CVPR
        2021, fig. 2, who have the standard deviation of one dimension).

        Returns:
            The spread, or -1 where all texts are equal; None if the model makes no vectors of texts.
        """
        if not self.has_spread:
            return None
        inputs = model_inputs(batch)
        count = min(len(inputs["input_ids"]) // self.views, SPREAD_TEXTS)
        uncompiled: AbstractContextManager[Any] = nullcontext()
        if self.method.settings.compile:  # which would compile once more, for a pass without dropout
            uncompiled = torch.compiler.set_stance("force_eager")
        mode = self.training
        self.eval()
        with uncompiled:
            sentence = self.encoder.features(_rows(inputs, 0, count), normalize=False, sentence_only=True).sentence
        self.train(mode)
        assert sentence is not None
        vectors = nn.functional.normalize(widened(sentence), dim=-1)
        distances = (vectors - vectors.mean(dim=0)).square().sum(dim=1)
        ids = inputs["input_ids"][:count]
        is_one_text = (ids == ids[0]).all()
        return torch.where(is_one_text, -1.0, distances.mean().sqrt())

    def by_view(self, rows: Tensor) -> Tensor:
        """Reshape ``[rows, ...]`` to ``[m, B, ...]``; a sentence that was encoded once is repeated for each view."""
        if self.single_pass:
            return rows.expand(self.views, *rows.shape)
        return rows.view(self.views, -1, *rows.shape[1:])

    def check(self, batch: dict[str, Tensor]) -> None:
        """Try the encoder in training mode on two rows of the same text.

        Raises:
            InputError: if it gives no attention weights, or dropout does not make the views differ.
        """
        mode = self.training
        with torch.no_grad():
            sentence = self._features(self.encoder.train(), batch).sentence
        self.train(mode)
        assert sentence is not None
        if not self._differ_by_dropout():
            return
        compares_views = any(settings.views > 1 for settings in self.method.objectives.values())
        if compares_views and torch.equal(sentence[0], sentence[1]):
            raise InputError(
                "the views of a sentence would be the same: this model has no dropout; try --set dropout=0.1"
            )

    def _differ_by_dropout(self) -> bool:
        """Tell whether nothing but the dropout of the encoder makes the views of a sentence differ."""
        if self.single_pass or self.second is not None or self.method.settings.drop_heads:
            return False
        return isinstance(self.method.views, Copies)

    def candidates(self) -> dict[int, TorchEncoder]:
        """Return the encoders that may become the result, by number: 0 is the first, 1 the second."""
        twin = self.method.twin
        if twin is None or self.second is None or twin.keep == "first":
            return {0: self.encoder}
        if twin.keep == "second":
            return {1: self.second}
        return {0: self.encoder, 1: self.second}

    def keep_candidate(self) -> None:
        """Load the weights of the last candidate into the first encoder; for runs without scores."""
        if self.second is not None and 1 in self.candidates():
            self.encoder.load_state_dict(self.second.state_dict())

    def products(self, candidate: int) -> nn.ModuleDict:
        """Return the modules whose weights are saved: an encoder, the head, and the kept parts of objectives."""
        encoder = self.encoder
        if candidate and self.second is not None:
            encoder = self.second
        return nn.ModuleDict({"encoder": encoder, "head": self.head, "kept": nn.ModuleDict(self.trained_parts())})

    def trained_parts(self) -> dict[str, nn.Module]:
        """Return the trained parts of objectives that are kept beside the encoder, by file name."""
        parts: dict[str, nn.Module] = {}
        for name, objective in self.stateful.items():
            if isinstance(objective, StatefulObjective) and objective.kept_as:
                file_name = objective.kept_as
                if file_name in parts:
                    file_name = f"{file_name}-{name}"
                parts[file_name] = objective.trained_part()
        return parts


def _check_term(objective: Loss, term: Any) -> None:
    """Refuse what an objective returns unless it is one real number as a tensor."""
    if isinstance(term, Tensor) and term.dim() == 0 and term.is_floating_point():
        return
    found = type(term).__name__
    if isinstance(term, Tensor):
        found = f"a tensor {list(term.shape)} of {str(term.dtype).removeprefix('torch.')}"
    raise SentcliError(
        f"{_place_of(objective)}: an objective returns one real number, a tensor without dimensions such as "
        f"losses.mean(), and this returns {found}"
    )


def _place_of(objective: Loss) -> str:
    """Return the file and the line where an objective is computed."""
    kind: Any = type(objective)
    function = getattr(kind, "forward", None) or kind.__call__
    code = getattr(function, "__code__", None)
    if code is None:
        return type(objective).__name__
    return f"{code.co_filename}, line {code.co_firstlineno}"


def _rows(inputs: BatchTensors, first: int, end: int) -> BatchTensors:
    """Return the rows `first` to `end` - 1 of each tensor."""
    return {name: values[first:end] for name, values in inputs.items()}


def in_order(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Join the vectors ``[P, d]`` of several parts in the order of their numbers ``[P]``."""
    vectors, numbers = zip(*parts, strict=True)
    return torch.cat(vectors)[torch.cat(numbers).argsort()]


def model_inputs(batch: BatchTensors) -> BatchTensors:
    """Return a batch without its labels, without what tells which rows match, and without a teacher's targets."""
    inputs = {}
    for name, values in batch.items():
        if name not in ("labels", "matched") and not name.startswith(TEACHER):
            inputs[name] = values
    return inputs


def teacher_names(batch: BatchTensors) -> list[str]:
    """Return the names of the vectors of teachers in a batch, in the order of the teachers."""
    names = []
    for name in batch:
        if name.startswith(TEACHER) and name != TEACHER_SCORES:
            names.append(name)
    return sorted(names, key=lambda name: int(name.removeprefix(TEACHER)))
