"""Models of the hub, ``owner/name`` or ``owner/name@REVISION``, and those that are in the hub's cache on this machine.

Nothing here opens the network. The cache is laid out as the documentation of huggingface_hub says: ``refs/NAME`` holds
the commit that a branch or tag had when it was fetched, ``snapshots/COMMIT`` the files of a commit.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.digests import cache_folder
from sentcli.io.forms import checked, read_json
from sentcli.io.graph_files import DATA_ENDINGS, HUB_GRAPHS, ONNX, OPENVINO_NAMES, weights_file
from sentcli.io.typed import ValueCheck
from sentcli.io.weights import ADAPTER, ADAPTER_WEIGHTS, has_weights, inside, weight_files

MAIN = "main"
"""The branch that is taken where no revision is named."""
CARD = "README.md"
"""The card of a model, which states its licence."""
OPENVINO_GRAPHS = (HUB_GRAPHS["openvino", "fp32"], *OPENVINO_NAMES["fp32"])
GRAPHS = (HUB_GRAPHS["onnx", "fp32"], ONNX, *OPENVINO_GRAPHS)
"""Where a repository without weights for torch keeps its graph, the first choice first."""
_COMMIT = re.compile("[0-9a-f]{40}")
_SHORT_COMMIT = re.compile("[0-9a-f]{7,39}")
_REVISION = re.compile(r"(?!.*(\.\.|//|@\{))\w[\w.+/@-]{0,199}(?<![./])")
"""A branch, tag or commit, as `git check-ref-format` has it, but for signs that nobody uses."""
_WEIGHTED = ("Dense", "CNN")
"""The classes of modules that always have weights of their own."""
SEARCHED_BYTES = 2**26
"""A graph of more bytes holds its weights itself."""
_said: set[tuple[HubModel, str]] = set()
"""The newer commits of which this process has said that they are not whole."""


@dataclass(frozen=True)
class _ModuleEntry:
    """What is read of an entry of ``modules.json`` to know what has to be fetched."""

    path: Annotated[str, ValueCheck(inside)]
    type: str = ""


@dataclass(frozen=True)
class HubModel:
    """A model of the hub, at a branch, a tag or a commit; as text it is the name that the user types."""

    repository: str
    """``owner/name``."""
    revision: str = MAIN

    @classmethod
    def parse(cls, name: str) -> HubModel | None:
        """Return the model of a name that the hub may give, or None."""
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        repository, at, revision = name.partition("@")
        if repository.count("/") != 1 or repository.startswith((".", "~")):
            return None
        if at and not _REVISION.fullmatch(revision):
            return None
        try:
            validate_repo_id(repository)
        except HFValidationError:
            return None
        return cls(repository, revision or MAIN)

    def __str__(self) -> str:
        if self.revision == MAIN:
            return self.repository
        return f"{self.repository}@{self.revision}"

    @property
    def page(self) -> str:
        """The address of its page."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{self.repository}"

    @property
    def folder(self) -> Path:
        """The folder of the repository in the hub's cache, whether it is there or not."""
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE).expanduser() / f"models--{self.repository.replace('/', '--')}"

    @property
    def reference(self) -> Path:
        """The file that holds the commit of a branch or tag."""
        return self.folder / "refs" / self.revision

    def snapshot(self, commit: str) -> Path:
        """Return the folder of a commit, whether it is there or not."""
        return self.folder / "snapshots" / commit

    def commits(self) -> Iterator[str]:
        """Yield the commits that the revision may stand for on this machine, the first choice first."""
        if is_commit(self.revision):
            yield self.revision
            return
        for file in (self.reference, self._last_use):
            commit = _commit_in(file)
            if commit is not None:
                yield commit
        if _SHORT_COMMIT.fullmatch(self.revision):
            fitting = list(self.folder.glob(f"snapshots/{self.revision}*"))
            if len(fitting) == 1:
                yield fitting[0].name

    def names_commit(self, commit: str) -> bool:
        """Tell whether the revision is this commit itself, in full or by its first digits."""
        written_out = is_commit(self.revision) or _SHORT_COMMIT.fullmatch(self.revision) is not None
        return written_out and commit.startswith(self.revision)

    def cached(self, *, native: bool = True) -> Path | None:
        """Return the folder of the model if it is whole on this machine, else None.

        Where the commit of a branch is not whole, as after a download that was cut off, the one that was used last is
        taken.

        Args:
            native: whether a folder is to have its weights even if it names code of its own, for which it is refused.
        """
        for commit in self.commits():
            folder = self.snapshot(commit)
            with suppress(InputError, OSError):  # a damaged file: fetching tells of it
                if _is_whole(folder) or (not native and needs_code(folder)):
                    return folder
        return None

    def note_use(self, commit: str) -> None:
        """Say once if the model is another commit than when it was used last, and keep which one it is now."""
        if self.names_commit(commit):
            return
        self._note_newer(commit)
        before = _commit_in(self._last_use)
        if before == commit or (before is not None and console.state.quiet):
            return
        if before is not None:
            console.note(
                f"{self} is another model now: commit {short_digits(commit)}, and {short_digits(before)} when it was "
                f"used last ({self.repository}@{short_digits(before)} is that one)"
            )
        with suppress(OSError, InputError):  # the cache cannot be written: nothing is remembered
            self._last_use.parent.mkdir(parents=True, exist_ok=True)
            write_commit(self._last_use, commit)

    def _note_newer(self, commit: str) -> None:
        """Say once if the revision has a newer commit, which is not whole."""
        newest = _commit_in(self.reference)
        if newest is None or newest == commit:
            return
        if (self, newest) in _said or console.state.quiet:
            return
        _said.add((self, newest))
        console.note(
            f"{self}: commit {short_digits(commit)} is taken, since {short_digits(newest)} is not whole in the hub's "
            f"cache; 'hf download {self.repository}' completes it"
        )

    @property
    def _last_use(self) -> Path:
        """The file of sentcli's cache that holds the commit that was used last."""
        name = hashlib.sha256(f"{self.repository}@{self.revision}".encode()).hexdigest()
        return cache_folder("revisions") / name[:32]


def is_commit(text: str) -> bool:
    """Tell whether a text is the whole name of a commit."""
    return _COMMIT.fullmatch(text) is not None


def short_digits(digits: str) -> str:
    """Return the digits of a commit or a digest that are shown; of commits, git takes as few as seven."""
    return digits[:12]


def _commit_in(path: Path) -> str | None:
    try:
        commit = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    if is_commit(commit):
        return commit
    return None


def write_commit(path: Path, commit: str) -> None:
    """Write the file that holds a commit."""
    with replacing(path) as temporary:
        temporary.write_text(commit, "ascii")


def commit_of(folder: Path) -> str | None:
    """Return the commit of a folder inside the hub's cache, whoever named it; None for any other folder."""
    parts = folder.parts
    for before, after in pairwise(parts):
        if before == "snapshots" and is_commit(after):
            return after
    return None


def models_in_cache() -> Iterator[tuple[HubModel, Path]]:
    """Yield the models that are whole in the hub's cache, with their folders, each branch, tag and other commit."""
    from huggingface_hub import constants

    for folder in sorted(Path(constants.HF_HUB_CACHE).expanduser().glob("models--*--*")):
        repository = folder.name.removeprefix("models--").replace("--", "/")
        for revision in _revisions_in(folder):
            model = HubModel.parse(f"{repository}@{revision}")
            if model is None:
                continue
            model_folder = model.cached()
            if model_folder is not None:
                yield model, model_folder


def _revisions_in(folder: Path) -> list[str]:
    """Return the branches and tags of a repository in the cache, and the commits that none of them names."""
    names, named_commits = [], set()
    for path in sorted((folder / "refs").rglob("*")):
        if path.is_file():
            names.append(path.relative_to(folder / "refs").as_posix())
            named_commits.add(_commit_in(path))
    commits = {path.name for path in (folder / "snapshots").glob("*")}
    return names + sorted(commits - named_commits)


def module_entries(folder: Path) -> list[_ModuleEntry]:
    """Return the modules of a model with their folders inside its own, ``""`` for its own, the only one of most.

    Raises:
        InputError: if ``modules.json`` is damaged.
    """
    path = folder / "modules.json"
    if not path.exists():
        return [_ModuleEntry(path="")]
    return checked(list[_ModuleEntry], read_json(path), path) or [_ModuleEntry(path="")]


def needs_code(folder: Path) -> bool:
    """Tell whether the configuration of a model's first module names code of the folder's own."""
    config: Any = read_json(folder / module_entries(folder)[0].path / "config.json", default={})
    return isinstance(config, dict) and bool(config.get("auto_map"))


def _is_whole(folder: Path) -> bool:
    """Tell whether a folder has all weights of its modules: of a transformer, a table of vectors or an adapter."""
    if not folder.is_dir():
        return False
    modules = module_entries(folder)
    first = folder / modules[0].path
    if (first / ADAPTER).exists():
        return any((first / name).exists() for name in ADAPTER_WEIGHTS)
    listed = (folder / "modules.json").exists()  # static embeddings need no config.json then
    if not ((first / "config.json").exists() or (listed and (first / "tokenizer.json").exists())):
        return False
    if not has_weights(first):
        return _has_graph(folder)
    weighted = [folder / entry.path for entry in modules[1:] if entry.type.rpartition(".")[2] in _WEIGHTED]
    if not all(has_weights(module) for module in weighted):
        return False
    return all(path.exists() for path in weight_files(first))


def _has_graph(folder: Path) -> bool:
    """Tell whether a folder without weights for torch holds a graph, with the weights that it keeps beside itself."""
    of_onnx = (*folder.glob("*.onnx"), *folder.glob("onnx/*.onnx"))
    if any(_is_whole_graph(path) for path in of_onnx):
        return True
    of_openvino = [folder / name for name in OPENVINO_GRAPHS]
    return any(path.exists() and weights_file(path).exists() for path in of_openvino)


def _is_whole_graph(path: Path) -> bool:
    """Tell whether a graph of ONNX is there, with the usual files of weights that it names."""
    if not path.exists():  # a link of the cache to a file that is gone
        return False
    if path.stat().st_size >= SEARCHED_BYTES:
        return True
    content = path.read_bytes()
    beside = [path.with_name(path.name + ending) for ending in DATA_ENDINGS]
    named = [data for data in beside if os.fsencode(data.name) in content]
    return all(data.exists() for data in named)
