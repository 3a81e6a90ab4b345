"""The names of poolings that are made of several modules, as protocols have them and `--pooling` takes them."""

from __future__ import annotations

from collections.abc import Sequence

from sentcli.model.modules.base import ModuleSpec
from sentcli.model.modules.cnn import CNNSpec
from sentcli.model.modules.dense import DenseSpec
from sentcli.model.modules.layer_mean import LayerMeanSpec
from sentcli.model.modules.pooling import PoolingSpec
from sentcli.model.modules.word_weights import WordWeightsSpec


def pooling_name(modules: Sequence[ModuleSpec]) -> str:
    """Return the value of ``--pooling`` for some modules, or a description of a combination that has no name.

    Args:
        modules: of an encoder, without those that normalise vectors or keep fewer dimensions.
    """
    pooling = next(module for module in modules if module.pools)
    name = "+".join(pooling.modes) if isinstance(pooling, PoolingSpec) else pooling.name
    first = modules[0]
    if isinstance(first, LayerMeanSpec):
        name = _name_of_layers(first, name)
    elif isinstance(first, WordWeightsSpec):
        name = "mask" if first.only_token and name == "mean" else f"word-weights+{name}"
    elif isinstance(first, CNNSpec):
        has_relu = any(isinstance(module, DenseSpec) and module.on_tokens for module in modules)
        name = f"cnn-relu+{name}" if has_relu else f"cnn+{name}"
    for module in modules:
        if not module.in_sentence_transformers and not module.pools:
            name += f"+{module.name}"
    dense = [module for module in modules if isinstance(module, DenseSpec) and not module.on_tokens]
    if dense and all(layer.from_head for layer in dense):
        return f"{name}-head"
    return name + "+dense" * len(dense)


def _name_of_layers(layers: LayerMeanSpec, pooling: str) -> str:
    """Return the name of a mean over layers that a pooling of tokens follows."""
    weights = layers.weights
    if weights is not None and pooling == "mean":
        ends_only = weights[0] == weights[-1] != 0 and not any(weights[1:-1])
        if ends_only and layers.layer_start == 0:
            return "first-last-avg"
        if ends_only and layers.layer_start == 1:
            return "layer1-last-avg"
    return f"layers/{pooling}"
