"""Static embeddings: a table of token vectors whose mean is the vector of a text, as data without torch.

They are the ``StaticEmbedding`` module of sentence-transformers, and the folders of model2vec, each by the rule of its
own package: ``tokenizer.json`` and ``model.safetensors`` with the table, in which model2vec has a row for several
tokens, and a weight for each token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli.errors import DataError, InputError, library_errors
from sentcli.io.atomic import regular
from sentcli.io.forms import checked, read_json
from sentcli.model.folder_keys import CONFIG, STATIC_CONFIG, refuse_keys
from sentcli.model.spec import STATIC

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray

STATIC_LENGTH = 2**20
"""The maximum length in tokens, since nothing limits it."""
_TABLE = "embedding.weight"
ROWS = "mapping"
_WEIGHTS = "weights"
THEIR_TABLE = "embeddings"
"""The name of the table in model2vec's files."""
TABLE_FILE = "model.safetensors"
"""The file of the table, the weights and the rows of tokens."""
_TABLES = (_TABLE, THEIR_TABLE)


@dataclass(frozen=True)
class StaticSettings:
    """What model2vec says in its ``config.json``."""

    normalize: bool | None = None
    max_length: Annotated[int, Ge(1)] | None = 512


@dataclass(frozen=True)
class StaticRule:
    """How the mean over the tokens of a text is taken: sentence-transformers and model2vec differ."""

    leaves_out_unknown: bool = False
    """Whether unknown tokens are left out; sentence-transformers takes their vector like any other."""
    max_length: int = STATIC_LENGTH
    normalize: bool | None = None
    """Whether vectors have length 1; None leaves it to modules.json."""
    unknown_keys: tuple[str, ...] = ()


def is_model2vec(folder: Path) -> bool:
    """Tell whether a folder without modules.json is one of model2vec, by the table in its weights."""
    if not (folder / TABLE_FILE).is_file() or (folder / "1_Pooling").exists():
        return False
    config = read_json(folder / CONFIG, default={})
    if not isinstance(config, dict) or config.get("model_type", "model2vec") != "model2vec":
        return False
    return THEIR_TABLE in _shapes(folder / TABLE_FILE)


def read_rule(folder: Path) -> StaticRule:
    """Return the rule of a folder: that of model2vec if the table has model2vec's name, else sentence-transformers'.

    Raises:
        InputError: if the table or its settings are damaged.
    """
    if THEIR_TABLE not in _shapes(folder / TABLE_FILE):
        return StaticRule()
    path = folder / CONFIG
    content = read_json(path, default={})
    if not isinstance(content, dict):
        raise DataError(path, f"expected a JSON object, not {content!r:.60}")
    unknown = refuse_keys(STATIC_CONFIG, content, path)
    settings = checked(StaticSettings, content, path)
    length = STATIC_LENGTH if settings.max_length is None else settings.max_length
    return StaticRule(True, length, settings.normalize, tuple(f"{name} in {path.name}" for name in unknown))


def unknown_token(tokenizer: Any) -> int | None:
    """Return the id of the token that stands for what a `tokenizers.Tokenizer` does not know, if there is one."""
    import json

    model = json.loads(tokenizer.to_str())["model"]
    if "unk_token" not in model:
        return model.get("unk_id")
    if model["unk_token"] is None:
        return None
    return tokenizer.token_to_id(model["unk_token"])


def most_characters(tokenizer: Any, max_length: int) -> int:
    """Return the number of characters after which model2vec cuts a text before it tokenises it.

    It takes the maximum length times the median length of a token.
    """
    import numpy as np

    lengths = [len(token) for token in tokenizer.get_vocab()]
    return max_length * int(np.median(lengths))


def table_sizes(folder: Path) -> dict[str, int]:
    """Return the dimension and the number of tokens of a table, read from the head of its file.

    Raises:
        InputError: if there is no such file, or it holds no table.
    """
    path = folder / TABLE_FILE
    shapes = _shapes(path)
    shape = next((shapes[name] for name in _TABLES if name in shapes), ())
    if len(shape) != 2:
        raise InputError(f"{path} holds no table of token vectors: {' or '.join(_TABLES)}")
    tokens = shapes.get(ROWS, shape)[0]
    return {"hidden_size": shape[1], "vocab_size": tokens}


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor, read from the head of a file."""
    from safetensors import safe_open

    if not path.is_file():
        raise InputError(f"{path} is missing, which holds the vectors of {STATIC}")
    regular(path)
    reading = library_errors(lambda why: InputError(f"{path} is damaged: {why}"))
    with reading, safe_open(path, framework="numpy") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def static_table(folder: Path, state: Mapping[str, AnyArray]) -> AnyArray:
    """Return the float32 vector of each token ``[vocabulary, d]``, given the weights of a folder.

    Raises:
        InputError: if a row that a token has is not in the table.
    """
    import numpy as np

    table: AnyArray = next(state[name] for name in _TABLES if name in state)
    table = table.astype(np.float32, copy=False)
    if ROWS in state:
        rows = state[ROWS].astype(np.int64, copy=False)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(table):
            raise InputError(f"{folder}: a token has a row that is not in its table of {len(table)} vectors")
        table = table[rows]
    if _WEIGHTS in state:
        weights = state[_WEIGHTS].astype(np.float32)
        table = table * weights[:, None]
    return table
