"""What `run.sh` of this folder computes beside the commands: the rule of the start, and random pairs.

* ``study.py choose``: the folder of the start that the rule of docs/studies/washed.md takes.
* ``study.py pair-randomly OUT TEXT...``: a table of sentences, each beside another one of the text.
"""

import argparse
import csv
import gzip
import json
import random
from pathlib import Path

HERE = Path(__file__).parent
LENGTHS = (100, 300, 900)
GREATEST_PERPLEXITY = 250


def records(step: str) -> list[dict]:
    """Return the runs of a step."""
    return [json.loads(line) for line in (HERE / f"{step}.jsonl").read_text("utf-8").splitlines()]


def words() -> float:
    """Return the score on STS-B dev of the share of content words in common."""
    return json.loads((HERE.parent / "study" / "words.json").read_text("utf-8"))["best_dev_spearman"]


def choose() -> str:
    """Return the start that the rule takes: the shortest wash with poolings below the words and a fair perplexity."""
    for steps in LENGTHS:
        name = f"study/washed/wash-{steps}"
        scores = [run["results"]["best_dev_spearman"] for run in records("raw") if run["point"]["model"] == name]
        assert len(scores) == 3, f"{name} was not scored with three poolings"
        perplexity = json.loads((HERE / f"wash-{steps}.json").read_text("utf-8"))["results"]["held_out_perplexity"]
        if max(scores) < words() and perplexity <= GREATEST_PERPLEXITY:
            return Path(name).name
    return Path(name).name


def pair_randomly(out: Path, texts: list[Path]) -> None:
    """Write each sentence beside another one of the same text, drawn by seed 0."""
    lines = []
    for path in texts:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as handle:
            lines += [line for line in handle.read().splitlines() if line.strip()]
    others = random.Random(0).sample(lines, len(lines))
    with out.open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([("anchor", "positive"), *zip(lines, others, strict=True)])


def main() -> None:
    """Run a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("choose")
    pairs = steps.add_parser("pair-randomly")
    pairs.add_argument("out", type=Path)
    pairs.add_argument("texts", type=Path, nargs="+")
    options = parser.parse_args()
    if options.step == "choose":
        print(choose())
    else:
        pair_randomly(options.out, options.texts)


if __name__ == "__main__":
    main()
