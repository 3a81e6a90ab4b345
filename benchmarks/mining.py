"""Which planted false negatives pass `data mine`: copies, paraphrases of MRPC, and judged documents that are hidden.

python benchmarks/mining.py DATA [--model minilm] prints a table for each kind: the share of what was planted that is
among the negatives, and the share of the negatives that was planted, by ranks, share of the positive's score and
filters.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import load_set
from sentcli.mining.copies import MiningCorpus
from sentcli.mining.mined import MiningQueries, mine_negatives
from sentcli.mining.options import MiningOptions

HIDDEN = ("cranfield", "npl", "cacm", "time", "lisa")
"""The sets whose queries have several judged documents."""


@dataclass
class Planted:
    """Queries with a known positive each, and documents that are false negatives of them."""

    name: str
    queries: list[str] = field(default_factory=list)
    positives: list[list[int]] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    false: list[set[int]] = field(default_factory=list)
    """The numbers of the false negatives of each query."""
    kinds: dict[int, str] = field(default_factory=dict)
    """The kind of each copy."""

    @property
    def count(self) -> int:
        """The number of false negatives, each once for each row that it is one of."""
        of_rows = zip(self.false, self.positives, strict=True)
        return sum(len(false) * len(known) for false, known in of_rows)

    def add(self, text: str) -> int:
        """Add a document and return its number."""
        self.documents.append(text)
        return len(self.documents) - 1


def upper(text: str, generator: random.Random) -> str:
    return text.upper()


def unpunctuated(text: str, generator: random.Random) -> str:
    return "".join(sign for sign in text if sign.isalnum() or sign == " ")


def spaced(text: str, generator: random.Random) -> str:
    return "  " + text.replace(" ", "  ") + "\n"


def changed(text: str, generator: random.Random) -> str:
    words = text.split()
    words[generator.randrange(len(words))] = "another"
    return " ".join(words)


def first_half(text: str, generator: random.Random) -> str:
    words = text.split()
    return " ".join(words[: len(words) // 2])


def second_half(text: str, generator: random.Random) -> str:
    words = text.split()
    return " ".join(words[len(words) // 2 :])


def extended(text: str, generator: random.Random) -> str:
    return f"{text} This page was last changed in May. All rights are reserved."


COPIES: dict[str, Callable[[str, random.Random], str]] = {
    "exact": lambda text, generator: text,
    "upper case": upper,
    "no punctuation": unpunctuated,
    "blanks": spaced,
    "a word changed": changed,
    "first half": first_half,
    "second half": second_half,
    "extended": extended,
}


OTHERS = 1500
"""Documents besides the positives in which copies are planted."""


def copies(folder: Path, name: str = "scifact", queries: int = 150, others: int = OTHERS) -> Planted:
    """Plant copies of the positives of some queries of a set, one of each kind, and the title alone."""
    data = load_set(folder / "retrieval" / name)
    titles = dict(zip(data.ids, data.titled_texts(), strict=True))
    generator = random.Random(0)
    chosen = list(data.queries)[:queries]
    needed = set(generator.sample(data.ids, others)).union(*(data.qrels[query] for query in chosen))
    texts = {key: text for key, text in zip(data.ids, data.texts(), strict=True) if key in needed}
    planted = Planted(f"copies in {name}", documents=list(texts.values()))
    numbers = {key: number for number, key in enumerate(texts)}
    copies_of: dict[str, set[int]] = {}
    for query in chosen:
        text = data.queries[query]
        relevant = [key for key, grade in data.qrels[query].items() if grade > 0 and key in numbers]
        if not relevant:
            continue
        false: set[int] = set()
        for key in relevant:
            if key not in copies_of:
                copies_of[key] = set()
                made = {kind: make(planted.documents[numbers[key]], generator) for kind, make in COPIES.items()}
                made["title"] = titles[key][0]
                for kind, copy in made.items():
                    if copy.strip():
                        number = planted.add(copy)
                        planted.kinds[number] = kind
                        copies_of[key].add(number)
            false |= copies_of[key]
        planted.queries.append(text)
        planted.positives.append([numbers[key] for key in relevant])
        planted.false.append(false)
    return planted


def paraphrases(folder: Path, *, halves: bool, count: int | None = None) -> Planted:
    """Plant the paraphrases of MRPC: the known positive is the first sentence, the query it or the first half of it."""
    name = "MRPC, query: first half of the sentence" if halves else "MRPC, query: the sentence"
    planted = Planted(name)
    rows = []
    for file in sorted((folder / "senteval" / "MRPC").glob("msr_paraphrase_*.txt")):
        with file.open(encoding="utf-8-sig") as handle:
            rows += list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows[:count]:
        first = planted.add(row["#1 String"])
        second = planted.add(row["#2 String"])
        if row["Quality"] == "1":
            query = row["#1 String"]
            if halves:
                query = first_half(query, random.Random(0))
            planted.queries.append(query)
            planted.positives.append([first])
            planted.false.append({second})
    return planted


def hidden(folder: Path, name: str) -> Planted:
    """Know one judged document of each query, drawn at random, and hide the others."""
    data = load_set(folder / "retrieval" / name)
    planted = Planted(f"judged documents in {name}", documents=list(data.texts()))
    numbers = {key: number for number, key in enumerate(data.ids)}
    generator = random.Random(0)
    for query, text in data.queries.items():
        relevant = sorted(key for key, grade in data.qrels[query].items() if grade > 0 and key in numbers)
        if len(relevant) < 2:
            continue
        known = generator.choice(relevant)
        planted.queries.append(text)
        planted.positives.append([numbers[known]])
        planted.false.append({numbers[key] for key in relevant if key != known})
    return planted


def all_planted(folder: Path, kinds: list[str]) -> Iterator[Planted]:
    """Yield what is planted of some kinds."""
    if "copies" in kinds:
        yield copies(folder)
    if "paraphrases" in kinds:
        yield paraphrases(folder, halves=False)
        yield paraphrases(folder, halves=True)
    for name in HIDDEN:
        if name in kinds:
            yield hidden(folder, name)


@dataclass(frozen=True)
class Passed:
    """What passed of what was planted."""

    passed: int
    planted: int
    negatives: int
    rows: int
    short: int
    kinds: dict[str, int]


def passed(planted: Planted, model: EvaluatedModel, options: MiningOptions, vectors: tuple | None = None) -> Passed:
    """Mine, and count the false negatives among the negatives; each counts once for each row that has it."""
    if vectors is None:
        vectors = vectors_of(planted, model)
    queries = MiningQueries(planted.queries, planted.positives)
    mined = mine_negatives(queries, vectors[0], MiningCorpus(planted.documents), vectors[1], options)
    count = 0
    kinds: dict[str, int] = {}
    for row in mined.rows:
        for document in planted.false[row.query].intersection(row.negatives):
            count += 1
            kind = planted.kinds.get(document, "")
            kinds[kind] = kinds.get(kind, 0) + 1
    negatives = sum(len(row.negatives) for row in mined.rows)
    return Passed(count, planted.count, negatives, len(mined.rows), mined.short, kinds)


def vectors_of(planted: Planted, model: EvaluatedModel) -> tuple[np.ndarray, np.ndarray]:
    """Encode queries and documents."""
    queries = model.encode_shown("queries", planted.queries).vectors_of(planted.queries)
    documents = model.encode_shown("documents", planted.documents).vectors_of(planted.documents)
    return queries, documents


def main() -> None:
    """Print a table for each kind of false negatives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--kinds", default=",".join(("copies", "paraphrases", *HIDDEN)))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--ranks", default="1-50,10-50")
    parser.add_argument("--below", default="1,0.95,0.9")
    parser.add_argument(
        "--filters",
        default="words,near,apart,both",
        help="by words alone, with the cosine of near copies, with --apart, or with both",
    )
    parser.add_argument("--search", default="dense")
    parser.add_argument("--negatives", type=int, default=MiningOptions.negatives)
    chosen = parser.parse_args()
    model = EvaluatedModel(chosen.model)
    for planted in all_planted(chosen.data, chosen.kinds.split(",")):
        vectors = vectors_of(planted, model)
        documents = len(planted.documents)
        print(f"\n{planted.name}: {len(planted.queries)} queries, {documents} documents, {planted.count} planted")
        print("| ranks | below | filters | passed | of planted | of negatives | rows | rows left out | kinds |")
        print("|---|---|---|---|---|---|---|---|---|")
        grid = (chosen.ranks.split(","), map(float, chosen.below.split(",")), chosen.filters.split(","))
        for ranks, below, filters in product(*grid):
            options = MiningOptions(
                search=chosen.search,
                ranks=ranks,
                below=below,
                negatives=chosen.negatives,
                near=MiningOptions.near if filters in ("near", "both") else 1,
                apart=filters in ("apart", "both"),
            )
            found = passed(planted, model, options, vectors)
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found.kinds.items()) if kind)
            print(
                f"| {ranks} | {below:g} | {filters} | {found.passed} | {100 * found.passed / found.planted:.2f} % "
                f"| {100 * found.passed / max(found.negatives, 1):.2f} % | {found.rows} | {found.short} | {kinds} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
