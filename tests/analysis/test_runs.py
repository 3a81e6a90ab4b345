"""A folder of runs is a study: one row a setting, curves over its seeds, and a paragraph that says what was run."""

import csv
import json
import re

import pytest

from sentcli.analysis.runs import read_runs
from sentcli.errors import InputError

RATES = (1e-3, 3e-3)


@pytest.fixture(scope="module")
def study(tiny_bert, sentences, tmp_path_factory):
    """A sweep of two rates with two seeds each, whose runs were scored on pairs of their own."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    folder = tmp_path_factory.mktemp("studies")
    (folder / "sweep.toml").write_text(f"seeds = [1, 2]\n[[grid]]\nlearning_rate = {list(RATES)}\n")
    words = [sentence for sentence in sentences if sentence.strip() and not set("\t\n") & set(sentence)]
    text = folder / "text.txt"
    text.write_text("\n".join(words) + "\n", "utf-8")
    rows = [f"{words[number]}\t{words[number + 40]}\t{number % 6}" for number in range(36)]
    (folder / "dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    call = ["train", "--method", "simcse", "-m", tiny_bert, "--data", text, "--batch-size", 16, "--max-steps", 4]
    call += [
        "--set",
        "keep_start=false",
        "--sweep",
        folder / "sweep.toml",
        "--dev",
        folder / "dev.tsv",
        "--eval-every",
        2,
        "-o",
        folder / "study",
    ]
    result = CliRunner().invoke(app, [str(part) for part in call])
    assert result.exit_code == 0, result.stderr
    return folder / "study"


@pytest.fixture
def bare(study, tmp_path):
    """The runs of the study side by side, without the file of results."""
    for run in study.iterdir():
        if run.is_dir():
            (tmp_path / "bare").mkdir(exist_ok=True)
            (tmp_path / "bare" / run.name).symlink_to(run)
    return tmp_path / "bare"


def rows_of(table):
    return list(csv.DictReader(table.open(encoding="utf-8")))


@pytest.mark.slow
def test_a_study_is_a_table_of_settings_and_curves_over_seeds(study, invoke, tmp_path):
    invoke("report", study, "-o", tmp_path / "s.md", "-o", tmp_path / "s.tex", check=0)
    page, latex = ((tmp_path / name).read_text("utf-8") for name in ("s.md", "s.tex"))
    rows = [line for line in page.splitlines() if re.match(r"\| 0\.00\d \|", line)]
    assert len(rows) == 2 and all("1, 2" in row and row.count("±") == 2 for row in rows)
    assert sum("**" in row for row in rows) == 1, "the best mean on the dev set is marked"
    curves = rows_of(tmp_path / "s-figures" / "training-curves.csv")
    assert [row["x"] for row in curves] == ["0", "2", "4"] * 2
    assert {row["series"] for row in curves} == {f"learning_rate {rate}" for rate in RATES}
    for row in curves:
        mean, deviation = float(row["y"]), float(row["sd"])
        assert row["runs"] == "2"
        assert (float(row["low"]), float(row["high"])) == pytest.approx((mean - deviation, mean + deviation))
    assert r"s-figures/training-curves.pdf}" in latex and (tmp_path / "s-figures" / "training-curves.pdf").exists()
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") > 2


@pytest.mark.slow
def test_the_means_of_a_curve_are_those_of_its_runs(study, invoke, tmp_path):
    invoke("report", study, "-o", tmp_path / "s.md", check=0)
    curves = rows_of(tmp_path / "s-figures" / "training-curves.csv")
    for rate in RATES:
        scores = []
        for run in study.glob(f"*{rate}*"):
            lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
            scores.append([line["dev_spearman"] for line in lines if "dev_spearman" in line])
        means = [sum(pair) / 2 for pair in zip(*scores, strict=True)]
        shown = [float(row["y"]) for row in curves if row["series"] == f"learning_rate {rate}"]
        assert shown == pytest.approx(means)


def test_the_page_says_what_was_run(study, invoke, tmp_path):
    invoke("report", study, "-o", tmp_path / "s.html", check=0)
    page = " ".join((tmp_path / "s.html").read_text("utf-8").split())
    (told,) = re.findall(r"What was run</h2> <p>(.*?)</p>", page)
    assert told.startswith("4 training runs. learning_rate 0.001: ")
    assert "SimCSE, unsupervised (Gao, Yao and Chen, EMNLP 2021), departs from the settings of its paper" in told
    assert "learning_rate 0.003 in place of" in told and "batch_size 16 in place of 64" in told
    assert re.search(r"Start model: .*tiny-bert.*Data: \S+ \(\d+ sentences\)\. Seeds: 1, 2\..* hours", told)
    assert "dev.tsv (Spearman × 100)" in page, "axes and notes name the dev set"


@pytest.mark.slow
def test_runs_side_by_side_a_pattern_and_groups(study, bare, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(bare.parent)
    for number, names in enumerate((["bare"], ["bare/*"], ["--group", "slow=*0.001*", "bare"])):
        invoke("report", *names, "-o", f"{number}.md", check=0)
        curves = rows_of(tmp_path / f"{number}-figures" / "training-curves.csv")
        assert {row["runs"] for row in curves} == {"2"}
        first = "slow" if number == 2 else "learning_rate 0.001"
        assert {row["series"] for row in curves} == {first, "learning_rate 0.003"}
    assert "'none'" not in invoke("report", "bare", "--group", "a=none*", "-o", "x.md", check=2).stderr
    failed = invoke("report", "bare", "--group", "a=none*", "-o", "x.md", check=2).stderr
    assert "a=none*" in failed and "0.001" in failed, "the runs that there are, are named"


@pytest.mark.slow
def test_two_patterns_of_one_folder_are_one_study(bare, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(bare.parent)
    invoke("report", "bare/*0.001*", "bare/*0.003*", "-o", "p.md", check=0)
    page = (tmp_path / "p.md").read_text("utf-8")
    assert page.count("## Study bare") == 1
    for rate in RATES:
        assert f"| {rate} | 1, 2 |" in page, "the rows say in what the runs of both patterns differ"


@pytest.mark.slow
def test_scores_of_a_study_are_grouped_as_it_is(study, invoke, tmp_path):
    dev = study.parent / "dev.tsv"
    invoke("sts-eval", "-m", study, "--pairs", dev, "--json", tmp_path / "s.json", check=0)
    done = invoke("report", tmp_path / "s.json", study, "-o", tmp_path / "s.md", "--json", "-", check=0)
    page = (tmp_path / "s.md").read_text("utf-8")
    assert len(re.findall(r"\| (?:\*\*)?learning\\_rate 0\.00\d \| 2 \| .*±", page)) == 2
    (points,) = json.loads(done.stdout)["results"]["sweeps"].values()
    assert [(point["point"], point["seeds"]) for point in points] == [
        ({"learning_rate": 0.001}, [1, 2]), ({"learning_rate": 0.003}, [1, 2]),
    ]  # fmt: skip


@pytest.mark.slow
def test_analyses_take_a_folder_of_runs(study, bare, invoke, tmp_path):
    invoke("analyze", "sweep", bare, "-o", tmp_path / "sweep", check=0)
    (found,) = json.loads((tmp_path / "sweep" / "analysis.json").read_text())["results"]["curves"]
    assert [point["value"] for point in found["points"]] == list(RATES)
    assert all(point["best_dev"]["runs"] == 2 for point in found["points"])
    drawn = rows_of(tmp_path / "sweep" / "sweep-learning-rate.csv")
    assert all(float(row["sd"]) >= 0 for row in drawn) and len(drawn) == 2
    invoke("analyze", "objectives", study, "-o", tmp_path / "objectives", check=0)
    terms = rows_of(tmp_path / "objectives" / "loss-terms.csv")
    assert {row["runs"] for row in terms} == {"2"} and len({row["series"] for row in terms}) == 2
    failed = invoke("analyze", "geometry", tmp_path, "-o", tmp_path / "g", check=2).stderr
    assert "manifest.json" in failed


@pytest.mark.slow
def test_a_run_whose_folder_is_gone_is_still_in_the_table(study, invoke, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "results.jsonl").write_bytes((study / "results.jsonl").read_bytes())
    first = next(run for run in study.iterdir() if run.is_dir())
    (tmp_path / "kept" / first.name).symlink_to(first)
    runs = read_runs([tmp_path / "kept"])
    assert [run.metrics is not None for run in runs].count(True) == 1 and len(runs) == 4
    invoke("report", tmp_path / "kept", "-o", tmp_path / "k.md", check=0)
    assert (tmp_path / "k.md").read_text("utf-8").count("±") == 4
    with pytest.raises(InputError, match=r"results\.jsonl.*nor the folders"):
        read_runs([tmp_path])
