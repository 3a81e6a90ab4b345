"""A table of LanceDB in a bucket: written, changed and searched without a server."""

import json

import pytest

from tests.tolerance import Near

pytest.importorskip("lancedb", reason="LanceDB comes with the extra sentcli[lance]")
PLACE = "lance:s3://corpora/reviews"


@pytest.mark.slow
def test_a_table_in_a_bucket_changes_as_one_in_a_folder(store, invoke, tiny_bert, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"id": f"r{n}", "text": f"the cat {n}", "n": n} for n in range(20)]
    index = ("index", path, "--to", PLACE, "-m", tiny_bert, "--json", "-")

    def written(*options):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        results = json.loads(invoke(*index, *options, check=0).stdout)["results"]
        return [results[name] for name in ("written", "unchanged", "deleted", "rows")]

    def found(*options, place=PLACE):
        asked = ("retrieve", "--corpus", place, "-m", tiny_bert, "--query", "the cat 3", "--json", "-")
        hits = json.loads(invoke(*asked, *options, check=0).stdout)["results"][0]["hits"]
        return [(hit["id"], Near(hit["score"])) for hit in hits]

    assert written() == [20, 0, 0, 20]
    assert found("--where", "n > 4") == found("--where", "n > 4", place=path)
    rows[3]["text"] = "a dog"
    rows.pop(7)
    assert written("--prune", "--compact") == [1, 18, 1, 19]
    assert found("--search", "rrf") == found("--search", "rrf", place=path)
    assert len(found("--at", 1, "--top-k", 99)) == 20
    message = invoke("retrieve", "--corpus", PLACE, "--query", "x", "-m", tiny_bert, "--at", 99, check=2).stderr
    assert "--at 99" in message


@pytest.mark.slow
def test_a_bucket_that_is_not_there_and_a_store_that_refuses_are_one_message(store, invoke, tiny_bert, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n')
    asked = ("retrieve", "--query", "x", "-m", tiny_bert, "--corpus")
    assert "NoSuchBucket" in invoke(*asked, "lance:s3://nowhere/reviews", check=2).stderr
    index = ("index", path, "--to", PLACE, "-m", tiny_bert)
    invoke(*index, check=0)
    overwritten = (*index, "--overwrite")
    for fault, command in (("other key", (*asked, PLACE)), ("other key", overwritten), ("read-only", overwritten)):
        store.fault = fault
        error = invoke(*command, check=2).stderr.splitlines()[-1]
        assert error.startswith(f"error: {PLACE}") and "AWS_ACCESS_KEY_ID" in error and "AKIA" not in error
    store.fault = ""
    invoke(*asked, PLACE, "--at", 1, check=0)
