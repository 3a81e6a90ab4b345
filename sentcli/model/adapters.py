"""Adapters that peft trains: a few weights in a folder of their own, which belong to the weights of a base model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import InputError, SentcliError, broken_library, one_line, required
from sentcli.io.forms import checked, read_json
from sentcli.io.weights import ADAPTER, ADAPTER_WEIGHTS, has_weights


@dataclass(frozen=True)
class AdapterSettings:
    """What is read of ``adapter_config.json``; peft reads the rest."""

    peft_type: str
    base_model_name_or_path: str | None = None
    revision: str | None = None
    """The branch, tag or commit of a base model of the hub."""


def read(folder: Path) -> AdapterSettings:
    """Return the settings of the adapter in a folder.

    Raises:
        InputError: if they are damaged, or no settings of peft, or the adapter's weights are missing.
    """
    path = folder / ADAPTER
    settings = checked(AdapterSettings, read_json(path), path)
    if not any((folder / name).exists() for name in ADAPTER_WEIGHTS):
        raise InputError(f"{path} names an adapter whose weights are missing: looked for {', '.join(ADAPTER_WEIGHTS)}")
    return settings


def base_folder(folder: Path) -> Path:
    """Return the folder of the model that an adapter belongs to: its own if it has weights, else the one that it names.

    Raises:
        InputError: if that is not on this machine and cannot be fetched, or the adapter is damaged; see `read`.
    """
    settings = read(folder)
    if (folder / "config.json").exists() and has_weights(folder):
        return folder
    from sentcli import zoo

    name = settings.base_model_name_or_path
    what = f"{folder} holds an adapter ({settings.peft_type}) and no weights of its own"
    if not name:
        raise InputError(f"{what}, and does not name its base model")
    if settings.revision and zoo.local_path(name) is None and "@" not in name:
        name = f"{name}@{settings.revision}"
    try:
        base = zoo.resolve(name)[0]
    except SentcliError as error:
        remedy = "put its config.json and weights beside the adapter"
        raise InputError(f"{what}; its base model {name!r} is not found: {remedy}") from error
    if not (base / "config.json").exists():
        raise InputError(f"{what}; its base model {base} has no config.json")
    return base


def apply(backbone: Any, folder: Path, base: Path) -> Any:
    """Return a transformers model with the adapter of a folder merged into its weights.

    Args:
        backbone: the base model.
        folder: of the adapter.
        base: the folder of the base model.

    Raises:
        MissingExtraError: without peft.
        InputError: if the adapter does not fit the model, or is of a kind that cannot be merged.
    """
    peft = required("peft", "peft", "lora", f"the adapter in {folder}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings for training, and of names that transformers will change
            adapted = peft.PeftModel.from_pretrained(backbone, str(folder), local_files_only=True)
            return adapted.merge_and_unload()
    except Exception as error:  # peft has no common class for what does not fit
        if broken := broken_library(error):
            raise broken from error
        raise InputError(f"{folder}: its adapter cannot be applied to its base {base}: {one_line(error)}") from error
