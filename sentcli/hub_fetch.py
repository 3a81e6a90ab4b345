"""Fetch models of the hub: what of a repository is needed, in one commit, with waiting where the hub is busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging import ERROR
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from sentcli import console
from sentcli.errors import InputError, SentcliError, interruption, one_line
from sentcli.hub import (
    CARD,
    GRAPHS,
    HubModel,
    is_commit,
    module_entries,
    needs_code,
    write_commit,
)
from sentcli.io.atomic import room_explained
from sentcli.io.graph_files import DATA_ENDINGS, ONNX
from sentcli.io.places import causes, is_temporary, status_of
from sentcli.io.served import WAITS, seconds_to_wait
from sentcli.io.weights import ADAPTER, ADAPTER_WEIGHTS, WEIGHT_FILES, weight_files

T = TypeVar("T")
SETTING_ENDINGS = (".json", ".txt", ".model")
"""The files that are fetched of a model before its weights: settings and tokenizers."""
OTHER_RUNTIMES = ("onnx", "openvino", "coreml")
"""Folders of exports for other libraries, which are fetched only where there are no weights for torch."""
_FILES_AT_A_TIME = 8
"""How many small files are fetched at the same time."""
_ANSWER_SECONDS = 20.0
"""How long the hub may take to describe a model; huggingface_hub bounds the other requests itself."""
LEAST_PIECE = 1024
"""The fewest bytes of a file that are kept at a time."""
UNREADABLE = {".gguf": "llama.cpp", ".h5": "TensorFlow", ".msgpack": "Flax", ".mlmodel": "Core ML", ".ot": "Rust"}
"""The endings of weights that are not read, and whose they are."""


def fetch(model: HubModel, *, native: bool = False) -> Path:
    """Return a model's folder in the hub's cache, after fetching what is missing of it.

    All files are of the commit that the revision has now. First come the settings, which name the modules; of each
    module the weights follow, safetensors before others, and nothing else. Where the first module has none, a graph for
    ONNX or OpenVINO comes. Weights that need code of the folder's own do not follow: such a folder is refused.

    Args:
        model: the model.
        native: whether transformers' class stands for the code that the folder names.

    Raises:
        InputError: if the hub has no such model or revision, or does not give it to this user.
        SentcliError: if the hub cannot be reached or fails.
    """
    from huggingface_hub import HfApi, constants

    api = HfApi(endpoint=constants.ENDPOINT)
    with _quiet_library():
        asked: Any = {"revision": model.revision, "files_metadata": True, "timeout": _ANSWER_SECONDS}
        info = _ask(model, lambda: api.model_info(model.repository, **asked))
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
        if not is_commit(str(info.sha)):
            raise SentcliError(f"{model}: the hub answers with {str(info.sha)[:50]!r}, which is no commit")
        folder = model.snapshot(str(info.sha))
        settings = {name: size for name, size in sizes.items() if _is_setting(name)}
        _fetch_files(model, folder, settings, _FILES_AT_A_TIME)
        if native or not needs_code(folder):
            weights = _weights(model, folder, list(sizes))
            _fetch_files(model, folder, {name: sizes.get(name, 0) for name in weights})
    if not model.names_commit(folder.name):
        _ask(model, lambda: _point_to(folder.name, model.reference))
    return folder


def _is_setting(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[0] not in OTHER_RUNTIMES and (path.suffix in SETTING_ENDINGS or name == CARD)


def _point_to(commit: str, reference: Path) -> None:
    reference.parent.mkdir(parents=True, exist_ok=True)
    write_commit(reference, commit)


def _weights(model: HubModel, folder: Path, names: list[str]) -> list[str]:
    """Return the files with the weights of a model.

    Args:
        model: the model.
        folder: with its settings.
        names: of all files of the repository.

    Raises:
        InputError: if there are none but those of other libraries.
    """
    weights: list[str] = []
    for number, entry in enumerate(module_entries(folder)):
        start = "" if Path(entry.path) == Path() else f"{entry.path}/"
        own = _weights_of_module(folder, start, names)
        if number == 0 and not own:
            own = _graph(model, names)
        weights += own
    return weights


def _weights_of_module(folder: Path, start: str, names: list[str]) -> list[str]:
    """Return the files with the weights of a module, and of the adapter beside them.

    Args:
        folder: of the model, with its settings.
        start: the beginning of the names of the module's files.
        names: of all files of the repository.
    """
    weights: list[str] = []
    if (folder / start / ADAPTER).exists():
        adapters = [start + name for name in ADAPTER_WEIGHTS if start + name in names]
        weights += adapters[:1]
    own = None
    for name in WEIGHT_FILES:
        if start + name in names:
            own = start + name
            break
    if own is not None and own.endswith(".json"):  # the index, which is among the settings
        weights += [path.relative_to(folder).as_posix() for path in weight_files(folder / start)]
    elif own is not None:
        weights.append(own)
    return weights


def _graph(model: HubModel, names: list[str]) -> list[str]:
    """Return the files of the graph of a repository without weights for torch; none if it has no weights at all.

    Raises:
        InputError: if there are several graphs and none has the usual name, or weights that are not read.
    """
    graph = _graph_name(model, names)
    if graph is None:
        _refuse_unreadable(model, names)
        return []
    stem = graph.rpartition(".")[0]  # what `sentcli export` keeps of its graphs stands beside them
    data = [graph + ending for ending in DATA_ENDINGS]
    beside = (*data, f"{stem}.bin", f"{stem}.export.json")
    files = [graph]
    files += [name for name in names if name.startswith(beside)]
    return files


def _graph_name(model: HubModel, names: list[str]) -> str | None:
    """Return the file of the graph that is taken of a repository, or None if it has none.

    Raises:
        InputError: if there are several and none has the usual name.
    """
    usual = None
    for name in GRAPHS:
        if name in names:
            usual = name
            break
    if usual is not None:
        return usual
    others = [name for name in names if name.endswith(".onnx") and name.rpartition("/")[0] in ("", "onnx")]
    if len(others) > 1:
        raise InputError(
            f"{model} has no weights for torch and no {ONNX}, but {', '.join(sorted(others)[:6])}: copy the "
            "repository without the others to a folder, and give that"
        )
    if others:
        return others[0]
    return None


def _refuse_unreadable(model: HubModel, names: list[str]) -> None:
    """Refuse a repository whose weights are those of other libraries.

    Raises:
        InputError: which names the libraries.
    """
    libraries = {UNREADABLE.get(PurePosixPath(name).suffix) for name in names} - {None}
    if not libraries:
        return
    served = ""
    if any(name.endswith(".gguf") for name in names):
        served = "; a server of llama.cpp gives its vectors: -m http://HOST:PORT/v1#NAME"
    listed = ", ".join(sorted(map(str, libraries)))
    raise InputError(f"{model} holds no weights that are read here, but those of {listed}{served}")


def _fetch_files(model: HubModel, folder: Path, files: dict[str, int], at_a_time: int = 1) -> None:
    """Fetch the files of a commit that are not there, behind a bar.

    Args:
        model: the model.
        folder: of the commit.
        files: their sizes by name, 0 where the hub does not say it.
        at_a_time: how many at the same time.
    """
    from concurrent.futures import ThreadPoolExecutor

    from huggingface_hub import constants, hf_hub_download

    missing = {name: size for name, size in files.items() if not (folder / name).exists()}
    if not missing:
        return
    total = sum(missing.values())
    if total > 10**8:
        console.note(f"{model}: {total / 1e6:,.0f} MB are fetched from {constants.ENDPOINT} (once)")
    advice = f"it is fetched to {folder.parent}; make room there (HF_HOME names another place)"
    with room_explained(str(model), advice), console.transferring(str(model)) as meter:
        if total:
            meter.total(total)
        bar: Any = _bar(meter)

        def get(name: str) -> None:
            place: Any = {"revision": folder.name, "endpoint": constants.ENDPOINT, "tqdm_class": bar}
            _ask(model, lambda: hf_hub_download(model.repository, name, **place), lambda: _incomplete(model))

        if at_a_time > 1:
            with _pieces(min(missing.values())), ThreadPoolExecutor(at_a_time) as pool:
                list(pool.map(get, missing))
            return
        for name, size in missing.items():  # in this thread, which Ctrl-C ends
            meter.step(name)
            with _pieces(size):
                get(name)


@contextmanager
def _pieces(size: int) -> Iterator[None]:
    """Let the library keep what comes of a file in thousandths of its size.

    Of a download that breaks off it loses the last piece, which is one of 10 MB: of a smaller file everything.
    """
    from huggingface_hub import constants

    usual = constants.DOWNLOAD_CHUNK_SIZE
    constants.DOWNLOAD_CHUNK_SIZE = min(max(size // 1000, LEAST_PIECE), usual)
    try:
        yield
    finally:
        constants.DOWNLOAD_CHUNK_SIZE = usual


def _incomplete(model: HubModel) -> int:
    """Return how many bytes are there of files of a model that are not whole; of another process's files, too."""
    sizes = []
    for path in model.folder.glob("blobs/*.incomplete"):
        with suppress(OSError):  # it is whole now
            sizes.append(path.stat().st_size)
    return sum(sizes)


def _bar(meter: console.Transfer) -> type:
    """Return a class of bars that tell a meter how many bytes have come, and show nothing themselves."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(disable=True)

        def update(self, n: float | None = 1) -> None:
            meter.advance(int(n or 0))

    return Bar


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Keep what huggingface_hub logs of its attempts out of the output of the command."""
    from huggingface_hub.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _ask(model: HubModel, request: Callable[[], T], kept: Callable[[], int] = lambda: 0) -> T:
    """Return what the hub answers, after further attempts where it is busy, fails or breaks off.

    Args:
        model: the model.
        request: asks.
        kept: the bytes that are there of a file that broke off; as long as they become more, it is asked again.

    Raises:
        InputError: if the hub has no such model or revision, or does not give it to this user.
        SentcliError: if it cannot be reached or fails.
    """
    waits, before = list(WAITS), kept()
    while True:
        try:
            return request()
        except Exception as error:  # of the library, or of those that it asks with
            if signalled := interruption(error):
                raise signalled from None
            if (now := kept()) > before:
                waits, before = list(WAITS), now
            if not waits or not is_temporary(error, hopeful=True):
                raise _error(model, error) from error
            seconds = seconds_to_wait(_headers(error).get("Retry-After", ""), waits.pop(0))
            console.detail(f"{model}: {_reason(error)}; trying again in {seconds:g} s")
        time.sleep(seconds)


LOGIN = "log in with 'hf auth login' (or HF_TOKEN)"


def _error(model: HubModel, error: Exception) -> SentcliError:
    """Return the error that users see: a model that they do not get (exit code 2), or a hub that fails (1)."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    status, reason = status_of(error), _reason(error)
    if (refusal := _refusal(model, error, status)) is not None:
        return InputError(refusal)
    if any(isinstance(link, OfflineModeIsEnabled) for link in causes(error)):
        reason = "HF_HUB_OFFLINE forbids it"
    again = f"for {model}, again after several attempts"
    if status == 429:
        return SentcliError(f"the hub answers 429 {again}: too many requests; wait, or {LOGIN}")
    if status is not None and status >= 500:
        return SentcliError(f"the hub answers {status} {again}: try later")
    if is_temporary(error, hopeful=True):
        return SentcliError(f"the hub breaks off or is too slow {again} ({reason})")
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return SentcliError(f"{model} cannot be written to the hub's cache: {error.filename}: {error.strerror}")
    return SentcliError(
        f"{str(model)!r} is not on this machine and the hub cannot be reached ({reason}); copy the model folder here "
        "and give its path"
    )


def _refusal(model: HubModel, error: Exception, status: int | None) -> str | None:
    """Return why the hub does not give this model to this user, or None if it says no such thing."""
    from huggingface_hub import errors

    def is_kind(kind: type[BaseException]) -> bool:
        return any(isinstance(link, kind) for link in causes(error))

    if is_kind(errors.GatedRepoError):
        return f"{model} is gated: ask for access on its page, {model.page}; then {LOGIN}"
    if is_kind(errors.DisabledRepoError):
        return f"{model}: the hub has disabled this model ({model.page})"
    if is_kind(errors.RevisionNotFoundError):
        short = model.names_commit(model.revision) and not is_commit(model.revision)
        digits = "; a commit needs all of its 40 digits" if short else ""
        return f"{model.repository} has no revision {model.revision!r} ({model.page}/tree/main has a list{digits})"
    if status in (401, 403):
        return f"{model} is private, or there is no such model ({model.page}): {LOGIN}; the hub answers {status}"
    if is_kind(errors.RemoteEntryNotFoundError):
        return f"{model} lacks a file that its own settings name ({_reason(error)})"
    if is_kind(errors.RepositoryNotFoundError) or status == 404:
        return f"the hub has no model {model.repository!r}, or it is private: {LOGIN}"
    return None


def _reason(error: BaseException) -> str:
    """Return what went wrong, in the words of the library that asked."""
    links = list(causes(error))
    return one_line(links[-1])[:100] or type(links[-1]).__name__


def _headers(error: BaseException) -> Any:
    """Return the headers of the answer that an error tells of."""
    for link in causes(error):
        answer: Any = getattr(link, "response", None)
        if answer is not None:
            return answer.headers
    return {}
