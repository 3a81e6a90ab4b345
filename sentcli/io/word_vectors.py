"""Text files of word vectors, as GloVe and word2vec write them, as model folders in the cache."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sentcli.bounds import whole_number
from sentcli.console import working
from sentcli.errors import DataError, InputError
from sentcli.io.atomic import replacing
from sentcli.io.digests import MODEL_BYTES, cache_folder, known_digest, least_recently_used
from sentcli.io.packed import DAMAGED, PACKED, open_packed
from sentcli.io.weights import SERVE_IT

if TYPE_CHECKING:
    from sentcli.arrays import Float32Array

_FORMAT = 2
"""Changes when another model comes out of the same file: then what is in the cache is not read again."""
MODELS = {
    ".gguf": SERVE_IT,
    ".onnx": "name its folder, which has the tokenizer",
    ".safetensors": "name its folder, which has the configuration and the tokenizer",
}
"""The advice for a file of word vectors that is no text, by its ending."""
UNKNOWN = "[UNK]"
"""Stands for words without a vector. Its own is zero: such words change the length of a text's vector, no cosine."""


def word_vector_folder(path: Path) -> Path:
    """Return the model folder of a text file of word vectors; it is made once and kept in the cache.

    Raises:
        InputError: if the file holds something else.
    """
    if path.suffix in MODELS:
        raise InputError(f"{path} is the file of a model, not word vectors: {MODELS[path.suffix]}")
    folder = cache_folder("word-vectors") / f"{known_digest(path)[:32]}-{_FORMAT}"

    def write(temporary: Path) -> None:
        from tokenizers import normalizers

        words, table = read_word_vectors(path)
        is_lowercase = all(word == word.lower() for word in words)
        normalizer = normalizers.Lowercase() if is_lowercase else normalizers.NFC()
        write_static_folder(temporary, words, table, normalizer)

    return made_once(folder, write)


def made_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """Return a model folder of the cache, which is made if it is not there; old ones beside it make room.

    Args:
        folder: in a folder of the cache that holds models alone.
        write: writes the model into an empty folder.
    """
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder) as temporary:
            temporary.mkdir()
            write(temporary)
        for old in least_recently_used(filter(Path.is_dir, folder.parent.iterdir()), folder, MODEL_BYTES):
            shutil.rmtree(old, ignore_errors=True)
    with suppress(OSError):  # notes the use
        folder.touch()
    return folder


def read_word_vectors(path: Path) -> tuple[list[str], Float32Array]:
    """Read words and their vectors ``[words, d]``.

    A line is a word and d numbers, with single spaces between them; word2vec has a line with the number of words and d
    before them. Of a word that comes twice the first vector counts.

    Raises:
        InputError: if the first line is no vector, or a later one has another number of values.
    """
    vectors: dict[str, Float32Array] = {}
    dimension = 0
    no_model = f"{path} is a file; a model is a folder, or a text file of word vectors"
    with working(f"reading the word vectors of {path.name} (once)") as say, _opened(path) as handle:
        try:
            for number, line in enumerate(handle, 1):
                fields = line.rstrip().split(" ")
                if number == 1:
                    dimension = len(fields) - 1
                    stated = _stated_dimension(fields)
                    if stated is not None:
                        dimension = stated
                        continue
                word = " ".join(fields[: len(fields) - dimension])
                vector = _vector(fields, dimension)
                if not word or vector is None:
                    if number == 1:
                        raise InputError(no_model)
                    raise DataError(path, f"expected a word and {dimension} numbers", line=number)
                vectors.setdefault(word, vector)
                if number % 20_000 == 0:
                    say(f"{number:,} words")
        except (UnicodeDecodeError, *DAMAGED) as error:
            raise InputError(f"{no_model} in UTF-8") from error
    if not vectors:
        raise InputError(f"{path} holds no word vectors")
    return list(vectors), np.stack(list(vectors.values()))


def _stated_dimension(fields: Sequence[str]) -> int | None:
    """Return the dimension that the first line of word2vec states, behind the number of words; None for other lines."""
    if len(fields) != 2 or whole_number(fields[0]) is None:
        return None
    return whole_number(fields[1])


def _opened(path: Path) -> IO[str]:
    """Open the file as text, without a byte-order mark; only line feeds end a line, as in files of texts."""
    packed = PACKED.get(path.suffix.lower(), "")
    return io.TextIOWrapper(open_packed(path, packed), encoding="utf-8-sig", newline="\n")


def _vector(fields: Sequence[str], dimension: int) -> Float32Array | None:
    """Return the vector in the last fields of a line, or None if these are no finite numbers or too few."""
    if not dimension:
        return None
    try:
        vector = np.array(fields[-dimension:], np.float32)
    except ValueError:
        return None
    return vector if len(vector) == dimension and np.isfinite(vector).all() else None


def write_static_folder(
    folder: Path, words: Sequence[str], table: Float32Array, normalizer: Any, pre_tokenizer: Any = None
) -> None:
    """Write words and their vectors as a model that sentence-transformers opens, into an existing folder.

    Args:
        folder: an empty folder.
        words: without repetitions.
        table: a vector for each ``[words, d]``.
        normalizer: of the tokenizers library, for a text.
        pre_tokenizer: of the tokenizers library, which cuts a text into words; None cuts it at white space and around
            punctuation.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    kept_rows = [row for row, word in enumerate(words) if word != UNKNOWN]
    rows = np.zeros((len(kept_rows) + 1, table.shape[1]), np.float32)
    rows[1:] = table[kept_rows]
    vocabulary = {UNKNOWN: 0}
    for number, row in enumerate(kept_rows, 1):
        vocabulary[words[row]] = number
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    write_static(folder, tokenizer, rows)


def write_static(folder: Path, tokenizer: Any, table: Float32Array, *, unit_length: bool = False) -> None:
    """Write a table of token vectors as a model that sentence-transformers opens, into an existing folder.

    Args:
        folder: an empty folder.
        tokenizer: of the tokenizers library.
        table: the vector of each token ``[tokens, d]``.
        unit_length: whether the vectors of texts have length 1.
    """
    from safetensors.numpy import save_file

    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"embedding.weight": table}, folder / "model.safetensors", metadata={"format": "pt"})
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
    if unit_length:
        (folder / "1_Normalize").mkdir()
        entries.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"})
    (folder / "modules.json").write_text(json.dumps(entries, indent=2), "utf-8")
