"""Write the table of the keys of model folders in docs/models.md: ``python docs/make_models.py``.

With ``--check``, fail if it is stale.
"""

from itertools import groupby
from pathlib import Path

from make_results import fill

from sentcli.model.folder_keys import (
    CONFIG,
    KEYS,
    MODULE_LIST,
    PROMPTS,
    SENTENCE_BERT_CONFIG,
    STATIC_CONFIG,
    TOKENIZER,
    Key,
)

FILES = (MODULE_LIST, SENTENCE_BERT_CONFIG, PROMPTS, TOKENIZER, CONFIG, STATIC_CONFIG)
"""The files of a folder; the other tables of keys are those of modules."""


def keys_table() -> str:
    """Return the table of all keys, those of one meaning in a row."""
    lines = ["| where | keys | effect | meaning |", "|---|---|---|---|"]
    for kind, keys in KEYS.items():
        place = f"`{kind}`" if kind in FILES else f"module {kind}"
        for key, names in groupby(keys.items(), key=lambda item: item[1]):
            lines.append(row(place, key, [name for name, _ in names]))
    return "\n".join(lines) + "\n"


def row(place: str, key: Key, names: list[str]) -> str:
    """Return one row of the table."""
    shown = ", ".join(f"`{name}`" for name in names)
    neutral = [f"`{value}`" for value in key.neutral if value is not None]
    effect = key.effect
    if effect == "refused" and neutral:
        effect += f", unless it is {' or '.join(neutral)}"
    return f"| {place} | {shown} | {effect} | {key.meaning} |"


if __name__ == "__main__":
    fill(Path(__file__).parent / "models.md", {"keys": keys_table})
