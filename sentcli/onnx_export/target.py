"""The folder that an export is written to: a new one, or in the hub's layout that of a model, which it is added to."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from sentcli.errors import InputError
from sentcli.io.atomic import check_output
from sentcli.io.digests import file_digest
from sentcli.io.weights import has_weights
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import EXPORT, exports_in, facts_file, source_digests
from sentcli.model.graph_files import weights_file
from sentcli.model.identity import TOKENIZER_FILES, same_modules, weight_digests
from sentcli.model.spec_files import is_model_folder, read_spec


@dataclass(frozen=True)
class Target:
    """The folder of an export, and what is there already."""

    folder: Path
    file: str
    """The graph inside the folder in the hub's layout; else empty."""
    overwrite: bool

    @property
    def is_model(self) -> bool:
        """Whether the graph is added to the folder of a model, whose other files stay as they are."""
        return bool(self.file) and is_model_folder(self.folder)

    def check(self, model: LoadedModel) -> None:
        """Refuse a folder that an export of this model must not be written to.

        Raises:
            InputError: if it holds other files, the same export without `overwrite`, or another model.
        """
        folder = self.folder
        check_output(folder, overwrite=self.overwrite or self.is_model, folder=True)
        if self.is_model:
            self._check_same(model)
        elif folder.is_dir() and any(folder.iterdir()) and not exports_in(folder):
            raise InputError(f"{folder} holds files, but no {EXPORT} of sentcli export; choose another -o")

    def _check_same(self, model: LoadedModel) -> None:
        folder, others = self.folder, exports_in(self.folder)
        if (folder / self.file).exists() and not self.overwrite:
            raise InputError(f"{folder / self.file} exists; use --overwrite to replace it, or another -o")
        sources = [export.source_sha256 for export in others]
        there = read_spec(folder)
        if has_weights(folder):
            sources.append(weight_digests(there))
        if source_digests(model.spec) not in sources or not same_modules(there.modules, model.spec.modules):
            raise InputError(f"{folder} holds another model than {model.name}; choose another -o")
        lengths = {export.max_length for export in others}
        if there.max_length is not None:
            lengths.add(there.max_length)
        if lengths - {model.tokenizer.max_length}:
            raise InputError(f"{folder} holds a model of another maximum length than {model.tokenizer.max_length}")

    def keep_others(self, made: Path) -> None:
        """Link what the model's folder holds into the one that replaces it, except what was made anew.

        Args:
            made: the new folder, with the graph and the tokenizer's files.

        Raises:
            InputError: if its other exports have another tokenizer.json.
        """
        tokenizer = self.folder / "tokenizer.json"
        others = [export for export in exports_in(self.folder) if export.file != self.file]
        if others and file_digest(tokenizer) != file_digest(made / tokenizer.name):
            raise InputError(f"{tokenizer} is not what this version writes; export all again to another folder")
        replaced = {self.file, str(weights_file(Path(self.file))), facts_file(self.file), *TOKENIZER_FILES}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_dir() and not path.is_symlink():
                (made / name).mkdir(exist_ok=True)
            elif str(name) not in replaced or not (made / name).exists():
                _link(path, made / name)


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the disk has no such names."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
