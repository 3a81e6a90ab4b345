"""Commands on good files, each of which is then spoiled: what is read, by whom, and where the output goes."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import WORDS, save_backbone
from tests.evaluation.conftest import write_set

TRAIN = ["--batch-size", "8", "--max-steps", "3", "--learning-rate", "1e-3", "--save-every", "1"]


@dataclass(frozen=True)
class Scene:
    """A command that succeeds, and the files it reads.

    Attributes:
        name: of the scene.
        command: words of the command line, relative to the folder of the scene.
        files: each of them is spoiled in turn.
        makes: what the command may make, also when it fails: a run that can be resumed.
        passes: spoilings that leave a good file of this kind.
        repairs: whether the command makes anew what is damaged.
    """

    name: str
    command: str
    files: tuple[str, ...]
    makes: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    repairs: bool = False


TEXT_PASSES = ("half of it", "zeros")
MODEL = (
    "config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer.json",
    "tokenizer_config.json", "config_sentence_transformers.json", "model.safetensors",
)  # fmt: skip
WITHOUT = ("gone", "JSON other object", "JSON empty object")
OPTIONAL = {
    "sentence_bert_config.json": WITHOUT,
    "config_sentence_transformers.json": WITHOUT,
    "tokenizer_config.json": WITHOUT,
    "modules.json": ("gone",),
    "sentcli.json": WITHOUT,
    "onnx/config.json": WITHOUT,
    "metrics.jsonl": ("half of it",),
    "results.jsonl": ("half of it",),
    ".txt": ("UTF-16",),  # text formats are read by their byte order mark
    ".jsonl": ("UTF-16",),
    ".csv": ("UTF-16",),
    ".tsv": ("UTF-16",),
    ".trec": ("UTF-16",),
    "rt-polarity.pos": ("noise", "zeros", "UTF-16", "half of it", "bad bytes"),  # in latin-1 any bytes are text
}
"""What a command may do without, by the end of the file's name."""
SCENES = [
    Scene("encode text", "encode text.txt -m bert -o out.npy", ("text.txt",), passes=TEXT_PASSES),
    Scene("encode JSON lines", "encode rows.jsonl -m bert -o out.npy", ("rows.jsonl",)),
    Scene("encode CSV", "encode rows.csv -m bert -o out.npy", ("rows.csv",)),
    Scene("encode TSV", "encode rows.tsv -m bert -o out.npy", ("rows.tsv",)),
    Scene("encode Parquet", "encode rows.parquet -m bert -o out.parquet", ("rows.parquet",)),
    Scene("encode gzip", "encode text.txt.gz -m bert -o out.jsonl", ("text.txt.gz",)),
    Scene(
        "encode over an old file", "encode text.txt -m bert -o old.npy --overwrite", ("text.txt",), passes=TEXT_PASSES,
    ),
    Scene(
        "encode with a model", "encode text.txt -m model -o out.npy --backend torch", tuple(f"model/{f}" for f in MODEL)
    ),
    Scene(
        "encode with an export", "encode text.txt -m onnx -o out.npy",
        ("onnx/export.json", "onnx/model.onnx", "onnx/config.json", "onnx/tokenizer.json"),
    ),
    Scene(
        "resume an encode", "encode text.txt -m bert -o half --shard-rows 20 --resume", ("half/manifest.json",),
        makes=("half",), passes=("gone",),
    ),
    Scene(
        "check an encode", "encode --check vectors",
        ("vectors/manifest.json", "vectors/vectors-00000.npy", "vectors/rows-00000.parquet"),
    ),
    Scene(
        "index", "index vectors --type hnsw --overwrite",
        (
            "vectors/manifest.json", "vectors/vectors-00000.npy", "vectors/rows-00000.parquet",
            "vectors/indexes/hnsw/index.json", "vectors/indexes/hnsw/rows-0000000000-0000000060.faiss",
        ),
        makes=("vectors",), repairs=True,
    ),
    Scene(
        "search", "retrieve --corpus vectors -m bert --query cat --index hnsw",
        (
            "vectors/manifest.json", "vectors/vectors-00000.npy", "vectors/rows-00000.parquet",
            "vectors/indexes/hnsw/index.json", "vectors/indexes/hnsw/rows-0000000000-0000000060.faiss",
        ),
    ),
    Scene(
        "search queries", "retrieve --corpus vectors -m bert --queries queries.txt --hits hits.jsonl", ("queries.txt",),
        passes=TEXT_PASSES,
    ),
    Scene("search a file", "retrieve --corpus rows.jsonl -m bert --query cat", ("rows.jsonl",)),
    Scene(
        "a BEIR set", "retrieve --beir set -m bert --json out.json",
        ("set/corpus.jsonl", "set/queries.jsonl", "set/qrels/test.tsv"),
    ),
    Scene("a run", "retrieve --beir set --from-run run.trec --json out.json", ("run.trec",), passes=("half of it",)),
    Scene("in-domain pairs", "retrieve --in-domain pairs.tsv -m bert --json out.json", ("pairs.tsv",)),
    Scene(
        "sts-eval", "sts-eval -m bert --data senteval --tasks STSBenchmark,SICKRelatedness --json out.json",
        ("senteval/STS/STSBenchmark/sts-test.csv", "senteval/SICK/SICK_test_annotated.txt"),
    ),
    Scene("sts-eval of pairs", "sts-eval -m bert --pairs pairs.tsv --json out.json", ("pairs.tsv",)),
    Scene(
        "senteval", "senteval -m bert --data senteval --tasks MR,MRPC --protocol fast --json out.json",
        ("senteval/MR/rt-polarity.pos", "senteval/MRPC/msr_paraphrase_train.txt"),
    ),
    Scene(
        "train", f"train --method simcse -m bert --data text.txt -o out {' '.join(TRAIN)} --eval-data senteval",
        ("text.txt", "senteval/STS/STSBenchmark/sts-dev.csv"), passes=TEXT_PASSES,
    ),
    Scene(
        "train from a recipe", f"train --recipe recipe.toml -m bert --data text.txt -o out {' '.join(TRAIN)}",
        ("recipe.toml",),
    ),
    Scene(
        "train a sweep", f"train --method simcse --sweep sweep.toml -m bert --data text.txt -o out {' '.join(TRAIN)}",
        ("sweep.toml",),
    ),
    Scene(
        "train a method file", f"train --method method.py -m bert --data text.txt -o out {' '.join(TRAIN)}",
        ("method.py",),
    ),
    Scene(
        "train on pairs", f"train --method sts-regression -m bert --data pairs.tsv -o out {' '.join(TRAIN)}",
        ("pairs.tsv",),
    ),
    Scene(
        "resume a training", f"train --method simcse -m bert --data text.txt -o stopped {' '.join(TRAIN)} --resume",
        ("stopped/run.json", "stopped/metrics.jsonl", "stopped/checkpoint-00000002.json"),
        makes=("stopped",), repairs=True,
    ),
    Scene("export", "export -m model -o out --precision int8", tuple(f"model/{f}" for f in MODEL)),
    Scene("report of scores", "report scores.json -o out.html", ("scores.json",)),
    Scene(
        "report of a training", "report model -o out.html", ("model/sentcli.json", "model/metrics.jsonl"),
    ),
    Scene(
        "analyze geometry", "analyze geometry model -m bert --data senteval --no-sts -o out",
        ("model/metrics.jsonl", "senteval/STS/STSBenchmark/sts-dev.csv"),
    ),
    Scene("analyze map", "analyze map text.txt -m bert -o out", ("text.txt",), passes=TEXT_PASSES),
    Scene("analyze sweep", "analyze sweep sweeps/results.jsonl -o out", ("sweeps/results.jsonl",)),
    Scene(
        "analyze compare", "analyze compare bert model --texts text.txt -o out", ("text.txt",), passes=TEXT_PASSES,
    ),
]  # fmt: skip


METHOD = """
from sentcli.methods import Method
from sentcli.methods.views import Copies
from sentcli.objectives.contrastive import Contrastive

METHOD = Method(name="mine", title="My own", views=Copies(), objectives={"contrastive": Contrastive()})
"""


def write_scene_files(folder: Path, invoke) -> None:
    """Write what the scenes read, by the commands themselves where there is one."""
    save_backbone(folder / "bert")
    words = [word for word in WORDS if word.isalpha()]
    texts = [" ".join(words[(i * 7 + j * (1 + i % 5)) % len(words)] for j in range(3 + i % 6)) for i in range(60)]
    (folder / "text.txt").write_text("\n".join(texts) + "\n")
    (folder / "queries.txt").write_text("a cat\nthe river\n")
    with gzip.open(folder / "text.txt.gz", "wt") as handle:
        handle.write("\n".join(texts) + "\n")
    rows = [{"id": f"r{i}", "text": text} for i, text in enumerate(texts)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for suffix, separator in ((".csv", ","), (".tsv", "\t")):
        lines = [separator.join(row.values()) for row in ({"id": "id", "text": "text"}, *rows)]
        (folder / f"rows{suffix}").write_text("\n".join(lines) + "\n")
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    pairs = [f"{texts[i]}\t{texts[i + 30]}\t{i % 6}" for i in range(30)]
    (folder / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "\n".join(pairs) + "\n")
    write_set(folder / "set")
    (folder / "run.trec").write_text("q1 Q0 d1 1 0.9 x\nq1 Q0 d2 2 0.8 x\nq2 Q0 d2 1 0.7 x\n")
    _write_senteval(folder / "senteval", texts)
    (folder / "recipe.toml").write_text(
        'title = "mine"\nmethod = "simcse"\nmodel = "bert"\ndata = "any"\n[settings]\ntemperature = 0.1\n'
    )
    (folder / "sweep.toml").write_text("seeds = [1]\n[[grid]]\ntemperature = [0.1, 0.2]\n")
    (folder / "method.py").write_text(METHOD)
    training = f"-m bert --data text.txt {' '.join(TRAIN)} --eval-data senteval"
    for command in (
        "encode text.txt -m bert -o old.npy",
        "encode text.txt -m bert -o half --shard-rows 20",
        "encode text.txt -m bert -o vectors --shard-rows 30",
        "index vectors --type hnsw",
        f"train --method simcse {training} -o model",
        f"train --method simcse {training} -o sweeps --sweep sweep.toml",
        "export -m model -o onnx --no-torch-weights",
        "sts-eval -m bert --data senteval --tasks STSBenchmark --json scores.json",
    ):
        invoke(*command.split(), check=0)


def _write_senteval(folder: Path, texts: list[str]) -> None:
    bench = folder / "STS" / "STSBenchmark"
    bench.mkdir(parents=True)
    rows = [f"g\tf\ty\t{i}\t{i % 6}.0\t{texts[i]}\t{texts[i + 30]}\n" for i in range(30)]
    for split in ("train", "dev", "test"):
        (bench / f"sts-{split}.csv").write_text("".join(rows))
    (folder / "SICK").mkdir()
    heading = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    rows = [f"{i}\t{texts[i]}\t{texts[i + 30]}\t{1 + i % 5}\tNEUTRAL\n" for i in range(30)]
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        (folder / "SICK" / f"{name}.txt").write_text(heading + "".join(rows))
    (folder / "MR").mkdir()
    (folder / "MR" / "rt-polarity.pos").write_text("\n".join(texts[:30]) + "\n")
    (folder / "MR" / "rt-polarity.neg").write_text("\n".join(texts[30:]) + "\n")
    (folder / "MRPC").mkdir()
    rows = [f"{i % 2}\t{i}\t{i}\t{texts[i]}\t{texts[i + 30]}\n" for i in range(30)]
    for split in ("train", "test"):
        heading = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        (folder / "MRPC" / f"msr_paraphrase_{split}.txt").write_text(heading + "".join(rows))
