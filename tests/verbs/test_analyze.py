"""The kinds of ``analyze`` that read models, vectors and runs: folders, JSON, messages."""

import csv
import json
import re
import shutil

import numpy as np
import pytest

from tests.analysis.test_sweeps import RATES, STUDY


@pytest.fixture(scope="module")
def downstream(tmp_path_factory):
    """A SentEval folder with STS-B of sentences that the tiny vocabulary covers."""
    folder = tmp_path_factory.mktemp("data") / "downstream"
    rng = np.random.default_rng(0)
    words = "the a cat dog bird fish sat ran flew swam on under house river tree big small red old man".split()
    for split in ("dev", "test", "train"):
        lines = []
        for i in range(40):
            one = " ".join(rng.choice(words, 6))
            two = one.replace("the", "a") if i % 2 else " ".join(rng.choice(words, 5))
            lines.append(f"main\tfile\t2012\t{i}\t{4.5 if i % 2 else i % 4}\t{one}\t{two}\n")
        path = folder / "STS" / "STSBenchmark" / f"sts-{split}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), "utf-8")
    return folder


@pytest.fixture(scope="module")
def trained(tiny_bert, downstream, tmp_path_factory):
    """A finished run that logged its geometry."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("".join(f"the cat sat on {n} mats\n" for n in range(64)))
    call = ["train", "--method", "simcse", "-m", tiny_bert, "--data", folder / "text.txt", "-o", folder / "run"]
    call += ["--eval-data", downstream, "--eval-every", 2, "--max-steps", 4, "--batch-size", 8, "--log-geometry"]
    result = CliRunner().invoke(app, [str(part) for part in call])
    assert result.exit_code == 0, result.stderr
    return folder / "run"


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_training_logs_the_geometry_that_analyze_measures(trained, downstream, invoke, tmp_path):
    logged = [line for line in metrics(trained) if "dev_spearman" in line]
    assert [line["step"] for line in logged] == [0, 2, 4]
    best = max(logged, key=lambda line: line["dev_spearman"])
    out = tmp_path / "out"
    invoke(
        "analyze", "geometry", "-m", trained, "--data", downstream, "--no-sts", "-o", out, "--backend", "torch", check=0
    )
    found = json.loads((out / "analysis.json").read_text())["results"]
    assert found["alignment"] == pytest.approx(best["alignment"], rel=1e-4)
    assert found["uniformity"] == pytest.approx(best["uniformity"], rel=1e-4)


@pytest.mark.slow
def test_log_geometry_does_not_change_the_weights(trained, tiny_bert, downstream, invoke, tmp_path):
    call = [
        "train",
        "--method",
        "simcse",
        "-m",
        tiny_bert,
        "--data",
        trained.parent / "text.txt",
        "-o",
        tmp_path / "run",
    ]
    call += ["--eval-data", downstream, "--eval-every", 2, "--max-steps", 4, "--batch-size", 8]
    invoke(*call, check=0)
    assert not any("alignment" in line for line in metrics(tmp_path / "run"))
    name = "model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (trained / name).read_bytes()


def test_log_geometry_needs_a_dev_set(tiny_bert, text, invoke, tmp_path):
    call = ["train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "run", "--log-geometry"]
    assert re.search("--log-geometry.*--eval-data", invoke(*call, check=2).stderr)


@pytest.mark.slow
def test_geometry_of_models_and_a_run(trained, tiny_bert, downstream, invoke, tmp_path):
    out = tmp_path / "new" / "out"
    done = invoke(
        "analyze", "geometry", trained, "-m", tiny_bert, "--data", downstream, "--no-sts", "-o", out, "--json", "-",
        check=0,
    )  # fmt: skip
    objects = json.loads(done.stdout)
    assert [one["model"] for one in objects] == [str(tiny_bert), str(trained)]
    first = objects[0]
    assert {"command", "model", "protocol", "results", "environment", "elapsed_seconds"} <= first.keys()
    assert first["protocol"]["kind"] == "geometry" and first["protocol"]["positives_above"] == 4.0
    assert first["results"]["positives"] == 20
    assert len(first["results"]["singular_values"]) == 32
    assert json.loads((out / "analysis.json").read_text()) == objects
    names = {path.name for path in out.iterdir()}
    assert {"index.html", "geometry.csv", "spectrum.png", "alignment-uniformity.svg", "training-curves.csv"} <= names
    rows = list(csv.DictReader((out / "geometry.csv").open()))
    assert [row["model"] for row in rows] == ["tiny-bert", "run"], "paths are called by their last part"
    page = (out / "index.html").read_text()
    assert "<svg" in page and 'aria-label="tiny-bert: alignment' in page
    curve = [row for row in csv.DictReader((out / "training-curves.csv").open()) if row["panel"] == "uniformity"]
    assert [row["x"] for row in curve] == ["0", "2", "4"]


@pytest.mark.slow
def test_geometry_of_vectors(invoke, tmp_path, tiny_bert, text):
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    invoke("encode", text, "-m", tiny_bert, "-o", tmp_path / "encoded", check=0)
    invoke("analyze", "geometry", tmp_path / "v.npy", tmp_path / "encoded", "-o", tmp_path / "out", check=0)
    plain, encoded = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert (plain["results"]["rows"], plain["results"]["dimension"]) == (50, 8)
    centred = vectors - vectors.mean(axis=0)
    assert plain["results"]["singular_values"] == pytest.approx(np.linalg.svd(centred, compute_uv=False), rel=1e-4)
    assert encoded["results"]["dimension"] == 32


@pytest.mark.slow
def test_geometry_of_vectors_that_encode_made_smaller(invoke, tmp_path, tiny_bert, text):
    """Nothing is compared with a query here, so fewer dimensions do; bits are no numbers."""
    for name, options in (("cut", ["--truncate-dim", 8]), ("bits", ["--output-dtype", "binary"])):
        invoke("encode", text, "-m", tiny_bert, "-o", tmp_path / name, *options, check=0)
    invoke("analyze", "geometry", tmp_path / "cut", "-o", tmp_path / "out", check=0)
    assert json.loads((tmp_path / "out" / "analysis.json").read_text())["results"]["dimension"] == 8
    refused = invoke("analyze", "geometry", tmp_path / "bits", "-o", tmp_path / "no", check=2)
    assert re.search(f"{tmp_path}/bits .*--output-dtype", refused.stderr)


@pytest.mark.slow
def test_every_pair_is_positive_if_asked(tiny_bert, downstream, invoke, tmp_path):
    call = ["analyze", "geometry", "-m", tiny_bert, "--data", downstream, "--no-sts", "-o", tmp_path / "out"]
    invoke(*call, "--positives-above", "all", check=0)
    assert json.loads((tmp_path / "out" / "analysis.json").read_text())["results"]["positives"] == 40
    (tmp_path / "out" / "old.csv").write_text("")
    assert re.search(f"{tmp_path}/out .*--overwrite", invoke(*call, check=2).stderr)
    invoke(*call, "--overwrite", check=0)
    assert not (tmp_path / "out" / "old.csv").exists()
    failed = invoke(*call, "--overwrite", "--positives-above", 9, check=2)
    assert re.search(r"error: STSBenchmark: .*\b9\b", failed.stderr)
    assert (tmp_path / "out" / "index.html").exists(), "what was there stays if the new analysis fails"


def bad(tmp_path, name):
    """Return the arguments of a wrong call."""
    same, few = tmp_path / "same.txt", tmp_path / "few.txt"
    same.write_text("the cat\n" * 20)
    few.write_text("".join(f"the cat {n}\n" for n in range(9)))
    np.save(tmp_path / "flat.npy", np.zeros(3))
    np.save(tmp_path / "nan.npy", np.full((20, 2), np.nan))
    np.save(tmp_path / "short.npy", np.zeros((9, 2)))
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    return {
        "nothing": [],
        "no texts": ["-m", "MODEL"],
        "few": ["-m", "MODEL", "--texts", few],
        "same": ["-m", "MODEL", "--texts", same],
        "none": [tmp_path / "nothing.npy"],
        "flat": [tmp_path / "flat.npy"],
        "nan": [tmp_path / "nan.npy"],
        "short": [tmp_path / "short.npy"],
        "torn": [tmp_path / "torn.npy"],
        "no metrics": [tmp_path / "run"],
        "folder": [tmp_path],
        "empty": [tmp_path / "empty"],
        "above": ["-m", "MODEL", "--texts", few, "--positives-above", "x"],
        "twice": ["-m", "MODEL", "-m", "MODEL", "--data", "DATA"],
    }[name]


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "nothing": "models .*-m",
        "no texts": "--data .*--pairs .*--texts",
        "few": r"/few\.txt: 9 .*10",
        "same": r"/same\.txt: .*20 texts",
        "none": r"/nothing\.npy",
        "flat": r"/flat\.npy: .*\(3,\).*float64",
        "nan": r"/nan\.npy: .*finite",
        "short": r"/short\.npy: 9 .*10",
        "torn": r"/torn\.npy: .*NumPy",
        "no metrics": r"/run .*metrics\.jsonl",
        "folder": r"none of its 1 runs has finished",
        "empty": r"metrics\.jsonl.*manifest\.json",
        "above": "--positives-above x: .*all",
        "twice": "/tiny-bert ",
    }.items(),
)
def test_bad_input_is_one_message(name, message, tiny_bert, downstream, invoke, tmp_path):
    named = {"MODEL": tiny_bert, "DATA": downstream}
    call = [named.get(part, part) for part in bad(tmp_path, name)]
    done = invoke("analyze", "geometry", *call, "-o", tmp_path / "out", check=2)
    assert re.search(message, done.stderr) and done.stderr.count("error:") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_not_replaced(invoke, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    done = invoke("analyze", "sweep", STUDY, RATES, "-o", tmp_path / "mine", "--overwrite", check=2)
    assert re.search(rf"{tmp_path}/mine .*analysis\.json.*--overwrite", done.stderr)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def lines(*paths):
    return [line for path in paths for line in path.read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_sweep(invoke, tmp_path):
    out = tmp_path / "out"
    done = invoke("analyze", "sweep", STUDY, RATES, "-o", out, "--json", "-", check=0)
    found = json.loads(done.stdout)
    assert found["protocol"] == {"kind": "sweep", "x": "learning_rate", "runs": len(lines(STUDY, RATES))}
    assert {path.name for path in out.iterdir()} >= {"sweep-learning-rate.csv", "sweep-learning-rate-table.csv"}
    drawn = list(csv.DictReader((out / "sweep-learning-rate.csv").open()))
    simcse = [row for row in drawn if row["series"] == "simcse" and row["panel"] == "STS average"]
    assert [float(row["x"]) for row in simcse] == [3e-05, 6e-05, 1e-04]
    assert "whitenedcse" in done.stderr
    page = (out / "index.html").read_text("utf-8")
    (told,) = re.findall(r'<script type="application/json" id="points">(.*?)</script>', page, re.DOTALL)
    assert list(json.loads(told)) == re.findall(r'<figure id="figure-(\d+)"', page), "every figure tells its points"
    assert any(text.startswith("3e-05: ") for figure in json.loads(told).values() for text in figure["texts"])
    wrong = invoke("analyze", "sweep", STUDY, RATES, "--x", "batch_size", "-o", tmp_path / "b", check=2)
    assert "--x batch_size: " in wrong.stderr


@pytest.mark.deep
def test_low_shot(invoke, tmp_path, trained, tiny_bert, downstream):
    """From a sweep that was really run."""
    grid = ["seeds = [1, 2]", "[[grid]]", 'method = ["simcse", "informin-cl"]', "limit = [16, 48]"]
    (tmp_path / "sweep.toml").write_text("\n".join(grid))
    call = ["train", "--sweep", tmp_path / "sweep.toml", "-m", tiny_bert, "--data", trained.parent / "text.txt"]
    call += ["-o", tmp_path / "sweep", "--max-steps", 2, "--batch-size", 8, "--eval-data", downstream]
    invoke(*call, check=0)
    out = tmp_path / "out"
    invoke("analyze", "low-shot", tmp_path / "sweep", "-o", out, "--published", check=0)
    found = json.loads((out / "analysis.json").read_text())
    assert found["protocol"]["baseline"] == "simcse"
    assert [(c["system"], [p["value"] for p in c["points"]]) for c in found["results"]["curves"]] == [
        ("simcse", [16, 48]), ("informin-cl", [16, 48]),
    ]  # fmt: skip
    assert all(p["best_dev_spearman"]["runs"] == 2 for curve in found["results"]["curves"] for p in curve["points"])
    page = (out / "index.html").read_text("utf-8")
    assert "STS average (Spearman" in page, "what is published are averages, whatever was measured"
    assert "low-shot-best-dev-spearman-over.csv" in {path.name for path in out.iterdir()}
    wrong = invoke("analyze", "low-shot", tmp_path / "sweep", "--baseline", "simce", "-o", tmp_path / "b", check=2)
    assert re.search("--baseline simce: .*'simcse'", wrong.stderr)


@pytest.mark.slow
def test_a_report_of_runs_models_and_files(trained, tiny_bert, downstream, invoke, tmp_path):
    scores = tmp_path / "scores.json"
    pairs = tmp_path / "own.tsv"
    rows = [f"the cat {i}\tthe cat {i % 3}\t{i % 5}" for i in range(20)]
    pairs.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    invoke("sts-eval", "-m", tiny_bert, "--pairs", pairs, "--json", scores, check=0)
    texts = trained.parent / "text.txt"
    targets = [tmp_path / "r.html", tmp_path / "r.md"]
    options = [part for target in targets for part in ("-o", target)]
    invoke("report", scores, trained, tiny_bert, "--texts", texts, *options, check=0)
    html, markdown = (target.read_text("utf-8") for target in targets)
    for title in (
        "Semantic",
        "Geometry of the vectors",
        "Training",
        "While training",
        "Terms of the loss",
        "Configuration",
    ):
        assert title in html or title in markdown, title
    assert "contrastive.temperature" in html and "settings.learning" in html.replace("_", " ").replace(" rate", "")
    assert "](<r-figures/training-curves.png>)" in markdown
    assert (tmp_path / "r-figures" / "training-curves.png").exists()


@pytest.mark.slow
def test_a_report_of_an_unfinished_run(trained, invoke, tmp_path):
    run = tmp_path / "half"
    run.mkdir()
    for name in ("run.json", "metrics.jsonl"):
        shutil.copy(trained / name, run)
    with (run / "metrics.jsonl").open("a") as handle:
        handle.write('{"step": 5, "lo')
    invoke("report", run, "-o", tmp_path / "r.md", check=0)
    page = (tmp_path / "r.md").read_text("utf-8")
    assert "Not finished: half." in page and "| half |" in page
    (run / "metrics.jsonl").write_text('{"step": 1}\nnot json\n{"step": 2}\n')
    assert "metrics.jsonl, line 2" in invoke("report", run, "-o", tmp_path / "s.md", check=2).stderr
    (run / "metrics.jsonl").write_text("")
    assert "half/metrics.jsonl " in invoke("report", run, "-o", tmp_path / "s.md", check=2).stderr


def test_a_report_of_models_says_what_it_needs(tiny_bert, invoke, tmp_path):
    assert "--data" in invoke("report", tiny_bert, "-o", tmp_path / "r.html", check=2).stderr
    assert "minilm" in invoke("report", "minilm", "minilm", "-o", tmp_path / "r.html", check=2).stderr
