"""Run a model with torch: choose device and precision, and load the weights and the tokenizer of a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer

from sentcli.arrays import Vectors
from sentcli.devices import choose_device, device_errors, why_no_cuda
from sentcli.errors import DeviceMemoryError, InputError, SentcliError, broken_library, one_line
from sentcli.io.atomic import regular
from sentcli.machine import accelerator_in_sight
from sentcli.model import attention, building, flat_attention
from sentcli.model.ahead import PendingCopy, queued_to, runs_ahead
from sentcli.model.encoding import Backend, Batch, Batches, LoadedModel, Notice, PendingVectors, size_of
from sentcli.model.flat import Flat, padded_alone
from sentcli.model.flat_attention import FlatInputs, Kernel
from sentcli.model.options import LoadOptions
from sentcli.model.padding import try_padding
from sentcli.model.tokenizing import MASK, SLOT, TextTokenizer, check_template, fit, plain_tokenizer, put_into_template
from sentcli.precision import PRECISIONS, check_precision
from sentcli.waiting import drop_lost_threads, forked

if TYPE_CHECKING:
    from sentcli.model.spec import EncoderSpec
    from sentcli.model.torch_model import TorchEncoder


def quiet_transformers() -> None:
    """Silence the progress bars and notices of transformers; errors still raise exceptions."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


_GPU_BATCH_TOKENS = {"fp32": 32_768, "bf16": 65_536, "fp16": 65_536}
"""The tokens of a batch on an accelerator. In half precision twice as many take the same memory."""
UNDER_WAY = 4
"""How many batches are given to a GPU before the vectors of the first one are waited for."""


class TorchBackend(Backend):
    """A `Backend` over `TorchEncoder`.

    On CUDA a batch is begun and not waited for: its arrays are copied from pinned memory, and its vectors into pinned
    memory, while the batches before it are computed.
    """

    name = "torch"

    def __init__(self, device: torch.device, precision: str) -> None:
        self.torch_device = device
        self.device = str(device)
        self.precision = precision
        self.process = os.getpid()
        # 1,024 tokens keep the activations of a small encoder in a CPU's cache; a GPU needs large batches
        self.default_batch_tokens = 1024 if device.type == "cpu" else _GPU_BATCH_TOKENS[precision]
        self.streams = UNDER_WAY if runs_ahead(device) else 1
        self.dimension = 0
        self.batches: Batches = "padded"
        self.kernel: Kernel | None = None
        """Computes the attention of flat batches; None for a model that runs padded ones."""
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
        fell_to_cpu = options.device == "auto" and device.type == "cpu"
        if fell_to_cpu and accelerator_in_sight() and sys.platform == "linux":
            notice(f"running on the CPU, although there is a GPU: {why_no_cuda()}")
        # auto gives the same vectors on every machine, so half precision has to be chosen
        precision = "fp32" if options.precision == "auto" else options.precision
        check_precision(device, precision)
        return cls(device, precision)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Belong to the process that has unpickled it."""
        vars(self).update(state, process=os.getpid())

    def attach(self, module: TorchEncoder, notice: Notice = lambda message: None) -> None:
        """Move the model to the device and the precision of the backend, and try which batches it may run.

        Args:
            module: the model.
            notice: called if a model of a family that runs flat batches does not pass the trial.
        """
        with self._memory(0, 0):
            self.module = module.to_precision(self.torch_device, PRECISIONS[self.precision])
        kind = getattr(module.backbone.config, "model_type", "")
        if runs_ahead(self.torch_device):
            attention.install(module.backbone)  # whose masks are not waited for
        self.dimension, self.batches = try_padding(self.run, kind, self.precision)
        kernel = flat_attention.choose_kernel(self.torch_device, self.precision)
        if kernel is None or self.batches != "padded" or kind not in flat_attention.FLAT_FAMILIES:
            return
        problem = self._try_flat(kernel)
        if problem:
            notice(f"batches are padded, which takes longer: {problem}")
        else:
            self.batches = "flat"

    def _try_flat(self, kernel: Kernel) -> str:
        """Compare vectors of a flat batch with those of single texts; keep the kernel if they agree.

        Returns:
            What is wrong, or an empty string.
        """
        backbone: Any = self.module.backbone
        if not attention.install(backbone) or "position_ids" not in signature(backbone.forward).parameters:
            return f"transformers' {backbone.config.model_type} does not take flat batches"
        flat, alone = flat_attention.trial(backbone.config, getattr(backbone.config, "pad_token_id", None))
        self.kernel = kernel
        try:
            vectors = self.start(flat, 0)()[[0, -1]]
            expected = np.concatenate([self.run(padded_alone(text), 0) for text in alone])
        except (DeviceMemoryError, RuntimeError, TypeError, ValueError) as error:  # of a kernel, a release, a small GPU
            self.kernel = None
            return f"the trial without padding failed: {one_line(error)}"
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        cosines = np.einsum("nd,nd->n", vectors, expected) / np.maximum(lengths, 1e-12)
        least = 1 - flat_attention.DRIFT[self.precision]
        if (cosines >= least).all():
            return ""
        self.kernel = None
        return f"without padding, vectors have a cosine of {cosines.min():.5f} to those of single texts"

    def run(self, batch: Batch, prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for a padded or a flat batch.

        Raises:
            SentcliError: in a forked process, if it does not run on the CPU; if the device fails.
            DeviceMemoryError: if the device has too little memory.
        """
        return self.start(batch, prompt_length)()

    def start(self, batch: Batch, prompt_length: int) -> PendingVectors:
        """Begin a padded or a flat batch; see `Backend.start`, and `run` for what it raises."""
        drop_lost_threads()
        if self.torch_device.type != "cpu" and self.process != os.getpid():
            raise forked(f"torch on {self.device}")
        texts, tokens = size_of(batch)
        with torch.inference_mode(), self._memory(texts, tokens):
            vectors = PendingCopy(self._compute(batch, prompt_length).float())

        def wait() -> Vectors:
            with self._memory(texts, tokens):
                return vectors.read().numpy()

        return wait

    def _compute(self, batch: Batch, prompt_length: int) -> torch.Tensor:
        """Return the vectors of a batch ``[B, dim]`` on the device."""
        if isinstance(batch, Flat):
            assert self.kernel is not None
            inputs = FlatInputs.on(self.torch_device, batch, self.kernel)
            return self.module.of_flat(inputs, prompt_length)
        is_full = bool(batch["attention_mask"].all())
        tensors = {name: queued_to(torch.from_numpy(array), self.torch_device) for name, array in batch.items()}
        return self.module(tensors, prompt_length, is_full=is_full)

    @contextmanager
    def _memory(self, texts: int, tokens: int) -> Iterator[None]:
        """Name a batch and the memory of the device where it has too little, and a device that fails.

        Args:
            texts: the number of texts of the batch; 0 for the weights of the model.
            tokens: the number of its tokens, with padding.
        """
        if self.torch_device.type == "cpu":
            yield
            return
        what = f"a batch of {texts:,} texts with {tokens:,} tokens" if texts else "the weights of the model"
        with device_errors(self.torch_device, what):
            yield


def load_torch(
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
    module = building.build_encoder(spec, notice, untrained=untrained)
    try:
        backend.attach(module, notice)
    except SentcliError:
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
    text_before, text_after = template.replace(MASK, hf_tokenizer.mask_token).split(SLOT)
    before = backend.encode(text_before, add_special_tokens=False).ids
    after = backend.encode(text_after, add_special_tokens=False).ids
    if hf_tokenizer.cls_token_id is not None:
        before = [hf_tokenizer.cls_token_id, *before]
    if hf_tokenizer.sep_token_id is not None:
        after = [*after, hf_tokenizer.sep_token_id]
    put_into_template(backend, before, after)
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
