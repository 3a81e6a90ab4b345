"""Results that mteb wrote, in the tables of `report`; the files are as mteb 2.26 writes them."""

import json

import pytest

from sentcli.errors import InputError
from sentcli.evaluation.published import find_published
from tests.evaluation.conftest import write_set


def write_result(folder, task, scores, split="test", **more):
    """Write the result of one task, with the file of its model beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    entry = {"hf_subset": "default", "languages": ["eng-Latn"], "mteb_version": "2.26.24", **scores, **more}
    result = {"dataset_revision": "NA", "task_name": task, "mteb_version": "2.26.24", "scores": {split: [entry]}}
    path = folder / f"{task}.json"
    path.write_text(json.dumps({**result, "evaluation_time": 0.1, "kg_co2_emissions": None, "evaluation_phases": []}))
    (folder / "model_meta.json").write_text(json.dumps({"name": "sentcli/other", "revision": "1"}))
    return path


RETRIEVAL = {"ndcg_at_10": 0.25, "ndcg_at_1000": 0.3, "map_at_100": 0.2, "recall_at_100": 1.0, "main_score": 0.25}


def tables(page):
    """Return the cells of the rows of the first table of a page in Markdown."""
    lines = page.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_a_result_of_mteb_is_a_row_beside_ours(tiny_bert, tmp_path, invoke):
    ours, page = tmp_path / "ours.json", tmp_path / "both.md"
    folder = write_set(tmp_path / "scifact")
    invoke("retrieve", "--beir", folder, "-m", tiny_bert, "--json", ours, check=0)
    theirs = write_result(tmp_path / "mteb", "SciFact", RETRIEVAL, ndcg_at_1=float("nan"), accuracy=None)
    invoke("report", ours, theirs, "-o", page, "--json", tmp_path / "report.json", check=0)
    head, _, *rows = tables(page)
    assert len(rows) == 2 and len(head) == 2  # one table, one column: the set is the same
    assert "other" in rows[1][0] and "0.25" in rows[1][1]
    other = json.loads((tmp_path / "report.json").read_text())["results"]["scores"][1]
    assert other["model"] == "sentcli/other" and other["results"]["scifact"]["map@100"] == 0.2
    assert "interval" not in other["results"]["scifact"]
    assert "-m sentcli/other" not in page.read_text()  # no command of ours makes it


def test_similarity_is_times_100_as_ours(tmp_path, invoke):
    scores = {"cosine_spearman": 0.8, "cosine_pearson": 0.75, "main_score": 0.8}
    files = [write_result(tmp_path / "mteb", task, scores) for task in ("STSBenchmark", "SICK-R")]
    invoke("report", *files, "-o", tmp_path / "page.md", "--json", tmp_path / "report.json", check=0)
    found = [object["results"] for object in json.loads((tmp_path / "report.json").read_text())["results"]["scores"]]
    assert found[0]["STSBenchmark"]["spearman"] == 80 and found[1]["SICKRelatedness"]["pearson"] == 75


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda result: result["scores"]["test"][0].pop("ndcg_at_10"), "SciFact"),
        (lambda result: result["scores"]["test"].append(result["scores"]["test"][0]), "2 subsets"),
        (lambda result: result["scores"].clear(), "0 subsets"),
        (lambda result: result.update(scores=[1]), "scores"),
        (lambda result: result.update(task_name=None), "task_name"),
        (lambda result: result["scores"]["test"][0].update(ndcg_at_10=10**400), "SciFact"),
        (lambda result: result["scores"]["test"][0].update(main_score="high"), "main_score"),
    ],
)
def test_another_result_of_mteb_is_refused_by_name(change, part, tmp_path, invoke):
    path = write_result(tmp_path / "mteb", "SciFact", RETRIEVAL)
    result = json.loads(path.read_text())
    change(result)
    path.write_text(json.dumps(result))
    failed = invoke("report", path, "-o", tmp_path / "page.md", check=2)
    assert str(path) in failed.stderr.replace("\n", "") and part in failed.stderr
    assert not (tmp_path / "page.md").exists()


STS = {"cosine_spearman": 0.8, "cosine_pearson": 0.75, "main_score": 0.8}


def write_folder(root, revisions=("abc1",)):
    """Write results as mteb's `ResultCache` lays them out, of one model at some commits."""
    for number, revision in enumerate(revisions):
        folder = root / "results" / "sentcli__other" / revision
        for task in ("STS12", "STSBenchmark"):
            scores = {**STS, "cosine_spearman": 0.8 - number / 10}
            write_result(folder, task, scores)
        write_result(folder, "Banking77Classification", {"accuracy": 0.5, "main_score": 0.5})
        (folder / "model_meta.json").write_text(json.dumps({"name": "sentcli/other", "revision": revision}))
    return root


def test_a_folder_of_mteb_is_a_row_for_each_commit(tmp_path, invoke):
    folder, page = write_folder(tmp_path / "mteb", ["abc1", "def2"]), tmp_path / "page.md"
    said = invoke("report", folder, "-o", page, "--json", tmp_path / "report.json", check=0)
    assert "Banking77Classification" in said.stderr
    head, _, *rows = tables(page)
    assert len(rows) == 2 and len(head) == 4
    assert "abc1" in rows[0][0] and "80" in rows[0][1] and "def2" in rows[1][0] and "70" in rows[1][1]
    objects = json.loads((tmp_path / "report.json").read_text())["results"]["scores"]
    assert {each["environment"]["revision"] for each in objects} == {"abc1", "def2"}


def test_the_file_of_a_whole_model_is_read_too(tmp_path, invoke):
    file = write_folder(tmp_path / "mteb") / "results" / "sentcli__other" / "abc1"
    tasks = [json.loads(path.read_text()) for path in sorted(file.glob("S*.json"))]
    model = {"model_name": "sentcli/other", "model_revision": "abc1", "task_results": tasks}
    for number, content in enumerate([model, {"model_results": [model]}]):
        (tmp_path / "result.json").write_text(json.dumps(content))
        invoke("report", tmp_path / "result.json", "-o", tmp_path / f"{number}.md", check=0)
        assert "sentcli/other" in tables(tmp_path / f"{number}.md")[2][0]


def test_against_takes_results_of_mteb(tmp_path):
    folder = write_folder(tmp_path / "mteb")
    system = find_published(str(folder))
    assert system.scores["STSBenchmark"] == 80 and "abc1" in system.title and "mteb 2.26.24" in system.source
    retrieval = write_result(tmp_path / "one", "SciFact", RETRIEVAL)
    assert find_published(str(retrieval)).scores["BEIR scifact"] == 25
    with pytest.raises(InputError, match=r"abc1.*def2.*name those of one"):
        find_published(str(write_folder(tmp_path / "two", ["abc1", "def2"])))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no results of mteb"):
        find_published(str(tmp_path / "empty"))


def test_the_average_of_mteb_is_that_of_papers(tmp_path):
    for number, task in enumerate(("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")):
        write_result(tmp_path, task, {**STS, "cosine_spearman": 0.7 + number / 100})
    assert find_published(str(tmp_path)).scores["STS average"] == 73
