"""The folder of a training run.

While it trains: ``metrics.jsonl`` grows, ``best.safetensors`` holds the best weights so far. When it has finished:
a sentence-transformers model, with ``model.safetensors`` written last, the training head apart under
``training_head/``, the resolved configuration in ``sentcli.json`` and a model card.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file
from torch import nn

from sentcli.encoder.checkpoint import HEAD_FOLDER
from sentcli.encoder.saving import save_weights, write_model_files
from sentcli.errors import InputError
from sentcli.io.atomic import check_output, write_json
from sentcli.report import finite

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

METRICS, CONFIG, BEST = "metrics.jsonl", "sentcli.json", "best.safetensors"
OWN_FILES = (
    METRICS, CONFIG, BEST, HEAD_FOLDER, "README.md", "model.safetensors", "config.json", "modules.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "*token*.json", "vocab.*", "merges.txt",
    "*.model", "[0-9]_*", ".*.partial",
)  # fmt: skip
"""What a run leaves in its folder: --overwrite removes a folder only if it holds nothing else."""


def check_run_folder(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a folder that a run must not write to.

    Raises:
        InputError: if it holds something and `overwrite` is false, or something that is not a run, or is a file.
    """
    if str(path) == "-":
        raise InputError("-o -: a trained model is a folder, it cannot go to standard output")
    empty = path.is_dir() and not any(path.iterdir())
    check_output(path, overwrite=overwrite or empty, folder=True)
    if path.is_dir():
        if Path.cwd().is_relative_to(path.resolve()):
            raise InputError(f"{path} is the folder that you are in; choose another -o")
        foreign = [p.name for p in path.iterdir() if not any(p.match(pattern) for pattern in OWN_FILES)]
        if foreign:
            raise InputError(f"{path} holds files that are not a training run's ({foreign[0]}); choose another -o")


class RunFolder:
    """Where one run writes; what an earlier run left there is removed."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        check_run_folder(path, overwrite=overwrite)
        self.path = path = path.resolve()
        if path.is_dir():
            shutil.rmtree(path)
        path.mkdir()
        self.metrics = (path / METRICS).open("w", encoding="utf-8")

    def log(self, record: dict[str, Any]) -> None:
        """Append one line to the metrics and flush it."""
        self.metrics.write(json.dumps(finite(record), allow_nan=False) + "\n")
        self.metrics.flush()

    def keep_best(self, model: nn.Module) -> None:
        """Write the weights of the moment as the best so far."""
        save_weights(model, self.path / BEST)

    def load_best(self, model: nn.Module) -> None:
        """Load what `keep_best` wrote last."""
        model.load_state_dict(load_file(self.path / BEST), strict=False)  # tied tensors stand in it once

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
            encoder: what was trained.
            head: goes to ``training_head/model.safetensors`` if it has weights.
            config: of the run.
            card: the README.
            kept: further trained parts, for ``training_head/NAME.safetensors``.
        """
        self.metrics.close()
        write_json(self.path / CONFIG, config)
        (self.path / "README.md").write_text(card, "utf-8")
        if any(True for _ in head.parameters()):
            (self.path / HEAD_FOLDER).mkdir(exist_ok=True)
            save_weights(head, self.path / HEAD_FOLDER / "model.safetensors")
            note = "Used in training only. Encoding leaves it out unless asked: --pooling cls-head"
            write_json(self.path / HEAD_FOLDER / "config.json", {"type": type(head).__name__, "note": note})
        for name, part in (kept or {}).items():
            (self.path / HEAD_FOLDER).mkdir(exist_ok=True)
            save_weights(part, self.path / HEAD_FOLDER / f"{name}.safetensors")
        write_model_files(encoder, self.path)
        (self.path / BEST).unlink(missing_ok=True)
