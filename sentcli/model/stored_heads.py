"""The training heads and language-modelling heads that checkpoints hold beside the encoder.

Two forms of the SimCSE family are read: the output of its training, a state dict under ``bert.`` or ``roberta.`` with
the head under ``mlp.dense``, and the converted form, in which the head is stored as the pooler.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.errors import InputError
from sentcli.io.weights import has_weights, load_state_dict, load_weights, names_in, tensor_names

if TYPE_CHECKING:
    from sentcli.io.weights import StateDict

HEAD_FOLDER = "training_head"
HEAD_KEYS = ("mlp.dense", "pooler.dense")
"""The keys of the trained [CLS] head in published checkpoints: from SimCSE's training, and converted."""
BATCH_NORM = "net.1"
"""The key of the first normalisation in a head of two layers with batch normalisation."""


def has_batch_norm(folder: Path) -> bool:
    """Tell whether the head of a folder is two layers with batch normalisation, as InfoCSE's and DiffCSE's."""
    stored = folder / HEAD_FOLDER / "model.safetensors"
    if stored.exists():
        return f"{BATCH_NORM}.weight" in names_in(stored)
    if not has_weights(folder):
        return False
    return any(name.endswith(f"mlp.{BATCH_NORM}.weight") for name in tensor_names(folder))


def head_weights(folder: Path, state: StateDict) -> list[StateDict]:
    """Return ``weight`` and ``bias`` of each layer of the head that was trained on the [CLS] vector.

    It is in the ``training_head`` folder that `sentcli train` writes, or under the keys of published checkpoints. With
    batch normalisation there are two layers, into which its running statistics are multiplied.

    Args:
        folder: the folder of the transformer.
        state: the weights in that folder.

    Raises:
        InputError: if there is no such head, or it is of another form.
    """
    stored = folder / HEAD_FOLDER / "model.safetensors"
    if stored.exists():
        head = load_weights(stored)
        if f"{BATCH_NORM}.weight" in head:
            return _without_batch_norm(head, "")
        if "dense.weight" not in head:
            raise InputError(f"{folder}: its training head is of a form that cannot encode: use --pooling cls")
        return [{name: head[f"dense.{name}"] for name in ("weight", "bias")}]
    for stem in (f"mlp.{BATCH_NORM}", *HEAD_KEYS):
        for key in state:
            if key.endswith(f"{stem}.weight"):
                prefix = key.removesuffix("weight")
                if stem not in HEAD_KEYS:
                    return _without_batch_norm(state, prefix.removesuffix(f"{BATCH_NORM}."))
                if f"{prefix}bias" not in state:
                    raise InputError(f"{folder}: {prefix}bias is missing from its weights: use --pooling cls")
                return [{name: state[prefix + name] for name in ("weight", "bias")}]
    raise InputError(f"{folder} has no trained head ({HEAD_FOLDER}/, {', '.join(HEAD_KEYS)}): use --pooling cls")


def _without_batch_norm(state: StateDict, prefix: str) -> list[StateDict]:
    """Return two linear layers that compute what linear layers and batch normalisation by running statistics do."""
    import torch

    layers = []
    for linear, norm in (("net.0", "net.1"), ("net.3", "net.4")):
        weight = state[f"{prefix}{linear}.weight"]
        mean = state[f"{prefix}{norm}.running_mean"]
        variance = state[f"{prefix}{norm}.running_var"]
        deviation = (variance + torch.nn.BatchNorm1d(1).eps).sqrt()
        gain = state.get(f"{prefix}{norm}.weight", torch.ones_like(mean)) / deviation
        shift = state.get(f"{prefix}{norm}.bias", torch.zeros_like(mean))
        layers.append({"weight": weight * gain[:, None], "bias": shift - mean * gain})
    return layers


def head_is_pooler(folder: Path) -> bool:
    """Tell whether the head of a folder is the checkpoint's pooler, which a plain language model has as well."""
    if (folder / HEAD_FOLDER / "model.safetensors").exists():
        return False
    trained = (f"{HEAD_KEYS[0]}.weight", f"mlp.{BATCH_NORM}.weight")
    return not any(name.endswith(trained) for name in tensor_names(folder))


LM_HEADS = (
    (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions.bias",
    ),
    ("lm_head.transform.dense", "lm_head.transform.LayerNorm", "lm_head.decoder", "lm_head.bias"),
    ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
    ("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"),
    ("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"),
    ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", "generator_lm_head.bias"),
    ("head.dense", "head.norm", "decoder", "decoder.bias"),
)  # fmt: skip
"""Dense layer, normalisation, decoder and bias of the masked-language-modelling heads: BERT, SimCSE's training output,
RoBERTa and MPNet, DistilBERT, ALBERT, ELECTRA's generator, ModernBERT."""


def lm_head_weights(folder: Path) -> StateDict | None:
    """Return the masked-language-modelling head of a folder as dense.*, norm.*, decoder.weight and bias, or None.

    A head that `sentcli train` kept goes before one among the weights of a published checkpoint.
    """
    stored = folder / HEAD_FOLDER / "lm_head.safetensors"
    if stored.exists():
        return load_weights(stored)
    if not has_weights(folder):
        return None
    state = load_state_dict(folder)
    for dense, norm, decoder, bias in LM_HEADS:
        if f"{dense}.weight" not in state:
            continue
        keys = {
            "dense.weight": f"{dense}.weight",
            "dense.bias": f"{dense}.bias",
            "norm.weight": f"{norm}.weight",
            "norm.bias": f"{norm}.bias",
            "decoder.weight": f"{decoder}.weight",
            "bias": bias,
        }
        return {name: state[key] for name, key in keys.items() if key in state}
    return None
