"""The encoder as a torch module: a transformers backbone, then the modules of its spec."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from inspect import signature
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from sentcli.errors import InputError, broken_library, one_line
from sentcli.io.forms import read_json
from sentcli.io.weights import has_weights, load_state_dict
from sentcli.model import adapters, attention, flat_attention, surgery
from sentcli.model.flat_attention import FlatInputs
from sentcli.model.folder_keys import CONFIG, KEYS
from sentcli.model.modules import Features, ModuleSpec, NormalizeSpec
from sentcli.model.spec import EncoderSpec, count_without_ending
from sentcli.model.static import static_table
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
        self.needs_hidden_states = any(module.spec.needs_layers for module in modules)
        self.first_token_suffices = modules[0].spec.first_token_suffices and surgery.allow_first_token_only(backbone)
        """Whether the sentence vector depends only on position 0 of the last layer."""
        kind = getattr(backbone.config, "model_type", "")
        padding: Any = getattr(getattr(backbone, "embeddings", None), "padding_idx", None)
        counts_after_padding = kind in POSITIONS_AFTER_PADDING and padding is not None
        self.first_position = int(padding) + 1 if counts_after_padding else 0
        """The position of the first token of a text."""
        self.has_types = any(name.endswith("token_type_embeddings") for name, _ in backbone.named_modules())
        """Whether tokens have a type, as in BERT."""

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
            is_full: whether the batch is known to have no padding. On a CPU it is looked at; to look at it on an
                accelerator would be to wait for it.
        """
        inputs = dict(batch)
        mask = inputs["attention_mask"]
        is_full = is_full or (mask.device.type == "cpu" and bool(mask.all()))
        is_full = is_full and not self.training
        full: AbstractContextManager[None] = nullcontext()
        if is_full and attention.is_installed(self.backbone):
            full = attention.without_padding()
        elif is_full:
            del inputs["attention_mask"]  # attention without a mask is a few percent faster
        options = {"output_hidden_states": self.needs_hidden_states, "return_dict": True}
        first_only = sentence_only and self.first_token_suffices and not prompt_length
        first_only = first_only and surgery.depth(self.backbone) - 1 not in attention_layers
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
        """Move the model to a device, the layers of its transformer to a precision and the rest to float32."""
        self.backbone.to(device, dtype)
        self.stack.to(device)
        return self


def build(
    spec: EncoderSpec, notice: Callable[[str], None] = lambda message: None, *, untrained: bool = False
) -> TorchEncoder:
    """Build the encoder of a spec and load its weights, in float32 and evaluation mode.

    Args:
        spec: the description of the encoder.
        notice: called with what the user should know about the weights.
        untrained: start from random weights if the folder has none, instead of raising an error.
    """
    state = None if untrained and not has_weights(spec.folder) else load_state_dict(spec.folder)
    if spec.is_static:
        arrays = {name: _as_array(tensor) for name, tensor in (state or {}).items()}
        backbone: nn.Module = StaticTable(torch.from_numpy(static_table(spec.folder, arrays)))
    else:
        backbone = load_backbone(spec.folder, state, (lambda message: None) if spec.scores_pairs else notice)
        if spec.adapter is not None:
            backbone = adapters.apply(backbone, spec.adapter, spec.folder)
    return TorchEncoder(backbone, build_stack(spec, state or {})).float().eval()


def _as_array(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a tensor as an array of NumPy, which has no bfloat16."""
    array: npt.NDArray[Any] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return array


def build_stack(spec: EncoderSpec, state: dict[str, Tensor]) -> list[BuiltModule]:
    """Build the modules after the transformer, with their weights.

    Args:
        spec: the description of the encoder.
        state: the weights of the transformer's folder, in which those of a head may be.
    """
    modules = []
    for part, width in zip(spec.modules, spec.widths, strict=True):
        module = BuiltModule(part, width, spec.layers)
        weights = part.stored_weights(spec.folder, state)
        if weights is None and part.folder is not None and any(p.requires_grad for p in module.parameters()):
            raise InputError(f"{part.folder} holds no weights, which its module {part.name} needs")
        if weights is not None:
            try:
                module.load_state_dict(weights, strict=not part.may_lack_weights)
            except RuntimeError as error:
                raise InputError(f"{part.folder or spec.folder}: the weights do not fit: {one_line(error)}") from error
        modules.append(module)
    return modules


def load_backbone(
    folder: Path, state: dict[str, Tensor] | None, notice: Callable[[str], None] = lambda message: None
) -> nn.Module:
    """Make the transformers model of a folder's config.json.

    Args:
        folder: the folder of the model.
        state: its weights, or None for random ones. Weights of heads that do not encode are left out.
        notice: called with the names of these heads.

    Raises:
        InputError: if a weight is missing, has another shape, or belongs to a layer that config.json does not have.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model_class = backbone_class(config)
        vars(config).pop("auto_map", None)  # a saved copy has no code of its own
    except Exception as error:  # transformers has no common class for what is wrong in a configuration
        if broken := broken_library(error):
            raise broken from error
        raise InputError(f"{folder}: no encoder can be made of its config.json: {one_line(error)}") from error
    _check_keys(folder, config, notice)
    try:
        if state is None:
            return model_class(config)
        # without SimCSE's head, see cls-head
        state = {key: value for key, value in state.items() if not key.startswith("mlp.")}
        model, report = model_class.from_pretrained(
            None, config=config, state_dict=state, output_loading_info=True, dtype=torch.float32,
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    except Exception as error:
        if broken := broken_library(error):
            raise broken from error
        raise InputError(f"{folder}: the weights do not fit config.json: {one_line(error)}") from error
    _check_fit(folder, model, report, notice)
    return model


def _check_fit(folder: Path, model: Any, report: dict[str, Any], notice: Callable[[str], None]) -> None:
    """Compare the weights that a model has taken with those that it has and those that were there.

    Args:
        folder: of the model.
        model: as transformers has made it. A pooler that it could not load is taken out.
        report: what transformers says of the names.
        notice: called with the names of heads that are not used.

    Raises:
        InputError: if a weight is missing, has another shape, or belongs to a layer that the model does not have.
    """
    for key, stored, expected in sorted(report["mismatched_keys"]):
        hint = f" (vocab_size {expected[0]})" if expected[0] == model.config.vocab_size != stored[0] else ""
        raise InputError(
            f"{folder}: the weights do not fit config.json: {key} is {list(stored)} in its weights, and "
            f"{list(expected)} by its config.json{hint}"
        )
    missing = [key for key in report["missing_keys"] if not _is_of_pooler(key)]
    if missing:
        raise InputError(f"{folder}: {_listed(missing)} missing from its weights")
    if report["missing_keys"] and "add_pooling_layer" in signature(type(model)).parameters:
        model.pooler = None  # it would have random weights, and be saved with them
    own = {name for name, _ in model.named_children()}
    heads, unknown = set(), []
    for key in filter(_holds_weight, report["unexpected_keys"]):
        part = key.removeprefix(f"{model.base_model_prefix}.").partition(".")[0]
        if part in own and not _is_of_pooler(key):
            unknown.append(key)
        else:
            heads.add(part)
    if unknown:
        raise InputError(f"{folder}: {_listed(unknown)} in its weights, but not in the model of its config.json")
    if heads:
        notice(f"{folder}: weights of a head that does not encode are not used: {', '.join(sorted(heads))}")


def _is_of_pooler(key: str) -> bool:
    """Tell whether a weight is one of the pooler, which no sentence vector is read from."""
    return "pooler" in key.split(".")


NUMBERINGS = ("position_ids", "token_type_ids")
"""Tensors that number positions 0, 1, 2, ... or hold zeros, which older releases of transformers saved with the
weights. Every release makes them anew."""


def _holds_weight(key: str) -> bool:
    """Tell whether a tensor of a checkpoint has been trained, whatever stands before its name."""
    return key.rpartition(".")[2] not in NUMBERINGS


ENCODERS = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
    "switch_transformers": "SwitchTransformersEncoderModel",
    "t5gemma": "T5GemmaEncoderModel",
}
"""The classes of the encoders alone, of architectures with a decoder beside it, by ``model_type``."""


def backbone_class(config: Any) -> Any:
    """Return the class of transformers that computes token vectors, without a decoder where one stands beside it.

    Raises:
        KeyError: for an architecture that has no such class.
    """
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    if config.model_type in ENCODERS:
        config.is_encoder_decoder = False
        return getattr(transformers, ENCODERS[config.model_type])
    model_class: Any = MODEL_MAPPING[type(config)]
    return model_class[0] if isinstance(model_class, (tuple, list)) else model_class


def _check_keys(folder: Path, config: Any, notice: Callable[[str], None]) -> None:
    """Refuse positions that the class does not compute, and tell the user which keys of config.json it does not know.

    Raises:
        InputError: for such positions.
    """
    stated = read_json(folder / CONFIG)
    # what a class knows are its fields from transformers 5.4 on, and were the arguments of its __init__ before that
    own = {*signature(type(config)).parameters, *config.attribute_map, *dir(type(config))}
    with suppress(Exception):  # some classes cannot be made without arguments
        own |= {*type(config)().to_dict()}
    kind = stated.get("position_embedding_type") or "absolute"
    if kind != "absolute" and "position_embedding_type" not in own:
        raise InputError(f"{folder / CONFIG}: transformers' {config.model_type} has no positions of the kind {kind!r}")
    unknown = [key for key in stated if key not in own and key not in KEYS[CONFIG]]
    if unknown:
        notice(f"{folder / CONFIG}: keys that are not known and were left out: {', '.join(sorted(unknown))}")


def _listed(keys: Collection[str]) -> str:
    """Return ``3 tensors (a, b, ...) are`` for some names."""
    first = ", ".join(sorted(keys)[:3])
    more = ", ..." if len(keys) > 3 else ""
    return f"{len(keys)} tensor{'s' * (len(keys) > 1)} ({first}{more}) {'are' if len(keys) > 1 else 'is'}"
