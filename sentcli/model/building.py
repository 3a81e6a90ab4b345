"""Build the encoder of a folder in torch: the transformer of its config.json, its modules, and their weights."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sentcli.arrays import AnyArray
from sentcli.errors import InputError, broken_library, one_line
from sentcli.io.forms import read_json
from sentcli.io.weights import has_weights, load_state_dict
from sentcli.model import adapters
from sentcli.model.folder_keys import CONFIG, KEYS
from sentcli.model.spec import EncoderSpec
from sentcli.model.static import static_table
from sentcli.model.torch_model import BuiltModule, StaticTable, TorchEncoder


def build_encoder(
    spec: EncoderSpec, notice: Callable[[str], None] = lambda message: None, *, untrained: bool = False
) -> TorchEncoder:
    """Build the encoder of a spec and load its weights, in float32 and evaluation mode.

    Args:
        spec: the description of the encoder.
        notice: called with what the user should know about the weights.
        untrained: start from random weights if the folder has none, instead of raising an error.
    """
    state = None
    if has_weights(spec.folder) or not untrained:
        state = load_state_dict(spec.folder)
    if spec.is_static:
        arrays = {name: _as_array(tensor) for name, tensor in (state or {}).items()}
        backbone: nn.Module = StaticTable(torch.from_numpy(static_table(spec.folder, arrays)))
    elif spec.scores_pairs:  # whose head is a module, and used
        backbone = load_backbone(spec.folder, state)
    else:
        backbone = load_backbone(spec.folder, state, notice)
    if spec.adapter is not None and not spec.is_static:
        backbone = adapters.apply(backbone, spec.adapter, spec.folder)
    return TorchEncoder(backbone, build_stack(spec, state or {})).float().eval()


def _as_array(tensor: Tensor) -> AnyArray:
    """Return a tensor as an array of NumPy, which has no bfloat16."""
    if tensor.is_floating_point():
        tensor = tensor.float()
    array: AnyArray = tensor.numpy()
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
        modules.append(module)
        weights = part.stored_weights(spec.folder, state)
        if weights is None:
            is_trained = any(parameter.requires_grad for parameter in module.parameters())
            if part.folder is not None and is_trained:
                raise InputError(f"{part.folder} holds no weights, which its module {part.name} needs")
            continue
        try:
            module.load_state_dict(weights, strict=not part.may_lack_weights)
        except RuntimeError as error:
            raise InputError(f"{part.folder or spec.folder}: the weights do not fit: {one_line(error)}") from error
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
        hint = ""
        if expected[0] == model.config.vocab_size != stored[0]:
            hint = f" (vocab_size {expected[0]})"
        raise InputError(
            f"{folder}: the weights do not fit config.json: {key} is {list(stored)} in its weights, and "
            f"{list(expected)} by its config.json{hint}"
        )
    missing = [key for key in report["missing_keys"] if not _is_of_pooler(key)]
    if missing:
        raise InputError(f"{folder}: {_listed(missing)} missing from its weights")
    if report["missing_keys"] and "add_pooling_layer" in signature(type(model)).parameters:
        model.pooler = None  # it would have random weights, and be saved with them
    parts = {name for name, _ in model.named_children()}
    heads = set()
    unknown = []
    for key in filter(_holds_weight, report["unexpected_keys"]):
        part, _, _ = key.removeprefix(f"{model.base_model_prefix}.").partition(".")
        if part in parts and not _is_of_pooler(key):
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
    if isinstance(model_class, (tuple, list)):
        return model_class[0]
    return model_class


def _check_keys(folder: Path, config: Any, notice: Callable[[str], None]) -> None:
    """Refuse positions that the class does not compute, and tell the user which keys of config.json it does not know.

    Raises:
        InputError: for such positions.
    """
    stated = read_json(folder / CONFIG)
    # what a class knows are its fields from transformers 5.4 on, and were the arguments of its __init__ before that
    config_class = type(config)
    keys_of_class = {*signature(config_class).parameters, *config.attribute_map, *dir(config_class)}
    with suppress(Exception):  # some classes cannot be made without arguments
        keys_of_class.update(config_class().to_dict())
    kind = stated.get("position_embedding_type") or "absolute"
    if kind != "absolute" and "position_embedding_type" not in keys_of_class:
        raise InputError(f"{folder / CONFIG}: transformers' {config.model_type} has no positions of the kind {kind!r}")
    unknown = [key for key in stated if key not in keys_of_class and key not in KEYS[CONFIG]]
    if unknown:
        notice(f"{folder / CONFIG}: keys that are not known and were left out: {', '.join(sorted(unknown))}")


def _listed(keys: Collection[str]) -> str:
    """Return ``3 tensors (a, b, ...) are`` for some names."""
    names = sorted(keys)
    if len(names) == 1:
        return f"1 tensor ({names[0]}) is"
    first = ", ".join(names[:3])
    more = ", ..." if len(names) > 3 else ""
    return f"{len(names)} tensors ({first}{more}) are"
