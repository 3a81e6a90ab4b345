"""Static embeddings: a table of token vectors whose mean is the vector of a text, as data without torch.

They are the ``StaticEmbedding`` module of sentence-transformers, and its reading of model2vec's files:
``tokenizer.json`` and ``model.safetensors`` with the table, in which model2vec has a row for several tokens, and a
weight for each token.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from sentcli.errors import InputError, library_errors

if TYPE_CHECKING:
    import torch

    from sentcli.io.weights import StateDict

STATIC: Final = "StaticEmbedding"
"""The name of the module in ``modules.json``."""
STATIC_LENGTH = 2**20
"""The maximum length in tokens, since nothing limits it."""
TABLE, ROWS, WEIGHTS = "embedding.weight", "mapping", "weights"
TABLES = (TABLE, "embeddings")
"""The names of the table: that of sentence-transformers and that of model2vec."""


def table_sizes(folder: Path) -> dict[str, int]:
    """Return the dimension and the number of tokens of a table, read from the head of its file.

    Raises:
        InputError: if there is no such file, or it holds no table.
    """
    from safetensors import safe_open

    path = folder / "model.safetensors"
    if not path.is_file():
        raise InputError(f"{path} is missing, which holds the vectors of {STATIC}")
    reading = library_errors(lambda why: InputError(f"{path} is damaged: {why}"))
    with reading, safe_open(path, framework="numpy") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    shape = next((shapes[name] for name in TABLES if name in shapes), ())
    if len(shape) != 2:
        raise InputError(f"{path} holds no table of token vectors: {' or '.join(TABLES)}")
    tokens = shapes.get(ROWS, shape)[0]
    return {"hidden_size": shape[1], "vocab_size": tokens}


def static_table(folder: Path, state: StateDict) -> torch.Tensor:
    """Return the vector of each token ``[vocabulary, d]``, given the weights of a folder.

    Raises:
        InputError: if a row that a token has is not in the table.
    """
    table = next(state[name] for name in TABLES if name in state).float()
    if ROWS in state:
        rows = state[ROWS].long()
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(table):
            raise InputError(f"{folder}: a token has a row that is not in its table of {len(table)} vectors")
        table = table[rows]
    return table * state[WEIGHTS].float()[:, None] if WEIGHTS in state else table
