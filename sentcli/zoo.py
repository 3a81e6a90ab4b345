"""The model zoo: short names and hub ids of known encoders, kept as data in ``models/encoders.toml``."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError, MissingExtraError, SentcliError, nearest
from sentcli.io.digests import expanded
from sentcli.io.places import is_remote
from sentcli.io.weights import ADAPTER

if TYPE_CHECKING:
    from sentcli.hub import HubModel
    from sentcli.io.served import Served

_SETTINGS_FILES = ("config.json", "modules.json", "export.json", ADAPTER)
"""The files of which a model folder has one."""


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
    language_model: bool = False
    """Whether it is a raw language model, which is no sentence encoder before it is trained."""
    note: str = ""


def models_folder() -> Path:
    """Return the folder of the zoo: in the installed package, or beside it in a checkout."""
    packed = Path(__file__).parent / "_models"
    if packed.is_dir():
        return packed
    return Path(__file__).parent.parent / "models"


@cache
def _entries() -> str:
    """Return all entries as TOML."""
    return (models_folder() / "encoders.toml").read_text("utf-8")


@cache
def zoo() -> dict[str, ZooEntry]:
    """Return all entries by short name."""
    import tomllib

    tables: dict[str, dict[str, Any]] = tomllib.loads(_entries())
    return {name: ZooEntry(name=name, **table) for name, table in tables.items()}


def _entry_called(name: str) -> ZooEntry | None:
    """Return the entry of a short name; one that heads no table of the file is told without reading it as TOML."""
    if f"[{name}]" not in _entries() and f'["{name}"]' not in _entries():
        return None
    return zoo().get(name)


def served_model(name: str) -> Served | None:
    """Return the model that an address names, or None if the name is no web address.

    Raises:
        InputError: if the address does not name a model, or has a user or a query.
    """
    if ":" not in name:  # which is the schemes' alone; `Served` needs modules that most commands do without
        return None
    from sentcli.io.served import Served

    return Served.parse(name)


def find_entry(model: str) -> ZooEntry | None:
    """Return the entry of a short name or hub id, at whatever revision it names.

    It is None if the name is unknown or there is a local model of that name.
    """
    if local_path(model) is not None:
        return None
    name = model.partition("@")[0]
    if name in zoo():
        return zoo()[name]
    for entry in zoo().values():
        if entry.source == name:
            return entry
    return None


def hub_model(model: str) -> HubModel | None:
    """Return the model of the hub that a short name or hub id stands for; None if it is neither."""
    from sentcli.hub import HubModel

    name, at, revision = model.partition("@")
    entry = zoo().get(name)
    if entry is not None:
        model = f"{entry.source}{at}{revision}"
    return HubModel.parse(model)


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
    if _is_model(path) or model not in zoo():
        return path
    return None


def _is_model(path: Path) -> bool:
    if path.is_dir():
        return any((path / name).exists() for name in _SETTINGS_FILES)
    from sentcli.io.word_vectors import word_vector_folder

    with suppress(InputError, OSError):
        return word_vector_folder(path).is_dir()
    return False


def own_folder(entry: ZooEntry) -> Path | None:
    """Return the folder of a model that comes with sentcli or with an installed package, or None."""
    if entry.folder:
        return models_folder() / entry.folder
    if entry.package:
        return package_folder(entry.package)
    return None


def package_folder(package: str) -> Path | None:
    """Return the model folder inside an installed weights package, or None."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    if folder.is_dir():
        return folder
    return None


def on_this_machine(model: str) -> bool:
    """Tell whether a model can be loaded without the network: a local folder, or a name whose files are here."""
    path = local_path(model)
    if path is not None and path.is_dir():
        return True
    if _packed_folder(model) is not None:
        return True
    of_hub = hub_model(model)
    return of_hub is not None and of_hub.cached() is not None


def _packed_folder(model: str) -> Path | None:
    """Return the `own_folder` of a known model; one that is asked for at a revision is taken from the hub."""
    if "@" in model:
        return None
    entry = find_entry(model)
    if entry is None:
        return None
    return own_folder(entry)


def resolve(model: str) -> tuple[Path, ZooEntry | None]:
    """Find the folder of a model: a local directory, one in an object store, a short name, or a hub id.

    Names of the hub may end with ``@REVISION``, a branch, tag or commit; a local folder of the whole name comes first.

    A text file of word vectors becomes such a folder in the cache.

    Nothing opens the network when the model is on this machine.

    Raises:
        InputError: if there is no such model, its bytes are not the pinned ones, or it is served elsewhere.
        SentcliError: if the hub or the store cannot be reached.
    """
    served = served_model(model)
    if served is not None:
        raise served.lacks("way to do this")
    if is_remote(model):
        from sentcli.io.copies import FolderCopy

        return FolderCopy.open(model).path, None
    path = local_path(model)
    if path is not None and path.is_dir():
        _check_pin(path, _entry_called(model))
        return path, None
    if path is not None:
        from sentcli.io.word_vectors import word_vector_folder

        return word_vector_folder(path), None
    entry, of_hub = find_entry(model), hub_model(model)
    if of_hub is None:
        raise InputError(_unknown(model))
    if model in zoo() and Path(model).exists():
        console.note(f"{model} in this folder is no model: the known model of that name is taken")
    folder = _packed_folder(model)
    if folder is None:
        try:
            folder = _of_hub(of_hub, native=entry is not None and entry.native)
        except SentcliError as error:
            missing = _from_package(model, entry)
            if missing is not None:
                raise missing from error
            raise
    _check_pin(folder, entry)
    return folder, entry


def _from_package(model: str, entry: ZooEntry | None) -> MissingExtraError | None:
    """Return the error that names the package with a model, where there is one, instead of what failed."""
    if entry is None or not entry.package or not entry.extra or "@" in model:
        return None
    return MissingExtraError(f"the package {entry.package}", entry.extra, f"{model!r} offline")


def _of_hub(model: HubModel, *, native: bool) -> Path:
    """Return the folder of a model of the hub, which is fetched once: later on nobody is asked."""
    folder = model.cached(native=native)
    if folder is None:
        from sentcli.hub_fetch import fetch

        folder = fetch(model, native=native)
    model.note_use(folder.name)
    return folder


def _unknown(model: str) -> str:
    """Return the message for a name that is of no model."""
    hint = nearest(model, list(zoo()))
    return (
        f"no model {model[:200]!r}{hint}: there is no such model folder, and it is no hub id (owner/name or "
        "owner/name@REVISION) or short name (see 'sentcli doctor')"
    )


def _check_pin(folder: Path, entry: ZooEntry | None) -> None:
    from sentcli.io.digests import known_digest

    if entry is None or entry.sha256 is None:
        return
    weights = folder / "model.safetensors"
    digest = known_digest(weights) if weights.exists() else "missing"
    if digest != entry.sha256:
        raise InputError(f"{weights}: SHA-256 {digest} is not the {entry.sha256} of {entry.source}")
