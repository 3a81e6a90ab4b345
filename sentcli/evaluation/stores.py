"""What was measured before: vectors by the hash of their text, and scores by model, data and protocol.

Both lie in the user's cache and can be deleted at any time. A score is read again without loading the model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli import machine
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.cache import cache_folder, least_recently_used
from sentcli.io.digests import known_digest
from sentcli.model import exported
from sentcli.model.encoding import Encoded, EncodeStats, Progress
from sentcli.model.spec import EncoderSpec

VECTORS, SCORES = "vectors", "scores"
SIZE_VARIABLE = "SENTCLI_VECTOR_CACHE_MB"
DEFAULT_MEGABYTES = 2048
TOGETHER = 8192
"""Texts that are encoded before their vectors are written."""
LOOKED_UP = 500
"""Texts that are looked up in one query."""


def digest(value: Any) -> str:
    """Return the SHA-256 of something that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def model_key(spec: EncoderSpec, options: list[Any], on_cpu: bool) -> str | None:
    """Return a hash of everything that decides a model's vectors, read from its folder without loading it.

    Weights, tokenizer, modules and prompts; backend, precision, device and length as asked for; the versions of sentcli
    (its files, too) and of the libraries, and the processor.

    Args:
        spec: of the model.
        options: of loading it.
        on_cpu: whether that is where it will run.

    Returns:
        None for a folder without weights, whose vectors are random.
    """
    weights = exported.source_digests(spec)
    if not weights:
        return None
    export = spec.folder / exported.ONNX
    facts = {
        "weights": weights,
        "model": exported.model_digest(spec),
        "export": known_digest(export) if export.exists() else None,
        "tokenizer": exported.tokenizer_digest(spec.folder),
        "length": spec.max_length,
        "lowercase": spec.lowercase,
        "prompt": spec.prompts.get(spec.default_prompt or ""),
        "options": options,
        "on cpu": on_cpu,
        "code": _code(),
        "versions": {name: machine.library_version(name) for name in machine.LIBRARIES},
        "processor": machine.processor(),
    }
    return digest(facts)


def library_key() -> str:
    """Return a hash of what decides scores that need no model: the versions of sentcli and of the libraries."""
    return digest({"code": _code(), "versions": {name: machine.library_version(name) for name in machine.LIBRARIES}})


@cache
def _code() -> str:
    """Return the SHA-256 of the package's own files."""
    code = hashlib.sha256()
    for path in sorted(Path(machine.__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return code.hexdigest()


class ScoreStore:
    """Scores of one model."""

    def __init__(self, key: str) -> None:
        self.key = key

    def read(self, *facts: Any) -> dict[str, Any] | None:
        """Return what was kept under some facts, or None."""
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(self._path(facts).read_text("utf-8"))
            return record if isinstance(record, dict) and {"encoder", "score"} <= record.keys() else None
        return None

    def write(self, record: dict[str, Any], *facts: Any) -> None:
        """Keep a record; a cache that cannot be written to is none."""
        path = self._path(facts)
        with contextlib.suppress(OSError, InputError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(record), "utf-8")

    def _path(self, facts: Sequence[Any]) -> Path:
        return cache_folder(SCORES) / self.key[:32] / f"{digest(facts)[:32]}.json"


class VectorStore:
    """The vectors of one model, in a SQLite file, while all such files together are not too large.

    A file that cannot be read or written is as good as none: texts are then encoded.

    Args:
        key: of the model and how it was loaded.
        fresh: encode everything anew, and replace what is kept.
        megabytes: that all files together may take; None is `size_limit`.
    """

    def __init__(self, key: str, *, fresh: bool = False, megabytes: int | None = None) -> None:
        self.key, self.fresh = key, fresh
        self.limit = (size_limit() if megabytes is None else megabytes) * 2**20

    def encode(
        self, encoder: SentenceEncoder, texts: Sequence[str], progress: Progress | None, prompt: str | None = None
    ) -> Encoded:
        """Take what is kept, encode the rest, and keep that, too; a prompt of None is the model's default one."""
        prompt = encoder.prompt_text(prompt=prompt)
        vectors = np.empty((len(texts), encoder.dimension), np.float32)
        beyond = np.zeros(len(texts), np.int64)
        names = _names(texts, prompt)
        kept = _Table(cache_folder(VECTORS) / f"{self.key[:32]}.db", self.limit)
        known = np.zeros(len(texts), bool) if self.fresh else kept.read(names, vectors, beyond)
        if progress is not None and known.any():
            progress(EncodeStats(texts=int(known.sum())))
        missing, tokens = np.flatnonzero(~known), 0
        for start in range(0, len(missing), TOGETHER):
            rows = missing[start : start + TOGETHER]
            encoded = encoder.encode_distinct([texts[row] for row in rows], prompt, progress=progress)
            vectors[rows], beyond[rows] = encoded.vectors, encoded.beyond
            tokens += encoded.tokens
            kept.write([names[row] for row in rows], encoded)
        kept.close()
        return Encoded(vectors, beyond, tokens)


def _names(texts: Sequence[str], prompt: str) -> list[bytes]:
    """Return a hash of each text behind a prompt, which is kept apart from it: some models do not pool its tokens."""
    key = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=32).digest() if prompt else b""
    return [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest() for text in texts]


def size_limit() -> int:
    """Return how many megabytes all kept vectors may take, from ``SENTCLI_VECTOR_CACHE_MB``; 0 keeps none.

    Raises:
        InputError: if that is no whole number.
    """
    named = os.environ.get(SIZE_VARIABLE, str(DEFAULT_MEGABYTES))
    if not named.isdigit():
        raise InputError(f"{SIZE_VARIABLE}={named}: expected a whole number of megabytes; 0 keeps no vectors")
    return int(named)


class _Table:
    """Vectors by the hash of their text, in a file that may be missing, torn or full."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        self.connection = self._open() if limit else None

    def _open(self) -> sqlite3.Connection | None:
        for _ in range(2):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                connection = sqlite3.connect(self.path, timeout=30)
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB, beyond INTEGER)"
                    " WITHOUT ROWID"
                )
                os.utime(self.path)  # it is in use
                return connection
            except sqlite3.OperationalError:  # no such folder, no right to write, locked
                return None
            except sqlite3.DatabaseError:  # torn: it is made anew
                self.path.unlink(missing_ok=True)
            except OSError:
                return None
        return None

    def read(
        self, names: Sequence[bytes], vectors: npt.NDArray[np.float32], beyond: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Fill in what is kept, and return which that is ``[n]``."""
        known = np.zeros(len(names), bool)
        rows = {name: row for row, name in enumerate(names)}
        for name, blob, lost in self._select(names):
            vector = np.frombuffer(blob, np.float32)
            if len(vector) == vectors.shape[1]:
                row = rows[name]
                vectors[row], beyond[row], known[row] = vector, lost, True
        return known

    def _select(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, bytes, int]]:
        with self._broken_is_none():
            for start in range(0, len(names), LOOKED_UP):
                some = names[start : start + LOOKED_UP]
                if self.connection is not None:
                    marks = ",".join("?" * len(some))
                    question = f"SELECT text, vector, beyond FROM vectors WHERE text IN ({marks})"
                    yield from self.connection.execute(question, some)

    def write(self, names: Sequence[bytes], encoded: Encoded) -> None:
        """Keep vectors, unless there is no room for them."""
        if self.connection is None:
            return
        size = encoded.vectors.nbytes + 64 * len(names)
        with contextlib.suppress(OSError):
            if self.path.stat().st_size + size > self.limit:
                return
            others = self.path.parent.glob("*.db")
            for file in least_recently_used(others, self.path, self.limit - size):
                file.unlink(missing_ok=True)
        rows = zip(names, map(bytes, encoded.vectors), encoded.beyond.tolist(), strict=True)
        with self._broken_is_none(), self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    @contextlib.contextmanager
    def _broken_is_none(self) -> Iterator[None]:
        """Do without the file from the first error on."""
        try:
            yield
        except sqlite3.OperationalError:  # full, locked, gone
            self.close()
        except sqlite3.DatabaseError:  # torn: the next run starts another one
            self.close()
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        if self.connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self.connection.close()
        self.connection = None
