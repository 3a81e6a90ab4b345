"""Access to parts of a transformers encoder: its layers, copies of some of them, its dropout, its first token.

It works for BERT, RoBERTa, DistilBERT, MPNet, ALBERT, ELECTRA, ModernBERT and architectures built like them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from sentcli.errors import InputError, one_line
from sentcli.model import flat_attention
from sentcli.model.attention import recorded_attention

SHARED_LAYERS = "encoder.albert_layer_groups"


def layer_count(backbone: Any) -> int:
    """Return how many layers a forward pass runs; a shared layer (ALBERT) counts each time."""
    return int(backbone.config.num_hidden_layers)


def layer_list(backbone: Any) -> tuple[str, nn.ModuleList]:
    """Return the attribute path of the layers and the layers.

    Raises:
        InputError: if the place of the layers in this architecture is not known.
    """
    # The attribute that holds the layers: in BERT and most others, in DistilBERT, and in ModernBERT
    for path in ("encoder.layer", "transformer.layer", "layers", SHARED_LAYERS):
        try:
            layers = backbone.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(layers, nn.ModuleList):
            return path, layers
    name = backbone.config.model_type or "this model"
    raise InputError(f"{name}: its layers cannot be taken apart, which this method needs")


def lower_layers(backbone: Any, count: int) -> Any:
    """Return a copy of the embeddings and the first `count` layers, whose output is that of layer `count`."""
    part = _part(backbone, slice(count))
    if hasattr(part, "final_norm"):  # ModernBERT normalises only after its last layer
        part.final_norm = nn.Identity()
    return part


def upper_layers(backbone: Any, count: int) -> Any:
    """Return a copy of the last `count` layers, which takes hidden states ``[B, T, d]`` as ``inputs_embeds``."""
    part = _part(backbone, slice(-count, None))
    part.embeddings = PassThrough()
    if hasattr(part, "embeddings_project"):
        part.embeddings_project = nn.Identity()
    encoder: Any = getattr(part, "encoder", None)
    if hasattr(encoder, "embedding_hidden_mapping_in"):  # ALBERT's
        encoder.embedding_hidden_mapping_in = nn.Identity()
    return part


def keep_layers(backbone: Any, layers: Sequence[int]) -> None:
    """Leave out all layers but some, in place.

    Args:
        backbone: the transformers model.
        layers: the numbers of those that stay, counted from 0.

    Raises:
        InputError: if a number is no layer, they are not in ascending order, the layers cannot be taken apart, or no
            config.json describes what is left, as where the first layer is built otherwise than the others.
    """
    path, every_layer = layer_list(backbone)
    if path == SHARED_LAYERS:
        raise InputError(f"--layers: all layers of a {backbone.config.model_type} model are the same one")
    count = len(every_layer)
    chosen = list(layers)
    if chosen != sorted(set(chosen)) or not 0 <= chosen[0] <= chosen[-1] < count:
        raise InputError(f"--layers {list(layers)}: expected ascending numbers from 0 to {count - 1} for this model")
    kept = nn.ModuleList(every_layer[number] for number in chosen)
    for place, layer in enumerate(kept):
        for part in layer.modules():
            if hasattr(part, "layer_idx"):  # by which the layers of decoders find what is kept of them
                vars(part)["layer_idx"] = place
    parent, _, name = path.rpartition(".")
    setattr(backbone.get_submodule(parent), name, kept)
    for key, value in backbone.config.to_dict().items():
        if isinstance(value, list) and len(value) == count and "layer" in key:  # the kind of each layer
            setattr(backbone.config, key, [value[number] for number in chosen])
    backbone.config.num_hidden_layers = len(chosen)
    _refuse_undescribed(backbone, chosen)


def _refuse_undescribed(backbone: Any, chosen: Sequence[int]) -> None:
    """Refuse layers that have other weights than those that transformers makes of the config.json of a backbone."""
    kind = backbone.config.model_type
    given = f"--layers {','.join(map(str, chosen))}"
    try:
        config = type(backbone.config).from_dict(backbone.config.to_dict())
        with torch.device("meta"):
            described = layer_list(type(backbone)(config))[1]
    except Exception as error:  # transformers has no common class for what is wrong in a configuration
        reason = one_line(error)
        raise InputError(f"{given}: transformers has no {kind} model of these layers alone: {reason}") from error
    layers = layer_list(backbone)[1]
    for place, (layer, expected) in enumerate(zip(layers, described, strict=True)):
        differing = sorted(set(layer.state_dict()) ^ set(expected.state_dict()))
        if differing:
            raise InputError(
                f"{given}: layer {chosen[place]} of a {kind} model cannot stand in the place of layer {place}, which "
                f"is built otherwise ({', '.join(differing)}); name layer {place} too"
            )


def _part(backbone: Any, keep: slice) -> Any:
    path, layers = layer_list(backbone)
    part = copy.deepcopy(backbone)
    count = len(range(layer_count(backbone))[keep])
    if path != SHARED_LAYERS:
        parent, _, name = path.rpartition(".")
        setattr(part.get_submodule(parent), name, part.get_submodule(path)[keep])
    elif len(layers) > 1:
        raise InputError(f"{backbone.config.model_type} with {len(layers)} groups of layers cannot be taken apart")
    part.config.num_hidden_layers = count
    if getattr(part, "pooler", None) is not None:
        part.pooler = None
    return part


class PassThrough(nn.Module):
    """Replaces the embeddings, and returns the hidden states that are given as their input."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the first floating-point tensor among the arguments, ``[B, T, d]``."""
        tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        return next(tensor for tensor in tensors if tensor.is_floating_point())


def reset(module: nn.Module, std: float) -> None:
    """Initialise linear layers and embeddings anew from normal(0, std), biases with zeros and gains with ones."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, std=std)
        elif isinstance(part, nn.LayerNorm) and part.weight is not None:
            nn.init.ones_(part.weight)
        if isinstance(part, (nn.Linear, nn.LayerNorm)) and part.bias is not None:
            nn.init.zeros_(part.bias)


def set_dropout(module: nn.Module, rate: float) -> None:
    """Set all dropout rates of hidden states and attention weights, wherever an architecture keeps them."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = rate
        for name in ("attention_dropout", "dropout", "dropout_prob"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, rate)
        if isinstance(getattr(part, "out_drop", None), nn.Identity):  # ModernBERT at rate 0
            part.out_drop = nn.Dropout(rate)


def freeze(module: nn.Module) -> None:
    """Exclude the parameters of a module from training."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)


def word_embeddings(backbone: Any) -> nn.Embedding:
    """Return the table of token embeddings ``[vocabulary, d]``."""
    return backbone.get_input_embeddings()


@torch.no_grad()
def ema_update(average: nn.Module, online: nn.Module, momentum: float) -> None:
    """Move every parameter of `average` toward `online`: m <- momentum * m + (1 - momentum) * online."""
    for mean, current in zip(average.parameters(), online.parameters(), strict=True):
        mean.lerp_(current, 1 - momentum)


_narrow: ContextVar[bool] = ContextVar("narrow", default=False)


class FirstTokenForward:
    """The forward function of a layer of BERT, RoBERTa or ELECTRA that can compute position 0 alone."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, hidden: Tensor, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output ``[B, T, d]``, or ``[B, 1, d]`` inside `first_token_only`.

        Of a flat batch ``[1, tokens, d]`` it is ``[1, B, d]``.
        """
        layer = self.layer
        self_attn = self.layer.attention.self
        if not _narrow.get():
            return type(layer).forward(layer, hidden, attention_mask, *args, **kwargs)
        layout = flat_attention.current()
        first = hidden[:, :1] if layout is None else hidden[:, layout.offsets[:-1].long()]
        query = _in_heads(self_attn.query(first), self_attn)
        key = _in_heads(self_attn.key(hidden), self_attn)
        value = _in_heads(self_attn.value(hidden), self_attn)
        if attention_mask is not None and attention_mask.shape[2] != 1:
            attention_mask = attention_mask[:, :, :1]
        dropout = self_attn.dropout.p if self_attn.training else 0.0
        context, _ = recorded_attention(
            self_attn, query, key, value, attention_mask, scaling=self_attn.scaling, dropout=dropout
        )
        return layer.feed_forward_chunk(layer.attention.output(context.flatten(2), first))


def _in_heads(states: Any, self_attn: Any) -> Any:
    """Return states ``[B, T, d]`` divided into the heads of an attention layer ``[B, heads, T, d / heads]``."""
    return states.unflatten(-1, (-1, self_attn.attention_head_size)).transpose(1, 2)


def allow_first_token_only(backbone: Any) -> bool:
    """Give the last layer of a backbone a `FirstTokenForward`, and return whether its architecture allows that."""
    try:
        last = layer_list(backbone)[1][-1]
    except InputError:
        return False
    layer_attention = getattr(last, "attention", None)
    self_attn = getattr(layer_attention, "self", None)
    parts = ("query", "key", "value", "attention_head_size", "scaling", "dropout")
    if not all(hasattr(self_attn, name) for name in parts):
        return False
    if not hasattr(last, "feed_forward_chunk") or not hasattr(layer_attention, "output"):
        return False
    if getattr(self_attn, "position_embedding_type", "absolute") != "absolute" or getattr(last, "is_decoder", False):
        return False
    if getattr(backbone.config, "_attn_implementation", "") not in ("sdpa", "sentcli"):
        return False
    last.forward = FirstTokenForward(last)
    return True


def remove(backbone: Any) -> None:
    """Undo `allow_first_token_only`."""
    del layer_list(backbone)[1][-1].forward


@contextmanager
def first_token_only() -> Iterator[None]:
    """Compute only position 0 of the last layer in the forward pass inside the block.

    It has no effect on a backbone for which `allow_first_token_only` has returned False.
    """
    token = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(token)
