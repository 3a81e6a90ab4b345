"""`SentenceEncoder`: texts in, float32 vectors out, whatever runs underneath."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli import zoo
from sentcli.encoder import batching
from sentcli.encoder.spec import DenseSpec, EncoderSpec, read_spec
from sentcli.encoder.tokenizing import TextTokenizer, Tokens, pad
from sentcli.errors import InputError, SentcliError, nearest

if TYPE_CHECKING:
    from sentcli.encoder.torch_model import TorchEncoder

Vectors = npt.NDArray[np.float32]
CHUNK = 2048
"""Texts that are tokenised together, while the model runs the chunk before."""


class Backend(Protocol):
    """What runs the model: a padded batch of token ids in, vectors out."""

    name: str
    device: str
    precision: str
    dimension: int
    default_batch_tokens: int

    def run(self, batch: dict[str, npt.NDArray[np.int64]], prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for ``input_ids`` and ``attention_mask`` ``[B, T]``."""


@dataclass(frozen=True)
class EncodeStats:
    """What was encoded. Texts are counted as given, tokens as the model saw them (each distinct text once)."""

    texts: int = 0
    distinct: int = 0
    tokens: int = 0
    truncated: int = 0
    """Distinct texts longer than the maximum length."""
    tokens_lost: int = 0
    """Tokens cut off from them."""

    def __add__(self, other: EncodeStats) -> EncodeStats:
        return EncodeStats(
            self.texts + other.texts,
            self.distinct + other.distinct,
            self.tokens + other.tokens,
            self.truncated + other.truncated,
            self.tokens_lost + other.tokens_lost,
        )


Progress = Callable[[EncodeStats], None]
"""Called after every batch with what that batch added (`texts` counts the distinct ones)."""


class SentenceEncoder:
    """A sentence encoder, loaded.

    Attributes:
        spec: what the model folder says, with the overrides of `load` applied.
        model: the name or path that was given.
    """

    def __init__(
        self,
        spec: EncoderSpec,
        tokenizer: TextTokenizer,
        backend: Backend,
        *,
        model: str,
        hf_tokenizer: Any = None,
    ) -> None:
        self.spec, self.tokenizer, self.backend, self.model = spec, tokenizer, backend, model
        self.hf_tokenizer = hf_tokenizer

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        backend: str = "auto",
        precision: str = "auto",
        device: str = "auto",
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        edit: Callable[[EncoderSpec], EncoderSpec] | None = None,
        untrained: bool = False,
    ) -> SentenceEncoder:
        """Load a model.

        Args:
            model: a sentence-transformers or plain transformers folder, a short name of the zoo, or a hub id.
            backend: ``auto`` or ``torch``.
            precision: ``fp32`` (which ``auto`` takes), or ``bf16`` or ``fp16`` where the hardware computes in it.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; ``auto`` takes the first accelerator there is.
            pooling: a name of `POOLINGS` instead of what the model says.
            normalize: force L2 normalisation on or off.
            max_length: tokens, special ones included; longer texts are cut and counted.
            edit: changes what the folder says; modules that it adds start with random weights.
            untrained: accept a folder with a configuration and a tokenizer but no weights, and start at random.

        Raises:
            InputError: no such model, a broken folder, an option that does not fit.
            SentcliError: a hub that cannot be reached.
        """
        if backend not in ("auto", "torch"):
            raise InputError(f"unknown backend {backend!r}; one of: auto, torch")
        from sentcli.encoder import torch_backend, torch_model

        torch_backend.quiet_transformers()
        folder, entry = zoo.resolve(str(model))
        spec = read_spec(folder)
        if entry is not None and spec.assumed_pooling:
            spec = spec.with_pooling(entry.pooling).with_normalize(entry.normalize)
            spec = replace(spec, max_length=spec.max_length or entry.max_length)
        if entry is not None and entry.prompts and not spec.prompts:
            spec = replace(spec, prompts=dict(entry.prompts))
        if pooling is not None:
            spec = spec.with_pooling(pooling)
        if normalize is not None:
            spec = spec.with_normalize(normalize)
        if edit is not None:
            spec = edit(spec)
        runner = torch_backend.TorchBackend.choose(device, precision)
        hf_tokenizer = torch_backend.load_tokenizer(spec.folder)
        tokenizer, limit = torch_backend.text_tokenizer(hf_tokenizer, spec, max_length)
        runner.attach(torch_model.build(spec, untrained=untrained))
        return cls(replace(spec, max_length=limit), tokenizer, runner, model=str(model), hf_tokenizer=hf_tokenizer)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.backend.dimension

    @property
    def torch_module(self) -> TorchEncoder:
        """The torch module behind the vectors (training, saving).

        Raises:
            InputError: if the backend is another one.
        """
        module = getattr(self.backend, "module", None)
        if module is None:
            raise InputError(f"this needs the torch backend, the model runs on {self.backend.name}")
        return module  # type: ignore[no-any-return]

    def encode(
        self,
        sentences: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> Vectors:
        """Return one vector a sentence, float32 ``[n, dim]``, in the given order.

        Args:
            sentences: texts; each distinct one is encoded once.
            prompt_name: a key of the model's prompts (``query``, ``document``); none by default.
            prompt: a text put in front of each sentence, instead of a named prompt.
            batch_tokens: token budget of one forward pass.
            progress: called after every batch.

        Raises:
            TypeError: if `sentences` is a single str, or holds something else than str.
            InputError: for an unknown prompt name.
            SentcliError: if a vector is not finite.
        """
        return self.encode_counted(
            sentences, prompt_name=prompt_name, prompt=prompt, batch_tokens=batch_tokens, progress=progress
        )[0]

    def encode_counted(
        self,
        sentences: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_tokens: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[Vectors, EncodeStats]:
        """Encode as `encode`, and also return the counts (truncated texts, tokens, distinct texts)."""
        if isinstance(sentences, str):
            raise TypeError("encode takes a list of sentences: encode(['...'])")
        for text in sentences:
            if not isinstance(text, str):
                raise TypeError(f"encode takes strings, not {type(text).__name__}")
        prefix = self.prompt_text(prompt_name, prompt)
        prompt_length = self.tokenizer.prompt_length(prefix) if prefix else 0
        budget = batch_tokens or self.backend.default_batch_tokens
        unique, twin = batching.distinct(sentences)
        vectors = np.empty((len(unique), self.dimension), np.float32)
        stats = EncodeStats(texts=len(sentences), distinct=len(unique))
        order = batching.longest_first(np.fromiter(map(len, unique), np.int64, len(unique)))
        for rows, tokens in self._tokenized([unique[i] for i in order], prefix):
            lengths = tokens.lengths
            stats += EncodeStats(tokens=int(lengths.sum()), truncated=tokens.truncated, tokens_lost=tokens.lost)
            for batch in batching.pack(lengths, budget):
                padded = pad(tokens, batch, self.tokenizer.pad_id)
                vectors[order[rows.start + batch]] = self.backend.run(padded, prompt_length)
                if progress is not None:
                    progress(EncodeStats(texts=len(batch), tokens=int(lengths[batch].sum())))
        broken = int((~np.isfinite(vectors).all(axis=1)).sum())
        if broken:
            raise SentcliError(
                f"{broken} of {len(unique)} vectors are not finite: broken weights, or an overflow in "
                f"{self.backend.precision}"
            )
        return (vectors if len(unique) == len(sentences) else vectors[twin]), stats

    def prompt_text(self, prompt_name: str | None = None, prompt: str | None = None) -> str:
        """Return the text that goes in front of each sentence, perhaps empty.

        Raises:
            InputError: for a prompt name that the model does not have.
        """
        if prompt is not None:
            return prompt
        name = prompt_name if prompt_name is not None else self.spec.default_prompt
        if name is None:
            return ""
        if name not in self.spec.prompts:
            known = ", ".join(self.spec.prompts) or "none"
            if prompt_name is None:
                return ""
            raise InputError(
                f"{self.model} has no prompt {name!r}{nearest(name, list(self.spec.prompts))}; it has: {known}"
            )
        return self.spec.prompts[name]

    def role_prompt(self, role: str) -> str:
        """Return the model's own prompt for ``query`` or ``document`` (also called passage or corpus), or ``""``."""
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        return next((self.spec.prompts[name] for name in names if name in self.spec.prompts), self.prompt_text())

    def _tokenized(self, texts: list[str], prefix: str) -> Iterator[tuple[slice, Tokens]]:
        """Tokenise chunk by chunk, one chunk ahead of the caller."""
        slices = [slice(start, start + CHUNK) for start in range(0, len(texts), CHUNK)]
        with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as pool:
            ahead = [pool.submit(self.tokenizer, texts[rows], prefix) for rows in slices[:1]]
            for i, rows in enumerate(slices):
                tokens = ahead.pop().result()
                if i + 1 < len(slices):
                    ahead.append(pool.submit(self.tokenizer, texts[slices[i + 1]], prefix))
                yield rows, tokens

    def with_normalize(self, normalize: bool) -> SentenceEncoder:
        """Return an encoder over the same weights with or without L2 normalisation at the end."""
        from sentcli.encoder.torch_model import Normalize

        kept = [module for module in self.torch_module.stack if not isinstance(module, Normalize)]
        return self._with_stack(self.spec.with_normalize(normalize), [*kept, *([Normalize()] if normalize else [])])

    def with_dense(self, weight: npt.NDArray[np.float32], bias: npt.NDArray[np.float32]) -> SentenceEncoder:
        """Return an encoder over the same weights that ends with ``weight x + bias``.

        Args:
            weight: ``[k, dim]``.
            bias: ``[k]``.
        """
        import torch

        from sentcli.encoder.torch_model import Dense

        part = DenseSpec(weight.shape[1], weight.shape[0], activation="torch.nn.modules.linear.Identity")
        module = Dense(part)
        module.linear.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
        spec = replace(self.spec, modules=(*self.spec.modules, part))
        return self._with_stack(spec, [*self.torch_module.stack, module])

    def _with_stack(self, spec: EncoderSpec, stack: list[Any]) -> SentenceEncoder:
        from sentcli.encoder.torch_backend import TorchBackend
        from sentcli.encoder.torch_model import TorchEncoder

        runner = TorchBackend.choose(self.backend.device, self.backend.precision)
        runner.attach(TorchEncoder(self.torch_module.backbone, stack).eval())
        return SentenceEncoder(spec, self.tokenizer, runner, model=self.model, hf_tokenizer=self.hf_tokenizer)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder that ``SentenceTransformer(folder)`` and `load` open with equal vectors.

        Raises:
            InputError: if the folder exists and `overwrite` is false.
        """
        from sentcli.encoder.saving import save_encoder

        save_encoder(self, Path(folder), overwrite=overwrite)

    def fingerprint(self) -> str:
        """Return a hash of what turns a text into a vector: weights, tokenizer, modules, length (not the prompt)."""
        from sentcli.encoder.checkpoint import file_digest, has_weights, weight_files

        digest = hashlib.sha256()
        trained = has_weights(self.spec.folder)
        for path in weight_files(self.spec.folder) if trained else [self.spec.folder / "config.json"]:
            digest.update(file_digest(path).encode())
        digest.update(self.tokenizer.backend.to_str().encode())
        for module in self.spec.modules:
            described = {key: value for key, value in vars(module).items() if key != "folder"}
            digest.update(f"{type(module).__name__} {described}".encode())
            if (folder := getattr(module, "folder", None)) is not None:
                for path in weight_files(folder):
                    digest.update(file_digest(path).encode())
        digest.update(repr((self.spec.max_length, self.spec.lowercase)).encode())
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the choices that move a number, for protocols and manifests."""
        return {
            "pooling": self.spec.pooling,
            "normalize": self.spec.normalizes,
            "max_length": self.spec.max_length,
            "backend": self.backend.name,
            "precision": self.backend.precision,
        }
