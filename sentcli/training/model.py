"""Encoder, head and objectives as one module: the rows of all views in, the loss and its terms out."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sentcli.encoder import attention, surgery
from sentcli.errors import InputError
from sentcli.methods.views import Copies
from sentcli.objectives import StatefulObjective, Views

if TYPE_CHECKING:
    from sentcli.encoder.torch_model import Features, TorchEncoder
    from sentcli.methods import Method
    from sentcli.objectives import Parts


class TrainingModel(nn.Module):
    """What is trained.

    Attributes:
        encoder: what the run is for.
        second: the encoder of the second view, if a method trains two.
        head: exists in training only.
        objectives: the terms of the loss by name.
        stateful: those of them that are modules: trained, moved and saved with the rest.
    """

    def __init__(self, method: Method, parts: Parts) -> None:
        super().__init__()
        self.method, self.views = method, method.views.count
        backbone = parts.backbone
        self.attention_layers = sorted(
            {layer for o in method.objectives.values() for layer in o.attention_layers(surgery.depth(backbone))}
        )
        rate = method.settings.drop_heads
        if (self.attention_layers or rate) and not attention.install(backbone) and rate:
            raise InputError(f"drop_heads: the attention of a {backbone.config.model_type} model is out of reach")
        self.encoder = parts.encoder
        self.second: TorchEncoder | None = copy.deepcopy(parts.encoder) if method.twin is not None else None
        self.head = method.head.build(parts.dimension, method.settings.batch_size)
        self.single_pass = bool(getattr(self.head, "single_pass", False))
        self._check_views()
        self.objectives = {name: settings.build(parts) for name, settings in method.objectives.items()}
        self.stateful = nn.ModuleDict({n: o for n, o in self.objectives.items() if isinstance(o, nn.Module)})
        self.weights = {name: settings.weight for name, settings in method.objectives.items()}
        least = [
            o.least_rows() if o.all_rows else method.views.rows_with(o.least_rows()) for o in method.objectives.values()
        ]
        self.least_rows = max([*least, method.head.least_rows(parts.dimension)])
        self.encodes = any(o.views > 0 for o in method.objectives.values())

    def _check_views(self) -> None:
        """Refuse views that the head or a second encoder cannot serve."""
        copies = isinstance(self.method.views, Copies)
        if self.single_pass and (self.attention_layers or not copies or self.second is not None):
            raise InputError(
                "views_from=shuffle encodes a sentence once: there is no second text, encoder or attention"
            )
        if self.second is not None and self.views != 2:
            raise InputError(f"{self.method.name} trains two encoders on two views, not on {self.views}")

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the objectives and each unweighted term.

        Args:
            batch: model inputs ``[m * B, T]``, view by view, perhaps ``labels`` and ``matched`` ``[B]``.
        """
        batch = dict(batch)
        labels, matched = batch.pop("labels", None), batch.pop("matched", None)
        with attention.dropping_heads(self.method.settings.drop_heads):
            views = self.look(batch, labels, matched)
            terms = {
                name: objective(views if self.method.objectives[name].all_rows else views.same_sentence)
                for name, objective in self.objectives.items()
            }
        total = torch.stack([self.weights[name] * term for name, term in terms.items()]).sum()
        return total, terms

    def look(self, inputs: dict[str, Tensor], labels: Tensor | None = None, matched: Tensor | None = None) -> Views:
        """Encode all views."""
        if not self.encodes:
            return Views(inputs, self.encoder, self.second, self.head, labels=labels, matched=matched)
        passes = 1 if self.single_pass else self.views
        rows = {name: ids[: len(ids) // self.views * passes] for name, ids in inputs.items()}
        if self.second is None:
            parts = [self._features(self.encoder, rows)]
        else:
            halves = [{name: ids.chunk(2)[i] for name, ids in rows.items()} for i in range(2)]
            encoders = (self.encoder, self.second)
            parts = [self._features(encoder, half) for encoder, half in zip(encoders, halves, strict=True)]
        pooled = _by_view([part.sentence for part in parts if part.sentence is not None], passes)
        tokens = _by_view([part.tokens for part in parts], passes)
        if self.single_pass:
            pooled, tokens = (some.expand(self.views, *some.shape[1:]) for some in (pooled, tokens))
        attentions = {
            layer: _by_view([part.attentions[layer] for part in parts], passes) for layer in self.attention_layers
        }
        return Views(
            inputs,
            self.encoder,
            self.second,
            self.head,
            projected=self.head(pooled),
            pooled=pooled,
            tokens=tokens,
            attentions=attentions,
            labels=labels,
            matched=matched,
        )

    def _features(self, encoder: TorchEncoder, rows: dict[str, Tensor]) -> Features:
        return encoder.features(rows, normalize=False, attention_layers=self.attention_layers)

    def check(self, batch: dict[str, Tensor]) -> None:
        """Try the encoder on two rows of one text in training mode.

        Raises:
            InputError: if it has no attention to give, or dropout does not make the views differ.
        """
        mode = self.training
        with torch.no_grad(), attention.dropping_heads(self.method.settings.drop_heads):
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
        """Return the encoders that may become the result, by number."""
        twin = self.method.twin
        if twin is None or self.second is None:
            return {0: self.encoder}
        both = {0: self.encoder, 1: self.second}
        if twin.keep == "best":
            return both
        number = 1 if twin.keep == "second" else 0
        return {number: both[number]}

    def keep_candidate(self) -> None:
        """Without scores: take the weights of the encoder that is to be kept; of two equal candidates the second."""
        number = max(self.candidates())
        if number == 1 and self.second is not None:
            self.encoder.load_state_dict(self.second.state_dict())

    def products(self, candidate: int = 0) -> nn.ModuleDict:
        """Return what is worth keeping: an encoder, the head, and the parts that some objectives keep."""
        encoder = self.second if candidate and self.second is not None else self.encoder
        return nn.ModuleDict({"encoder": encoder, "head": self.head, "kept": nn.ModuleDict(self.kept())})

    def kept(self) -> dict[str, nn.Module]:
        """Return the trained parts of objectives that are kept beside the encoder, by file name."""
        kept: dict[str, nn.Module] = {}
        for objective, part in self.stateful.items():
            if isinstance(part, StatefulObjective) and part.kept_as:
                name = f"{part.kept_as}-{objective}" if part.kept_as in kept else part.kept_as
                kept[name] = part.kept()
        return kept


def _by_view(parts: list[Tensor], views: int) -> Tensor:
    """Join ``[rows, ...]`` and cut them into ``[views, B, ...]``."""
    rows = torch.cat(parts) if len(parts) > 1 else parts[0]
    return rows.view(views, -1, *rows.shape[1:])
