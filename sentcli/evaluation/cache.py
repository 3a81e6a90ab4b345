"""The cache of scores, by model, data and protocol.

It is in the user's cache folder and can be deleted at any time. A cached score is read without loading the model.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.evaluation.score_json import score_of, score_record
from sentcli.evaluation.scores import TaskScore
from sentcli.io.atomic import replacing
from sentcli.io.digests import cache_folder, json_digest
from sentcli.io.forms import contents, decode


class ScoreCache:
    """The cached scores of one model."""

    def __init__(self, key: str) -> None:
        self.key = key

    def read(self, *identity: Any) -> dict[str, Any] | None:
        """Return the record that was written under the same identity, or None if there is none that is whole."""
        with contextlib.suppress(OSError, ValueError):
            record = decode(contents(self._path(identity)))
            whole = isinstance(record, dict) and record.pop("sha256", None) == json_digest(record)
            return record if whole else None
        return None

    def write(self, record: dict[str, Any], *identity: Any) -> None:
        """Write a record; nothing happens if the cache cannot be written."""
        path = self._path(identity)
        with contextlib.suppress(OSError, InputError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_text(json.dumps({**record, "sha256": json_digest(record)}), "utf-8")

    def kept(self, identity: Sequence[Any]) -> tuple[TaskScore, dict[str, Any]] | None:
        """Return the score of the task of an identity, and the description of the encoder that it was measured with."""
        record = self.read(*identity)
        if record is None:
            return None
        return score_of(record["score"]), record["encoder"]

    def keep(self, identity: Sequence[Any], score: TaskScore, encoder: dict[str, Any]) -> None:
        """Keep the score of a task for `kept`, unless the model has none."""
        if not score.reason:
            self.write({"encoder": encoder, "score": score_record(score)}, *identity)

    def _path(self, identity: Sequence[Any]) -> Path:
        return cache_folder("scores") / self.key[:32] / f"{json_digest(identity)[:32]}.json"
