"""The encoder as a torch module: a transformers backbone, then the modules of its spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from sentcli.errors import InputError
from sentcli.model import attention, flat_attention, surgery
from sentcli.model.ahead import answers_at_once
from sentcli.model.flat_attention import FlatInputs
from sentcli.model.modules import Features, ModuleSpec, NormalizeSpec
from sentcli.model.spec import count_without_ending
from sentcli.model.tokenizing import POSITIONS_AFTER_PADDING
from sentcli.precision import widened


class BuiltModule(nn.Module):
    """A module of the spec with its torch parts as attributes; the spec's class defines what it computes.

    Args:
        spec: the description of the module.
        width: the dimension of its input.
        layers: the number of the transformer's layers.
    """

    def __init__(self, spec: ModuleSpec, width: int = 0, layers: int = 0) -> None:
        super().__init__()
        self.spec = spec
        for name, part in spec.parts(width, layers).items():
            setattr(self, name, part)

    def forward(self, features: Features) -> Features:
        """Change the features in place, and return them."""
        self.spec.forward(features, self)
        return features


class StaticTable(nn.Module):
    """A table of token vectors ``[vocabulary, d]`` in the place of a transformer."""

    def __init__(self, table: Tensor) -> None:
        from transformers import PreTrainedConfig

        super().__init__()
        self.embedding = nn.Embedding(len(table), table.shape[1], _weight=table)
        self.config = PreTrainedConfig()
        self.config.update({"hidden_size": table.shape[1], "vocab_size": len(table), "num_hidden_layers": 0})

    def forward(self, input_ids: Tensor, **others: Any) -> Any:
        """Look up the vectors of tokens ``[B, T, d]``."""
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=self.embedding(input_ids))

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table."""
        return self.embedding


class TorchEncoder(nn.Module):
    """Turns token ids into sentence vectors ``[B, dim]``."""

    def __init__(self, backbone: nn.Module, modules: list[BuiltModule]) -> None:
        super().__init__()
        self.backbone = backbone
        self.stack = nn.ModuleList(modules)
        self.ending = count_without_ending(tuple(module.spec for module in modules))
        """The number of modules before normalisation and fewer dimensions at the end."""
        self.scores_pairs = any(module.spec.scores_pairs for module in modules)
        """Whether it gives scores of pairs of texts, and no vectors."""
        self.needs_hidden_states = any(module.spec.needs_layers for module in modules)
        self.first_token_suffices = modules[0].spec.first_token_suffices and surgery.allow_first_token_only(backbone)
        """Whether the sentence vector depends only on position 0 of the last layer."""
        kind = getattr(backbone.config, "model_type", "")
        padding: Any = getattr(getattr(backbone, "embeddings", None), "padding_idx", None)
        self.first_position = 0
        """The position of the first token of a text."""
        if kind in POSITIONS_AFTER_PADDING and padding is not None:
            self.first_position = int(padding) + 1
        self.has_types = any(name.endswith("token_type_embeddings") for name, _ in backbone.named_modules())
        """Whether tokens have a type, as in BERT."""

    def keep_layers(self, layers: Sequence[int]) -> None:
        """Leave out all layers of the transformer but some.

        Args:
            layers: the numbers of those that stay, counted from 0, in ascending order.

        Raises:
            InputError: if there is no such layer, or the layers of this architecture cannot be taken apart.
        """
        if self.first_token_suffices:
            surgery.remove(self.backbone)
        surgery.keep_layers(self.backbone, layers)
        if self.first_token_suffices:
            surgery.allow_first_token_only(self.backbone)

    def forward(self, batch: Mapping[str, Tensor], prompt_length: int = 0, *, is_full: bool = False) -> Tensor:
        """Encode a padded batch.

        Args:
            batch: ``input_ids`` and ``attention_mask`` ``[B, T]``, perhaps ``token_type_ids``.
            prompt_length: the number of prompt tokens at the front, which the pooling of some models leaves out.
            is_full: as for `features`.
        """
        sentence = self.features(batch, prompt_length, sentence_only=True, is_full=is_full).sentence
        assert sentence is not None
        return sentence

    def features(
        self,
        batch: Mapping[str, Tensor],
        prompt_length: int = 0,
        *,
        normalize: bool = True,
        attention_layers: Collection[int] = (),
        sentence_only: bool = False,
        is_full: bool = False,
    ) -> Features:
        """Encode a padded batch, and return token vectors, sentence vectors and intermediate states.

        Args:
            batch: as for `forward`.
            prompt_length: as for `forward`.
            normalize: False leaves out `Normalize` at the end, as training and classifiers on the vectors need, and the
                activation of a cross-encoder.
            attention_layers: the layers, counted from 0, whose attention weights are returned.
            sentence_only: only the sentence vectors are used, so that some token vectors need not be computed.
            is_full: whether the batch is known to have no padding. To look at it on a GPU would be to wait for it.
        """
        inputs = dict(batch)
        mask = inputs["attention_mask"]
        if not self.training and answers_at_once(mask.device):
            is_full = is_full or bool(mask.all())
        is_full = is_full and not self.training
        full: AbstractContextManager[None] = nullcontext()
        if is_full and attention.is_installed(self.backbone):
            full = attention.without_padding()
        elif is_full:
            del inputs["attention_mask"]  # attention without a mask is a few percent faster
        options = {"output_hidden_states": self.needs_hidden_states, "return_dict": True}
        first_only = sentence_only and self.first_token_suffices and not prompt_length
        first_only = first_only and surgery.layer_count(self.backbone) - 1 not in attention_layers
        narrowed = surgery.first_token_only() if first_only else nullcontext()
        with narrowed, full, attention.recording(self.backbone, attention_layers) as recorder:
            if attention_layers and recorder is None:
                options["output_attentions"] = True
            output = self.backbone(**inputs, **options)
        ids = inputs["input_ids"]
        features = Features(output.last_hidden_state, mask[:, :1] if first_only else mask, prompt_length, ids)
        if self.needs_hidden_states:
            features.hidden_states = output.hidden_states
        if recorder is not None:
            features.attentions = recorder.weights
        elif attention_layers:
            if not output.get("attentions"):
                kind = getattr(self.backbone.config, "model_type", "")
                raise InputError(f"a {kind} model gives no attention weights, which this method compares")
            features.attentions = {layer: output.attentions[layer] for layer in attention_layers}
        return self._through_stack(features, normalize=normalize)

    def of_flat(self, batch: FlatInputs, prompt_length: int = 0) -> Tensor:
        """Encode a flat batch ``[B, dim]``; see `flat_attention`.

        The layers run without padding. What follows them gets the token vectors padded, which takes little time beside
        the layers, or of a model that pools the first token that token alone.
        """
        first_only = self.first_token_suffices and not prompt_length
        narrowed = surgery.first_token_only() if first_only else nullcontext()
        inputs = {"input_ids": batch.ids[None], "position_ids": batch.positions[None] + self.first_position}
        # any mask keeps transformers from looking for borders in the positions; `attention.mask` makes none of it
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if self.has_types:
            types = torch.zeros_like(batch.ids) if batch.type_ids is None else batch.type_ids
            inputs["token_type_ids"] = types[None]
        with narrowed, flat_attention.laid_out(batch.layout):
            output = self.backbone(**inputs, output_hidden_states=self.needs_hidden_states, return_dict=True)
        states = output.last_hidden_state[0]
        if first_only:
            features = Features(states[:, None], torch.ones_like(states[:, :1]), prompt_length, None)
        else:
            features = Features(batch.padded(states), batch.mask, prompt_length, batch.padded(batch.ids))
        if self.needs_hidden_states:
            features.hidden_states = tuple(batch.padded(layer[0]) for layer in output.hidden_states)
        sentence = self._through_stack(features, normalize=True).sentence
        assert sentence is not None
        return sentence

    def _through_stack(self, features: Features, *, normalize: bool) -> Features:
        """Run the modules after the transformer; those at the end only if `normalize`.

        The modules of a model whose layers are in half precision are in float32, and so are their sums.
        """
        features.logits = not normalize
        if next(self.backbone.parameters()).dtype != torch.float32:
            features.tokens = widened(features.tokens)
            features.hidden_states = tuple(widened(states) for states in features.hidden_states)
        for number, module in enumerate(self.stack):
            at_the_end = number >= self.ending and isinstance(module.spec, NormalizeSpec)
            if normalize or not at_the_end:
                features = module(features)
        return features

    def to_precision(self, device: torch.device, dtype: torch.dtype) -> TorchEncoder:
        """Move the model to a device, the layers of its transformer to a precision and the rest to float32.

        What transformers keeps in float32 stays so, too; see `kept_exact`.
        """
        exact_tensors = kept_exact(self.backbone, dtype)
        self.backbone.to(device, dtype)
        for part, name, exact in exact_tensors:
            if name in part._buffers:
                part._buffers[name] = exact.to(device)
            else:
                part.get_parameter(name).data = exact.to(device)
        self.stack.to(device)
        return self


def kept_exact(backbone: nn.Module, dtype: torch.dtype) -> list[tuple[nn.Module, str, Tensor]]:
    """Return the tensors that stay in float32 where a transformer goes to another precision, and where they stand.

    These are the frequencies of rotary positions, because an angle is a frequency times a position, and in half
    precision it would be off by radians at the end of a long text; and the weights of the layers that an architecture
    names, such as those of T5 that overflow in fp16.
    """
    layers = set(getattr(backbone, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        layers.update(getattr(backbone, "_keep_in_fp32_modules", None) or ())
    exact = []
    for path, part in backbone.named_modules():
        is_exact = not layers.isdisjoint(path.split("."))
        if is_exact:
            exact += [(part, name, weight.data) for name, weight in part.named_parameters(recurse=False)]
        for name, values in part.named_buffers(recurse=False):
            if is_exact or "inv_freq" in name:
                exact.append((part, name, values))
    return exact
