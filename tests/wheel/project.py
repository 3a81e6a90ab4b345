"""A program of a user: it runs with the wheel, and ``mypy --strict`` finds nothing wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sentcli
from sentcli import Result, SentenceEncoder

NOTES, MODEL = "notes", "minilm"


def write_pairs(path: Path, notes: Path) -> None:
    """Write a row of title and text for each note, as JSON Lines."""
    rows: list[str] = []
    for note in sorted(notes.iterdir()):
        title, _, text = note.read_text("utf-8").partition("\n")
        rows.append(json.dumps({"anchor": title.lstrip("# "), "positive": text.strip()[:200]}))
    path.write_text("\n".join(rows), "utf-8")


def nearest(encoder: SentenceEncoder, question: str, texts: list[str]) -> str:
    """Return the text that is most similar to a question."""
    vectors = encoder.encode([question, *texts])
    scores = vectors[1:] @ vectors[0]
    best = int(scores.argmax())
    return texts[best]


def first_hit(found: Result) -> str:
    """Return the id of the best hit of the first query."""
    answer: dict[str, Any] = found.to_dict()
    hit: str = answer["results"][0]["hits"][0]["id"]
    return hit


def main() -> None:
    """Look at texts, make a set of them, mine, train, encode and search."""
    pairs = Path("pairs.jsonl")
    write_pairs(pairs, Path(NOTES))
    checked = sentcli.check(str(pairs), quiet=True)
    made = sentcli.make_set(NOTES, output="project-set", limit=20, quiet=True)
    mined = sentcli.mine("project-set", model=MODEL, output="mined.jsonl", ranks="1-20", quiet=True)
    trained = sentcli.train(
        method="simcse", model=MODEL, data=str(pairs), output="project-model", max_steps=1, batch_size=4, quiet=True
    )
    encoded = sentcli.encode(NOTES, output="project-vectors", model="project-model", quiet=True)
    found = sentcli.retrieve(corpus="project-vectors", query=["where is a run resumed"], top_k=3, quiet=True)
    results: list[Result] = [checked, made, mined, trained, encoded, found]
    assert all(result.to_dict() for result in results)
    encoder = SentenceEncoder.load(MODEL)
    print(first_hit(found), nearest(encoder, "a small animal", ["The cat sat.", "The house is big."]), sep="\n")


if __name__ == "__main__":
    main()
