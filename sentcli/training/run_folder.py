"""The folder of a training run.

During the training, ``run.json`` holds the identity of the run, ``metrics.jsonl`` grows, ``best-*.safetensors`` holds
the best weights so far, ``checkpoint-*`` holds what ``--resume`` needs, and ``.lock`` keeps a second run out. At the
end the folder is a sentence-transformers model, whose ``model.safetensors`` is written last. The training head is apart
in ``training_head/``, configuration and results are in ``sentcli.json``, and there is a model card.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from pydantic import BaseModel
from torch import nn

from sentcli.encoder.loading import add_beside
from sentcli.errors import InputError
from sentcli.hub import CARD
from sentcli.io.atomic import check_output, require_room, succeed, successor
from sentcli.io.forms import checked, contents, decode, finite, write_json
from sentcli.io.graph_files import HUB_FOLDERS, ONNX
from sentcli.io.weights import save_weights
from sentcli.model.exported import EXPORT, exports_in, graph_files
from sentcli.model.saving import write_model_files
from sentcli.model.stored_heads import HEAD_FOLDER
from sentcli.processes import agree, everywhere, is_first
from sentcli.training.checkpoints import Checkpoint, Checkpoints
from sentcli.training.records import CONFIG_FILE, IDENTITY_FILE, METRICS_FILE

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

LOCK_FILE, FAILED_BATCH = ".lock", "failed-batch.json"
WEIGHTS_FILE = "model.safetensors"
ENVIRONMENT_KEY = "environment"
"""The key of ``run.json`` for versions and hardware, which may move the last bits of the weights."""
IN_PROGRESS = (METRICS_FILE, IDENTITY_FILE, LOCK_FILE, "best-*.safetensors", "checkpoint-*", "tensorboard", "wandb")
"""The files that an interrupted run needs to continue."""
OWN_FILES = (
    *IN_PROGRESS, CONFIG_FILE, FAILED_BATCH, HEAD_FOLDER, CARD, WEIGHTS_FILE, "config.json", "modules.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "*token*.json", "vocab.*", "merges.txt",
    "*.model", "[0-9]_*", EXPORT, f"{ONNX}*", *HUB_FOLDERS, ".*.partial", ".tmp*", "best.safetensors",
)  # fmt: skip
"""The files that a run leaves in its folder: --overwrite removes a folder only if it holds no others."""


class LockedError(InputError):
    """Another run is writing to the folder."""


def check_run_folder(path: Path, *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that a run must not write to.

    Raises:
        InputError: if it is a file, holds files that no run wrote, or holds a run and neither flag is given.
    """
    if str(path) == "-":
        raise InputError("-o -: a trained model is a folder, it cannot go to standard output")
    empty = path.is_dir() and not any(p.name != LOCK_FILE for p in path.iterdir())
    if path.is_dir() and not (empty or overwrite or resume):
        raise InputError(f"{path} exists; --resume continues it, --overwrite replaces it; or choose another -o")
    check_output(path, overwrite=overwrite or empty, resume=resume, folder=True)
    if path.is_dir():
        foreign = [p.name for p in path.iterdir() if not _matches(p, OWN_FILES)] + _others_graphs(path)
        odd = [p for p in path.iterdir() if p.exists() and not (p.is_file() or p.is_dir())]
        if odd:
            raise InputError(f"{odd[0]} is no regular file; remove it, or choose another -o")
        if foreign:
            raise InputError(f"{path} holds files that are not a training run's ({foreign[0]}); choose another -o")
        if resume and not (empty or overwrite or (path / IDENTITY_FILE).exists()):
            raise InputError(
                f"{path} holds no {IDENTITY_FILE}: it is no run to --resume; choose another -o, or --overwrite"
            )


def _others_graphs(path: Path) -> list[str]:
    """Return the files in the folders of the hub's layout that `sentcli export` did not write."""
    exports = exports_in(path)
    own = {path / export.facts_file for export in exports}
    own |= {file for export in exports for file in graph_files(path, export.graph_file)}
    there = [file for folder in HUB_FOLDERS for file in (path / folder).rglob("*") if not file.is_dir()]
    return [str(file.relative_to(path)) for file in there if file not in own]


def _matches(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(path.match(pattern) for pattern in patterns)


def kept_identity(path: Path, *, overwrite: bool) -> dict[str, Any]:
    """Return the identity of the run that a folder holds, without opening it for writing; empty if there is none.

    Args:
        path: of the folder.
        overwrite: whether a run that replaces the one in the folder comes first, as `RunFolder` looks for it.
    """
    folders = [successor(path.resolve())] if overwrite else []
    for folder in (*folders, path):
        with suppress(InputError):  # there is none, or it is damaged, which is said when the run starts
            return _read(folder / IDENTITY_FILE)
    return {}


class RunFolder:
    """The folder that one run writes to. With several processes, only the first one writes.

    With `overwrite`, a folder that holds a run stays as it is until the new model is complete, which is made in its
    `successor`. With `resume` as well, a new run that was begun there goes on.

    Attributes:
        path: the folder that is written, which is the successor until `finish` has put it in place.
        checkpoint: the checkpoint that the run continues from, if there is one.
        results: the results of the run, if it had finished before.
        resumed: whether an unfinished run is resumed, from a checkpoint or from its beginning.
        notes: notes for the user about a resumed run.
    """

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, Any] | None = None,
        environment: Mapping[str, Any] | None = None,
        *,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        self.path = self.target = path.resolve()
        self.lock = FileLock(self.target / LOCK_FILE, timeout=0)
        self.metrics: IO[str] | None = None
        self.checkpoint: Checkpoint | None = None
        self.results: dict[str, Any] | None = None
        self.resumed = False
        self.notes: list[str] = []
        self.best_digests: dict[int, str] = {}
        self.identity: dict[str, Any] = finite(dict(identity or {}))
        self.environment = dict(environment or {})
        everywhere(lambda: self._open(path, overwrite=overwrite, resume=resume))
        self.path, self.checkpoint, self.results = agree((self.path, self.checkpoint, self.results))

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints and the best weights of the run."""
        return Checkpoints(self.path, self.best_digests)

    def _open(self, path: Path, *, overwrite: bool, resume: bool) -> None:
        if not is_first():
            return
        check_run_folder(path, overwrite=overwrite, resume=resume)
        self.target.mkdir(exist_ok=True)
        try:
            self.lock.acquire()
        except Timeout:
            message = f"{path}: another run is writing to this folder; wait for it, or choose another -o"
            raise LockedError(message) from None
        try:
            if overwrite and any(p.name != LOCK_FILE for p in self.target.iterdir()):
                resume = self._find_begun(resume=resume)
            self._start(path, resume=resume)
        except BaseException:
            self._unlock()
            raise

    def _find_begun(self, *, resume: bool) -> bool:
        """Choose the folder for a run that replaces another one; return whether the same run goes on in it."""
        new = successor(self.target)
        for folder in (new, self.target) if resume else ():
            with suppress(InputError):  # there is none, or it is damaged
                self.path, identity = folder, _read(folder / IDENTITY_FILE)
                identity.pop(ENVIRONMENT_KEY, None)
                if not _differences(identity, json.loads(json.dumps(self.identity))):
                    return True
        self.path = new
        return False

    def _start(self, path: Path, *, resume: bool) -> None:
        if resume and (self.path / IDENTITY_FILE).exists():
            identity = _read(self.path / IDENTITY_FILE)
            environment = identity.pop(ENVIRONMENT_KEY, {})
            if differences := _differences(identity, json.loads(json.dumps(self.identity))):
                more = [f"and {len(differences) - 6} more"] if len(differences) > 6 else []
                raise InputError(f"--resume: {path} holds another run: {'; '.join([*differences[:6], *more])}")
            self._resume()
            differences = _differences(environment, {key: self.environment.get(key) for key in environment})
            if differences and self.checkpoint is not None:
                self.notes.append(f"the rest of the run will not have the same bytes: {'; '.join(differences)}")
        else:
            self.path.mkdir(exist_ok=True)
            self._clear((LOCK_FILE,))
            self.metrics = (self.path / METRICS_FILE).open("w", encoding="utf-8")
        if self.checkpoint is None and self.results is None:
            write_json(self.path / IDENTITY_FILE, {**self.identity, ENVIRONMENT_KEY: self.environment})

    def _resume(self) -> None:
        if (self.path / WEIGHTS_FILE).exists():
            self.results = _read(self.path / CONFIG_FILE).get("results", {})
            self._settle()
            return
        self.resumed = True
        self._clear(IN_PROGRESS)
        self.checkpoint, self.notes = self.checkpoints.load()
        size = self.checkpoint.facts["metrics_bytes"] if self.checkpoint is not None else 0
        if self.checkpoint is None:
            self.checkpoints.clear()
        with (self.path / METRICS_FILE).open("ab") as handle:
            if handle.tell() < size:
                self.notes.append(f"{METRICS_FILE} is shorter than it was: lines of earlier steps are missing")
            handle.truncate(min(size, handle.tell()))
        self.metrics = (self.path / METRICS_FILE).open("a", encoding="utf-8")

    def _clear(self, keep: tuple[str, ...]) -> None:
        """Remove what an earlier run left, except for files whose names match `keep`."""
        for path in self.path.iterdir():
            if _matches(path, keep):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def log(self, record: dict[str, Any]) -> None:
        """Append one line to the metrics and flush it."""
        if self.metrics is not None:
            self.metrics.write(json.dumps(finite(record), allow_nan=False) + "\n")
            self.metrics.flush()

    def require_room(self, size: int) -> None:
        """Check that the disk has room for so many bytes, before they are worked for.

        Raises:
            NoRoomError: if it has less.
        """
        everywhere(lambda: require_room(self.path, size if is_first() else 0, str(self.target)))

    def keep_failed(self, batch: dict[str, Any]) -> Path:
        """Write the batch that a run failed at, and return its path."""
        if is_first():
            write_json(self.path / FAILED_BATCH, finite(batch))
        return self.path / FAILED_BATCH

    def save_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        """Write the checkpoint of the first process; if there is no room for it, the last good one stays."""
        if checkpoint is None:
            return
        assert self.metrics is not None
        os.fsync(self.metrics.fileno())
        checkpoint.facts["metrics_bytes"] = self.metrics.tell()
        self.checkpoints.save(checkpoint)

    def finish(
        self,
        encoder: SentenceEncoder,
        head: nn.Module,
        config: dict[str, Any],
        card: str,
        kept: Mapping[str, nn.Module] | None = None,
    ) -> None:
        """Write the model. Its files appear one by one, ``model.safetensors`` as the last.

        Args:
            encoder: the trained encoder.
            head: the training head; goes to ``training_head/model.safetensors`` if it has weights.
            config: the configuration of the run, for ``sentcli.json``.
            card: the text of ``README.md``.
            kept: further trained parts by name, for ``training_head/NAME.safetensors``.
        """
        if self.metrics is None:
            return
        self.metrics.close()
        write_json(self.path / CONFIG_FILE, config)
        (self.path / CARD).write_text(card, "utf-8")
        if any(True for _ in head.parameters()):
            (self.path / HEAD_FOLDER).mkdir(exist_ok=True)
            save_weights(head, self.path / HEAD_FOLDER / WEIGHTS_FILE)
            note = "Used in training only. Encoding leaves it out unless asked: --pooling cls-head"
            write_json(self.path / HEAD_FOLDER / "config.json", {"type": type(head).__name__, "note": note})
        for name, part in (kept or {}).items():
            (self.path / HEAD_FOLDER).mkdir(exist_ok=True)
            save_weights(part, self.path / HEAD_FOLDER / f"{name}.safetensors")
        write_model_files(encoder.on_torch().local, self.path)
        add_beside(encoder.model, self.path)
        self._settle()

    def keep_results(self, results: dict[str, Any]) -> None:
        """Replace the results in the configuration of a finished run."""
        if is_first():
            config = _read(self.path / CONFIG_FILE)
            write_json(self.path / CONFIG_FILE, {**config, "results": results})

    def _settle(self) -> None:
        """Put the finished folder in its place, and remove what only an unfinished run needs."""
        if self.path != self.target:
            succeed(self.target)
            self.path = self.target
        self.checkpoints.clear()
        self._unlock()

    def _unlock(self) -> None:
        """Let another run in; the lock's file is deleted before the lock is released, while no other run has it."""
        with suppress(OSError):
            (self.path / LOCK_FILE).unlink(missing_ok=True)
            self.lock.release()

    def close(self) -> None:
        """Close the metrics and let another run in; what was written stays for --resume."""
        if self.metrics is not None:
            self.metrics.close()
        if self.lock.is_locked:
            self._unlock()


class RunFile(BaseModel, extra="allow"):
    """What is read of the JSON files of a run, besides comparing them with another run's."""

    environment: dict[str, Any] = {}
    results: dict[str, Any] = {}


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of a run."""
    try:
        content = decode(contents(path))
        checked(RunFile, content, path)
        return dict(content)
    except (OSError, ValueError, InputError) as error:
        message = f"{path} is missing or damaged, so --resume cannot go on; choose another -o, or --overwrite"
        raise InputError(message) from error


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a sentence for each value that differs."""
    old, new = _flat(old), _flat(new)
    missing = "nothing"
    return [
        f"{key} is {new.get(key, missing)!r:.200} and was {old.get(key, missing)!r:.200}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key, missing) != new.get(key, missing)
    ]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted name."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        parts = {str(i): item for i, item in enumerate(value)}.items()
    else:
        return {prefix.rstrip("."): value}
    return {key: item for name, part in parts for key, item in _flat(part, f"{prefix}{name}.").items()}
