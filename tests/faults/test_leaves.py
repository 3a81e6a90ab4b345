"""Every value of every structured file set to every kind of value: an exit code and one message, whatever it is.

Some cases of each file are tried, every value of it first. SENTCLI_LEAVES=1000000 tries all 35,000, which
takes about an hour on two cores.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import warnings
from collections import Counter
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sentcli import SentenceEncoder
from tests.conftest import save_backbone, save_cross_encoder
from tests.faults.leaves import Unwritable, leaves
from tests.faults.scenes import TRAIN
from tests.model.test_static_model2vec import make as make_model2vec

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="alarms and forks of POSIX")

SECONDS = 20
SLOWLY = 10
"""How many cases of a file run with the slow tests where a command trains or draws, and takes about a second."""
PRELOADED = [
    "sentcli.cli.app", "typer.testing", "onnxruntime", "faiss", "tokenizers", "torch",
    "transformers.models.bert.modeling_bert",
]  # fmt: skip
"""What every process of a case needs, imported once by the process that they are forked from."""


@dataclass(frozen=True)
class Reader:
    """A command, and the structured files that it reads.

    Attributes:
        command: words of the command line, relative to the folder of the files.
        files: each value of each of them is changed.
        makes: files and folders that the command writes, also when it fails.
        forked: whether native code reads the files, which may crash: each case runs in a process of its own.
        most: how many cases of a file run with the slow tests.
    """

    command: str
    files: tuple[str, ...]
    makes: tuple[str, ...] = ()
    forked: bool = False
    most: int = 25


PLAIN = (
    "config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer.json",
    "tokenizer_config.json",
)  # fmt: skip
READERS = [
    Reader(
        "encode two.txt -m parts -o out.npy --backend torch",
        tuple(
            f"parts/{file}"
            for file in (
                *PLAIN, "1_WeightedLayerPooling/config.json", "2_CNN/cnn_config.json", "3_Pooling/config.json",
                "4_Dense/config.json", "5_Normalize/config.json", "model.safetensors.index.json",
                "1_WeightedLayerPooling/model.safetensors", "4_Dense/model.safetensors",
            )
        ),
    ),
    Reader("encode two.txt -m lora -o out.npy --backend torch", ("lora/adapter_config.json",), most=30),
    Reader("encode two.txt -m m2v -o out.npy", ("m2v/config.json", "m2v/model.safetensors"), most=30),
    Reader(
        "encode two.txt -m weighted -o out.npy --backend torch",
        ("weighted/1_WordWeights/config.json", "weighted/1_WordWeights/model.safetensors"), most=30,
    ),
    Reader(
        "encode two.txt -m onnx -o out.npy",
        ("onnx/export.json", "onnx/config.json", "onnx/modules.json", "onnx/1_Pooling/config.json",
         "onnx/sentence_bert_config.json", "onnx/config_sentence_transformers.json", "onnx/tokenizer.json"),
    ),
    Reader("encode two.txt -m onnx -o out.npy", ("onnx/model.onnx",), forked=True, most=15),
    Reader(
        "encode --check vectors", ("vectors/manifest.json", "vectors/vectors-00000.npy", "vectors/rows-00000.parquet")
    ),
    Reader("encode text.txt -m bert -o half --shard-rows 20 --resume", ("half/manifest.json",), ("half",)),
    Reader(
        "retrieve --corpus vectors --query cat --search bm25",
        (
            "vectors/manifest.json", "vectors/rows-00000.parquet", "vectors/indexes/bm25/rows.json",
            "vectors/indexes/bm25/bm25.json", "vectors/indexes/bm25/params.index.json",
            "vectors/indexes/bm25/vocab.index.json", "vectors/indexes/bm25/indptr.csc.index.npy",
            "vectors/indexes/bm25/data.csc.index.npy",
        ),
    ),
    Reader(
        "retrieve --corpus vectors -m bert --backend torch --query cat --index hnsw",
        ("vectors/indexes/hnsw/index.json", "vectors/vectors-00000.npy"),
    ),
    Reader(
        "retrieve --corpus vectors -m bert --backend torch --query cat --index hnsw",
        ("vectors/indexes/hnsw/rows-0000000000-0000000060.faiss",), forked=True, most=15,
    ),
    Reader("retrieve --corpus likely -m bert --backend torch --query cat", ("likely/calibration.json",), most=30),
    Reader("retrieve --corpus one.parquet -m bert --backend torch --query cat", ("one.parquet",)),
    Reader("retrieve --corpus one.safetensors -m bert --backend torch --query cat", ("one.safetensors",)),
    Reader(
        "retrieve --corpus two.txt --query cat --search bm25 --rerank cross --backend torch",
        tuple(f"cross/{file}" for file in PLAIN if file != "modules.json"),
    ),
    Reader("retrieve --corpus rows.jsonl --query cat --search bm25 --hits hits.jsonl", ("rows.jsonl",)),
    Reader(
        f"train --method simcse -m bert --data text.txt -o stopped {' '.join(TRAIN)} --resume",
        ("stopped/run.json", "stopped/checkpoint-00000002.json"), ("stopped",), most=SLOWLY,
    ),
    Reader("report model -o out.md", ("model/sentcli.json", "model/metrics.jsonl"), most=SLOWLY),
    Reader("analyze objectives stopped -o out", ("stopped/run.json", "stopped/metrics.jsonl"), ("out",), most=SLOWLY),
    Reader("analyze sweep sweeps/results.jsonl -o out", ("sweeps/results.jsonl",), ("out",), most=SLOWLY),
    Reader("analyze low-shot shots.jsonl -o out", ("shots.jsonl",), ("out",), most=SLOWLY),
    Reader("report scores.json -o out.md", ("scores.json",)),
    Reader("report own.json -o out.md", ("own.json",)),
    Reader("report found.json -o out.md", ("found.json",)),
    Reader(
        f"train --method simcse --sweep sweep.toml -m bert --data two.txt -o made {' '.join(TRAIN)} --max-steps 1",
        ("sweep.toml",), ("made",), most=SLOWLY,
    ),
    Reader(
        f"train --method simcse --sweep sweep.toml -m bert --data text.txt -o sweeps {' '.join(TRAIN)} --resume "
        "--eval-data senteval",
        ("sweeps/results.jsonl",), ("sweeps",), most=SLOWLY,
    ),
    Reader(
        f"train --recipe recipe.toml -m bert --data two.txt -o made {' '.join(TRAIN)} --max-steps 1",
        ("recipe.toml",), ("made",), most=SLOWLY,
    ),
]  # fmt: skip
CASES = [(reader, file) for reader in READERS for file in reader.files]


@pytest.fixture(scope="session")
def structured(good, tmp_path_factory):
    """The files of the scenes, and those that no scene reads."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    folder = tmp_path_factory.mktemp("structured")
    shutil.copytree(good, folder, dirs_exist_ok=True)
    (folder / "two.txt").write_text("a cat\nthe river\n" * 8)
    write_parts(folder / "parts", folder / "bert")
    SentenceEncoder.load(folder / "bert", backend="torch").in_template('a "[X]" is [MASK].').save(folder / "weighted")
    write_adapted(folder / "lora")
    make_model2vec(folder / "m2v")
    save_cross_encoder(folder / "cross")
    settings = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "default_prompt_name": None, "prompts": {}}
    (folder / "cross" / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (folder / "cross" / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 30}))
    shutil.copytree(folder / "vectors", folder / "likely")
    labelled = "".join(f"a cat {number}\tthe river {number * 7}\t{number % 2}\n" for number in range(120))
    (folder / "labelled.tsv").write_text(f"sentence1\tsentence2\tlabel\n{labelled}")
    with chdir(folder):
        for command in (
            "evaluate labelled.tsv -m bert --threshold 0.3 --keep-threshold likely",
            "index vectors --type bm25",
            "encode text.txt -m bert -o one.parquet",
            "encode text.txt -m bert -o one.safetensors",
            "evaluate pairs.tsv -m bert --json own.json",
            "retrieve --beir set -m bert --json found.json",
        ):
            result = CliRunner().invoke(app, command.split())
            assert result.exit_code == 0, (command, result.stderr)
    records = [json.loads(line) for line in (folder / "sweeps" / "results.jsonl").read_text().splitlines()]
    for record, size in zip(records, (10, 20), strict=True):
        record["point"] = {"limit": size}
        record["identity"]["data"][0]["sentences"] = size
    (folder / "shots.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def write_adapted(folder):
    """Write a model with an adapter beside its weights."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    save_backbone(folder)
    settings = LoraConfig(r=2, target_modules=["query"], task_type="FEATURE_EXTRACTION")
    get_peft_model(AutoModel.from_pretrained(folder), settings).save_pretrained(folder)


def write_parts(folder, backbone):
    """Write a model with a module of each kind that has settings, and weights in two files."""
    import torch
    from safetensors.torch import load_file, save_file

    save_backbone(folder)
    kinds = ["Transformer", "WeightedLayerPooling", "CNN", "Pooling", "Dense", "Normalize"]
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    settings = {
        "1_WeightedLayerPooling/config.json": {
            "word_embedding_dimension": 32, "layer_start": 1, "num_hidden_layers": 2,
        },
        "2_CNN/cnn_config.json": {
            "in_word_embedding_dimension": 32, "out_channels": 8, "kernel_sizes": [1, 3], "stride_sizes": [1, 1],
        },
        "3_Pooling/config.json": {
            "word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False, "include_prompt": True,
        },
        "4_Dense/config.json": {
            "in_features": 16, "out_features": 8, "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        },
        "5_Normalize/config.json": {
            "module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding",
        },
        "sentence_bert_config.json": {
            "max_seq_length": 30, "do_lower_case": True, "transformer_task": "feature-extraction",
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            "module_output_name": "token_embeddings", "processor_kwargs": {"truncation_side": "left"},
        },
        "config_sentence_transformers.json": {
            "prompts": {"query": "a ", "document": ""}, "default_prompt_name": "query", "similarity_fn_name": "cosine",
            "truncate_dim": 6, "model_type": "SentenceTransformer",
        },
    }  # fmt: skip
    for name, content in settings.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    torch.manual_seed(0)
    save_file({"layer_weights": torch.ones(2)}, folder / "1_WeightedLayerPooling" / "model.safetensors")
    convolutions = {f"convs.{i}.weight": torch.randn(8, 32, k) for i, k in enumerate((1, 3))}
    convolutions |= {f"convs.{i}.bias": torch.zeros(8) for i in range(2)}
    save_file(convolutions, folder / "2_CNN" / "model.safetensors")
    linear = {"linear.weight": torch.randn(8, 16), "linear.bias": torch.zeros(8)}
    save_file(linear, folder / "4_Dense" / "model.safetensors")
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(state)
    files = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for file, own in files.items():
        save_file({name: state[name] for name in own}, folder / file)
    weight_map = {name: file for file, own in files.items() for name in own}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


class Late(BaseException):
    """The time is over."""


@contextmanager
def limited(seconds):
    """Stop the work inside when the time is over."""

    def late(number, frame):
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(folder, command):
    """Run a command in this process; return its exit code, what it said, and the warnings of libraries."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    with chdir(folder), warnings.catch_warnings(record=True) as noise:
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        result = CliRunner().invoke(app, command.split())
    return result.exit_code, result.stderr, [str(warning.message) for warning in noise]


def send_result(connection, folder, command):
    """Send what `run` returns to the process that waits for it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    connection.send(run(folder, command))


def run_apart(folder, command):
    """Run a command in a process of its own, which may crash."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe()
    process = context.Process(target=send_result, args=(theirs, folder, command))
    process.start()
    theirs.close()
    try:
        answered = ours.poll(SECONDS)
        return ours.recv() if answered else ("late", "", [])
    except EOFError:
        process.join()
        return f"crashed {process.exitcode}", "", []
    finally:
        process.kill()
        process.join()


def state(folder):
    """Return every file of a folder with what changes when it is written."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino)
        for path in folder.rglob("*")
        if path.is_file()
    }


def restore(folder, good, before):
    """Bring a folder back to the good files."""
    now = state(folder)
    for name in now.keys() - before.keys():
        (folder / name).unlink()
    for name, facts in before.items():
        if now.get(name) != facts:
            (folder / name).unlink(missing_ok=True)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(good / name, folder / name)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


LATE = "takes too long"


def problem(reader, folder, before, seconds=SECONDS):
    """Run the command of a reader on a changed file; return what is wrong with how it ends, or None."""
    try:
        with limited(seconds + 20 if reader.forked else seconds):
            code, said, noise = (run_apart if reader.forked else run)(folder, reader.command)
    except Late:
        return LATE
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    if "a defect of sentcli" in said or "Traceback" in said:
        return f"a defect: {said[-300:]}"
    if noise:
        return f"warnings: {noise[0][:300]}"
    if code not in (0, 1, 2) or len(errors) != (code != 0):
        return f"exit code {code}: {said[-300:]}"
    if code == 0:
        made = folder / "out.npy"
        finite = not made.exists() or np.isfinite(np.load(made)).all()
        return None if finite else "vectors that are not finite"
    after = state(folder)
    new = [name for name in after.keys() - before.keys() if not name.startswith(reader.makes)]
    return f"left files: {new[:3]}" if new else None


def chosen(cases, most, seed):
    """Return at most so many cases: one of each value first, then a second one, and so on."""
    shuffled = random.Random(seed).sample(cases, len(cases))
    ranks = Counter()
    ranked = []
    for case in shuffled:
        ranked.append((ranks[case.place], case))
        ranks[case.place] += 1
    return [case for _, case in sorted(ranked, key=lambda pair: pair[0])][:most]


SUCCEEDED = set()
"""Commands that this process has run on good files."""


def failures(reader, file, structured, folder, most):
    """Run the cases of a file; return how many ran, and those that end wrongly."""
    cases = chosen(leaves(structured, file), most, f"{reader.command} {file}")
    needed = {Path(word).parts[0] for word in reader.command.split() if (structured / word).exists()}
    for name in {*needed, Path(file).parts[0], "text.txt", "bert"}:
        place = structured / name
        if place.is_dir():
            shutil.copytree(place, folder / name)
        else:
            shutil.copy2(place, folder / name)
    before, found, count = state(folder), {}, 0
    if reader.command not in SUCCEEDED:
        code, said, _ = run(folder, reader.command)  # without a limit: the first run imports what the others need
        assert code == 0, said
        SUCCEEDED.add(reader.command)
        restore(folder, structured, before)
    for case in cases:
        try:
            case.spoil(folder)
        except Unwritable:
            continue
        count += 1
        wrong = problem(reader, folder, spoiled := state(folder))
        if wrong == LATE:  # a busy machine is no fault
            wrong = problem(reader, folder, spoiled, 3 * SECONDS)
        if wrong:
            found[str(case)] = wrong
        restore(folder, structured, before)
    return count, found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].command.split()[0]}-{case[1]}")
def test_every_value_of_a_structured_file(case, structured, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    reader, file = case
    most = int(os.environ.get("SENTCLI_LEAVES", reader.most))
    count, wrong = failures(reader, file, structured, tmp_path, most)
    if log := os.environ.get("SENTCLI_LEAVES_LOG"):
        with Path(log).open("a") as handle:
            handle.write(json.dumps({"command": reader.command, "file": file, "count": count, "wrong": wrong}) + "\n")
    assert not wrong, f"{len(wrong)} of {count} cases: " + json.dumps(wrong, indent=1)
