"""The model zoo: short names and hub ids of known encoders, kept as data in ``models/encoders.toml``."""

from __future__ import annotations

import importlib.util
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, RootModel

from sentcli import console
from sentcli.errors import InputError, MissingExtraError, SentcliError, interruption, nearest, one_line
from sentcli.io.copies import FolderCopy
from sentcli.io.digests import expanded
from sentcli.io.forms import checked, read_json
from sentcli.io.places import is_remote
from sentcli.io.served import Served
from sentcli.io.word_vectors import word_vector_folder

SETTINGS = ("config.json", "modules.json", "export.json", "adapter_config.json")
"""The files of which a model folder has one."""
ADAPTER = "adapter_config.json"
SETTING_PATTERNS = ["*.json", "*.txt", "*.model"]
"""What is fetched of a model before its weights: settings and tokenizers."""
OTHER_RUNTIMES = ["onnx/*", "openvino/*", "coreml/*"]
"""Folders of exports for other libraries, which are not fetched."""


class _ModulePath(BaseModel):
    """What is read of an entry of ``modules.json`` to know what has to be fetched."""

    path: str


@dataclass(frozen=True)
class ZooEntry:
    """A known encoder."""

    name: str
    source: str
    """Hub id."""
    licence: str
    pooling: str
    """The pooling that its authors evaluate with; a value for ``--pooling``."""
    normalize: bool = False
    max_length: int | None = None
    package: str | None = None
    """An installable package that carries the weights, for machines without a hub."""
    extra: str | None = None
    """The extra of sentcli that installs `package`."""
    folder: str | None = None
    """The folder in ``models/`` that has the weights, for a model that comes with sentcli."""
    sha256: str | None = None
    """Checksum of model.safetensors; a file with another one is refused."""
    prompts: dict[str, str] = field(default_factory=dict)
    card: str = ""
    """The address of the page or file that states pooling, prompts and length."""
    native: bool = False
    """Whether transformers' class was written for these weights, and stands for the code that the folder names."""
    note: str = ""


def models_folder() -> Path:
    """Return the folder of the zoo: in the installed package, or beside it in a checkout."""
    packed = Path(__file__).parent / "_models"
    return packed if packed.is_dir() else Path(__file__).parent.parent / "models"


@cache
def zoo() -> dict[str, ZooEntry]:
    """Return all entries by short name."""
    tables: dict[str, dict[str, Any]] = tomllib.loads((models_folder() / "encoders.toml").read_text("utf-8"))
    return {name: ZooEntry(name=name, **table) for name, table in tables.items()}


def find_entry(model: str) -> ZooEntry | None:
    """Return the entry of a short name or hub id; None if it is unknown or there is a local model of that name."""
    if local_path(model) is not None:
        return None
    return zoo().get(model) or next((entry for entry in zoo().values() if entry.source == model), None)


def local_path(model: str) -> Path | None:
    """Return the folder of a model, or the file of its word vectors, on this machine; None if the name is of none.

    A folder or file that is no model leaves a known name to the model that has it.
    """
    path = expanded(model)
    try:
        if not model or not path.exists():  # an empty name would be the current folder
            return None
    except OSError:  # no name of a file is so long
        return None
    return None if model in zoo() and not _is_model(path) else path


def _is_model(path: Path) -> bool:
    if path.is_dir():
        return any((path / name).exists() for name in SETTINGS)
    with suppress(InputError, OSError):
        return word_vector_folder(path).is_dir()
    return False


def own_folder(entry: ZooEntry) -> Path | None:
    """Return the folder of a model that comes with sentcli or with an installed package, or None."""
    if entry.folder:
        return models_folder() / entry.folder
    return package_folder(entry.package) if entry.package else None


def package_folder(package: str) -> Path | None:
    """Return the model folder inside an installed weights package, or None."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if folder.is_dir() else None


def on_this_machine(model: str) -> bool:
    """Tell whether a model can be loaded without the network: a local folder, or a name whose files are here."""
    path = local_path(model)
    if path is not None and path.is_dir():
        return True
    entry = find_entry(model)
    if entry is not None and own_folder(entry) is not None:
        return True
    repository = entry.source if entry is not None else model
    return _is_hub_id(repository) and _cached(repository) is not None


def _is_hub_id(name: str) -> bool:
    """Tell whether a name is one that the hub may give: owner/name, of letters, digits and few other signs."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    if name.count("/") != 1 or name.startswith((".", "~")):
        return False
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def resolve(model: str) -> tuple[Path, ZooEntry | None]:
    """Find the folder of a model: a local directory, one in an object store, a short name, or a hub id.

    A text file of word vectors becomes such a folder in the cache.

    Nothing opens the network when the model is on this machine.

    Raises:
        InputError: if there is no such model, its bytes are not the pinned ones, or it is served elsewhere.
        SentcliError: if the hub or the store cannot be reached.
    """
    if (served := Served.parse(model)) is not None:
        raise served.lacks("way to do this")
    if is_remote(model):
        return FolderCopy.open(model).path, None
    path = local_path(model)
    if path is not None and path.is_dir():
        _check_pin(path, zoo().get(model))
        return path, None
    if path is not None:
        return word_vector_folder(path), None
    entry = find_entry(model)
    if entry is None and not _is_hub_id(model):
        raise InputError(_unknown(model))
    if model in zoo() and Path(model).exists():
        console.note(f"{model} in this folder is no model: the known model of that name is taken")
    folder = own_folder(entry) if entry is not None else None
    if folder is None:
        try:
            folder = download(entry.source, native=entry.native) if entry else download(model)
        except SentcliError as error:
            if entry is not None and entry.package and entry.extra:
                raise MissingExtraError(f"the package {entry.package}", entry.extra, f"{model!r} offline") from error
            raise
    _check_pin(folder, entry)
    return folder, entry


def _unknown(model: str) -> str:
    """Return the message for a name that is of no model."""
    hint = nearest(model, list(zoo()))
    revision = ", and a revision cannot be named" if "@" in model else ""
    return (
        f"no model {model[:200]!r}{hint}: there is no such model folder{revision}, and it is no hub id (owner/name) or "
        "short name (see 'sentcli doctor')"
    )


def _check_pin(folder: Path, entry: ZooEntry | None) -> None:
    from sentcli.io.digests import known_digest

    if entry is None or entry.sha256 is None:
        return
    weights = folder / "model.safetensors"
    digest = known_digest(weights) if weights.exists() else "missing"
    if digest != entry.sha256:
        raise InputError(f"{weights}: SHA-256 {digest} is not the {entry.sha256} of {entry.source}")


def _cached(repository: str) -> Path | None:
    """Return the folder of a model in the hub's cache if it is complete there, without using the network."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repository, local_files_only=True))
        whole = _is_whole(folder)
    except Exception as error:  # not there, or not whole, or whatever else the library makes of its own cache
        if interruption(error):
            raise
        return None
    return folder if whole else None


def _is_whole(folder: Path) -> bool:
    """Tell whether a folder has all weights of its first module: a transformer, a table of vectors or an adapter."""
    from sentcli.io.weights import weight_files

    first = folder / _module_paths(folder)[0]
    if (first / ADAPTER).exists():
        return any((first / f"adapter_model.{ending}").exists() for ending in ("safetensors", "bin"))
    described = (first / "config.json").exists() or (first != folder and (first / "tokenizer.json").exists())
    return described and all(path.exists() for path in weight_files(first))


def _module_paths(folder: Path) -> list[str]:
    """Return the folders of a model's modules inside its own, ``""`` for its own, which is the only one of most."""
    path = folder / "modules.json"
    if not path.exists():
        return [""]
    entries = checked(RootModel[list[_ModulePath]], read_json(path), path).root
    return [entry.path for entry in entries] or [""]


def download(repository: str, *, native: bool = False) -> Path:
    """Return a model's folder in the hub's cache, after downloading what is missing; safetensors are preferred.

    First come the settings, which name the modules; of each module the weights follow, and nothing else. Weights that
    need code of the folder's own do not follow, because such a folder is refused.

    Args:
        repository: the hub id.
        native: whether transformers' class stands for the code that the folder names.

    Raises:
        InputError: if the hub has no such model.
        SentcliError: if the hub cannot be reached and the model is not cached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    if (cached := _cached(repository)) is not None:
        return cached
    try:
        folder = Path(snapshot_download(repository, allow_patterns=SETTING_PATTERNS, ignore_patterns=OTHER_RUNTIMES))
        if _needs_code(folder) and not native:
            return folder
        starts = ["" if Path(path) == Path() else f"{path}/" for path in _module_paths(folder)]
        newer = [f"{start}{kind}.safetensors" for start in starts for kind in ("model*", "adapter_model")]
        snapshot_download(repository, allow_patterns=newer)
        if older := _older_weights(folder, starts):
            snapshot_download(repository, allow_patterns=older)
    except RepositoryNotFoundError as error:
        raise InputError(f"the hub has no model {repository!r} (or it is private: run 'hf auth login')") from error
    except InputError:  # its modules.json is damaged
        raise
    except Exception as error:  # of the library, or of those that it asks with
        if interruption(error):
            raise
        raise SentcliError(
            f"{repository!r} is not on this machine and the hub cannot be reached ({one_line(error)[:100]}); "
            "copy the model folder here and give its path"
        ) from error
    return folder


def _needs_code(folder: Path) -> bool:
    """Tell whether the configuration of a model's first module names code of the folder's own."""
    config = read_json(folder / _module_paths(folder)[0] / "config.json", default={})
    return isinstance(config, dict) and bool(config.get("auto_map"))


def _older_weights(folder: Path, starts: list[str]) -> list[str]:
    """Return the patterns of the weight files of the modules that have no safetensors.

    Args:
        folder: of the model, with its settings and safetensors.
        starts: the beginnings of the names of the files of each module.
    """
    adapted = [start for start in starts if (folder / start / ADAPTER).exists()]
    models = [start for start in starts if not any((folder / start).glob("model*.safetensors"))]
    adapters = [start for start in adapted if not (folder / start / "adapter_model.safetensors").exists()]
    return [f"{start}pytorch_model*.bin" for start in models] + [f"{start}adapter_model.bin" for start in adapters]
