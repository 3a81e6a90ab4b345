"""What a model's vectors depend on, as digests: the keys of all that is kept of a model, made in this one place.

A folder is described by `EncoderSpec`, and every field of it that decides a vector is in `encoder_digest`. What is left
out there is listed in `NOT_IN_DIGEST`, with the reason; a test goes through the fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from sentcli.hub import ADAPTER, ADAPTER_WEIGHTS
from sentcli.io.digests import file_digest, known_digest
from sentcli.io.weights import has_weights, weight_files
from sentcli.model.folder_keys import CONFIG, KEYS
from sentcli.model.modules import ModuleSpec
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import TextTokenizer

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
NUMBERS = 1
"""Counts the changes of sentcli that moved vectors or scores, or how they are kept.

It is a part of the keys of what is kept of both, so that what was kept before such a change is made again. Modules that
compute either are listed in tests/numbers.json, and a test fails when one of them changes and this number does not.
"""
TOKENIZER_FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json",
    "special_tokens_map.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model",
)  # fmt: skip
TOKENIZER_ENDINGS = (".model", ".spm", ".codes", ".vocab")
"""The endings of files that other tokenizers are read from."""


def weight_digests(spec: EncoderSpec) -> list[str]:
    """Return the SHA-256 of each of the `weight_paths` of an encoder."""
    return [known_digest(path) for path in weight_paths(spec)]


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
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def model_digest(spec: EncoderSpec) -> str:
    """Return a hash of what the graph computes: weights, configuration and modules, but not the tokenizer."""
    digest = hashlib.sha256("".join(weight_digests(spec)).encode())
    config = {key: value for key, value in spec.config.items() if key not in ("transformers_version", "dtype")}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for module in spec.modules:
        digest.update(module.identity.encode())
    return digest.hexdigest()


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


def encoder_digest(spec: EncoderSpec, weights: Iterable[str] | None = None) -> str:
    """Return a hash of everything in a folder that decides vectors.

    Args:
        spec: the description of the encoder, with the user's choices applied.
        weights: the digests of the weights that count; None stands for those of its files.
    """
    facts = {
        "weights": list(weight_digests(spec) if weights is None else weights),
        "config": config_digest(spec.config),
        "modules": [module.identity for module in spec.modules],
        "tokenizer": tokenizer_digest(spec.tokenizer_folder),
        **{field.name: getattr(spec, field.name) for field in fields(spec) if field.name not in NOT_IN_DIGEST},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def fingerprint(spec: EncoderSpec, tokenizer: TextTokenizer, weights: list[str], config: str) -> str:
    """Return a hash of what determines a vector of a loaded encoder, whose tokenizer may have been changed.

    Args:
        spec: the description of the encoder.
        tokenizer: as it was loaded.
        weights: the digests of the weights that it was made from.
        config: the `config_digest` of the model that it was made from.
    """
    return _hash([*_encoder_facts(spec, tokenizer, weights), config, _mean_of_known(tokenizer)])


def earlier_fingerprint(spec: EncoderSpec, tokenizer: TextTokenizer, weights: list[str]) -> str:
    """Return the `fingerprint` that directories of earlier versions keep; it did not know config.json."""
    return _hash(_encoder_facts(spec, tokenizer, weights))


def _encoder_facts(spec: EncoderSpec, tokenizer: TextTokenizer, weights: list[str]) -> list[str]:
    modules = [module.identity for module in spec.modules]
    return [*weights, tokenizer.backend.to_str(), *modules, repr((spec.max_length, spec.lowercase))]


def _mean_of_known(tokenizer: TextTokenizer) -> str:
    """Return what a tokenizer leaves out, which its text does not say."""
    return json.dumps([tokenizer.dropped, tokenizer.most_characters])


def _hash(facts: list[str]) -> str:
    return hashlib.sha256("".join(facts).encode()).hexdigest()


def same_modules(first: Iterable[ModuleSpec], second: Iterable[ModuleSpec]) -> bool:
    """Tell whether two encoders have the same modules after the transformer."""
    return [module.identity for module in first] == [module.identity for module in second]
