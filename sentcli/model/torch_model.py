"""The encoder as a torch module: a transformers backbone, then what its spec lists."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sentcli.errors import InputError, one_line
from sentcli.io.weights import has_weights, load_state_dict
from sentcli.model import attention, first_token, stored_heads, surgery
from sentcli.model.spec import (
    CNNSpec,
    DenseSpec,
    EncoderSpec,
    LayerMeanSpec,
    ModuleSpec,
    NormalizeSpec,
    PoolingSpec,
)
from sentcli.precision import widened


@dataclass
class Features:
    """What flows from module to module."""

    tokens: Tensor
    """Last layer, later what a CNN or a mean over layers made of it: ``[B, T, d]``."""
    mask: Tensor
    """1 for real tokens ``[B, T]``."""
    prompt_length: int = 0
    hidden_states: tuple[Tensor, ...] = ()
    """Embedding layer first, each ``[B, T, d]``; only if a module asked."""
    attentions: dict[int, Tensor] = field(default_factory=dict)
    """Layer number to ``[B, heads, T, T]``, for the layers that were asked for."""
    sentence: Tensor | None = None
    """``[B, d]`` from the pooling on."""


class Pooling(nn.Module):
    """Token vectors to one vector a text; several modes are concatenated. Sums are taken in float32."""

    def __init__(self, spec: PoolingSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, features: Features) -> Features:
        """Set `features.sentence` ``[B, d * modes]``."""
        mask = features.mask
        if features.prompt_length and not self.spec.include_prompt:
            mask = mask.clone()
            mask[:, : features.prompt_length] = 0
        pooled = [pool(features.tokens, mask, features.mask, mode) for mode in self.spec.modes]
        features.sentence = torch.cat(pooled, dim=-1)
        return features


def pool(tokens: Tensor, mask: Tensor, position_mask: Tensor, mode: str) -> Tensor:
    """Pool ``[B, T, d]`` over the positions where `mask` ``[B, T]`` is 1, as sentence-transformers does.

    Args:
        tokens: token vectors.
        mask: positions to pool.
        position_mask: the real tokens, prompt included: positions in `weightedmean` count from the first of them.
        mode: one of TOKEN_POOLINGS.
    """
    rows = torch.arange(tokens.shape[0], device=tokens.device)
    if mode == "cls":
        return tokens[rows, mask.argmax(dim=1)]
    if mode == "lasttoken":
        last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
        return tokens[rows, last]
    if mode == "max":
        return tokens.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)
    wide = widened(tokens)
    weights = mask.to(wide.dtype)
    if mode == "weightedmean":
        weights = weights * position_mask.cumsum(dim=1).to(wide.dtype)
    total = torch.einsum("btd,bt->bd", wide, weights)
    count = weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
    return (total / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)).to(tokens.dtype)


class LayerMean(nn.Module):
    """Weighted mean of the hidden states from one layer on (first-last-avg is weights 1, 0, ..., 0, 1)."""

    def __init__(self, spec: LayerMeanSpec, layers: int) -> None:
        super().__init__()
        self.layer_start = spec.layer_start
        weights = spec.weights or (1.0,) * (layers + 1 - spec.layer_start)
        self.layer_weights = nn.Parameter(torch.tensor(weights))

    def forward(self, features: Features) -> Features:
        """Replace `features.tokens` ``[B, T, d]``."""
        states = features.hidden_states[self.layer_start :]
        weights = (self.layer_weights / self.layer_weights.sum()).tolist()
        mixed = torch.zeros_like(features.tokens)
        for weight, state in zip(weights, states, strict=True):
            if weight:
                mixed = mixed + weight * state
        features.tokens = mixed
        return features


class CNN(nn.Module):
    """Parallel 1-D convolutions over the tokens, outputs concatenated (Kim 2014, as used by IS-BERT)."""

    def __init__(self, spec: CNNSpec) -> None:
        super().__init__()
        sizes = zip(spec.kernel_sizes, spec.strides, strict=True)
        self.convs = nn.ModuleList(
            nn.Conv1d(spec.in_dim, spec.out_channels, kernel, stride, padding=(kernel - 1) // 2)
            for kernel, stride in sizes
        )
        self.blank_padding = True

    def forward(self, features: Features) -> Features:
        """Replace `features.tokens` by ``[B, T, out_channels * kernels]``."""
        columns = features.tokens.transpose(1, 2)
        if self.blank_padding and not self.training:
            # A vector must not depend on the batch: with padding as zeros, it is that of the sentence alone. The
            # reference code lets the convolutions see the backbone's output at padding; so does training here.
            columns = columns * features.mask.unsqueeze(1).to(columns.dtype)
        features.tokens = torch.cat([conv(columns) for conv in self.convs], dim=1).transpose(1, 2)
        return features


class Dense(nn.Module):
    """A linear layer and an activation on the sentence vector, or on each token vector."""

    def __init__(self, spec: DenseSpec) -> None:
        super().__init__()
        self.linear = nn.Linear(spec.in_features, spec.out_features, bias=spec.bias)
        self.activation = _activation(spec.activation)
        self.on_tokens = spec.on_tokens
        if spec.on_tokens:  # only carries an activation that sentence-transformers has no module of its own for
            nn.init.eye_(self.linear.weight)
            self.linear.requires_grad_(False)

    def forward(self, features: Features) -> Features:
        """Replace `features.sentence` ``[B, out_features]`` or `features.tokens` ``[B, T, out_features]``."""
        if self.on_tokens:
            features.tokens = self.activation(self.linear(features.tokens))
        else:
            features.sentence = self.activation(self.linear(features.sentence))
        return features


class Normalize(nn.Module):
    """L2 normalisation of the sentence vector; a zero vector stays zero."""

    def forward(self, features: Features) -> Features:
        """Replace `features.sentence` ``[B, d]``."""
        assert features.sentence is not None
        features.sentence = functional.normalize(features.sentence, dim=-1)
        return features


def _activation(name: str) -> nn.Module:
    """Build ``torch.nn....Tanh`` by name; names outside torch.nn are refused, they could be any code."""
    module, _, attribute = name.rpartition(".")
    if module != "torch.nn" and not module.startswith("torch.nn.modules"):
        raise InputError(f"activation function {name!r} is not one of torch.nn")
    try:
        built = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise InputError(f"unknown activation function {name!r}") from error
    if not isinstance(built, nn.Module):
        raise InputError(f"activation function {name!r} is not a torch module")
    return built


class TorchEncoder(nn.Module):
    """Token ids to sentence vectors ``[B, dim]``."""

    def __init__(self, backbone: nn.Module, modules: list[nn.Module]) -> None:
        super().__init__()
        self.backbone = backbone
        self.stack = nn.ModuleList(modules)
        self.needs_hidden_states = any(isinstance(module, LayerMean) for module in modules)
        pools_first = bool(modules) and isinstance(modules[0], Pooling) and modules[0].spec.modes == ("cls",)
        self.first_token_suffices = pools_first and first_token.install(backbone)
        """Whether the sentence vector needs no more than position 0 of the last layer."""

    def forward(self, batch: Mapping[str, Tensor], prompt_length: int = 0) -> Tensor:
        """Encode a padded batch.

        Args:
            batch: ``input_ids`` and ``attention_mask`` ``[B, T]``, perhaps ``token_type_ids``.
            prompt_length: tokens at the front that pooling leaves out, if the model says so.
        """
        sentence = self.features(batch, prompt_length, sentence_only=True).sentence
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
    ) -> Features:
        """Encode a padded batch and return everything on the way.

        Args:
            batch: as for `forward`.
            prompt_length: as for `forward`.
            normalize: False leaves out a final `Normalize` (training, and classifiers on the vectors).
            attention_layers: layers, counted from 0, whose attention weights are wanted.
            sentence_only: the token vectors are not wanted, so that they need not all be computed.
        """
        inputs = dict(batch)
        mask = inputs["attention_mask"]
        if not self.training and bool(mask.all()):
            del inputs["attention_mask"]  # nothing is padded: attention without a mask is a few percent faster
        options = {"output_hidden_states": self.needs_hidden_states, "return_dict": True}
        first_only = sentence_only and self.first_token_suffices and not prompt_length
        first_only = first_only and surgery.depth(self.backbone) - 1 not in attention_layers
        narrowed = first_token.first_token_only() if first_only else nullcontext()
        with narrowed, attention.recording(self.backbone, attention_layers) as recorder:
            if attention_layers and recorder is None:
                options["output_attentions"] = True
            output = self.backbone(**inputs, **options)
        features = Features(output.last_hidden_state, mask[:, :1] if first_only else mask, prompt_length)
        if self.needs_hidden_states:
            features.hidden_states = output.hidden_states
        if recorder is not None:
            features.attentions = recorder.weights
        elif attention_layers:
            if not output.get("attentions"):
                kind = getattr(self.backbone.config, "model_type", "")
                raise InputError(f"a {kind} model gives no attention weights, which this method compares")
            features.attentions = {layer: output.attentions[layer] for layer in attention_layers}
        for module in self.stack:
            if normalize or not isinstance(module, Normalize):
                features = module(features)
        return features


def build(spec: EncoderSpec, *, untrained: bool = False) -> TorchEncoder:
    """Build the encoder of a spec and load its weights, in float32 and evaluation mode.

    Args:
        spec: of the encoder.
        untrained: a folder without weights gives random ones instead of an error.
    """
    state = {} if untrained and not has_weights(spec.folder) else load_state_dict(spec.folder)
    backbone = load_backbone(spec.folder, state)
    modules = [_build_module(module, spec, state) for module in spec.modules]
    return TorchEncoder(backbone, modules).float().eval()


def load_backbone(folder: Path, state: dict[str, Tensor]) -> nn.Module:
    """Make the transformers model of a folder's config.json with the weights in `state`; random ones if it is empty."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model_class: Any = MODEL_MAPPING[type(config)]
    except (ValueError, KeyError, OSError) as error:
        raise InputError(f"{folder}: no encoder can be made of its config.json: {one_line(error)}") from error
    if isinstance(model_class, (tuple, list)):
        model_class = model_class[0]
    if not state:
        fresh: nn.Module = model_class(config)
        return fresh
    state = {key: value for key, value in state.items() if not key.startswith("mlp.")}
    try:
        model, report = model_class.from_pretrained(
            None, config=config, state_dict=state, output_loading_info=True, dtype=torch.float32
        )
    except (RuntimeError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"{folder}: the weights do not fit config.json: {one_line(error)}") from error
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise InputError(f"{folder}: {len(missing)} weights are missing, the first is {missing[0]}")
    model_: nn.Module = model
    return model_


def _build_module(spec: ModuleSpec, encoder: EncoderSpec, state: dict[str, Tensor]) -> nn.Module:
    module: nn.Module
    match spec:
        case PoolingSpec():
            return Pooling(spec)
        case NormalizeSpec():
            return Normalize()
        case LayerMeanSpec():
            layers = int(encoder.config.get("num_hidden_layers") or encoder.config.get("n_layers") or 0)
            module = LayerMean(spec, layers)
        case CNNSpec():
            module = CNN(spec)
        case DenseSpec():
            module = Dense(spec)
    weights: dict[str, Tensor] | None = None
    if isinstance(spec, DenseSpec) and spec.from_head:
        head = stored_heads.head_weights(encoder.folder, state)
        weights = {f"linear.{name}": value for name, value in head.items()}
    elif spec.folder is not None:
        weights = load_state_dict(spec.folder)
    if weights is not None:
        try:
            module.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(f"{spec.folder or encoder.folder}: the weights do not fit: {one_line(error)}") from error
    return module
