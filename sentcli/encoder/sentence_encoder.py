"""`SentenceEncoder`, which turns texts into float32 vectors on any backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from sentcli import zoo
from sentcli.encoder import loading
from sentcli.errors import InputError, nearest
from sentcli.machine import environment
from sentcli.model import encoding
from sentcli.model.encoding import Backend, Encoded, EncodeStats, LoadedModel, OnLong, Progress
from sentcli.model.identity import EncoderIdentity, ModelSource
from sentcli.model.modules import NormalizeSpec, PoolingSpec
from sentcli.model.options import MIN_LENGTH, BackendName, LoadOptions
from sentcli.model.spec import EncoderSpec, ModelSpec
from sentcli.model.tokenizing import TextTokenizer, fit, has_stored_positions, position_limit

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray, Float32Array, Vectors
    from sentcli.model.served import RequestCounts, ServedBackend, ServedModel
    from sentcli.model.torch_model import TorchEncoder


class SentenceEncoder:
    """A sentence encoder, which turns texts into vectors on any backend."""

    model: str
    """The name or path that was given to `load`."""
    spec: EncoderSpec | ModelSpec
    """The description of the model, with the overrides of `load` applied."""
    backend: Backend | ServedBackend
    """What runs the model, and how."""

    def __init__(self, loaded: LoadedModel | ServedModel, identity: EncoderIdentity | None = None) -> None:
        self.loaded = loaded
        self._identity = identity
        self.model = loaded.name
        self.spec = loaded.spec
        self.backend = loaded.backend
        self._on_torch: SentenceEncoder | None = None

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
        make_export: bool = True,
        allow_cpu_fallback: bool = False,
        notice: Callable[[str], None] | None = None,
        edit: Callable[[EncoderSpec], EncoderSpec] | None = None,
        untrained: bool = False,
        pairs: bool = False,
    ) -> SentenceEncoder:
        """Load a model.

        Args:
            model: a sentence-transformers or plain transformers folder, an exported folder, a short name of the zoo, a
                hub id, which may end with ``@`` and a branch, tag or commit, or ``https://HOST/v1#NAME`` of a model
                that is served, to which all texts are sent.
            backend: ``torch``, ``onnx`` or ``openvino``; ``auto`` takes the fastest that gives the same vectors: on a
                CPU onnxruntime with the export beside the model or in the cache, elsewhere torch.
            precision: ``auto`` is fp32, or what an exported folder is in; ``int8`` on onnx and openvino, ``bf16`` and
                ``fp16`` where the hardware computes in them.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``; ``auto`` takes the first accelerator there is.
            pooling: a name of `POOLINGS`, instead of the model's own pooling.
            normalize: force L2 normalisation on or off.
            max_length: the maximum length in tokens, special ones included; longer texts are cut and counted.
            make_export: whether ``auto`` makes an export in the cache if there is none.
            allow_cpu_fallback: take the CPU if the device is not there, instead of raising an error.
            notice: called with notes for the user, for example when an export is made.
            edit: changes the description of the model; modules that it adds start from random weights (torch only).
            untrained: accept a folder with a configuration and a tokenizer but no weights, and start from random ones
                (torch only).
            pairs: take a cross-encoder, too; its texts are pairs as `pair_text` makes them, its vectors their scores.

        Raises:
            InputError: if there is no such model, its folder is damaged, or an option does not fit it.
            SentcliError: if the hub or a host cannot be reached, or an export differs from its model.
        """
        chosen: Any = {"backend": backend, "precision": precision, "device": device}  # LoadOptions checks them
        options = LoadOptions(pooling, normalize, max_length, **chosen, allow_cpu_fallback=allow_cpu_fallback)
        if edit is not None or untrained:
            options = replace(options, backend="torch")
        return cls.load_with(
            model, options, make_export=make_export, notice=notice, edit=edit, untrained=untrained, pairs=pairs
        )

    @classmethod
    def load_with(
        cls,
        model: str | Path,
        options: LoadOptions,
        *,
        make_export: bool = True,
        notice: Callable[[str], None] | None = None,
        edit: Callable[[EncoderSpec], EncoderSpec] | None = None,
        untrained: bool = False,
        pairs: bool = False,
    ) -> SentenceEncoder:
        """Load a model as `load` does, whose arguments these are; the first six are fields of the options."""
        name = str(model)
        served = zoo.served_model(name)
        if served is not None:
            from sentcli.model.served import ServedModel

            return cls(ServedModel.open(name, served, options))
        spec = loading.read_model(name, options, pairs=pairs)
        if edit is not None:
            spec = edit(spec)
        say = notice or (lambda message: None)
        return cls(loading.load_model(name, spec, options, say, make_export=make_export, untrained=untrained))

    def same_choices(self, options: LoadOptions) -> LoadOptions:
        """Return the options that this model was loaded with, so that another process takes the same backend."""
        if self.backend.name not in get_args(BackendName):
            return options  # NumPy, which a table of static embeddings runs on wherever torch is not asked for
        chosen: Any = {"backend": self.backend.name, "precision": self.backend.precision}
        return replace(options, **chosen)

    @property
    def sent(self) -> RequestCounts | None:
        """Counts of what a model that is served was sent; None for a model on this machine."""
        if isinstance(self.loaded, LoadedModel):
            return None
        return self.loaded.sent

    @property
    def local(self) -> LoadedModel:
        """The model in the memory of this machine, for what needs its tokenizer or weights.

        Raises:
            InputError: if it is served.
        """
        if isinstance(self.loaded, LoadedModel):
            return self.loaded
        raise self.loaded.served.lacks("way to do this")

    @property
    def tokenizer(self) -> TextTokenizer:
        """Turns texts into token ids, cut to the maximum length."""
        return self.local.tokenizer

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        return self.backend.dimension

    def on_torch(self) -> SentenceEncoder:
        """Return this encoder on torch: itself, or the same model loaded a second time.

        Raises:
            InputError: if the folder holds an export without the weights that it was made from.
        """
        if getattr(self.backend, "module", None) is not None:
            return self
        if self._on_torch is None:
            spec = self.local.spec
            options = LoadOptions(
                max_length=spec.max_length, backend="torch", precision="fp32", device=self.backend.device
            )
            self._on_torch = SentenceEncoder(loading.load_model(self.model, spec, options))
        return self._on_torch

    @property
    def torch_module(self) -> TorchEncoder:
        """The torch module that computes the vectors, for training and saving; see `on_torch`."""
        return self.on_torch().local.torch_module

    @property
    def hf_tokenizer(self) -> Any:
        """The tokenizer of transformers; see `on_torch`."""
        return self.on_torch().local.hf_tokenizer

    def encode(
        self,
        sentences: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_tokens: int | None = None,
        on_long: OnLong = "truncate",
        progress: Progress | bool | None = None,
    ) -> Vectors:
        """Return one vector a sentence, float32 ``[n, dim]``, in the given order.

        Args:
            sentences: the texts; each distinct text is encoded once. Of a table in memory (a frame of pandas or polars,
                a table of Arrow, a data set, a list of dicts) the column ``text`` is taken.
            prompt_name: the name of one of the model's prompts, such as ``query``; None takes its default prompt.
            prompt: a text in front of each sentence, instead of a named prompt.
            batch_tokens: the token budget of one forward pass.
            on_long: as for `encode_distinct`.
            progress: called after every batch; True shows a bar, in a terminal or a notebook.

        Raises:
            TypeError: if `sentences` is a single str, or holds anything but str.
            InputError: for an unknown prompt name, or a table without a column ``text``.
            SentcliError: if a vector is not finite.
        """
        vectors, _ = self.encode_counted(
            sentences,
            prompt_name=prompt_name,
            prompt=prompt,
            batch_tokens=batch_tokens,
            on_long=on_long,
            progress=progress,
        )
        return vectors

    def encode_counted(
        self,
        sentences: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_tokens: int | None = None,
        on_long: OnLong = "truncate",
        progress: Progress | bool | None = None,
    ) -> tuple[Vectors, EncodeStats]:
        """Encode like `encode`, and also return the counts of truncated texts, tokens and distinct texts."""
        from sentcli.io.in_memory import texts_of

        if isinstance(sentences, str):
            raise TypeError("encode takes a list of sentences: encode(['...'])")
        sentences = texts_of(sentences)
        for number, text in enumerate(sentences):
            if not isinstance(text, str):
                raise TypeError(f"encode takes strings, not {type(text).__name__} (number {number}, from 0)")
        unique, index = encoding.distinct(sentences)
        prefix = self.prompt_text(prompt_name, prompt)
        with _progress(progress, len(unique)) as callback:
            encoded = self.encode_distinct(
                unique, prefix, batch_tokens=batch_tokens, on_long=on_long, progress=callback
            )
        stats = EncodeStats(
            texts=len(sentences),
            distinct=len(unique),
            tokens=encoded.tokens,
            truncated=int(np.count_nonzero(encoded.excess_tokens)),
            tokens_lost=0 if on_long == "chunk-mean" else int(encoded.excess_tokens.sum()),
        )
        vectors = encoded.vectors
        if len(unique) < len(sentences):
            vectors = vectors[index]
        return vectors, stats

    def similarity(self, first: Sequence[str] | AnyArray, second: Sequence[str] | AnyArray) -> Float32Array:
        """Return the similarity of each of the first with each of the second, float32 ``[n, m]``.

        It is the one that the model's folder names: the cosine, or for some models the inner product.

        Args:
            first: texts, which are encoded without a named prompt, or vectors ``[n, dim]``; one vector ``[dim]`` is
                a row.
            second: texts or vectors ``[m, dim]``, or one vector.

        Raises:
            TypeError: as for `encode`.
            ValueError: if the vectors are of different dimensions, or no vectors.
            InputError: if the folder names a similarity that is not supported.
        """
        by_cosine = self.spec.similarity == "cosine"
        rows = self._compared_rows(first, by_cosine=by_cosine)
        columns = self._compared_rows(second, by_cosine=by_cosine)
        if rows.shape[1] != columns.shape[1]:
            both = f"{rows.shape[1]} and {columns.shape[1]}"
            raise ValueError(f"similarity takes vectors of one dimension, not of {both}")
        return np.asarray(rows @ columns.T, np.float32)

    def _compared_rows(self, texts_or_vectors: Sequence[str] | AnyArray, *, by_cosine: bool) -> Float32Array:
        """Return the vectors of one side of `similarity` ``[n, dim]``, divided by their lengths for the cosine."""
        if isinstance(texts_or_vectors, np.ndarray):
            vectors = np.atleast_2d(np.asarray(texts_or_vectors, np.float32))
        else:
            vectors = self.encode(texts_or_vectors)
        if vectors.ndim != 2:
            raise ValueError(f"similarity takes vectors [n, dim] or one vector [dim], not {list(vectors.shape)}")
        if not by_cosine:
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)

    def __repr__(self) -> str:
        """Return model, dimension and choices in one line."""
        facts = self.describe()
        unit = ", unit length" if facts["normalize"] else ""
        return (
            f"SentenceEncoder({self.model!r}: {self.dimension} dimensions, pooling {facts['pooling']}{unit}, at most "
            f"{facts['max_length']} tokens; {facts['backend']} on {self.backend.device}, {facts['precision']})"
        )

    def encode_distinct(
        self,
        texts: Sequence[str],
        prompt: str = "",
        *,
        batch_tokens: int | None = None,
        on_long: OnLong = "truncate",
        progress: Progress | None = None,
    ) -> Encoded:
        """Encode every text, and return the vectors with the number of tokens that each text has too many.

        Args:
            texts: the texts; a repeated text is encoded again.
            prompt: a text in front of each.
            batch_tokens: the token budget of one forward pass.
            on_long: what happens to a text beyond the maximum length: ``truncate`` cuts it, ``error`` raises an error,
                and ``chunk-mean`` encodes it in pieces and takes their mean, weighted by their numbers of tokens.
            progress: called after every batch.

        Raises:
            LongTextError: for a long text, with ``on_long="error"``.
            InputError: for a prompt with ``on_long="chunk-mean"``, because the pieces after the first would lack it.
            SentcliError: if a vector is not finite.
        """
        return self.loaded.encode(texts, prompt, batch_tokens=batch_tokens, on_long=on_long, progress=progress)

    def prompt_text(self, prompt_name: str | None = None, prompt: str | None = None) -> str:
        """Return the text in front of each sentence, which may be empty.

        Raises:
            InputError: for a prompt name that the model does not have.
        """
        if prompt is not None:
            return prompt
        if prompt_name is None:
            return self.spec.usual_prompt
        if prompt_name not in self.spec.prompts:
            names = ", ".join(self.spec.prompts) or "none"
            hint = nearest(prompt_name, list(self.spec.prompts))
            raise InputError(f"--prompt-name: {self.model} has no prompt {prompt_name!r}{hint}; it has: {names}")
        return self.spec.prompts[prompt_name]

    def role_prompt(self, role: str) -> str:
        """Return the model's prompt for the role ``query`` or ``document``; see `EncoderSpec.role_prompt`."""
        return self.spec.role_prompt(role)

    def with_max_length(self, tokens: int) -> SentenceEncoder:
        """Return an encoder over the same weights with another maximum length, for ``--query-length``.

        Raises:
            InputError: if the model has fewer positions, or no word fits between the special tokens.
        """
        from tokenizers import Tokenizer

        spec = self.local.spec
        positions = position_limit(spec, self.tokenizer.pad_id)
        if positions is not None and tokens > positions and has_stored_positions(spec):
            raise InputError(f"--query-length: {tokens} tokens are more than the {positions} positions of {self.model}")
        if tokens < MIN_LENGTH:
            raise InputError(
                f"--query-length {tokens} leaves no room between the special tokens; at least {MIN_LENGTH}"
            )
        copied = Tokenizer.from_str(self.tokenizer.backend.to_str())
        tokenizer = fit(copied, spec, self.tokenizer.pad_id, tokens)
        return SentenceEncoder(replace(self.local, spec=replace(spec, max_length=tokens), tokenizer=tokenizer))

    def with_normalize(self, normalize: bool) -> SentenceEncoder:
        """Return an encoder over the same weights with or without L2 normalisation at the end."""
        from sentcli.model.torch_model import BuiltModule

        spec = self.local.spec.with_normalize(normalize)
        stack: list[Any] = [built for built in self.torch_module.stack if built.spec in spec.modules]
        if normalize and not self.local.spec.normalizes:
            stack.append(BuiltModule(NormalizeSpec()))
        return self._with_stack(spec, stack)

    def with_dense(self, weight: Float32Array, bias: Float32Array) -> SentenceEncoder:
        """Return an encoder over the same weights that ends with ``weight x + bias``.

        Args:
            weight: ``[k, dim]``.
            bias: ``[k]``.
        """
        import torch

        from sentcli.model.modules import DenseSpec
        from sentcli.model.torch_model import BuiltModule

        out_features, in_features = weight.shape
        dense = DenseSpec(in_features, out_features, activation="torch.nn.modules.linear.Identity")
        module: Any = BuiltModule(dense)
        module.linear.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
        spec = replace(self.local.spec, modules=(*self.local.spec.modules, dense))
        return self._with_stack(spec, [*self.torch_module.stack, module])

    def with_word_weights(self, weights: Sequence[float]) -> SentenceEncoder:
        """Return an encoder over the same weights whose mean counts each token by a weight of its own.

        Args:
            weights: of each token, by its id ``[vocabulary]``.

        Raises:
            InputError: if the sentence vector is another than the mean of the transformer's token vectors.
        """
        from sentcli.model.modules import WordWeightsSpec
        from sentcli.model.torch_model import BuiltModule

        spec = self.local.spec
        if not spec.is_plain_mean:
            raise InputError(f"{self.model} pools by {spec.pooling}: weights of tokens are for the plain mean")
        word_weights = WordWeightsSpec.of_ids(weights, self.tokenizer.backend.get_vocab())
        stack: list[Any] = [BuiltModule(word_weights), *self.torch_module.stack]
        return self._with_stack(replace(spec, modules=(word_weights, *spec.modules)), stack)

    def in_template(self, template: str) -> SentenceEncoder:
        """Return an encoder over the same weights that puts each text into a template and pools its mask token.

        The template becomes part of the tokenizer, as its special tokens are, so that it is never cut.

        Args:
            template: for example ``This sentence : "[X]" means [MASK].``, where ``[MASK]`` stands for the model's mask
                token.

        Raises:
            InputError: if the template is none, or the model has no mask token.
        """
        from sentcli.model.modules import WordWeightsSpec
        from sentcli.model.torch_backend import text_tokenizer, tokenizer_in_template
        from sentcli.model.torch_model import BuiltModule

        local = self.on_torch().local
        hf_tokenizer = tokenizer_in_template(self.hf_tokenizer, template)
        tokenizer = text_tokenizer(hf_tokenizer, local.spec, local.spec.max_length)
        weights = WordWeightsSpec.of_token(hf_tokenizer.mask_token, tokenizer.backend.get_vocab())
        modules = (weights, PoolingSpec(("mean",)), *local.spec.ending)
        spec = replace(local.spec, modules=modules, assumed_pooling=False)
        placed = SentenceEncoder(replace(local, tokenizer=tokenizer, hf_tokenizer=hf_tokenizer))
        return placed._with_stack(spec, [BuiltModule(module) for module in spec.modules])

    def _with_stack(self, spec: EncoderSpec, stack: list[Any]) -> SentenceEncoder:
        from sentcli.model.torch_backend import TorchBackend
        from sentcli.model.torch_model import TorchEncoder

        running = self.on_torch().backend
        backend = TorchBackend.choose(
            LoadOptions(device=running.device, precision=running.precision)  # type: ignore[arg-type]
        )
        backend.attach(TorchEncoder(self.torch_module.backbone, stack).eval())
        return SentenceEncoder(replace(self.local, spec=spec, backend=backend, hf_tokenizer=self.hf_tokenizer))

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder that ``SentenceTransformer(folder)`` and `load` open with equal vectors.

        If sentence-transformers lacks one of the modules, the folder has an ONNX export of the model instead.

        Raises:
            InputError: if the folder exists and `overwrite` is false.
        """
        from sentcli.model.saving import save_model

        save_model(self.on_torch().local, Path(folder), loading.add_beside, overwrite=overwrite)

    def environment(self) -> dict[str, Any]:
        """Return `machine.environment` with the model's device, precision and commit."""
        revision = self.provenance().get("revision")
        return environment(self.backend.device, self.backend.precision, revision=revision)

    @property
    def identity(self) -> EncoderIdentity:
        """By what the encoder is known again; its files are looked at each time, for they may have changed."""
        if self._identity is not None:  # of the files from which another process has loaded it
            return self._identity
        if isinstance(self.loaded, LoadedModel):
            return EncoderIdentity.of(self.loaded.spec, self.loaded.tokenizer)
        return EncoderIdentity.of_served(self.loaded)

    def fingerprint(self) -> str:
        """Return a hash of what determines a vector: weights, tokenizer, modules and maximum length, not the prompt.

        An export has the fingerprint of the model that it was made from; its precision is in `describe`. Of a model
        that is served, only address, name and dimension are known.
        """
        return self.identity.fingerprint

    def provenance(self) -> dict[str, Any]:
        """Return by what protocols and manifests name the model: its commit on the hub, and the digest of its weights.

        Of a model that is served, neither is known.
        """
        if self._identity is None and isinstance(self.loaded, LoadedModel):
            # Without a fingerprint, for which a tokenizer is written out
            return ModelSource.of(self.loaded.spec).provenance
        return self.identity.provenance

    def describe(self) -> dict[str, Any]:
        """Return the choices that change vectors, for protocols and manifests."""
        return {
            "pooling": self.spec.pooling,
            "normalize": self.spec.normalizes,
            "max_length": self.spec.max_length,
            "backend": self.backend.name,
            "precision": self.backend.precision,
        }


def _progress(progress: Progress | bool | None, total: int) -> AbstractContextManager[Progress | None]:
    """Return what is called after every batch: for True a bar for so many texts, for which alone rich is imported."""
    if progress is True:
        from sentcli import console

        return console.encoding("encoding", total)
    return nullcontext(progress or None)
