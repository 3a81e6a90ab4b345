"""The rows of mined negatives as a table that training takes, and that other tools read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.writers import as_json
from sentcli.mining.mined import Mined, MinedRow
from sentcli.mining.reading import MiningTexts

DECIMALS = 6
"""The decimals of scores: in the last digits of float32 a vector depends on the texts that were encoded beside it, and
these are others where some vectors were kept."""
SUFFIXES = (".jsonl", ".parquet")


def check_mined_suffix(output: Path) -> None:
    """Refuse the name of a file of another format.

    Raises:
        InputError: which names the formats.
    """
    if output.suffix.lower() not in SUFFIXES:
        raise InputError(f"-o {output}: the rows are written as {' or '.join(SUFFIXES)}")


def write_mined(output: Path, mined: Mined, texts: MiningTexts) -> None:
    """Write the rows, which get the name of the file when they are whole.

    The columns of texts come first: ``anchor``, ``positive`` and ``negative``, or ``negative_1`` and so on. ``scores``
    has the scores of the positive and of each negative, ``judge_scores`` those of the judge; ``anchor_id``,
    ``positive_id``, ``negative_ids`` and ``negative_ranks`` say which texts these are.
    """
    with replacing(output) as temporary:
        if output.suffix.lower() == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.Table.from_pylist([_record(row, texts) for row in mined.rows])
            pq.write_table(table, temporary)
            return
        with temporary.open("w", encoding="utf-8", newline="\n") as handle:
            for row in mined.rows:
                record = _record(row, texts)
                handle.write(as_json(record) + "\n")


def _record(row: MinedRow, texts: MiningTexts) -> dict[str, Any]:
    record: dict[str, Any] = {"anchor": texts.queries[row.query], "positive": texts.documents[row.positive]}
    if len(row.negatives) == 1:
        names = ["negative"]
    else:
        names = [f"negative_{number + 1}" for number in range(len(row.negatives))]
    ids = []
    for name, document in zip(names, row.negatives, strict=True):
        record[name] = texts.documents[document]
        ids.append(texts.ids[document])
    record["scores"] = _rounded(row.scores)
    if row.judge_scores:
        record["judge_scores"] = _rounded(row.judge_scores)
    record["anchor_id"] = texts.query_ids[row.query]
    record["positive_id"] = texts.ids[row.positive]
    record["negative_ids"] = ids
    record["negative_ranks"] = row.ranks
    return record


def _rounded(scores: Sequence[float]) -> list[float]:
    """Return scores with as many decimals as count."""
    return [round(score, DECIMALS) for score in scores]
