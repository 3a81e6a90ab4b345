"""Find and read weight files, safetensors or `.bin` files of older checkpoints (weights only); write safetensors.

A name in the settings of a model that leads out of its folder is refused, of weights and of other files (`inside`).
"""

from __future__ import annotations

import os
import pickle
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen

from sentcli.errors import InputError, SentcliError, interruption, lacks_memory, library_errors, of_memory
from sentcli.io.atomic import regular, replacing
from sentcli.io.forms import read_json_form
from sentcli.io.typed import ValueCheck

if TYPE_CHECKING:
    import torch

    from sentcli.arrays import AnyArray

    StateDict = dict[str, torch.Tensor]

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
WEIGHT_FILES = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
]


def inside(path: str) -> str:
    """Refuse the path of a module that leaves the folder of its model."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError("a module has to be inside the folder of the model")
    return path


def _beside(name: str) -> str:
    """Refuse the name of a file in another folder."""
    if not re.fullmatch(r"[^/\\]{1,255}", name):
        raise ValueError(f"{name!r:.60} is no name of a file beside it")
    return name


@dataclass(frozen=True)
class WeightIndex:
    """The part of the index of weights in several files that is read."""

    weight_map: Annotated[dict[str, Annotated[str, ValueCheck(_beside)]], MinLen(1)]
    """The name of the file of each tensor."""


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a folder.

    Raises:
        InputError: if the folder has none, or their index is damaged.
    """
    for name in WEIGHT_FILES:
        path = folder / name
        if not path.exists():
            continue
        if path.suffix != ".json":
            return [path]
        index = read_json_form(WeightIndex, path, missing=f"{path} is missing", remedy="fetch the model again")
        return [folder / shard for shard in sorted(set(index.weight_map.values()))]
    raise InputError(f"{folder} holds no weights: looked for {', '.join(WEIGHT_FILES)}{_instead(folder)}")


SERVE_IT = "run it in a server, such as llama.cpp's or Ollama, and name that: -m http://HOST/v1#NAME"
"""The advice for a model in gguf."""


def _instead(folder: Path) -> str:
    """Return what a folder has in place of weights, and what to do with it."""
    gguf = next(folder.glob("*.gguf"), None)
    if gguf is not None:
        return f"; it has {gguf.name}: {SERVE_IT}"
    graphs = sorted(path.name for path in (*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx")))
    if graphs:
        return (
            f"; of its graphs ({', '.join(graphs[:3])}), those in fp32, fp16 and int8 run with --backend onnx, and "
            "none is trained, exported or saved: name the model that they were made of"
        )
    return ""


def has_weights(folder: Path) -> bool:
    """Tell whether a folder holds weights, complete or not."""
    return any((folder / name).exists() for name in WEIGHT_FILES)


def read_tensors(path: Path) -> dict[str, AnyArray]:
    """Read a small safetensors file without torch.

    Raises:
        InputError: if the file is missing or damaged, or holds numbers of a type that NumPy does not have.
    """
    from safetensors.numpy import load_file

    try:
        with library_errors(lambda why: InputError(f"{path} is damaged: {why}"), FileNotFoundError):
            regular(path)
            return load_file(path)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing") from error


def load_state_dict(folder: Path) -> StateDict:
    """Read all weights of a folder.

    Raises:
        InputError: if a file is missing or damaged, or holds more than tensors.
    """
    state: StateDict = {}
    for path in weight_files(folder):
        state.update(load_weights(path))
    return state


def tensor_names(folder: Path) -> set[str]:
    """Return the names of all weights of a folder; see `names_in`."""
    return set().union(*map(names_in, weight_files(folder)))


def names_in(path: Path) -> set[str]:
    """Return the names of the weights in a file; of a safetensors file without reading the weights."""
    from safetensors import safe_open

    if path.suffix != ".safetensors":
        return set(load_weights(path))
    with library_errors(lambda why: InputError(f"{path} is damaged: {why}")):
        regular(path)
        with safe_open(path, "numpy") as file:
            return set(file.keys())


def load_weights(path: Path) -> StateDict:
    """Read one weight file.

    Raises:
        InputError: if the file is missing or damaged, or holds more than tensors.
    """
    import torch
    from safetensors.torch import load_file

    plain = path.suffix == ".safetensors"
    try:
        regular(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch says before it refuses a file that is no archive of its own
            loaded: Any = load_file(path) if plain else torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing") from error
    except pickle.UnpicklingError as error:
        # torch's own message would advise to load it all the same
        problem = "holds more than tensors, or is no file of torch, and was not loaded: such a file may run code"
        raise InputError(f"{path} {problem}. Take the model as safetensors") from error
    except InputError:
        raise
    except Exception as error:  # torch's reader raises whatever the bytes lead it to
        if signalled := interruption(error):
            raise signalled from None
        if lacks_memory(error):
            raise of_memory(f"reading {path}", error) from error
        advice = "" if plain else " (it was not loaded)"
        raise InputError(f"{path} is damaged: {_first_line(error)}{advice}") from error
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise InputError(f"{path} is not a plain state dict of tensors")
    return loaded


def _first_line(error: Exception) -> str:
    """Return the first line of a message, without the colours of a terminal; the name of the error if there is none."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip() or type(error).__name__
    return message.splitlines()[0].rstrip()[:200]


def save_weights(module: torch.nn.Module, path: Path) -> None:
    """Write a module's weights as safetensors in float32, with each tied tensor once."""
    save_state(distinct_tensors(module), path)


def save_state(state: StateDict, path: Path) -> None:
    """Write weights as safetensors in float32; no two of them may share memory."""
    from safetensors import SafetensorError

    tensors = {name: _float32(tensor) for name, tensor in state.items()}
    try:
        write_tensors(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise SentcliError(f"cannot write {path}: {error}") from error


def write_tensors(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file whole or not at all.

    Raises:
        SafetensorError: if the file cannot be written; also OSError.
    """
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata=metadata)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # safetensors makes its files private


def distinct_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the state of a module with each tied tensor once, under its first name."""
    distinct: dict[tuple[int, tuple[int, ...]], tuple[str, torch.Tensor]] = {}
    for name, tensor in module.state_dict().items():
        distinct.setdefault((tensor.data_ptr(), tuple(tensor.shape)), (name, tensor))
    return dict(distinct.values())


def _float32(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()
    return tensor.contiguous().clone()
