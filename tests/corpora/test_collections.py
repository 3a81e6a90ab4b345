"""``index --to --update`` leaves what INPUT has, and ``--dry-run`` says what that takes and writes nothing."""

import json

import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")


@pytest.fixture(params=["lance", "milvus"])
def to(request, tmp_path, soon_indexed):
    if request.param == "lance":
        pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
        return ("--to", f"lance:{tmp_path / 'tables'}")
    pytest.importorskip("milvus_lite", reason="needs the extra sentcli[milvus]")
    return ("--to", f"milvus:{tmp_path / 'rows.db'}", "--collection", "rows")


def test_an_update_is_said_before_and_done(to, tiny_bert, tmp_path, invoke):
    corpus = tmp_path / "rows.jsonl"
    rows = [{"id": f"d{number}", "text": f"the cat sat on mat {number}"} for number in range(30)]

    def index(*options, check=0):
        corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = ("index", corpus, *to, "-m", tiny_bert, "--backend", "torch", "--json", "-", *options)
        done = invoke(*command, check=check)
        return json.loads(done.stdout)["results"] if not check else None

    index("--update", "--dry-run", check=2)  # there is nothing to compare with
    index()
    rows = [{**row, "text": "a dog"} if row["id"] in ("d1", "d2") else row for row in rows[:25]]
    rows.append({"id": "new", "text": "the bird flew"})
    said = index("--update", "--dry-run")
    assert (said["written"], said["unchanged"], said["deleted"]) == (3, 23, 5)
    assert said["seconds_estimated"] > 0
    done = index("--update")
    assert (done["written"], done["unchanged"], done["deleted"], done["rows"]) == (3, 23, 5, 26)
    again = index("--update", "--dry-run")
    assert (again["written"], again["unchanged"], again["deleted"]) == (0, 26, 0)
