"""``evaluate --save-baseline`` and ``--baseline``: what passes, what does not, and what is refused."""

import json
import random
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.baseline import Baseline, TaskBaseline
from sentcli.evaluation.score_json import pack_values
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.pages.score_report import ScoreReport
from sentcli.pages.slices import slices_of

NOUNS = "cat dog bird fish man woman child river house tree mat stone".split()
VERBS = "sat ran flew swam plays eats sees finds".split()


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A retrieval set whose queries share most words with their documents, with a language for each query."""
    generator = random.Random(0)
    folder = tmp_path_factory.mktemp("sets") / "notes"
    (folder / "qrels").mkdir(parents=True)
    texts = [" ".join(generator.choices([*NOUNS, *VERBS, "the", "old", "small"], k=14)) for _ in range(120)]
    corpus = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)]
    queries = [
        {"_id": f"q{n}", "text": " ".join(generator.sample(texts[n].split(), 6)), "language": ["en", "de", "en"][n % 3]}
        for n in range(60)
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(60))
    )
    return folder


@pytest.fixture(scope="module")
def saved(searched, tiny_bert, tmp_path_factory):
    """The baseline of a model on the set."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    path = tmp_path_factory.mktemp("baselines") / "base.json"
    arguments = ["evaluate", searched, "-m", tiny_bert, "--save-baseline", path]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.stderr
    return path


@pytest.mark.slow
def test_the_same_model_is_still_as_good_to_the_bit(searched, saved, tiny_bert, tmp_path, invoke):
    arguments = ["evaluate", searched, "-m", tiny_bert, "--baseline", saved, "--allow", 0]
    invoke(*arguments, "--json", tmp_path / "out.json", check=0)
    compared = json.loads((tmp_path / "out.json").read_text())["results"]["notes"]["baseline"]
    assert compared["passed"] and compared["interval"] == [0, 0] and compared["difference"] == 0
    assert compared["worst"] == []


@pytest.mark.slow
def test_a_worse_model_ends_with_3_and_shows_the_queries_that_lost(searched, saved, tiny_bert, tmp_path, invoke):
    arguments = ["evaluate", searched, "-m", tiny_bert, "--max-length", 4, "--baseline", saved]
    result = invoke(*arguments, "--json", tmp_path / "out.json", "--report", tmp_path / "out.html", check=3)
    entry = json.loads((tmp_path / "out.json").read_text())["results"]["notes"]
    compared = entry["baseline"]
    assert compared["value"] == json.loads(saved.read_text())["tasks"]["notes"]["value"]
    assert entry["ndcg@10"] - compared["value"] == pytest.approx(compared["difference"])
    assert compared["interval"][0] < -0.01 and not compared["passed"] and compared["allow"] == 0.01
    losses = [row["after"] - row["before"] for row in compared["worst"]]
    assert 0 < len(losses) <= 10 and losses == sorted(losses) and losses[-1] < 0
    first = compared["worst"][0]
    assert f"d{first['item'][1:]}" in first["hits_before"] and len(first["hits_after"]) == 10
    texts = {row["_id"]: row["text"] for row in map(json.loads, (searched / "queries.jsonl").read_text().splitlines())}
    assert texts[first["item"]].split()[0] in result.output
    assert (tmp_path / "out.html").exists()
    allowed = ["--allow", -compared["interval"][0] + 0.001]
    invoke(*arguments, *allowed, check=0)


def test_formats_for_programs(searched, saved, tiny_bert, invoke):
    worse = ["evaluate", searched, "-m", tiny_bert, "--max-length", 4, "--baseline", saved]
    github = invoke(*worse, "--format", "github", check=3).stdout
    assert github.startswith("::error ") and github.count("\n") == 1 and "%25" in github
    same = ["evaluate", searched, "-m", tiny_bert, "--baseline", saved]
    assert invoke(*same, "--format", "github", check=0).stdout.startswith("::notice ")
    for arguments, code, failures in ((worse, 3, "1"), (same, 0, "0")):
        suite = ElementTree.fromstring(invoke(*arguments, "--format", "junit", check=code).stdout.encode())
        assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "1", failures)
        assert (suite[0].find("failure") is not None) == (failures == "1") and suite[0].get("name") == "notes"
    invoke(*same, "--format", "junit", "--json", "-", check=2)  # both on standard output


def test_slices_by_a_column(searched, saved, tiny_bert, tmp_path, invoke):
    arguments = ["evaluate", searched, "-m", tiny_bert, "--by", "language", "--json", tmp_path / "out.json"]
    invoke(*arguments, check=0)
    entry = json.loads((tmp_path / "out.json").read_text())["results"]["notes"]
    slices = entry["by"]["language"]
    assert {value: part["items"] for value, part in slices.items()} == {"en": 40, "de": 20}
    mean = (40 * slices["en"]["value"] + 20 * slices["de"]["value"]) / 60
    assert mean == pytest.approx(entry["ndcg@10"], abs=1e-5)  # as BEIR rounds it and "baseline" not in slices["en"]
    invoke(*arguments, "--max-length", 4, "--baseline", saved, check=3)
    entry = json.loads((tmp_path / "out.json").read_text())["results"]["notes"]
    parts = [part["baseline"]["difference"] for part in entry["by"]["language"].values()]
    assert (40 * parts[0] + 20 * parts[1]) / 60 == pytest.approx(entry["baseline"]["difference"], abs=2e-5)
    refused = invoke("evaluate", searched, "-m", tiny_bert, "--by", "topic", check=2).stderr
    assert "queries.jsonl" in refused and "'topic'" in refused and "language" in refused


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scored", "binary", "pairs", "triplets", "labels"])
def test_every_kind_of_table_has_a_gate(kind, tiny_bert, tmp_path, invoke):
    generator = random.Random(1)

    def text():
        return " ".join(generator.choices([*NOUNS, *VERBS], k=6))

    rows = {
        "scored": ("sentence1\tsentence2\tscore", lambda n: (text(), text(), n % 6)),
        "binary": ("sentence1\tsentence2\tlabel", lambda n: (text(), text(), n % 2)),
        "pairs": ("anchor\tpositive", lambda n: (text(), text())),
        "triplets": ("anchor\tpositive\tnegative", lambda n: (text(), text(), text())),
        "labels": ("text\tlabel", lambda n: (text(), ["x", "y"][n % 2])),
    }
    header, row = rows[kind]
    table = tmp_path / "table.tsv"
    table.write_text(header + "\n" + "".join("\t".join(map(str, row(n))) + "\n" for n in range(60)))
    invoke("evaluate", table, "-m", tiny_bert, "--save-baseline", tmp_path / "b.json", check=0)
    arguments = ["evaluate", table, "-m", tiny_bert, "--baseline", tmp_path / "b.json", "--json", tmp_path / "o.json"]
    invoke(*arguments, "--allow", 0, check=0)
    table.write_text(table.read_text().replace("cat", "lion", 1))
    result = invoke(*arguments, check=2)  # other texts
    assert "b.json" in result.stderr and "table.tsv" in result.stderr


def change(path, target, **entries):
    """Write a baseline with other entries of its only data set."""
    value = json.loads(path.read_text())
    value["tasks"]["notes"] |= entries
    target.write_text(json.dumps(value))
    return target


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        ({"metric": "recall@10"}, ["notes"]),
        ({"protocol": {"similarity": "dot"}}, ["notes", "own_document"]),
        ({"data": "0"}, ["notes"]),
        ({"draws": "AAAA"}, ["notes", "draws"]),
        ({"items": ["q1"]}, ["notes"]),
        ({"value": "high"}, ["value"]),
        ({"value": float("nan")}, ["value"]),
        ({"value": float("inf"), "items": [], "values": []}, ["value"]),
    ],
)
def test_a_baseline_that_does_not_fit_is_refused(entries, parts, searched, saved, tiny_bert, tmp_path, invoke):
    other = change(saved, tmp_path / "other.json", **entries)
    result = invoke("evaluate", searched, "-m", tiny_bert, "--baseline", other, check=2)
    assert all(part in result.stderr for part in ["other.json", *parts]), result.stderr


@pytest.mark.parametrize("entries", [{"values": [0.5]}, {"draws": "AAAA"}])
def test_a_damaged_baseline_is_refused_before_the_queries_are_parted(
    entries, searched, saved, tiny_bert, tmp_path, invoke
):
    """With --by, an array of another length ended the command as a defect."""
    other = change(saved, tmp_path / "other.json", **entries)
    call = ["evaluate", searched, "-m", tiny_bert, "--baseline", other, "--by", "language"]
    assert "other.json is damaged" in " ".join(invoke(*call, check=2).stderr.split())


def test_a_slice_of_all_queries_and_the_table_have_the_interval_of_the_gate():
    """Random subsets, samples with replacement and Student's t gave one difference three intervals on a page."""
    random = np.random.default_rng(0)
    items = tuple(f"q{number}" for number in range(12))
    before, now = (
        TaskScore(
            "set", "retrieval", {"ndcg@10": values.mean()}, ("ndcg@10",), items=items,
            item_values={"ndcg@10": values}, replicates={"ndcg@10": values[:2]},
        )
        for values in (random.random(12), random.random(12))
    )  # fmt: skip
    baseline = Baseline("m", {}, {"set": TaskBaseline.of_score(before)})
    (entry,) = slices_of(now, dict.fromkeys(items, "en"), baseline).values()
    interval = baseline.compare(now, 0.0, Path("b.json")).interval
    assert entry["baseline"]["interval"] == pytest.approx(interval)
    models = [ModelScores("evaluate", name, {}, (score,)) for name, score in (("before", before), ("now", now))]
    _, compared = ScoreReport.of(models).with_differences(models)
    in_table = compared.compared["tasks"]["set"]
    assert (in_table["low"], in_table["high"]) == pytest.approx(interval)


def test_where_no_query_has_changed_the_gate_says_so():
    values = np.full(12, 0.5)
    score = TaskScore(
        "set", "retrieval", {"ndcg@10": 0.5}, ("ndcg@10",), items=tuple("abcdefghijkl"),
        item_values={"ndcg@10": values}, replicates={"ndcg@10": values[:2]},
    )  # fmt: skip
    compared = Baseline("m", {}, {"set": TaskBaseline.of_score(score)}).compare(score, 0.0, Path("b.json"))
    assert compared.passed and compared.interval == (0, 0)
    assert "12" in compared.words and "22%" in compared.words, "0.78 to the power of 12 is 0.05"


def test_a_score_without_samples_is_not_compared():
    score = TaskScore("few", "binary", {"average_precision": 0.5}, ("average_precision",), {"items": 12})
    with pytest.raises(InputError, match="few: too few items"):
        TaskBaseline.of_score(score)


def test_wrong_usage(searched, saved, tiny_bert, tmp_path, invoke):
    def refused(*options):
        return invoke("evaluate", searched, "-m", tiny_bert, *options, check=2).stderr

    assert "none.json" in refused("--baseline", tmp_path / "none.json")
    (tmp_path / "torn.json").write_text(saved.read_text()[:100])
    assert "torn.json" in refused("--baseline", tmp_path / "torn.json")
    assert "--allow" in refused("--allow", 0.1)
    assert "--format" in refused("--format", "junit")
    assert "base.json" in refused("--save-baseline", saved)  # it exists
    table = tmp_path / "own.tsv"
    table.write_text("sentence1\tsentence2\tscore\n" + "".join(f"cat {n}\tdog {n}\t{n}\n" for n in range(12)))
    assert "own.tsv" in invoke(
        "evaluate", table, "-m", tiny_bert, "--save-baseline", table, "--overwrite", check=2
    ).stderr and table.read_text().startswith("sentence1")
    assert "--save-baseline" in refused("-m", "other", "--save-baseline", tmp_path / "new.json")
    assert "--baseline" in refused("--save-baseline", tmp_path / "new.json", "--baseline", saved)
    (tmp_path / "renamed").mkdir()
    for path in searched.rglob("*.*"):
        target = tmp_path / "renamed" / path.relative_to(searched)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    result = invoke("evaluate", tmp_path / "renamed", "-m", tiny_bert, "--baseline", saved, check=2)
    assert "renamed" in result.stderr and "notes" in result.stderr


# Power and false alarms, on real scores of queries


REAL = json.loads((Path(__file__).parent / "ndcg_cranfield.json").read_text())


def gate(before, after, allow=0.01):
    """Tell whether scores of queries pass against others of the same queries."""
    items, stream = tuple(f"q{n}" for n in range(len(before))), zlib.crc32(b"cranfield")

    def score(values):
        replicates = {"ndcg@10": significance.mean_replicates(values, stream=stream)}
        return TaskScore("cranfield", "retrieval", {"ndcg@10": values.mean()}, ("ndcg@10",), replicates=replicates,
                         items=items, item_values={"ndcg@10": values})  # fmt: skip

    kept = score(before)
    entry = TaskBaseline(
        "ndcg@10", kept.value, pack_values(kept.replicates["ndcg@10"]), "", {}, list(items), before.tolist(), {}
    )
    return Baseline("m", {}, {"cranfield": entry}).compare(score(after), allow, Path("b.json"))


@pytest.mark.slow
def test_a_planted_loss_of_two_points_is_found_at_200_queries_and_rounding_is_not():
    real, other = np.array(REAL["minilm"]), np.array(REAL["minilm, 128 tokens"])
    generator = np.random.default_rng(0)
    found = alarms = wide = 0
    for _ in range(200):
        rows = generator.integers(0, len(real), 200)
        before = real[rows]
        planted = before.copy()
        for row in generator.permutation(200):  # relevant documents fall out of the first ten, until 0.02 are lost
            if before.mean() - planted.mean() >= 0.02:
                break
            planted[row] *= generator.uniform(0, 1)
        found += not gate(before, planted).passed
        rounded = before.copy()
        swapped = generator.integers(0, 200, 2)  # two queries in which neighbours changed places
        rounded[swapped] = np.clip(rounded[swapped] + generator.choice([-0.1, 0.1], 2), 0, 1)
        alarms += not gate(before, rounded).passed
        wide += not gate(before, other[rows]).passed
    assert found >= 0.8 * 200 and alarms == 0
    # another encoder that scores as well on average is shown to be as good by 200 queries in half of the cases only
    assert 0.3 * 200 < wide < 0.7 * 200


@pytest.mark.slow
def test_the_interval_of_the_gate_covers_a_true_difference():
    real, other = np.array(REAL["minilm"]), np.array(REAL["minilm, 128 tokens"])
    true, generator = (other - real).mean(), np.random.default_rng(1)
    inside = 0
    for _ in range(300):
        rows = generator.integers(0, len(real), 200)
        low, high = gate(real[rows], other[rows]).interval
        inside += low <= true <= high
    assert inside >= 0.92 * 300


@pytest.mark.slow
def test_the_workflow_of_the_documentation_runs(searched, minilm, tmp_path):
    import shutil
    import subprocess
    import sys

    from ruamel.yaml import YAML

    page = (Path(__file__).parents[2] / "docs" / "ci.md").read_text("utf-8")
    workflow = YAML(typ="safe", pure=True).load(page.partition("```yaml\n")[2].partition("```")[0])
    (step,) = [step["run"] for step in workflow["jobs"]["search"]["steps"] if step.get("run", "").startswith("sentcli")]
    shutil.copytree(searched, tmp_path / "notes-set")

    def sentcli(command):
        words = command.split()[1:]
        return subprocess.run([sys.executable, "-m", "sentcli", *words], cwd=tmp_path, capture_output=True, text=True)

    made = sentcli("sentcli evaluate notes-set -m minilm --save-baseline baseline.json")
    assert made.returncode == 0, made.stderr
    done = sentcli(step)
    assert done.returncode == 0 and done.stdout.startswith("::notice "), done.stderr
    done = sentcli(f"{step} --max-length 4")
    assert done.returncode == 3 and done.stdout.startswith("::error "), done.stderr
