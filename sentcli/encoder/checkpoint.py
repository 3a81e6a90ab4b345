"""Weights from a folder: safetensors, or the `.bin` files of older checkpoints read by the weights-only loader.

The SimCSE family's training output is read as it is: a state dict under ``bert.`` or ``roberta.`` with the head under
``mlp.dense``; the converted form, in which the head stands in the pooler's place, too.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError

if TYPE_CHECKING:
    import torch

    StateDict = dict[str, torch.Tensor]

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
HEAD_FOLDER = "training_head"
HEAD_KEYS = ("mlp.dense", "pooler.dense")
"""Where published checkpoints keep the trained [CLS] head: as SimCSE's training wrote it, and as converted."""


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the transformer's weights.

    Raises:
        InputError: if the folder has none.
    """
    for name in WEIGHT_FILES:
        path = folder / name
        if not path.exists():
            continue
        if path.suffix != ".json":
            return [path]
        try:
            shards = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is not a weight index: {error}") from error
        if any(Path(shard).name != shard for shard in shards):
            raise InputError(f"{path} names a weight file outside its folder")
        return [folder / shard for shard in shards]
    raise InputError(f"{folder} holds no weights: looked for {', '.join(WEIGHT_FILES)}")


def has_weights(folder: Path) -> bool:
    """Tell whether a folder holds weights of a transformer, whole or not."""
    return any((folder / name).exists() for name in WEIGHT_FILES)


def load_state_dict(folder: Path) -> StateDict:
    """Read all weights of a folder.

    Raises:
        InputError: if there are none, a file is damaged, or a checkpoint holds more than tensors.
    """
    state: StateDict = {}
    for path in weight_files(folder):
        state.update(load_weights(path))
    return state


def load_weights(path: Path) -> StateDict:
    """Read one weight file; see `load_state_dict`."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        loaded: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing") from error
    except pickle.UnpicklingError as error:
        raise InputError(f"{path} holds more than tensors and was not loaded: {_first_line(error)}") from error
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise InputError(f"{path} is damaged: {_first_line(error)}") from error
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise InputError(f"{path} is not a plain state dict of tensors")
    return loaded


def _first_line(error: Exception) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return next((line.strip() for line in plain.splitlines() if line.strip()), type(error).__name__)[:200]


def head_weights(folder: Path, state: StateDict) -> StateDict:
    """Return ``weight`` and ``bias`` of the head that was trained with [CLS].

    Looks for the ``training_head`` folder that `sentcli train` writes, then for the keys of published checkpoints.

    Raises:
        InputError: if the checkpoint has no head.
    """
    stored = folder / HEAD_FOLDER / "model.safetensors"
    if stored.exists():
        kept = load_weights(stored)
        if "dense.weight" not in kept:
            raise InputError(f"{folder}: its training head is not a dense layer and cannot encode: use --pooling cls")
        return {name: kept[f"dense.{name}"] for name in ("weight", "bias")}
    for stem in HEAD_KEYS:
        for key in state:
            if key.endswith(f"{stem}.weight"):
                prefix = key.removesuffix("weight")
                return {name: state[prefix + name] for name in ("weight", "bias")}
    raise InputError(f"{folder} has no trained head ({HEAD_FOLDER}/, {', '.join(HEAD_KEYS)}): use --pooling cls")


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

    Looks for the head that `sentcli train` kept, then for those that published checkpoints hold.
    """
    stored = folder / HEAD_FOLDER / "lm_head.safetensors"
    if stored.exists():
        return load_weights(stored)
    state = load_state_dict(folder) if has_weights(folder) else {}
    for dense, norm, decoder, bias in LM_HEADS:
        if f"{dense}.weight" not in state:
            continue
        names = {
            f"{ours}.{kind}": f"{theirs}.{kind}"
            for ours, theirs in (("dense", dense), ("norm", norm))
            for kind in ("weight", "bias")
        }
        names |= {"decoder.weight": f"{decoder}.weight", "bias": bias}
        return {ours: state[theirs] for ours, theirs in names.items() if theirs in state}
    return None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; one that has not changed since is not read again."""
    state = path.stat()
    return _digest(path.resolve(), state.st_size, state.st_mtime_ns, state.st_ino)


@cache
def _digest(path: Path, size: int, modified: int, inode: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
