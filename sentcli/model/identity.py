"""The one answer to whether two models are the same: what a model's vectors depend on, as digests.

* `ModelSource`: the weights and the configuration that a model was loaded from; of an export, those of its model.
* `EncoderIdentity`: the fingerprint of a loaded encoder, which manifests and protocols keep.
* `model_digest`: what a graph computes; an export keeps it, and its folder is compared with it.
* `encoder_digest`: everything in a folder that decides vectors; it is the key of an export in the cache.
* `cache_key`: the same with options, versions and processor; it is the key of cached scores and vectors.

A folder is described by `EncoderSpec`, and every field of it that decides a vector is in `encoder_digest`. What is left
out there is listed in `NOT_IN_DIGEST`, with the reason; a test goes through the fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sentcli import machine
from sentcli.io.digests import file_digest, json_digest, known_digest
from sentcli.io.graph_files import named_graphs
from sentcli.io.weights import ADAPTER, ADAPTER_WEIGHTS, has_weights, weight_files
from sentcli.model.exported import Export, exports_in, foreign_graphs, graph_files
from sentcli.model.folder_keys import CONFIG, KEYS
from sentcli.model.modules import ModuleSpec
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec
from sentcli.model.spec_files import read_spec
from sentcli.model.tokenizing import TextTokenizer

if TYPE_CHECKING:
    from sentcli.model.served import ServedModel

NOT_IN_DIGEST = {
    "folder": "its files are digested, wherever they lie",
    "adapter": "its files are digested, wherever they lie",
    "config": "what of it decides vectors is digested",
    "modules": "each has an identity of its own",
    "assumed_pooling": "the modules say what was assumed",
    "stated_similarity": "it compares vectors and does not change them",
    "unknown_keys": "nothing reads them",
    "has_code": "it is never run",
}
"""The fields of `EncoderSpec` that `encoder_digest` does not take as they are."""
NUMBERS = 4
"""Counts the changes of sentcli that moved vectors or scores, or how they are kept.

It is a part of the keys of what is kept of both, so that what was kept before such a change is made again. Modules that
compute either are listed in tests/numbers.json, and `make check` fails when one of them changes and the list does not.
"""
TOKENIZER_FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json",
    "special_tokens_map.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model",
)  # fmt: skip
TOKENIZER_ENDINGS = (".model", ".spm", ".codes", ".vocab")
"""The endings of files that other tokenizers are read from."""


@dataclass(frozen=True)
class ModelSource:
    """The files that a model's vectors come from, by their digests. Two are equal if weights and configuration are."""

    weights: tuple[str, ...]
    """The SHA-256 of each weight file; none if the weights are random."""
    config: str
    """The `config_digest`; empty where an export of an earlier version did not keep it."""
    revision: str | None = field(default=None, compare=False)
    """The commit of a model of the hub."""

    @classmethod
    def of_files(cls, spec: EncoderSpec) -> Self:
        """Return the weights and the configuration that a folder itself holds."""
        weights = tuple(known_digest(path) for path in weight_paths(spec))
        return cls(weights, config_digest(spec.config), spec.revision)

    @classmethod
    def of_export(cls, export: Export) -> Self:
        """Return those of the model that an export was made from."""
        return cls(tuple(export.source_sha256), export.source_config, export.revision)

    @classmethod
    def of(cls, spec: EncoderSpec) -> Self:
        """Return those of the model that a folder holds or, if it holds an export of other files, those of its model.

        Of a folder that has no weights, and a graph that another program wrote, the weights are the first graph, the
        files that hold its weights, and the weights of modules.
        """
        files = cls.of_files(spec)
        export = own_export(spec)
        if export is not None:
            kept = cls.of_export(export)
            return cls(kept.weights, kept.config or files.config, kept.revision or spec.revision)
        graphs = named_graphs(spec.folder)
        if has_weights(spec.folder) or not graphs:
            return files
        of_graph = tuple(known_digest(path) for path in graph_files(spec.folder, graphs[0].file))
        return cls(of_graph + files.weights, files.config, files.revision)

    @property
    def provenance(self) -> dict[str, Any]:
        """By what scores and manifests name a model: its commit, if it is of the hub, and one digest of its weights."""
        facts = {"revision": self.revision, "weights": joined_digest(self.weights)}
        return {key: value for key, value in facts.items() if value is not None}


@dataclass(frozen=True)
class EncoderIdentity:
    """By what a loaded encoder is known again."""

    fingerprint: str
    """A hash of what determines a vector: weights, tokenizer, modules and maximum length, not the prompt. An export has
    that of the model that it was made from. Of a model that is served, only address, name and dimension are known."""
    earlier_fingerprint: str | None = None
    """The one that directories of earlier versions keep, which did not know config.json; None if there is none."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """See `ModelSource.provenance`; of a model that is served, nothing is known."""

    @classmethod
    def of(cls, spec: EncoderSpec, tokenizer: TextTokenizer) -> Self:
        """Return that of a loaded encoder, whose tokenizer may have been changed after it was read."""
        source = ModelSource.of(spec)
        weights = source.weights or (file_digest(spec.folder / "config.json"),)
        modules = [module.identity for module in spec.modules]
        facts = [*weights, tokenizer.backend.to_str(), *modules, repr((spec.max_length, spec.lowercase))]
        left_out = json.dumps([tokenizer.dropped, tokenizer.most_characters])  # its text does not say it
        obeyed_earlier = tokenizer.side != "left" and tokenizer.dropped is None
        earlier = _joined_hash(facts) if obeyed_earlier else None
        return cls(_joined_hash([*facts, source.config, left_out]), earlier, source.provenance)

    @classmethod
    def of_served(cls, model: ServedModel) -> Self:
        """Return that of a model that is served."""
        facts = repr(("served", str(model.served), model.backend.dimension))
        return cls(hashlib.sha256(facts.encode()).hexdigest())

    def is_named(self, fingerprint: str) -> bool:
        """Tell whether a fingerprint is that of this encoder, also one that an earlier version kept."""
        return fingerprint in (self.fingerprint, self.earlier_fingerprint)


def own_export(spec: EncoderSpec) -> Export | None:
    """Return an export in the folder of an encoder, unless it was made from other weights than those beside it."""
    exports = exports_in(spec.folder)
    if not exports:
        return None
    if has_weights(spec.folder) and model_digest(read_spec(spec.folder)) != exports[0].model_digest:
        return None
    return exports[0]


def weight_paths(spec: EncoderSpec) -> list[Path]:
    """Return the weight files of an encoder: the transformer's, those of its modules and its adapter."""
    paths = stored_weights(spec)
    if spec.adapter is not None:
        paths += [spec.adapter / name for name in (*ADAPTER_WEIGHTS, ADAPTER) if (spec.adapter / name).exists()]
    return paths


def stored_weights(spec: EncoderSpec) -> list[Path]:
    """Return the weight files of an encoder's transformer and modules, but not of its adapter."""
    of_modules = [getattr(module, "folder", None) for module in spec.modules]
    paths: list[Path] = []
    for folder in (spec.folder, *of_modules):
        if folder and has_weights(folder):
            paths += weight_files(folder)
    return paths


def joined_digest(digests: Sequence[str]) -> str | None:
    """Return one digest of weights: that of their only file, or one over those of several; None if there are none."""
    if len(digests) < 2:
        return digests[0] if digests else None
    return _joined_hash(digests)


def model_digest(spec: EncoderSpec) -> str:
    """Return a hash of what the graph computes: weights, configuration and modules, but not the tokenizer."""
    config = {key: value for key, value in spec.config.items() if key not in ("transformers_version", "dtype")}
    modules = [module.identity for module in spec.modules]
    weights = ModelSource.of_files(spec).weights
    return _joined_hash([*weights, json.dumps(config, sort_keys=True, default=str), *modules])


def config_digest(config: dict[str, Any]) -> str:
    """Return a hash of what decides vectors in a config.json."""
    known = KEYS[CONFIG]
    decisive = {key: value for key, value in config.items() if key not in known or known[key].effect != "no effect"}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=str).encode()).hexdigest()


def tokenizer_digest(folder: Path) -> str:
    """Return the SHA-256 of the files in a folder that a tokenizer may be read from, separated by spaces."""
    others = sorted(path.name for path in folder.iterdir() if path.suffix in TOKENIZER_ENDINGS)
    names = dict.fromkeys((*TOKENIZER_FILES, *others))
    return " ".join(f"{name} {file_digest(folder / name)}" for name in names if (folder / name).exists())


def encoder_digest(spec: EncoderSpec, source: ModelSource | None = None) -> str:
    """Return a hash of everything in a folder that decides vectors.

    Args:
        spec: the description of the encoder, with the user's choices applied.
        source: whose weights count; None stands for those of its files.
    """
    source = source or ModelSource.of_files(spec)
    facts = {
        "weights": source.weights,
        "config": config_digest(spec.config),
        "modules": [module.identity for module in spec.modules],
        "tokenizer": tokenizer_digest(spec.tokenizer_folder),
        **{entry.name: getattr(spec, entry.name) for entry in fields(spec) if entry.name not in NOT_IN_DIGEST},
    }
    return json_digest(facts)


def cache_key(spec: EncoderSpec, options: LoadOptions) -> str | None:
    """Return a hash of everything that decides a model's vectors, without loading the model.

    These are weights, tokenizer, modules and prompts; the options of backend, precision, device and length; the
    versions of the libraries, `NUMBERS`, and the processor.

    Args:
        spec: of the model.
        options: for loading it.

    Returns:
        The hash, or None for a folder without weights, whose vectors are random.
    """
    source = ModelSource.of(spec)
    if not source.weights:
        return None
    of_others = []
    for graph in foreign_graphs(spec.folder):
        of_others += [known_digest(path) for path in graph_files(spec.folder, graph.file)]
    facts = {
        "encoder": encoder_digest(spec, source),
        "exports": [export.sha256 for export in exports_in(spec.folder)],
        "graphs of others": of_others,
        "roles": [spec.usual_prompt, *spec.role_prompts.values()],
        "similarity": spec.stated_similarity,
        "options": list(vars(options).values()),
        "on cpu": options.on_cpu,
        "libraries": library_key(),
        "processor": machine.processor(),
    }
    if options.backend == "openvino" and options.precision == "int8" and machine.sums_saturate("openvino"):
        facts["weights"] = "7 bits"  # on the same processor the environment may decide it
    return json_digest(facts)


def library_key() -> str:
    """Return a hash of what decides scores without a model: `NUMBERS` and the versions of libraries."""
    versions = {name: machine.library_version(name) for name in machine.LIBRARIES}
    return json_digest({"numbers": NUMBERS, "versions": versions})


def same_modules(first: Iterable[ModuleSpec], second: Iterable[ModuleSpec]) -> bool:
    """Tell whether two encoders have the same modules after the transformer."""
    return [module.identity for module in first] == [module.identity for module in second]


def _joined_hash(facts: Iterable[str]) -> str:
    return hashlib.sha256("".join(facts).encode()).hexdigest()
