"""What the JSON of an interrupted command says was done; tests/stores and tests/training pin encode and train.

And the objects of a result: a list of the caller's own, which says how things were when the verb ended.
"""

import json

import pytest

from sentcli.command.result import Record, Result

PAIRS = "".join(f"the cat {i} sat\tthe dog {i % 5} sat\t{i % 6}\n" for i in range(30))


@pytest.fixture
def interrupted(monkeypatch, tmp_path, invoke):
    """Run a command until a method is called for the given time; return its JSON, None if it wrote none."""

    def run(owner, method, at, *call):
        whole, count = getattr(owner, method), 0

        def stop(*arguments, **options):
            nonlocal count
            count += 1
            if count == at:
                raise KeyboardInterrupt
            return whole(*arguments, **options)

        told = tmp_path / "so-far.json"
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, stop)
            invoke(*call, "--json", told, check=130)
        return json.loads(told.read_text()) if told.exists() else None

    return run


@pytest.mark.slow
def test_models_that_were_scored_are_in_the_json(interrupted, tiny_bert, tiny_roberta, tmp_path, invoke):
    from sentcli.evaluation.evaluated import EvaluatedModel

    table = tmp_path / "pairs.tsv"
    table.write_text("sentence1\tsentence2\tscore\n" + PAIRS)
    models = ["-m", tiny_bert, "-m", tiny_roberta, "--rerun"]
    for call in (["evaluate", table, *models], ["sts-eval", "--pairs", table, *models]):
        found = interrupted(EvaluatedModel, "measured", 2, *call)
        assert found["interrupted"] and found["model"] == str(tiny_bert)
        invoke(*call, "--json", tmp_path / "whole.json", check=0)
        whole = json.loads((tmp_path / "whole.json").read_text())[0]
        assert "interrupted" not in whole
        (so_far,), (at_the_end,) = found["results"].values(), whole["results"].values()
        assert so_far["spearman"] == at_the_end["spearman"]
        invoke("report", tmp_path / "so-far.json", "-o", tmp_path / "so-far.md", "--overwrite", check=0)


def test_tasks_that_were_scored_are_in_the_json(interrupted, tiny_bert, tmp_path):
    from sentcli.evaluation.sts import SimilarityTask

    files = [tmp_path / f"{name}.tsv" for name in "ab"]
    for file in files:
        file.write_text("sentence1\tsentence2\tscore\n" + PAIRS)
    call = ["sts-eval", *(part for file in files for part in ("--pairs", file)), "-m", tiny_bert, "--rerun"]
    assert list(interrupted(SimilarityTask, "score", 2, *call)["results"]) == ["a"]
    (tmp_path / "so-far.json").unlink()
    assert interrupted(SimilarityTask, "score", 1, *call) is None


def test_rows_that_were_indexed_are_in_the_json(interrupted, tiny_bert, tmp_path, invoke, monkeypatch):
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.faiss_index import FaissIndex
    from sentcli.stores.options import WriteSettings

    text, folder = tmp_path / "a.txt", tmp_path / "v"
    text.write_text("".join(f"the cat {i} sat on {i * 7} mats\n" for i in range(40)))
    call = ["index", text, "-o", folder, "-m", tiny_bert, "--type", "hnsw"]
    monkeypatch.setattr(WriteSettings, "shard_rows", 10)
    found = interrupted(SentenceEncoder, "encode_distinct", 4, *call)
    assert found["interrupted"] and found["results"]["rows_total"] == 40 and 0 < found["results"]["rows_done"] < 40
    invoke("encode", text, "-o", folder, "-m", tiny_bert, "--shard-rows", 10, "--overwrite", check=0)
    found = interrupted(FaissIndex, "add", 3, "index", folder, "--type", "hnsw", "--file-rows", 15)
    assert found["interrupted"] and found["results"] == {"rows_done": 15, "rows_total": 40}


def test_what_a_caller_does_to_the_json_of_several_models_is_not_in_the_result():
    result = Result([Record("evaluate", "a"), Record("evaluate", "b")])
    result.to_dict().clear()
    assert [each["model"] for each in result.to_dict()] == ["a", "b"]


def test_a_settled_result_says_how_things_were():
    environment = {"seed": 1}
    result = Result([Record("evaluate", "a", environment=lambda: dict(environment))])
    result.settle()
    environment["seed"] = 2
    assert result.to_dict()["environment"] == {"seed": 1}
