"""Training with a teacher: every kind of teacher, what is kept of its vectors, and what is refused."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sentcli import SentenceEncoder
from sentcli.precision import half_precision_supported
from sentcli.training.batches import BatchMaker, Order
from tests.conftest import save_backbone, save_cross_encoder
from tests.model import folders
from tests.model.test_served import host, local  # noqa: F401 - fixtures
from tests.tolerance import VECTORS
from tests.training.test_checkpoints import digests, interrupted


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Another tiny BERT, of the students' dimension."""
    return save_backbone(tmp_path_factory.mktemp("models") / "teacher", seed=1)


@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    return save_cross_encoder(tmp_path_factory.mktemp("models") / "crossing")


@pytest.fixture
def triplets(tmp_path, sentences):
    """Triplets in which no text repeats within a row."""
    words = sentences[:96]
    rows = [{"anchor": words[i], "positive": words[i + 32], "negative": words[i + 64]} for i in range(32)]
    path = tmp_path / "triplets.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def train(invoke, tiny_bert, text, tmp_path):
    """Train with few steps; a text, a model and an output may be given instead of the usual ones."""

    def call(method, *options, model=tiny_bert, data=text, output="m", check=0):
        start = [] if model is None else ["-m", model]
        return invoke(
            "train", "--method", method, *start, "--data", data, "-o", tmp_path / output, "--max-steps", 3,
            "--batch-size", 16, "--learning-rate", "1e-3", *options, check=check,
        )  # fmt: skip

    return call


def terms(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


@pytest.mark.slow
def test_every_kind_of_teacher_gives_the_same_targets(train, invoke, teacher, text, tmp_path, request):
    """A folder, an export, a server, and vectors in a file and in a directory."""
    train("distill", "--teacher", teacher, output="folder")
    expected = terms(tmp_path / "folder")
    invoke("export", "-m", teacher, "-o", tmp_path / "onnx", check=0)
    invoke("encode", text, "-m", teacher, "-o", tmp_path / "v.parquet", check=0)
    invoke("encode", text, "-m", teacher, "-o", tmp_path / "directory", check=0)
    names = [tmp_path / "onnx", tmp_path / "v.parquet", tmp_path / "directory"]
    for number, name in enumerate(names):
        train("distill", "--teacher", name, output=f"m{number}")
        for one, other in zip(terms(tmp_path / f"m{number}"), expected, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], abs=1e-4), name


def test_a_served_teacher(train, host, tmp_path):  # noqa: F811
    options = ("--set", "objectives-=vectors", "--device", "cpu")
    train("distill", *options, "--teacher", host.model, model=tiny_other(tmp_path))
    assert host.requests and np.isfinite([line["similarities"] for line in terms(tmp_path / "m")]).all()
    result = train("static", "--teacher", host.model, model=None, output="static", check=2)
    assert "served" in result.stderr


def test_a_served_teacher_that_gives_another_count(train, host, tmp_path):  # noqa: F811
    def lacks_one(number, request):
        status, body = host.normal(number, request)
        return status, {**body, "data": body["data"][1:]}

    host.behave = lacks_one
    train("distill", "--teacher", host.model, check=1)
    assert not (tmp_path / "m").exists()


def tiny_other(folder):
    return save_backbone(folder / "other", seed=5)


@pytest.mark.slow
def test_a_teacher_is_encoded_once(train, teacher, text, tmp_path, monkeypatch):
    """The vectors of a text are kept, so that a second run encodes nothing."""
    train("distill", "--teacher", teacher, output="first")

    encode, encoded = SentenceEncoder.encode, []

    def count(self, texts, **options):
        encoded.extend(texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(SentenceEncoder, "encode", count)
    train("distill", "--teacher", teacher, output="second")
    assert not set(encoded) & set(text.read_text().splitlines())
    assert digests(tmp_path / "first") == digests(tmp_path / "second")


@pytest.mark.slow
def test_a_run_with_a_teacher_resumes_to_the_same_bytes(train, invoke, tiny_bert, teacher, text, tmp_path, monkeypatch):
    other = save_backbone(tmp_path / "third", seed=2)

    def command(output, *options, by=teacher):
        return [
            "train", "--method", "distill", "-m", tiny_bert, "--data", text, "-o", tmp_path / output, "--teacher", by,
            "--max-steps", 6, "--save-every", 2, "--batch-size", 16, "--learning-rate", "1e-3", *options,
        ]  # fmt: skip

    invoke(*command("whole"), check=0)
    interrupted(monkeypatch, invoke, 5, *command("m"))
    result = invoke(*command("m", "--resume", by=other), check=2)
    assert "teachers" in result.stderr
    invoke(*command("m", "--resume"), check=0)
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")


@pytest.mark.slow
def test_a_cached_gradient_is_that_of_the_whole_batch(train, teacher, tmp_path):
    for size in (0, 4):
        train("distill", "--teacher", teacher, "--set", f"mini_batch_size={size}", output=str(size))
    for whole, parts in zip(terms(tmp_path / "0"), terms(tmp_path / "4"), strict=True):
        for name in ("vectors", "similarities", "grad_norm"):
            assert parts[name] == pytest.approx(whole[name], rel=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(train, teacher, tmp_path, precision):
    if not half_precision_supported(torch.device("cpu"), precision):
        pytest.skip("this processor has no such numbers")
    train("distill", "--teacher", teacher, "--set", f"precision={precision}")
    assert terms(tmp_path / "m")[-1]["vectors"] < terms(tmp_path / "m")[0]["vectors"]


@pytest.mark.slow
def test_a_dry_run_writes_nothing(train, teacher, tmp_path):
    train("distill", "--teacher", teacher, "--dry-run")
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_a_check_of_the_start_and_several_seeds(train, teacher, dev, tmp_path):
    checked = train("distill", "--teacher", teacher, "--eval-data", dev, "--check-start", check=None)
    assert checked.exit_code in (0, 3), checked.stderr
    train("distill", "--teacher", teacher, "--seeds", "1,2", "--eval-data", dev, output="seeds")
    assert len(list((tmp_path / "seeds").rglob("model.safetensors"))) == 2


def test_margins_of_a_cross_encoder_and_of_an_encoder(train, teacher, crossing, triplets, tmp_path):
    for name in (crossing, teacher):
        train("margin-mse", "--teacher", name, data=triplets, output=name.name)
        assert np.isfinite([line["margin-mse"] for line in terms(tmp_path / name.name)]).all()
    assert terms(tmp_path / "crossing")[0]["loss"] != terms(tmp_path / "teacher")[0]["loss"]


def test_further_terms_with_a_teacher(train, teacher, tmp_path):
    """Those of ct learn on the rows whose views show one sentence."""
    template = ["--set", "template.first=a [X] [MASK]", "--set", "template.second="]
    for method, options in {"simcse": [], "prompt-bert": template, "ct": []}.items():
        train(method, "--teacher", teacher, "--set", "objectives+=vectors", *options, output=method)
        assert np.isfinite([line["vectors"] for line in terms(tmp_path / method)]).all()


@pytest.mark.slow
def test_two_teachers_rank(train, teacher, tmp_path):
    other = save_backbone(tmp_path / "third", seed=2)
    train("rankcse", "--teacher", teacher, "--teacher", other)
    run = json.loads((tmp_path / "m" / "sentcli.json").read_text())
    assert len(run["teachers"]) == 2
    third = ["--teacher", teacher, "--teacher", other, "--teacher", save_backbone(tmp_path / "4", seed=4)]
    assert "--teacher" in train("rankcse", *third, output="three", check=2).stderr


def spoiled(folder, target):
    """A copy of a model whose weights are not numbers."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    name = next(name for name in tensors if "word_embeddings" in name)
    tensors[name] = torch.full_like(tensors[name], torch.nan)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def refused(train, tmp_path, *arguments, **options):
    """A command with exit code 2 that has written nothing; returns what it said in one line."""
    result = train(*arguments, **options, check=2)
    assert not (tmp_path / "m").exists()
    return " ".join(result.stderr.split())


def test_teachers_that_nothing_is_learnt_from(train, invoke, teacher, crossing, tiny_bert, text, triplets, tmp_path):
    assert "start model itself" in refused(train, tmp_path, "distill", "--teacher", tiny_bert)
    assert "not finite" in refused(train, tmp_path, "distill", "--teacher", spoiled(teacher, tmp_path / "nan"))
    assert "cross-encoder" in refused(train, tmp_path, "distill", "--teacher", crossing)
    assert "no term" in refused(train, tmp_path, "simcse", "--teacher", teacher)
    assert "--teacher" in refused(train, tmp_path, "distill")
    assert "--teacher" in refused(train, tmp_path, "distill", "--teacher", teacher, "--teacher", tiny_bert)
    assert "texts" in refused(train, tmp_path, "distill", "--teacher", text)
    assert "no-such" in refused(train, tmp_path, "distill", "--teacher", "./no-such-folder")
    spoilt = spoiled(crossing, tmp_path / "nan-pairs")
    assert "not finite" in refused(train, tmp_path, "margin-mse", "--teacher", spoilt, data=triplets)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("anchor,positive\na cat,the cat\na dog,the dog\n", "utf-8")
    assert "negatives" in refused(train, tmp_path, "margin-mse", "--teacher", crossing, data=pairs)
    assert "columns" in refused(train, tmp_path, "margin-mse", "--teacher", crossing)


def test_vectors_that_lack_a_text_or_have_another_dimension(train, invoke, teacher, text, tmp_path):
    some = tmp_path / "some.txt"
    some.write_text("the cat\na dog\n", "utf-8")
    invoke("encode", some, "-m", teacher, "-o", tmp_path / "some.parquet", check=0)
    assert "no vector" in refused(train, tmp_path, "distill", "--teacher", tmp_path / "some.parquet")
    short = ["--truncate-dim", 16]
    invoke("encode", text, "-m", teacher, "-o", tmp_path / "v.parquet", *short, check=0)
    train("distill", "--teacher", tmp_path / "v.parquet")
    assert (SentenceEncoder.load(tmp_path / "m").encode(["the cat"])).shape == (1, 32)


@pytest.mark.parametrize(
    ("kind", "layers", "words"),
    [
        ("bert", "0,5", "0 to 1"), ("bert", "1,0", "ascending"), ("bert", "x", "layers"), ("bert", "-1", "0 to 1"),
        ("albert", "0", "same"), ("t5", "0", "t5"),
    ],
)  # fmt: skip
def test_layers_that_are_none(train, teacher, tmp_path, kind, layers, words):
    model = folders.plain(kind)
    said = refused(train, tmp_path, "distill", "--teacher", teacher, f"--layers={layers}", model=model)
    assert words in said


@pytest.mark.parametrize(
    "kind", ["bert", "modernbert", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("distilbert", "mpnet"))]
)
def test_a_student_of_some_layers_opens_with_transformers(train, tmp_path, kind):
    from transformers import AutoModel

    model = save_backbone(tmp_path / "deep", kind=kind, layers=4)
    train("distill", "--teacher", model, "--layers", "0,3", model=None)
    encoder = SentenceEncoder.load(tmp_path / "m")
    peer = AutoModel.from_pretrained(tmp_path / "m").eval()
    assert peer.config.num_hidden_layers == 2
    inputs = encoder.hf_tokenizer(["the cat sat on a mat"], return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        expected = peer(**inputs).last_hidden_state.mean(dim=1)
    np.testing.assert_allclose(encoder.encode(["the cat sat on a mat"]), expected, atol=VECTORS)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("simcse", ["matryoshka.dims=32", "head=none"]), ("simcse", ["matryoshka.dims=16"]),
        ("simcse", ["matryoshka.dims=16", "head=none", "queue_size=16"]),
        ("micse", ["matryoshka.dims=16", "head=none", "queue_size=0", "ami.layers=0:2"]),
        ("mlm", ["matryoshka.dims=16"]),
    ],
)  # fmt: skip
def test_first_dimensions_that_cannot_be_trained(train, tmp_path, method, options):
    changes = [word for option in options for word in ("--set", option)]
    assert "matryoshka" in refused(train, tmp_path, method, *changes)


def test_first_dimensions_take_part_in_the_loss(train, teacher, tmp_path):
    for name, dims in {"whole": "", "first": "16,8"}.items():
        options = ["--set", f"matryoshka.dims={dims}"] if dims else []
        train("distill", "--teacher", teacher, *options, output=name)
    assert terms(tmp_path / "first")[0]["loss"] > terms(tmp_path / "whole")[0]["loss"]
    run = json.loads((tmp_path / "first" / "run.json").read_text())
    assert "matryoshka" in json.dumps(run)


@pytest.mark.parametrize("seed", range(20))
def test_every_row_of_every_step_has_been_asked_about(seed):
    """Each epoch leaves out other rows at its end, here up to a third, so that some are first seen in a late one."""
    generator = random.Random(seed)
    batch_size = generator.randint(4, 9)
    left_over = generator.randint(0, 2 * batch_size - 2)
    order = Order(2 * batch_size + left_over, batch_size, seed, batch_size, processes=2)
    maker = BatchMaker(None, None, order, None, accumulate=generator.randint(1, 3))
    for first, end in ((0, 1), (0, 7), (3, 9), (0, 50)):
        seen = set()
        for number in range(first * maker.accumulate, end * maker.accumulate):
            seen.update(order.batch(number))
        assert seen <= set(maker.rows_of(first, end))
