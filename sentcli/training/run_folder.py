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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from torch import nn

from sentcli.encoder.loading import add_beside
from sentcli.errors import InputError
from sentcli.hub import CARD
from sentcli.io.atomic import OwnFiles, check_output, promote, require_room, staging_folder
from sentcli.io.forms import finite, write_json
from sentcli.io.graph_files import HUB_FOLDERS
from sentcli.io.weights import save_weights
from sentcli.model.exported import exports_in, graph_files
from sentcli.model.saving import MODEL_FILES, write_model_files
from sentcli.model.stored_heads import HEAD_FOLDER
from sentcli.processes import agree, everywhere, is_first
from sentcli.training.checkpoints import Checkpoint, Checkpoints
from sentcli.training.records import CONFIG_FILE, IDENTITY_FILE, METRICS_FILE, differences_of, read_run_file
from sentcli.training.written_model import check_written_model

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

LOCK_FILE = ".lock"
FAILED_BATCH = "failed-batch.json"
WEIGHTS_FILE = "model.safetensors"
UNCHECKED = ".tmp-unchecked"
"""The folder, in that of the run, in which the model lies until it was compared."""
ENVIRONMENT_KEY = "environment"
"""The key of ``run.json`` for versions and hardware, which may move the last bits of the weights."""
IN_PROGRESS = (METRICS_FILE, IDENTITY_FILE, LOCK_FILE, "best-*.safetensors", "checkpoint-*", "tensorboard", "wandb")
"""The files that an interrupted run needs to continue."""
OWN_FILES = OwnFiles((*MODEL_FILES, *IN_PROGRESS, CONFIG_FILE, FAILED_BATCH, HEAD_FOLDER, ".tmp*", "best.safetensors"))
"""The files that a run leaves in its folder."""

LENGTHS = ("settings.max_steps ", "settings.epochs ")
"""How a difference begins that is one of the length of a run alone."""
MOST_DIFFERENCES = 6
"""How many differences between two runs a message names."""


class LockedError(InputError):
    """Another run is writing to the folder."""


def check_run_folder(path: Path, *, overwrite: bool, resume: bool) -> None:
    """Refuse a folder that a run must not write to.

    Raises:
        InputError: if it is a file, holds files that no run wrote, or holds a run and neither flag is given.
    """
    is_empty = path.is_dir() and _is_empty(path)
    if path.is_dir() and not (is_empty or overwrite or resume):
        raise InputError(f"{path} exists; --resume continues it, --overwrite replaces it; or choose another -o")
    check_output(path, overwrite=overwrite or is_empty, resume=resume, folder=True)
    if not path.is_dir():
        return
    _refuse_foreign(path)
    is_run = is_empty or (path / IDENTITY_FILE).exists()
    if resume and not overwrite and not is_run:
        raise InputError(
            f"{path} holds no {IDENTITY_FILE}: it is no run to --resume; choose another -o, or --overwrite"
        )


def _is_empty(folder: Path) -> bool:
    """Tell whether a folder holds nothing but the lock of a run, or a file that a kill has left unfinished."""
    return all(_matches(path, (LOCK_FILE, ".*.partial")) for path in folder.iterdir())


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder with something in it that no run wrote."""
    for path in folder.iterdir():
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path} is no regular file; remove it, or choose another -o")
    foreign = [*OWN_FILES.others(folder), *_others_graphs(folder)]
    if foreign:
        raise InputError(f"{folder} holds files that are not a training run's ({foreign[0]}); choose another -o")


def _others_graphs(path: Path) -> list[str]:
    """Return the files in the folders of the hub's layout that `sentcli export` did not write."""
    exported = set()
    for export in exports_in(path):
        exported.add(path / export.facts_file)
        exported.update(graph_files(path, export.graph_file))
    others = []
    for folder in HUB_FOLDERS:
        for file in (path / folder).rglob("*"):
            if not file.is_dir() and file not in exported:
                others.append(str(file.relative_to(path)))
    return others


def _matches(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(path.match(pattern) for pattern in patterns)


def kept_identity(path: Path, *, overwrite: bool) -> dict[str, Any]:
    """Return the identity of the run that a folder holds, without opening it for writing; empty if there is none.

    Args:
        path: of the folder.
        overwrite: whether a run that replaces the one in the folder comes first, as `RunFolder` looks for it.
    """
    folders = [path]
    if overwrite:
        folders.insert(0, staging_folder(path.resolve()))
    for folder in folders:
        with suppress(InputError):  # there is none, or it is damaged, which is said when the run starts
            return read_run_file(folder / IDENTITY_FILE)
    return {}


class RunFolder:
    """The folder that one run writes to. With several processes, only the first one writes.

    With `overwrite`, a folder that holds a run stays as it is until the new model is complete, which is made in its
    `staging_folder`. With `resume` as well, a new run that was begun there goes on.

    Attributes:
        path: the folder that is written, which is the staging folder until `finish` has put it in place.
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
        self.identity: dict[str, Any] = json.loads(json.dumps(finite(dict(identity or {}))))
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
            if overwrite and not _is_empty(self.target):
                resume = self._find_begun(resume=resume)
            self._start(path, resume=resume)
        except BaseException:
            self._unlock()
            raise

    def _find_begun(self, *, resume: bool) -> bool:
        """Choose the folder for a run that replaces another one; return whether the same run goes on in it."""
        new = staging_folder(self.target)
        if resume:
            for folder in (new, self.target):
                with suppress(InputError):  # there is none, or it is damaged
                    identity = read_run_file(folder / IDENTITY_FILE)
                    identity.pop(ENVIRONMENT_KEY, None)
                    if not differences_of(identity, self.identity):
                        self.path = folder
                        return True
        self.path = new
        return False

    def _start(self, path: Path, *, resume: bool) -> None:
        """Begin a run in the folder, or go on with the one that it holds.

        Raises:
            InputError: if it holds another run.
        """
        goes_on = resume and (self.path / IDENTITY_FILE).exists()
        if goes_on:
            identity = read_run_file(self.path / IDENTITY_FILE)
            environment = identity.pop(ENVIRONMENT_KEY, {})
            differences = differences_of(identity, self.identity)
            if differences:
                advice = self._how_to_go_on(path, differences)
                shown = differences[:MOST_DIFFERENCES]
                others = len(differences) - len(shown)
                if others:
                    shown.append(f"and {others} more")
                raise InputError(f"--resume: {path} holds another run: {'; '.join(shown)}{advice}")
            self._resume()
            now = {key: self.environment.get(key) for key in environment}
            differences = differences_of(environment, now)
            if differences and self.checkpoint is not None:
                self.notes.append(f"the rest of the run will not have the same bytes: {'; '.join(differences)}")
        else:
            self.path.mkdir(exist_ok=True)
            self._clear((LOCK_FILE,))
        if self.checkpoint is None and self.results is None:
            write_json(self.path / IDENTITY_FILE, {**self.identity, ENVIRONMENT_KEY: self.environment})
        if not goes_on:  # after the identity, without which what a kill leaves would be no run
            self.metrics = (self.path / METRICS_FILE).open("w", encoding="utf-8")

    def _how_to_go_on(self, path: Path, differences: Sequence[str]) -> str:
        """Return what to do where a run differs from the one in the folder in its length alone."""
        for difference in differences:
            if not difference.startswith(LENGTHS):
                return ""
        before = ""
        if not (self.path / WEIGHTS_FILE).exists():
            before = "the schedule of its learning rate ends where it was begun to end: finish it as it was, then "
        return f". To train longer: {before}train the model further, -m {path} with another -o"

    def _resume(self) -> None:
        if (self.path / WEIGHTS_FILE).exists():
            self.results = read_run_file(self.path / CONFIG_FILE).get("results", {})
            self._put_in_place()
            return
        self.resumed = True
        self._clear(IN_PROGRESS)
        self.checkpoint, self.notes = self.checkpoints.load()
        size = 0
        if self.checkpoint is None:
            self.checkpoints.clear()
        else:
            size = self.checkpoint.facts["metrics_bytes"]
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
        if not is_first():
            size = 0
        everywhere(lambda: require_room(self.path, size, str(self.target)))

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
        """Write the model aside, compare it with the trained one, and put its files in the folder.

        ``model.safetensors`` appears as the last of them, so that a folder that a kill leaves before is an unfinished
        run.

        Args:
            encoder: the trained encoder.
            head: the training head; goes to ``training_head/model.safetensors`` if it has weights.
            config: the configuration of the run, for ``sentcli.json``.
            card: the text of ``README.md``.
            kept: further trained parts by name, for ``training_head/NAME.safetensors``.

        Raises:
            SentcliError: if what was written does not open, or is another model; then the folder holds an unfinished
                run.
        """
        if self.metrics is None:
            return
        self.metrics.close()
        write_json(self.path / CONFIG_FILE, config)
        (self.path / CARD).write_text(card, "utf-8")
        self._write_head(head, kept or {})
        written = self.path / UNCHECKED
        shutil.rmtree(written, ignore_errors=True)  # of a run that was killed here
        written.mkdir()
        try:
            write_model_files(encoder.on_torch().local, written)
            check_written_model(encoder, written)
            add_beside(encoder.model, written)
            names = {path.name for path in written.iterdir()} - {WEIGHTS_FILE}
            for name in [*sorted(names), WEIGHTS_FILE]:
                target = self.path / name
                if target.is_dir():
                    shutil.rmtree(target)
                (written / name).replace(target)
        finally:
            shutil.rmtree(written, ignore_errors=True)
        self._put_in_place()

    def _write_head(self, head: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        """Write what was trained beside the encoder: the head, if it has weights, and other parts by their names."""
        folder = self.path / HEAD_FOLDER
        if any(True for _ in head.parameters()):
            folder.mkdir(exist_ok=True)
            save_weights(head, folder / WEIGHTS_FILE)
            note = "Used in training only. Encoding leaves it out unless asked: --pooling cls-head"
            write_json(folder / "config.json", {"type": type(head).__name__, "note": note})
        for name, part in parts.items():
            folder.mkdir(exist_ok=True)
            save_weights(part, folder / f"{name}.safetensors")

    def keep_results(self, results: dict[str, Any]) -> None:
        """Replace the results in the configuration of a finished run."""
        if is_first():
            config = read_run_file(self.path / CONFIG_FILE)
            write_json(self.path / CONFIG_FILE, {**config, "results": results})

    def _put_in_place(self) -> None:
        """Put the finished folder in its place, and remove what only an unfinished run needs."""
        if self.path != self.target:
            promote(self.target)
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
