"""``sentcli evaluate``: all kinds of data, several models, seeds of one system, costs, and the sentence at the end."""

import json
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import sentcli
from sentcli.evaluation.score_json import unpack_values
from tests.conftest import save_backbone
from tests.evaluation.test_labelled_tasks import TEXTS, beir, write

ROWS = 24


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Three random models, of which the first two are seeds of one system."""
    folder = tmp_path_factory.mktemp("models")
    return [save_backbone(folder / name, seed=seed) for seed, name in enumerate(("seed-1", "seed-2", "other"))]


@pytest.fixture
def own(tmp_path):
    """A table or folder of every kind."""
    pairs = [(TEXTS[i], TEXTS[(3 * i + 40) % 170]) for i in range(ROWS)]

    def table(name, columns, *more):
        return write(tmp_path / name, columns, [(*pair, *(f(i) for f in more)) for i, pair in enumerate(pairs)])

    return {
        "scored": table("s.tsv", ["sentence1", "sentence2", "score"], lambda i: i % 5),
        "binary": table("b.tsv", ["sentence1", "sentence2", "label"], lambda i: i % 2),
        "pairs": table("p.tsv", ["anchor", "positive"]),
        "triplets": table("t.tsv", ["anchor", "positive", "negative"], lambda i: TEXTS[i + 130]),
        "labels": write(tmp_path / "l.tsv", ["text", "label"], [(TEXTS[i], "xy"[i % 2]) for i in range(ROWS)]),
        "retrieval": str(beir(tmp_path / "set", "dev")),
    }


METRICS = {
    "scored": "spearman",
    "binary": "average_precision",
    "pairs": "mrr@10",
    "triplets": "accuracy",
    "labels": "accuracy",
    "retrieval": "ndcg@10",
}


@pytest.mark.slow
def test_every_kind_in_one_command(models, own, invoke, tmp_path):
    page = tmp_path / "page.html"
    result = invoke(
        "evaluate", *own.values(), "-m", models[0], "--json", tmp_path / "r.json", "--report", page, check=0
    )
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["command"], report["model"]) == ("evaluate", str(models[0]))
    assert "average" not in report
    for (kind, file), (name, entry) in zip(own.items(), report["results"].items(), strict=True):
        assert file.endswith(f"/{name}")
        assert (entry["kind"], entry["metric"], entry["value"]) == (kind, METRICS[kind], entry[METRICS[kind]])
        low, high = entry["interval"]
        assert low <= entry["value"] <= high <= (100 if kind == "scored" else 1)
        assert entry["items"] == (12 if kind == "retrieval" else ROWS)
    assert set(report["protocol"]["kinds"]) == set(own)
    cost = report["cost"]
    assert (cost["dimensions"], cost["bytes_per_vector"]) == (32, 128)
    # of the graph that runs, which has the weights and what is computed with them
    assert cost["weight_bytes"] == pytest.approx((models[0] / "model.safetensors").stat().st_size, rel=0.02)
    assert cost["texts_per_second"] > 0
    assert cost["first_vector_seconds"] > 0
    for words in ("Labelled texts", "Triplets", "best F1", "MRR@10", "What each model costs"):
        assert words in result.stdout
    assert "is best" not in result.stdout
    assert re.search(r"s\.tsv: scored, 24 .*\b0 .*\b5\b", result.stderr)
    assert "What each model costs" in page.read_text()
    assert f"{cost['weight_bytes'] / 1e6:,.1f} MB" in page.read_text()


def test_several_models_are_compared_and_one_sentence_says_which_is_best(models, own, invoke):
    files = [own["pairs"], own["binary"]]
    call = ["evaluate", *files, "-m", models[0], "-m", models[2], "--json", "-"]
    first, other = json.loads(invoke(*call, check=0).stdout)
    assert "compared" not in first
    assert other["compared"]["with"] == str(models[0])
    for name, line in other["compared"]["tasks"].items():
        expected = other["results"][name]["value"] - first["results"][name]["value"]
        assert line["difference"] == pytest.approx(expected)
        assert line["low"] <= line["high"]
        assert line["p"] <= line["p_holm"] <= 1
    printed = " ".join(invoke(*call[:-2], check=0).stdout.split())
    assert "is best" in printed
    assert first["verdict"] == other["verdict"] and first["verdict"] in printed
    assert "p (Holm)" in printed
    (again, _) = json.loads(invoke(*call, check=0).stdout)
    assert again["cached"] == ["p.tsv", "b.tsv"]
    assert again["results"] == first["results"]
    assert "cached" not in json.loads(invoke(*call, "--rerun", check=0).stdout)[0]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A model whose vectors are all equal, and one whose vectors are not finite."""
    found = []
    for name, value in (("collapsed", 1.0), ("not-finite", np.nan)):
        folder = save_backbone(tmp_path_factory.mktemp("broken") / name)
        weights = load_file(folder / "model.safetensors")
        for key, array in weights.items():
            if "LayerNorm" in key:
                array[:] = 0 if key.endswith("weight") else value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        found.append(folder)
    return found


def test_a_model_or_a_file_without_a_score_takes_no_other_with_it(models, broken, own, invoke, tmp_path):
    """The command ended without a table, and named the file twice and the model not at all."""
    same = write(
        tmp_path / "same.tsv", ["sentence1", "sentence2", "score"], [(TEXTS[i],) * 2 + (i % 5,) for i in range(12)]
    )
    call = ["evaluate", own["scored"], same]
    names = [part for model in (models[0], *broken) for part in ("-m", model)]
    done = invoke(*call, *names, "--json", tmp_path / "r.json", check=0)
    first, collapsed, not_finite = json.loads((tmp_path / "r.json").read_text())
    assert first["results"]["s.tsv"]["value"] is not None
    assert (first["average"], first["average_lacks"]) == (None, ["same.tsv"])
    for report, entry in (
        (first, first["results"]["same.tsv"]),
        (collapsed, collapsed["results"]["s.tsv"]),
        (not_finite, not_finite["results"]["s.tsv"]),
    ):
        assert entry["spearman"] is entry["value"] is None and entry["kind"] == "scored"
        assert entry["reason"] in done.stdout and report["model"] in done.stderr
        assert not re.search(r"\.tsv", entry["reason"]), "the entry is that of the file"
    page = tmp_path / "page.md"
    invoke("report", tmp_path / "r.json", "-o", page, check=0)
    assert collapsed["results"]["s.tsv"]["reason"] in page.read_text()
    one = ["evaluate", own["scored"]]
    invoke(*one, "-m", broken[0], "--json", tmp_path / "none.json", check=1)
    assert json.loads((tmp_path / "none.json").read_text())["results"]["s.tsv"]["value"] is None
    invoke(*one, "-m", broken[0], "--save-baseline", tmp_path / "b.json", check=1)
    invoke(*one, "-m", models[0], "--save-baseline", tmp_path / "b.json", check=0)
    gate = invoke(*one, "-m", broken[0], "--baseline", tmp_path / "b.json", "--format", "github", check=3)
    assert "::error" in gate.stdout and "no score" in gate.stdout


@pytest.mark.slow
def test_seeds_of_one_system_are_a_group(models, own, invoke, tmp_path):
    named = [part for model in models for part in ("-m", model)]
    call = ["evaluate", own["pairs"], *named, "--group", "ours=seed-*", "--json", tmp_path / "r.json"]
    result = invoke(*call, check=0)
    assert "ours" in result.stdout
    assert "±" in result.stdout
    one, two, other = json.loads((tmp_path / "r.json").read_text())
    assert "compared" not in one
    assert "compared" not in two
    mean = (one["results"]["p.tsv"]["value"] + two["results"]["p.tsv"]["value"]) / 2
    line = other["compared"]["tasks"]["p.tsv"]
    assert other["compared"]["with"] == "ours"
    assert line["difference"] == pytest.approx(other["results"]["p.tsv"]["value"] - mean)
    assert line["low"] < line["difference"] < line["high"] and 0 <= line["p"] == line["p_holm"] and "reason" not in line
    page = tmp_path / "page.md"
    invoke("report", tmp_path / "r.json", "-o", page, "--group", "ours=seed-*", check=0)
    text = page.read_text()
    for words in (
        "ours",
        "Student",
        "Positives among all others",
        "What each model costs",
        f"sentcli evaluate {own['pairs']}",
    ):
        assert words in text


def test_a_single_trained_run_has_no_p_value_against_seeds(models, own, invoke, tmp_path):
    """The log beside the weights says that a model is a run of ``train``; the file of scores keeps it."""
    shutil.copytree(models[2], tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    named = [part for model in (*models[:2], tmp_path / "run") for part in ("-m", model)]
    call = ["evaluate", own["pairs"], *named, "--group", "ours=seed-*", "--json", tmp_path / "r.json"]
    assert "one trained run" in " ".join(invoke(*call, check=0).stdout.split())
    one, _, other = json.loads((tmp_path / "r.json").read_text())
    assert other["environment"]["trained_run"] is True and one["environment"]["trained_run"] is False
    line = other["compared"]["tasks"]["p.tsv"]
    assert (line["p"], line["p_holm"], line["low"], line["high"]) == (None, None, None, None)
    assert "run is one trained run" in line["reason"]
    page = tmp_path / "page.md"
    invoke("report", tmp_path / "r.json", "-o", page, "--group", "ours=seed-*", check=0)
    assert "one trained run" in page.read_text()


@pytest.mark.slow
def test_report_shows_every_kind_as_evaluate_does(models, own, invoke, tmp_path):
    pages = [tmp_path / "one.md", tmp_path / "two.md"]
    call = ["evaluate", *own.values(), "-m", models[0], "-m", models[2], "--json", tmp_path / "r.json"]
    invoke(*call, "--report", pages[0], check=0)
    invoke("report", tmp_path / "r.json", "-o", pages[1], check=0)
    one, two = (page.read_text().split("## How it was measured")[0] for page in pages)
    assert [line for line in one.splitlines() if line.startswith("|")] == [
        line.replace("r.json", "") for line in two.splitlines() if line.startswith("|")
    ]


@pytest.mark.slow
def test_samples_go_to_a_file_of_their_own_on_request(models, own, invoke, tmp_path):
    draws, plain, apart = tmp_path / "d.npz", tmp_path / "plain.json", tmp_path / "apart.json"
    call = ["evaluate", *own.values(), "-m", models[0], "-m", models[2], "--report"]
    invoke(*call, tmp_path / "a.html", "--json", plain, check=0)
    invoke(*call, tmp_path / "b.html", "--json", apart, "--draws", draws, check=0)
    written = np.load(draws, allow_pickle=False)
    rows = {key[:3]: key[3] for key in zip(*(written[k] for k in ("model", "task", "metric", "draws")), strict=True)}
    for whole, rest in zip(json.loads(plain.read_text()), json.loads(apart.read_text()), strict=True):
        assert rest.pop("draws") == str(draws)
        for name, task in whole["results"].items():
            for metric, packed in task.pop("draws").items():
                assert np.array_equal(rows.pop((whole["model"], name, metric)), unpack_values(packed))
        assert rest["results"] == whole["results"] and rest.get("compared") == whole.get("compared")
    assert not rows
    for name in ("a.html", "b.html"):
        assert "Differences between models on your own data</h2>" in (tmp_path / name).read_text()
    page = tmp_path / "page.md"
    invoke("report", apart, "-o", page, check=0)
    assert "--draws" in page.read_text() and "d.npz" in page.read_text()

    before = draws.read_bytes()
    for more, words in ((["--draws", draws], "--overwrite"), (["--draws", tmp_path / "d.txt"], ".npz")):
        assert words in invoke(*call, tmp_path / "c.html", *more, check=2).stderr
    assert draws.read_bytes() == before and not (tmp_path / "c.html").exists()
    invoke("evaluate", own["triplets"], "-m", models[0], "--draws", draws, "--overwrite", check=0)
    assert list(np.load(draws)["task"]) == ["t.tsv"]


@pytest.mark.slow
def test_columns_are_named_wherever_pairs_are_read(models, invoke, tmp_path):
    rows = [(TEXTS[i], TEXTS[(3 * i + 40) % 170], i % 5) for i in range(ROWS)]
    file = write(tmp_path / "q.tsv", ["q", "a", "s"], rows)
    call = ("-m", models[0], "--pair-fields", "q,a,s", "--json", "-")
    theirs = json.loads(invoke("sts-eval", "--pairs", file, *call, check=0).stdout)
    ours = json.loads(invoke("evaluate", file, *call, check=0).stdout)
    assert ours["results"]["q.tsv"]["spearman"] == pytest.approx(theirs["results"]["q"]["spearman"])
    assert ours["protocol"]["pair_fields"] == theirs["protocol"]["pair_fields"] == "q,a,s"
    found = json.loads(invoke("retrieve", "--in-domain", file, *call, check=0).stdout)
    assert found["results"]["in-domain"]["queries"] == sum(score == 4 for *_, score in rows)
    alone = invoke("sts-eval", "-m", models[0], "--data", tmp_path, "--pair-fields", "q,a,s", check=2)
    assert re.search("--pair-fields.*--pairs", alone.stderr)


def test_a_link_has_its_own_name(models, own, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blobs").mkdir()
    shutil.move(own["triplets"], tmp_path / "blobs" / "3f0c")  # as tools keep files that stores and caches hold
    (tmp_path / "mine.tsv").symlink_to("blobs/3f0c")
    (tmp_path / "link").symlink_to("set")
    call = ("-m", models[0], "--json", "-")
    results = json.loads(invoke("evaluate", "mine.tsv", "link", *call, check=0).stdout)["results"]
    assert list(results) == ["mine.tsv", "link"]
    (tmp_path / "again.tsv").symlink_to("mine.tsv")
    assert "again.tsv" in invoke("evaluate", "mine.tsv", "again.tsv", *call, check=2).stderr  # which are one file
    monkeypatch.chdir(tmp_path / "set")
    assert list(json.loads(invoke("evaluate", ".", *call, check=0).stdout)["results"]) == ["set"]


def test_the_function_is_the_command(models, own, invoke):
    ours = sentcli.evaluate(own["triplets"], model=models[0], quiet=True)
    theirs = json.loads(invoke("evaluate", own["triplets"], "-m", models[0], "--json", "-", check=0).stdout)
    assert json.loads(json.dumps(ours.to_dict()["results"])) == theirs["results"]
    frame = ours.to_frame()
    assert frame.query("metric == 'accuracy'")["value"].item() == theirs["results"]["t.tsv"]["value"]
    assert ours.verdict == ""
    assert "t.tsv" in ours._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "tiny", "-m", "tiny"], "-m tiny "),
        (["-m", "tiny", "--group", "a=none*"], r"--group a=none\* .*tiny"),
        (
            ["-m", "tiny", "--pair-fields", "anchor,answer"],
            r"p\.tsv, line 2: .*'answer'.*anchor, positive",
        ),
        (["-m", "tiny", "--kind", "labels"], r"p\.tsv, line 2: .*'text'.*anchor, positive"),
        (["-m", "tiny", "--kind", "nonsense"], "'--kind'.*'nonsense'.*'scored'"),
    ],
)
def test_wrong_usage_ends_before_a_model_is_looked_for(own, invoke, arguments, words):
    failed = invoke("evaluate", own["pairs"], *arguments, check=2)
    assert re.search(words, " ".join(failed.stderr.replace("│", " ").split()))


# Tables that tell their kind by their values, and cells that are empty


def support(tmp_path, name="support.csv", labels=("not", "duplicate"), change=()):
    """Pairs of which a third is marked, each written by a word."""
    rows = [[TEXTS[i], TEXTS[(3 * i + 40) % 170], labels[i % 3 == 0]] for i in range(60)]
    for row, column, value in change:
        rows[row][column] = value
    return write(tmp_path / name.replace("csv", "tsv"), ["question1", "question2", "is_duplicate"], rows)


NAMED = ("--pair-fields", "question1,question2,is_duplicate")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), NAMED])
@pytest.mark.parametrize("labels", [("not", "duplicate"), ("FALSE", "TRUE"), ("no", "yes"), ("0", "1")])
def test_words_for_labels_are_scored_as_labels(models, invoke, tmp_path, labels, options):
    file = support(tmp_path, labels=labels)
    result = invoke("evaluate", file, "-m", models[0], *options, "--json", tmp_path / "r.json", check=0)
    entry = json.loads((tmp_path / "r.json").read_text())["results"]["support.tsv"]
    assert (entry["kind"], entry["items"], entry["positive"]) == ("binary", 60, 20)
    said = " ".join(result.stderr.split())
    assert re.search(r"support\.tsv: .*question1, question2, is_duplicate.*\b20 .*60 ", said)
    assert TEXTS[0] in said


@pytest.mark.parametrize("options", [(), NAMED])
def test_a_first_label_that_is_none_ends_the_command(models, invoke, tmp_path, options):
    file = support(tmp_path, labels=("0", "1"), change=[(0, 2, "n/a")])
    failed = invoke("evaluate", file, "-m", models[0], *options, check=2)
    assert "line 2" in failed.stderr and "'n/a'" in failed.stderr


def test_rows_with_empty_cells_are_listed_or_left_out_and_counted(models, invoke, tmp_path):
    change = [(i, 1, "") for i in range(2, 40, 3)] + [(4, 2, "")]
    file = support(tmp_path, labels=("0", "1"), change=change)
    failed = invoke("evaluate", file, "-m", models[0], check=2)
    assert all(f"line {line} " in failed.stderr for line in (7, 10, 28)) and "--skip-empty" in failed.stderr
    call = ("evaluate", file, "-m", models[0], "--skip-empty", "--json", "-")
    entry = json.loads(invoke(*call, check=0).stdout)["results"]["support.tsv"]
    assert (entry["items"], entry["skipped_empty"], entry["contradictions"]) == (46, 14, 0)


def test_groups_stay_together_and_the_page_says_how(models, invoke, tmp_path):
    rows = [["text", "label", "author"], *([f"the cat sat {'on ' * i}", "ab"[i % 2], f"a{i % 14}"] for i in range(42))]
    (tmp_path / "t.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    call = ("evaluate", tmp_path / "t.tsv", "-m", models[0], "--group-by", "author")
    found = json.loads(invoke(*call, "--json", "-", "--report", tmp_path / "t.md", check=0).stdout)
    assert found["protocol"]["kinds"]["labels"]["group_by"] == "author"
    assert found["results"]["t.tsv"]["copies_across_folds"] == {"equal": 0, "nearly_equal": 0}
    assert "--group-by author" in (tmp_path / "t.md").read_text().replace("\\", "")


@pytest.mark.slow
def test_contradictions_are_counted_also_from_the_cache(models, invoke, tmp_path):
    change = [(1, 0, TEXTS[0]), (1, 1, TEXTS[40])]
    file = support(tmp_path, labels=("0", "1"), change=change)
    for _ in range(2):
        result = invoke("evaluate", file, "-m", models[0], "--json", tmp_path / "r.json", check=0)
        assert json.loads((tmp_path / "r.json").read_text())["results"]["support.tsv"]["contradictions"] == 1
        assert re.search(r"support\.tsv: 1 .*\b2 .*\b3\b", " ".join(result.stderr.split()))
