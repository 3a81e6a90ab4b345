"""The folder that an export is written to: a new one, or in the hub's layout that of a model, which it is added to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.atomic import OwnFiles, check_output, link
from sentcli.io.digests import file_digest
from sentcli.io.graph_files import weights_file
from sentcli.io.weights import has_weights
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import EXPORT, Export, exports_in, facts_file
from sentcli.model.identity import TOKENIZER_FILES, ModelSource, model_digest, same_modules
from sentcli.model.saving import MODEL_FILES
from sentcli.model.spec import EncoderSpec
from sentcli.model.spec_files import is_model_folder, read_spec
from sentcli.model.tokenizing import TextTokenizer

EXPORT_FOLDER = OwnFiles(MODEL_FILES, markers=(EXPORT,))
TOLD = {
    "prompts": "prompts",
    "default_prompt": "default prompt",
    "stated_similarity": "similarity",
    "lowercase": "lower-casing",
}
"""What the files of a folder say for all its graphs, by the field of `EncoderSpec`."""


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
        if self.is_model:
            check_output(folder, overwrite=True, folder=True)
            self._check_same(model)
            return
        added = [export.file for export in exports_in(folder) if export.file]
        if added:
            raise InputError(
                f"{folder} is the folder of a model, to which {added[0]} was added, and all of it would be replaced; "
                "choose another -o, or --layout hub"
            )
        check_output(folder, overwrite=self.overwrite, folder=True, own=EXPORT_FOLDER)

    def _check_same(self, model: LoadedModel) -> None:
        """Refuse to add a graph to the folder of another model, or one that is there already."""
        folder = self.folder
        graph = folder / self.file
        if graph.exists() and not self.overwrite:
            raise InputError(f"{graph} exists; use --overwrite to replace it, or another -o")
        spec = model.spec
        there = read_spec(folder)
        others = self._exports_of(there)
        sources = [ModelSource.of_export(export) for export in others]
        if has_weights(folder):
            sources.append(ModelSource.of_files(there))
        if ModelSource.of(spec) not in sources or not same_modules(there.modules, spec.modules):
            raise InputError(f"{folder} holds another model than {model.name}; choose another -o")
        for name, what in TOLD.items():
            if getattr(there, name) != getattr(spec, name):
                raise InputError(f"{folder} holds a model of other {what} than {model.name}; choose another -o")
        lengths = {export.max_length for export in others}
        if not lengths:
            lengths.add(self._length_without_exports(there, model))
        length = model.tokenizer.max_length
        if lengths != {length}:
            stated = ", ".join(map(str, sorted(lengths)))
            raise InputError(f"{folder} holds a model of the maximum length {stated}, not {length}; choose another -o")

    def _exports_of(self, there: EncoderSpec) -> list[Export]:
        """Return the exports in the folder of a model, but none of earlier weights."""
        exports = exports_in(self.folder)
        if not has_weights(self.folder):
            return exports
        digest = model_digest(there)
        return [export for export in exports if export.model_digest == digest]

    def _length_without_exports(self, there: EncoderSpec, model: LoadedModel) -> int:
        """Return the maximum length of a model whose tokenizer's files are written anew.

        Raises:
            InputError: if it has another tokenizer.
        """
        from sentcli.model.torch_backend import load_tokenizer, text_tokenizer

        own = text_tokenizer(load_tokenizer(there.tokenizer_folder), there, None)
        if own.side != model.tokenizer.side or _without_length(own) != _without_length(model.tokenizer):
            raise InputError(f"{self.folder} holds a model with another tokenizer than {model.name}; choose another -o")
        return own.max_length

    def keep_others(self, new: Path) -> None:
        """Link what the model's folder holds into the one that replaces it, except what was made anew.

        Args:
            new: the new folder, with the graph and the tokenizer's files.

        Raises:
            InputError: if its other exports have another tokenizer.json.
        """
        folder = self.folder
        file = self.file
        tokenizer = folder / "tokenizer.json"
        others = [export for export in exports_in(folder) if export.file != file]
        if others and file_digest(tokenizer) != file_digest(new / tokenizer.name):
            raise InputError(f"{tokenizer} is not what this model's export has now; export all again to another folder")
        weights = str(weights_file(Path(file)))
        replaced = {file, weights, facts_file(file), *TOKENIZER_FILES}
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            target = new / name
            if path.is_dir() and not path.is_symlink():
                target.mkdir(exist_ok=True)
            elif str(name) not in replaced or not target.exists():
                link(path, target, follow_symlinks=False)


def _without_length(tokenizer: TextTokenizer) -> dict[str, Any]:
    """Return what a tokenizer does, as tokenizer.json says it, but not how many tokens it keeps."""
    return {**json.loads(tokenizer.backend.to_str()), "truncation": None}
