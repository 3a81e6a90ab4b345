"""Encoder, head and objectives as one module: the rows of all views in, the loss and its terms out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from sentcli.errors import InputError
from sentcli.methods.views import Copies
from sentcli.model import attention, surgery
from sentcli.model.ahead import runs_ahead, sent
from sentcli.model.kernels import CpuKernels
from sentcli.objectives import StatefulObjective, Views
from sentcli.objectives.base import CPU_ROWS, by_length
from sentcli.objectives.masked_lm import WordPrediction
from sentcli.precision import computing_in, widened

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.model.modules import Features
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.objectives import Parts

Inputs: TypeAlias = dict[str, Tensor]
"""Tensors of a batch by name, each a row for every view of every sentence."""


class TrainingModel(nn.Module):
    """The encoder, the training head and the objectives of a method.

    Attributes:
        encoder: the encoder that the run trains.
        second: the encoder of the second view, if a method trains two.
        passes: how many views of a sentence one encoder encodes.
        around: how many tokens of its template each view has, where the vector of the template is subtracted.
        head: the head, which exists in training only.
        objectives: the terms of the loss by name.
        stateful: the objectives that are modules, with parameters or memory.
    """

    def __init__(self, method: Method, parts: Parts) -> None:
        super().__init__()
        self.method, self.views = method, method.views.count
        backbone = parts.backbone
        self.attention_layers = sorted(
            {layer for o in method.objectives.values() for layer in o.attention_layers(surgery.depth(backbone))}
        )
        rate = method.settings.drop_heads
        # its mask is made without a wait for a GPU; a compiled encoder keeps the attention that torch.compile knows
        is_ahead = runs_ahead(next(backbone.parameters()).device) and not method.settings.compile
        if method.settings.compile:
            attention.uninstall(backbone)
        if (self.attention_layers or rate or is_ahead) and not attention.install(backbone) and rate:
            raise InputError(f"drop_heads: the attention of a {backbone.config.model_type} model is out of reach")
        self.encoder = parts.encoder
        self.second: TorchEncoder | None = copy.deepcopy(parts.encoder) if method.twin is not None else None
        self.head = method.head.build(parts.dimension, method.settings.batch_size)
        self.single_pass = bool(getattr(self.head, "single_pass", False))
        self.around = parts.around
        self.passes = 1 if self.single_pass or self.second is not None else self.views
        self._check_views()
        self.objectives = {name: settings.build(parts) for name, settings in method.objectives.items()}
        self.stateful = nn.ModuleDict({n: o for n, o in self.objectives.items() if isinstance(o, nn.Module)})
        self.weights = {name: settings.weight for name, settings in method.objectives.items()}
        least = [
            o.least_rows() if o.all_rows else method.views.rows_with(o.least_rows()) for o in method.objectives.values()
        ]
        self.least_rows = max([*least, method.head.least_rows(parts.dimension)])
        self.encodes = any(o.views > 0 for o in method.objectives.values())
        self.requires = {o.requires for o in method.objectives.values()}
        self._check_caching()

    def _check_views(self) -> None:
        """Refuse views that the objectives, the head or a second encoder cannot serve."""
        positives = self.views - 1 if self.method.views.one_sentence else 1
        for objective in self.method.objectives.values():
            objective.check_views(positives, self.views - 1 - positives)
        copies = isinstance(self.method.views, Copies)
        if self.single_pass and (self.attention_layers or not copies or self.second is not None):
            raise InputError(
                "views_from=shuffle encodes a sentence once: there is no second text, encoder or attention"
            )
        if self.second is not None and self.views != 2:
            raise InputError(f"{self.method.name} trains two encoders on two views, not on {self.views}")

    def _check_caching(self) -> None:
        """Refuse gradient caching for losses that depend on more of the encoder than its sentence vectors."""
        others = {name: o.requires for name, o in self.method.objectives.items() if o.requires != "vectors"}
        if self.method.settings.mini_batch_size and others:
            name, required = next(iter(others.items()))
            raise InputError(
                f"mini_batch_size: gradient caching works on sentence vectors, and {name} looks at the {required}; "
                "accumulate=N adds up the gradients of N batches instead"
            )

    def forward(self, batch: Inputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the objectives and each unweighted term.

        Args:
            batch: model inputs ``[m * B, T]``, view by view, perhaps ``labels`` and ``matched`` ``[B]``.
        """
        return self.losses(self.encode_views(*unpacked(batch)))

    def encode_views(self, inputs: Inputs, labels: Tensor | None = None, matched: Tensor | None = None) -> Views:
        """Encode the m * B rows of all views in one pass, or by two encoders, and apply the head."""
        masked_words = None
        for objective in self.stateful.values():
            if isinstance(objective, WordPrediction) and objective.in_place:
                masked, masked_words = objective.masked(inputs["input_ids"])
                inputs = {**inputs, "input_ids": masked}
        views = self._encoded(inputs, labels, matched)
        return views if masked_words is None else replace(views, masked_words=masked_words)

    def _encoded(self, inputs: Inputs, labels: Tensor | None, matched: Tensor | None) -> Views:
        if not self.encodes:
            return Views(inputs, self.encoder, self.second, self.head, labels=labels, matched=matched)
        if inputs["input_ids"].device.type == "cpu" and not (self.attention_layers or "tokens" in self.requires):
            encoded = [(self.vectors(encoder, rows), numbers) for encoder, rows, numbers in self.parts(inputs)]
            return self.views_of(inputs, in_order(encoded), labels, matched)
        parts = [self._features(encoder, rows) for encoder, rows in self.encoders_and_rows(inputs)]
        pooled = torch.cat([part.sentence for part in parts if part.sentence is not None])
        tokens = self.by_view(torch.cat([part.tokens for part in parts])) if "tokens" in self.requires else None
        attentions = {
            layer: self.by_view(torch.cat([part.attentions[layer] for part in parts]))
            for layer in self.attention_layers
        }
        return self.views_of(inputs, pooled, labels, matched, tokens=tokens, attentions=attentions)

    def encoders_and_rows(self, inputs: Inputs) -> list[tuple[TorchEncoder, Inputs]]:
        """Return each encoder with its rows: of the first view alone if the head makes the views of one encoding."""
        if self.second is not None:
            halves = [{name: ids.chunk(2)[i] for name, ids in inputs.items()} for i in range(2)]
            return list(zip((self.encoder, self.second), halves, strict=True))
        rows = len(inputs["input_ids"]) // self.views * self.passes
        return [(self.encoder, {name: ids[:rows] for name, ids in inputs.items()})]

    def parts(self, inputs: Inputs, sentences: int = CPU_ROWS) -> list[tuple[TorchEncoder, Inputs, Tensor]]:
        """Cut the rows into parts of similar length.

        Args:
            inputs: the model inputs of all views.
            sentences: a part has the views of at most this many sentences; on a CPU also at most `CPU_ROWS` rows.

        Returns:
            For each part: its encoder, its rows ``[P, longest]``, and their numbers ``[P]`` as `by_view` counts them.
        """
        parts, first = [], 0
        for encoder, rows in self.encoders_and_rows(inputs):
            for numbers, part in by_length(rows, sentences * self.passes):
                parts.append((encoder, part, numbers + first))
            first += len(rows["attention_mask"])
        return parts

    def views_of(
        self,
        inputs: Inputs,
        pooled: Tensor,
        labels: Tensor | None,
        matched: Tensor | None,
        *,
        tokens: Tensor | None = None,
        attentions: dict[int, Tensor] | None = None,
    ) -> Views:
        """Return the `Views` of a batch, given its sentence vectors ``[rows, d]``."""
        pooled = self.by_view(widened(pooled))
        noise = self.template_vectors(inputs) if self.around else 0.0
        return Views(
            inputs,
            self.encoder,
            self.second,
            self.head,
            projected=self.head(pooled - noise),
            pooled=pooled,
            tokens=torch.empty(0) if tokens is None else widened(tokens),
            attentions=attentions or {},
            labels=labels,
            matched=matched,
            paired=not self.method.views.one_sentence,
        )

    def template_vectors(self, inputs: Inputs) -> Tensor:
        """Return the vectors of the templates alone ``[m, B, d]``, with each token where it stands around the sentence.

        The sentence is hidden from the attention. Rows of one view with equally long sentences share a vector, as in
        PromptBERT's code.
        """
        mask = inputs["attention_mask"]
        views = torch.arange(self.views, device=mask.device).repeat_interleave(len(mask) // self.views)
        before, after = sent(torch.tensor(self.around), mask.device)[views].T
        lengths, places = mask.sum(dim=1), torch.arange(mask.shape[1], device=mask.device)
        hidden = (places >= before[:, None]) & (places < (lengths - after)[:, None])
        kinds, kind = torch.unique(torch.stack([views, lengths]), dim=1, return_inverse=True)
        one_of_each = (kind == torch.arange(kinds.shape[1], device=mask.device)[:, None]).int().argmax(dim=1)
        alone = {**inputs, "attention_mask": mask.masked_fill(hidden, 0)}
        vectors = self.vectors(self.encoder, {name: values[one_of_each] for name, values in alone.items()})
        return self.by_view(vectors[kind])

    def losses(self, views: Views) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the objectives and each unweighted term.

        Only objectives with networks of their own are computed in half precision.
        """
        terms = {}
        for name, objective in self.objectives.items():
            rows = views if self.method.objectives[name].all_rows else views.same_sentence
            with self.computing(half=name in self.stateful):
                terms[name] = objective(rows)
        return torch.stack([self.weights[name] * term for name, term in terms.items()]).sum(), terms

    @contextmanager
    def computing(self, *, half: bool = True) -> Iterator[None]:
        """Run networks in the precision of the settings, if `half`, and with their rate of dropped heads."""
        settings = self.method.settings
        precision = settings.precision if half else "fp32"
        device = next(self.encoder.parameters()).device
        kernels = CpuKernels() if device.type == "cpu" and not settings.compile else nullcontext()
        with attention.dropping_heads(settings.drop_heads), computing_in(precision, device), kernels:
            yield

    def _features(self, encoder: TorchEncoder, rows: Inputs) -> Features:
        sentence_only = "tokens" not in self.requires
        with self.computing():
            return encoder.features(
                rows, normalize=False, attention_layers=self.attention_layers, sentence_only=sentence_only
            )

    def vectors(self, encoder: TorchEncoder, rows: Inputs) -> Tensor:
        """Return the sentence vectors ``[rows, d]`` of some rows."""
        sentence = self._features(encoder, rows).sentence
        assert sentence is not None
        return widened(sentence)

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
            features = self._features(self.encoder.train(), batch)
        self.train(mode)
        assert features.sentence is not None
        needs_dropout = isinstance(self.method.views, Copies) and not self.single_pass and self.second is None
        needs_dropout = needs_dropout and not self.method.settings.drop_heads
        pairs = any(o.views > 1 for o in self.method.objectives.values())
        if needs_dropout and pairs and bool((features.sentence[0] == features.sentence[1]).all()):
            raise InputError(
                "the views of a sentence would be the same: this model has no dropout; try --set dropout=0.1"
            )

    def candidates(self) -> dict[int, TorchEncoder]:
        """Return the encoders that may become the result, by number: 0 is the first, 1 the second."""
        twin = self.method.twin
        if twin is None or self.second is None:
            return {0: self.encoder}
        both = {0: self.encoder, 1: self.second}
        if twin.keep == "best":
            return both
        number = 1 if twin.keep == "second" else 0
        return {number: both[number]}

    def keep_candidate(self) -> None:
        """Load the weights of the last candidate into the first encoder; for runs without scores."""
        number = max(self.candidates())
        if number == 1 and self.second is not None:
            self.encoder.load_state_dict(self.second.state_dict())

    def products(self, candidate: int) -> nn.ModuleDict:
        """Return the modules whose weights are saved: an encoder, the head, and the kept parts of objectives."""
        encoder = self.second if candidate and self.second is not None else self.encoder
        return nn.ModuleDict({"encoder": encoder, "head": self.head, "kept": nn.ModuleDict(self.kept())})

    def kept(self) -> dict[str, nn.Module]:
        """Return the trained parts of objectives that are kept beside the encoder, by file name."""
        parts: dict[str, nn.Module] = {}
        for name, objective in self.stateful.items():
            if isinstance(objective, StatefulObjective) and objective.kept_as:
                file_name = f"{objective.kept_as}-{name}" if objective.kept_as in parts else objective.kept_as
                parts[file_name] = objective.kept()
        return parts


def in_order(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Join the vectors ``[P, d]`` of several parts in the order of their numbers ``[P]``."""
    vectors, numbers = (torch.cat(column) for column in zip(*parts, strict=True))
    return vectors[numbers.argsort()]


def unpacked(batch: Inputs) -> tuple[Inputs, Tensor | None, Tensor | None]:
    """Split a batch into the model inputs, the labels, and which rows match."""
    inputs = dict(batch)
    return inputs, inputs.pop("labels", None), inputs.pop("matched", None)
