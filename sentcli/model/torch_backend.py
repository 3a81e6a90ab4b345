"""Run a model with torch: choose device and precision, and load the weights and the tokenizer of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from sentcli.errors import InputError, broken_library, one_line
from sentcli.io.atomic import regular
from sentcli.model import torch_model
from sentcli.model.encoding import Batches, LoadedModel
from sentcli.model.forking import forked, heal
from sentcli.model.options import LoadOptions
from sentcli.model.padding import try_padding
from sentcli.model.tokenizing import MASK, SLOT, TextTokenizer, check_template, fit, plain_tokenizer, put_into_template
from sentcli.precision import PRECISIONS, check_precision

if TYPE_CHECKING:
    from sentcli.model.spec import EncoderSpec
    from sentcli.model.torch_model import TorchEncoder

Notice = Callable[[str], None]


def quiet_transformers() -> None:
    """Silence the progress bars and notices of transformers; errors still raise exceptions."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def choose_device(device: str) -> torch.device:
    """Return the torch device of a name; ``auto`` takes CUDA, else Apple's GPU, else the CPU.

    Raises:
        InputError: if this machine does not have the device; there is no silent fallback to the CPU.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        torch_device = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"unknown device {device!r}; for example auto, cpu, cuda, cuda:1, mps") from error
    if torch_device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (torch_device.index or 0) >= count:
            raise InputError(f"device {device!r} is not there: torch {torch.__version__} sees {count} CUDA devices")
    elif torch_device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device 'mps' is not there")
    elif torch_device.type not in ("cpu", "mps"):
        raise InputError(f"device {device!r} is not supported; cpu, cuda or mps")
    return torch_device


class TorchBackend:
    """A `Backend` over `TorchEncoder`."""

    name = "torch"
    streams = 1

    def __init__(self, device: torch.device, precision: str) -> None:
        self.torch_device, self.device, self.precision = device, str(device), precision
        self.process = os.getpid()
        # 1,024 tokens keep the activations of a small encoder in a CPU's cache; a GPU needs large batches
        self.default_batch_tokens = 1024 if device.type == "cpu" else 32768
        self.dimension = 0
        self.batches: Batches = "padded"
        self.module: TorchEncoder

    @classmethod
    def choose(cls, options: LoadOptions, notice: Notice = lambda message: None) -> TorchBackend:
        """Make the backend for the device and the precision of the options."""
        try:
            device = choose_device(options.device)
        except InputError as error:
            if not options.allow_cpu_fallback:
                raise
            device = torch.device("cpu")
            notice(f"running on the CPU: {error}")
        # auto gives the same vectors on every machine, so half precision has to be chosen
        precision = "fp32" if options.precision == "auto" else options.precision
        check_precision(device, precision)
        return cls(device, precision)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Belong to the process that has unpickled it."""
        vars(self).update(state, process=os.getpid())

    def attach(self, module: TorchEncoder) -> None:
        """Move the model to the device and the precision of the backend."""
        self.module = module.to(self.torch_device, PRECISIONS[self.precision])
        kind = getattr(module.backbone.config, "model_type", "")
        self.dimension, self.batches = try_padding(self.run, kind, self.precision)

    def run(self, batch: dict[str, npt.NDArray[np.int64]], prompt_length: int) -> npt.NDArray[np.float32]:
        """Return ``[B, dim]`` for a padded batch.

        Raises:
            SentcliError: in a forked process, if it does not run on the CPU.
        """
        heal()
        if self.torch_device.type != "cpu" and self.process != os.getpid():
            raise forked(f"torch on {self.device}")
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array).to(self.torch_device) for name, array in batch.items()}
            vectors: npt.NDArray[np.float32] = self.module(tensors, prompt_length).float().cpu().numpy()
        return vectors


def load(
    name: str,
    spec: EncoderSpec,
    options: LoadOptions,
    notice: Notice = lambda message: None,
    *,
    untrained: bool = False,
) -> LoadedModel:
    """Load a model with torch and transformers.

    Args:
        name: the name that the user gave for the model.
        spec: the description of the model.
        options: device, precision and maximum length.
        notice: called with notes for the user.
        untrained: start from random weights if the folder has none, instead of raising an error.
    """
    quiet_transformers()
    backend = TorchBackend.choose(options, notice)
    hf_tokenizer = static_tokenizer(spec.folder) if spec.is_static else load_tokenizer(spec.tokenizer_folder)
    tokenizer = text_tokenizer(hf_tokenizer, spec, options.max_length)
    module = torch_model.build(spec, notice, untrained=untrained)
    try:
        backend.attach(module)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of torch or transformers, for settings that passed when it was built
        if broken := broken_library(error):
            raise broken from error
        raise InputError(f"{spec.folder}: the model of its config.json does not run: {one_line(error)}") from error
    return LoadedModel(name, replace(spec, max_length=tokenizer.max_length), tokenizer, backend, hf_tokenizer)


def load_tokenizer(folder: Path) -> Any:
    """Load the transformers tokenizer of a folder."""
    from transformers import AutoTokenizer

    names = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
    if not any((folder / name).exists() for name in names):
        raise InputError(f"{folder} holds no tokenizer: looked for {', '.join(names)}")
    try:
        for path in (*folder.glob("*token*.json"), *filter(Path.exists, map(folder.joinpath, names))):
            regular(path)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare Exception for a damaged file
        if broken := broken_library(error):
            raise broken from error
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: the tokenizer cannot be loaded: {reason}") from error
    if not tokenizer.is_fast:
        raise InputError(f"{folder}: its tokenizer has no fast version (tokenizer.json)")
    return tokenizer


def static_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a table of token vectors, which adds no special tokens."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=plain_tokenizer(folder))  # type: ignore[no-untyped-call]


def tokenizer_in_template(hf_tokenizer: Any, template: str) -> Any:
    """Return a tokenizer of transformers that puts each text into a template, between the special tokens.

    It replaces a template that the tokenizer has. Its class is the general one, because those of the architectures
    make their own special tokens anew when they are loaded.

    Raises:
        InputError: if the template is none, or there is no mask token.
    """
    from transformers import PreTrainedTokenizerFast

    check_template(template)
    if hf_tokenizer.mask_token is None:
        raise InputError(f"template {template!r}: the tokenizer has no mask token")
    backend = Tokenizer.from_str(hf_tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    parts = template.replace(MASK, hf_tokenizer.mask_token).split(SLOT)
    before, after = (backend.encode(part, add_special_tokens=False).ids for part in parts)
    opening, closing = (
        [token for token in (number,) if token is not None]
        for number in (hf_tokenizer.cls_token_id, hf_tokenizer.sep_token_id)
    )
    put_into_template(backend, [*opening, *before], [*after, *closing])
    named = {name: getattr(hf_tokenizer, name) for name in ("model_max_length", "model_input_names")}
    general: Any = PreTrainedTokenizerFast
    return general(tokenizer_object=backend, **hf_tokenizer.special_tokens_map, **named)


def text_tokenizer(hf_tokenizer: Any, spec: EncoderSpec, max_length: int | None) -> TextTokenizer:
    """Wrap the fast tokenizer of transformers; see `tokenizing.fit`."""
    copied = Tokenizer.from_str(hf_tokenizer.backend_tokenizer.to_str())  # a copy, because its truncation is changed
    tokenizer = fit(copied, spec, hf_tokenizer.pad_token_id, max_length)
    # transformers gives a model the types only if its tokenizer names them
    tokenizer.has_type_ids &= "token_type_ids" in hf_tokenizer.model_input_names
    return tokenizer
