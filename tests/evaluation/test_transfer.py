"""Reading SentEval's transfer tasks, and scoring an encoder on them."""

import json
import re

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.evaluation import transfer, transfer_data
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.transfer_data import AVERAGED, Example, load_examples
from sentcli.stores.text_vectors import TextVectors
from tests.evaluation.conftest import write_downstream

JUDGEMENTS = transfer_data.LAYOUTS["SICKEntailment"].classes


@pytest.fixture
def folder(tmp_path):
    return write_downstream(tmp_path / "downstream")


def test_lines_end_at_line_feeds_and_the_order_is_the_toolkits(folder):
    (task,) = load_examples(folder, ["MR"])
    examples = task.splits["all"]
    assert len(examples) == 82, "the blank line is an example, as in the toolkit"
    assert Example(("caf\xe9 au lait",), 1) in examples
    assert examples[0] == Example(("",), 1)
    assert [e.order for e in examples] == sorted(e.order for e in examples)
    same = [e.texts[0] for e in examples if e.order == (9, 1)]
    assert same == [f"a good , fine film very very number {n}" for n in range(2, 40, 5)], "ties as in the file"


def test_each_task_has_its_splits_classes_and_pairs(folder):
    names = [*AVERAGED, "SST5", "SICKEntailment"]
    found = {task.name: task for task in load_examples(folder, names)}
    assert [task.name for task in load_examples(folder)] == list(AVERAGED)
    assert {name: task.classes for name, task in found.items()} == dict(
        zip(names, (2, 2, 2, 2, 2, 6, 2, 5, 3), strict=True)
    )
    assert list(found["TREC"].splits) == ["train", "test"]
    assert found["TREC"].splits["train"][0].texts == ("what is the abbr of 0 ?",), "without the fine class"
    assert list(found["SST2"].splits) == ["train", "dev", "test"]
    assert len(found["MRPC"].splits["train"]) == 40, "no header, no byte order mark"
    assert all(len(e.texts) == 2 for e in found["SICKEntailment"].splits["test"])


def test_pairs_are_differences_and_products():
    pairs = [Example(("a", "b"), 0), Example(("b", "b"), 1)]
    task = transfer_data.Examples("t", 2, "test", {"train": pairs, "test": pairs[:1]})
    both = TextVectors({"a": 0, "b": 1}, np.array([[1, -2], [3, 4]], np.float32), np.zeros(2, int))
    found = transfer.features(task, both)
    assert found["train"].tolist() == [[2, 6, 3, -8], [0, 0, 9, 16]]
    assert found["test"].shape == (1, 4)


@pytest.mark.parametrize(
    ("spoil", "tasks", "words"),
    [
        (lambda f: (f / "MR/rt-polarity.neg").unlink(), "MR", r"MR: .*rt-polarity\.neg "),
        (lambda f: (f / "TREC/TREC_10.label").rename(f / "TREC/x"), "TREC", r"TREC: .*TREC_10\.label "),
        (
            lambda f: spoil_line(f / "TREC/TREC_10.label", 3, "WHAT:x a b"),
            "TREC",
            r"TREC_10\.label, line 3: 'WHAT' .*ABBR",
        ),
        (lambda f: spoil_line(f / "SST/binary/sentiment-dev", 2, "a\t2"), "SST2", r"sentiment-dev, line 2: '2' .*0, 1"),
        (lambda f: spoil_line(f / "SST/binary/sentiment-dev", 2, "a\t-1"), "SST2", "sentiment-dev, line 2: '-1' "),
        (lambda f: spoil_line(f / "SST/binary/sentiment-dev", 2, "a"), "SST2", "sentiment-dev, line 2: .*1 "),
        (lambda f: spoil_line(f / "MRPC/msr_paraphrase_test.txt", 4, "1\t2\ta\tb"), "MRPC", "test.txt, line 4: .*4 "),
        (lambda f: spoil_line(f / "SICK/SICK_trial.txt", 2, "1\ta\tb\t3\tMAYBE"), "SICKEntailment", "line 2: 'MAYBE'"),
        (lambda f: (f / "CR/custrev.pos").write_text(""), "CR", "CR: .* 1"),
        (lambda f: drop(f / "TREC/train_5500.label", "NUM"), "TREC", "TREC: .* 5"),
        (lambda f: None, "MRR", "'MRR'.*'MR'"),
        (lambda f: None, ",", "--tasks"),
    ],
)
def test_what_is_wrong_is_said(folder, tiny_bert, invoke, spoil, tasks, words):
    spoil(folder)
    failed = invoke("senteval", "-m", tiny_bert, "--data", folder, "--tasks", tasks, check=2)
    assert re.search(words, " ".join(failed.stderr.split())), failed.stderr


def drop(path, word):
    path.write_text("".join(line for line in path.open() if word not in line))


def spoil_line(path, number, text):
    lines = path.read_text("latin-1").split("\n")
    lines[number - 1] = text
    path.write_text("\n".join(lines), "latin-1")


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=f"^{tmp_path} .*MR/.*TREC/.*SST/"):
        load_examples(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["full", "fast", "lbfgs"])
def test_the_command_scores_every_task(folder, tiny_bert, invoke, protocol, tmp_path):
    names = ",".join([*AVERAGED, "SST5", "SICKEntailment"])
    call = ["senteval", "-m", tiny_bert, "--data", folder, "--protocol", protocol, "--json", tmp_path / "r.json"]
    shown = invoke(*call, "--tasks", names, check=0)
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["protocol"]["name"] == protocol
    assert report["protocol"]["normalize"] is False
    results = report["results"]
    assert list(results) == names.split(",")
    assert report["average"] == pytest.approx(
        np.mean([round(one["accuracy"], 2) for one in results.values()]), abs=0.006
    )
    assert results["MR"]["accuracy"] > 60, "even a random encoder tells good from bad better than chance"
    assert [name for name, one in results.items() if "f1" in one] == ["MRPC"]
    assert f"{results['TREC']['accuracy']:.2f}" in shown.stdout


def test_several_models_are_compared_example_by_example(folder, tiny_bert, tmp_path, invoke):
    from sentcli import SentenceEncoder

    SentenceEncoder.load(tiny_bert, backend="torch", pooling="max").save(tmp_path / "other")
    call = ["senteval", "-m", tiny_bert, "-m", tmp_path / "other", "--data", folder, "--protocol", "lbfgs"]
    done = invoke(*call, "--tasks", "MR,TREC,MR", "--json", "-", check=0)
    first, second = json.loads(done.stdout)
    assert list(first["results"]) == ["MR", "TREC"], "named twice, done once"
    found = second["compared"]["tasks"]["TREC"]
    accuracies = [one["results"]["TREC"]["accuracy"] for one in (first, second)]
    assert found["difference"] == pytest.approx(accuracies[1] - accuracies[0])
    assert found["only_first"] - found["only_second"] == pytest.approx(
        found["difference"] / 100 * second["results"]["TREC"]["test"]
    )


def test_an_export_that_normalises_is_refused_with_a_reason(folder, tiny_bert, tmp_path, invoke):
    call = ["export", "-m", tiny_bert, "-o", tmp_path / "e", "--normalize", "--no-torch-weights", "--no-verify"]
    invoke(*call, check=0)
    failed = invoke("senteval", "-m", tmp_path / "e", "--data", folder, check=2)
    assert re.search(f"{tmp_path}/e .*normalis", " ".join(failed.stderr.split()))


def test_vectors_are_those_before_normalisation(folder, tmp_path, invoke):
    """A model that normalises gives the same as the same model that does not."""
    from sentcli import SentenceEncoder
    from tests.conftest import save_backbone

    backbone = save_backbone(tmp_path / "backbone")
    encoder = SentenceEncoder.load(backbone, backend="torch", pooling="mean")
    encoder.save(tmp_path / "plain")
    encoder.with_normalize(True).save(tmp_path / "normal")
    found = []
    for name in ("plain", "normal"):
        call = [
            "senteval",
            "-m",
            tmp_path / name,
            "--data",
            folder,
            "--protocol",
            "fast",
            "--tasks",
            "CR",
            "--json",
            "-",
        ]
        found.append(json.loads(invoke(*call, check=0).stdout)["results"])
    assert found[0] == found[1]


def test_a_text_is_encoded_once(folder, tiny_bert):
    from sentcli import SentenceEncoder

    tasks = load_examples(folder, ["MR", "CR", "SST2"])
    given = []
    encoder = SentenceEncoder.load(tiny_bert, backend="torch")
    texts = [text for task in tasks for text in task.texts]
    encoded = EvaluatedModel.of(encoder).encode(texts, progress=lambda added: given.append(added.texts))
    assert sum(given) == len(encoded.rows) == len(encoded.vectors) == 82


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "examples"),
    [("MR", 10662), ("CR", 3775), ("SUBJ", 10000), ("MPQA", 10606), ("SST2", 70042), ("TREC", 5952), ("MRPC", 5801)],
)
def test_the_real_files(data, name, examples):
    (task,) = load_examples(data / "senteval", [name])
    assert sum(map(len, task.splits.values())) == examples
