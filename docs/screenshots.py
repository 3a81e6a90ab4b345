"""Pictures of every kind of page, at two widths, light and dark: ``python docs/screenshots.py FOLDER [PAGE...]``.

Small models are trained and measured on the data of ``SENTCLI_DATA``. They have long names that differ in one part, as
those of a sweep do. What was made before in the folder is kept: remove a page to have it made again.
"""

import os
import subprocess
import sys
from pathlib import Path

from browser import browser

WIDTHS = (480, 1280)
THEMES = ("light", "dark")
RATES = ("1e-7", "3e-7", "1e-3")
"""Two learning rates at which hardly anything changes, so that lines lie on each other, and one that changes much."""
MODELS = [f"runs/sentcli-bert-mini-sts-regression-lr{rate}-seed1" for rate in RATES]
ALL = [part for model in MODELS for part in ("-m", model)]
STS, SETS, WORDS = "{data}/senteval", "{data}/retrieval", "{data}/corpus/wiki.txt"
TRAIN = ["train", "-m", "sentcli-bert-mini", "--batch-size", "32", "--eval-data", STS, "--dev-limit", "300"]
RUN = [*TRAIN, "--pooling", "mean", "--max-steps", "24", "--eval-every", "8"]
SWEEP = [*TRAIN, "--data", "texts.txt", "--max-steps", "4", "--eval-every", "4"]
SWEEPS = {
    "rates": 'seeds = [1, 2]\n[[grid]]\nmethod = ["simcse", "informin-cl"]\nlearning_rate = [1e-5, 3e-5, 1e-4]\n',
    "sizes": 'seeds = [1, 2]\n[[grid]]\nmethod = "simcse"\nlimit = [100, 200, 400]\n',
}

FIRST: dict[str, list[str]] = {
    **{
        model: [*RUN, "--method", "sts-regression", "--data", "pairs.tsv", "--learning-rate", rate, "--log-geometry"]
        for model, rate in zip(MODELS, RATES, strict=True)
    },
    "runs/terms": [*RUN, "--method", "informin-cl", "--data", "texts.txt", "--set", "share_every=4"],
    **{f"sweep-{name}": [*SWEEP, "--sweep", f"{name}.toml"] for name in SWEEPS},
    "vectors": ["encode", "texts.txt", "-m", MODELS[0]],
    "set": ["data", "make-set", "documents", "--limit", "100"],
}
"""What the pages are made of: the output and its command."""
PAGES: dict[str, list[str]] = {
    "evaluate": ["evaluate", "pairs.tsv", "set", *ALL],
    "evaluate-variants": ["evaluate", "set", "-m", MODELS[0], "--variants"],
    "sts-eval": ["sts-eval", "--data", STS, *ALL],
    "senteval": ["senteval", "--data", STS, "--tasks", "CR,TREC,MRPC", "--protocol", "fast", *ALL],
    "retrieve": ["retrieve", "--beir", f"{SETS}/time", "--beir", f"{SETS}/cranfield", "--search", "dense,bm25", *ALL],
    "retrieve-in-domain": ["retrieve", "--in-domain", f"{STS}/STS/STSBenchmark/sts-test.csv", *ALL],
    "report": ["report", "senteval.json", *MODELS, "--data", STS, "--texts", "texts.txt"],
    "report-paper": ["report", "--paper", "informin-cl"],
    "make-set": ["data", "make-set", "documents", "--limit", "20", "--judge", "5", "-m", MODELS[0]],
    "analyze-geometry": ["analyze", "geometry", *MODELS, "--data", STS],
    "analyze-map": ["analyze", "map", "texts.txt", *ALL],
    "analyze-map-10000": ["analyze", "map", WORDS, "-m", MODELS[0], "--limit", "10000"],
    "analyze-similarity": ["analyze", "similarity", "--data", STS, *ALL],
    "analyze-attention": ["analyze", "attention", "texts.txt", "--limit", "40", *ALL],
    "analyze-objectives": ["analyze", "objectives", "runs/terms", MODELS[0], MODELS[2]],
    "analyze-low-shot": ["analyze", "low-shot", "sweep-sizes", "--published"],
    "analyze-sweep": ["analyze", "sweep", "sweep-rates"],
    "analyze-compare": ["analyze", "compare", MODELS[0], MODELS[2], "--texts", "texts.txt"],
    "analyze-duplicates": ["analyze", "duplicates", "texts.txt", "-m", MODELS[0], "--least", "0.8"],
}
"""The pages and their commands, without the output; a test holds that no verb or analysis with a page is forgotten."""


def run(arguments: list[str], folder: Path) -> None:
    """Run a command of sentcli in a folder, and end with its message if it fails."""
    data = os.environ["SENTCLI_DATA"]
    command = [argument.replace("{data}", data) for argument in arguments]
    print("sentcli", *command, flush=True)
    done = subprocess.run([sys.executable, "-m", "sentcli", *command], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def prepare(folder: Path) -> None:
    """Write texts and sweeps, and train and encode what the pages are made of."""
    data = Path(os.environ["SENTCLI_DATA"])
    lines = (data / "corpus" / "wiki.txt").read_text("utf-8").splitlines()
    texts = [*lines[:600], *lines[:4], *lines[:2]]  # some are equal
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    pairs = (data / "senteval" / "STS" / "STSBenchmark" / "sts-train.csv").read_text("utf-8").splitlines()[:300]
    rows = ["\t".join(line.split("\t")[4:7]) for line in pairs]
    (folder / "pairs.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n", "utf-8")
    for name, text in SWEEPS.items():
        (folder / f"{name}.toml").write_text(text, "utf-8")
    if not (folder / "documents").exists():
        (folder / "documents").symlink_to(Path(__file__).resolve().parent)
    for output, command in FIRST.items():
        if not (folder / output).exists():
            run([*command, "-o", output], folder)


def page_of(name: str, folder: Path) -> Path:
    """Return the file of a page, which is made if it is not there."""
    command = PAGES[name]
    is_analysis, is_set = command[0] == "analyze", command[0] == "data"
    file = folder / (f"{name}/index.html" if is_analysis else f"{name}/judge.html" if is_set else f"{name}.html")
    if file.exists():
        return file
    if is_analysis or is_set or command[0] == "report":
        run([*command, "-o", name if is_analysis or is_set else file.name], folder)
    else:
        run([*command, "--report", file.name, "--json", f"{name}.json"], folder)
    return file


def main(folder: Path, names: list[str]) -> None:
    """Write the pictures of some pages, or of all."""
    if unknown := set(names) - set(PAGES):
        sys.exit(f"no such page: {', '.join(unknown)}; there are: {', '.join(PAGES)}")
    if "SENTCLI_DATA" not in os.environ:
        sys.exit("set SENTCLI_DATA to a folder with senteval/, retrieval/ and corpus/: the pages are made of its data")
    with browser() as chromium:
        folder.mkdir(parents=True, exist_ok=True)
        prepare(folder)
        for name in names or PAGES:
            page = page_of(name, folder)
            for width in WIDTHS:
                for theme in THEMES:
                    target = folder / f"{name}-{width}-{theme}.png"
                    wider = chromium.picture(page, target, width, theme)
                    print(target, f"is {wider} pixels wider than its window" if wider > 0 else "")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python docs/screenshots.py FOLDER [PAGE...]")
    main(Path(sys.argv[1]), sys.argv[2:])
