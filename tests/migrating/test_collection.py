"""A collection of LanceDB or Milvus moves to another model, and returns."""

import json
import signal

import pytest

from sentcli.migrating.collection import CollectionMove
from tests.conftest import save_backbone
from tests.forked import Forked
from tests.tolerance import Near

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

NOUNS = "cat dog bird fish tree house river mat man woman child".split()
TORCH = ("--backend", "torch")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("other") / "model", seed=7)


@pytest.fixture
def corpus(tmp_path):
    rows = []
    for number in range(40):
        noun = NOUNS[number % len(NOUNS)]
        text = f"a {noun} and a {NOUNS[number * 3 % len(NOUNS)]} ran on the river {number} under the mat"
        rows.append({"id": f"d{number}", "title": f"the {noun} swam {number}", "text": text, "year": 2000 + number % 5})
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(params=["lance", "milvus", "postgres"])
def place(request, tmp_path, soon_indexed):
    if request.param == "postgres":
        return request.getfixturevalue("postgres"), ()
    if request.param == "lance":
        pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
        return f"lance:{tmp_path / 'tables'}", ()
    pytest.importorskip("milvus_lite", reason="needs the extra sentcli[milvus]")
    return f"milvus:{tmp_path / 'rows.db'}", ("--collection", "rows")


def migrate(invoke, place, *options, check=0):
    address, collection = place
    done = invoke("migrate", address, *collection, *options, "--json", "-", check=check)
    return json.loads(done.stdout)["results"]


def hits(invoke, place, *options):
    address, collection = place
    ask = ("retrieve", "--corpus", address, *collection, "--query", "the cat ran", "--json", "-", *TORCH, *options)
    found = json.loads(invoke(*ask, check=0).stdout)["results"][0]["hits"]
    return [(hit["id"], Near(hit["score"])) for hit in found]


def index(invoke, corpus, place, model, *options):
    address, collection = place
    invoke("index", corpus, "--to", address, *collection, "-m", model, *TORCH, *options, check=0)


@pytest.mark.slow
def test_a_collection_moves_and_returns(place, corpus, other, tiny_bert, tmp_path, invoke):
    index(invoke, corpus, place, tiny_bert)
    before = hits(invoke, place)
    results = migrate(invoke, place, "-m", other, *TORCH, "--allow", 1)
    assert results["migrated"] and results["rows"] == 40 and results["queries"] > 10
    after = hits(invoke, place)
    invoke("encode", corpus, "-m", other, *TORCH, "-o", tmp_path / "fresh", check=0)
    assert after == hits(invoke, (tmp_path / "fresh", ())) != before
    where = ("--where", "year = 2001")
    assert hits(invoke, place, *where) == hits(invoke, (tmp_path / "fresh", ()), *where)
    invoke("retrieve", "--corpus", place[0], *place[1], "-m", tiny_bert, *TORCH, "--query", "cat", check=2)
    invoke("migrate", place[0], *place[1], "-m", other, *TORCH, "--max-length", 9, "--anyway", check=2)
    assert migrate(invoke, place, "--back")["model"] == str(tiny_bert)
    assert hits(invoke, place) == before
    assert migrate(invoke, place, "--back")["model"] == str(other)
    assert hits(invoke, place) == after
    migrate(invoke, place, "--drop")
    assert hits(invoke, place) == after
    for verb in ("--back", "--drop"):
        invoke("migrate", place[0], *place[1], verb, check=2)


@pytest.mark.slow
def test_a_refused_move_leaves_a_collection(place, corpus, other, tiny_bert, invoke):
    index(invoke, corpus, place, tiny_bert)
    before = hits(invoke, place)
    results = migrate(invoke, place, "-m", other, *TORCH, "--allow", 0, "--dry-run", check=None)
    assert not results["migrated"] and results["seconds_estimated"] > 0
    assert hits(invoke, place) == before
    invoke("migrate", place[0], *place[1], "--back", check=2)


@pytest.mark.slow
def test_rows_that_change_after_a_move_are_made_by_the_new_model(place, corpus, other, tiny_bert, tmp_path, invoke):
    index(invoke, corpus, place, tiny_bert)
    migrate(invoke, place, "-m", other, *TORCH, "--anyway", "--drop")
    corpus.write_text(corpus.read_text().replace("a cat and", "the cat ran and"))
    invoke("index", corpus, "--to", place[0], *place[1], "-m", tiny_bert, *TORCH, check=2)
    index(invoke, corpus, place, other)
    invoke("encode", corpus, "-m", other, *TORCH, "-o", tmp_path / "fresh", check=0)
    assert hits(invoke, place) == hits(invoke, (tmp_path / "fresh", ()))


@pytest.mark.slow
def test_rows_that_are_written_while_models_are_compared_are_not_lost(
    corpus, other, tiny_bert, tmp_path, invoke, monkeypatch
):
    pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
    place = (f"lance:{tmp_path / 'tables'}", ())
    index(invoke, corpus, place, tiny_bert)
    corpus.write_text(corpus.read_text().replace("a cat and", "the cat ran and"))
    original = CollectionMove.estimate

    def estimate_and_index(move):
        index(invoke, corpus, place, tiny_bert)
        return original(move)

    with monkeypatch.context() as patch:
        patch.setattr(CollectionMove, "estimate", estimate_and_index)
        assert "meanwhile" in invoke("migrate", place[0], "-m", other, *TORCH, "--anyway", check=2).stderr
    migrate(invoke, place, "-m", other, *TORCH, "--anyway")
    invoke("encode", corpus, "-m", other, *TORCH, "-o", tmp_path / "fresh", check=0)
    assert hits(invoke, place) == hits(invoke, (tmp_path / "fresh", ()))


@pytest.mark.slow
def test_passages_in_a_collection_are_whole_documents_to_the_comparison(place, other, tiny_bert, tmp_path, invoke):
    pages = tmp_path / "pages"
    pages.mkdir()
    for number in range(14):
        text = " ".join(f"the {noun} saw the thing number {number} on the mat ." for noun in NOUNS[:9])
        (pages / f"p{number}.txt").write_text(text)
    cut = ("--passages", "--passage-tokens", 12)
    index(invoke, pages, place, tiny_bert, *cut)
    results = migrate(invoke, place, "-m", other, *TORCH, "--anyway")
    assert results["set_documents"] == 14 and results["rows"] > 100
    index(invoke, pages, place, other, *cut)  # nothing is encoded again


@pytest.mark.slow
def test_passages_are_updated_after_a_move_to_a_model_that_reads_less(place, other, tiny_bert, tmp_path, invoke):
    corpus, fresh = tmp_path / "long.jsonl", tmp_path / "fresh"
    rows = [{"id": f"d{n}", "text": f"the {NOUNS[n]} ran on the river. " * 4} for n in range(11)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index(invoke, corpus, place, tiny_bert, "--passages")
    migrate(invoke, place, "-m", other, *TORCH, "--max-length", 10, "--anyway")
    index(invoke, corpus, place, other, "--passages", "--max-length", 10, "--update")
    invoke("index", corpus, "-o", fresh, "-m", other, *TORCH, "--passages", "--max-length", 10, check=0)
    assert hits(invoke, place) == hits(invoke, (fresh, ()))


@pytest.mark.slow
def test_compacting_leaves_what_is_kept(corpus, other, tiny_bert, tmp_path, invoke):
    pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
    place = (f"lance:{tmp_path / 'tables'}", ())
    index(invoke, corpus, place, tiny_bert)
    before = hits(invoke, place)
    migrate(invoke, place, "-m", other, *TORCH, "--anyway")
    index(invoke, corpus, place, other, "--compact", "--keep-days", 0)
    migrate(invoke, place, "--back")
    assert hits(invoke, place) == before


STEPS = {
    "lance": ("lance.store:LanceStore.publish", "lance.store:LanceStore._tag", "lance.store:LanceStore._made"),
    "milvus": ("milvus.store:MilvusStore.publish", "milvus.collection:MilvusCollection.promote"),
    "postgresql": (
        "postgres.store:PostgresStore.publish",
        "postgres.store:PostgresStore._make",
        "postgres.store:rename",
    ),
}


KILLS = [(0, "before"), (1, "behind"), (2, "before")]
OTHER_KILLS = [pytest.param(*kill, marks=pytest.mark.deep) for kill in [(0, "behind"), (1, "before"), (2, "behind")]]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "when"), [*KILLS, *OTHER_KILLS])
def test_a_killed_move_goes_on(number, when, place, corpus, other, tiny_bert, invoke):
    steps = STEPS[place[0].partition(":")[0]]
    if number >= len(steps):
        pytest.skip("Milvus has two steps")
    index(invoke, corpus, place, tiny_bert)
    before = hits(invoke, place)
    move = ("-m", other, *TORCH, "--anyway")
    step = f"sentcli.stores.{steps[number]}"
    process = Forked("tests.migrating.killed_move", step, when, "migrate", place[0], *place[1], *move)
    process.communicate(120)
    assert process.returncode == -signal.SIGKILL
    found = hits(invoke, place)  # by the model that made what answers
    results = migrate(invoke, place, *move)
    assert results["migrated"] == (found == before)
    migrate(invoke, place, "--back")
    assert hits(invoke, place) == before


def test_a_collection_that_is_not_there(tmp_path, tiny_bert, invoke):
    pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
    invoke("migrate", f"lance:{tmp_path / 'none'}", "-m", tiny_bert, check=2)
    invoke("migrate", f"lance:{tmp_path / 'none'}", "--back", check=2)
    invoke("migrate", tmp_path, "--collection", "rows", "-m", tiny_bert, check=2)


@pytest.mark.slow
def test_a_collection_of_means_of_pieces_stays_one(place, other, tiny_bert, tmp_path, invoke):
    corpus = tmp_path / "long.txt"
    corpus.write_text("".join(f"{'the cat ran on the river ' * 12}{noun}\n" for noun in NOUNS))
    pieces = ("--on-long", "chunk-mean")
    invoke("encode", corpus, "-m", tiny_bert, *TORCH, *pieces, "-o", tmp_path / "means", check=0)
    address, collection = place
    invoke("index", tmp_path / "means", "--to", address, *collection, check=0)
    texts = ("index", corpus, "--to", address, *collection, *TORCH)
    invoke(*texts, "-m", tiny_bert, check=2)  # whose long texts would be cut
    migrate(invoke, place, "-m", other, *TORCH, "--anyway", "--drop")
    invoke("encode", corpus, "-m", other, *TORCH, *pieces, "-o", tmp_path / "fresh", check=0)
    assert hits(invoke, place) == hits(invoke, (tmp_path / "fresh", ()))
    invoke(*texts, "-m", other, check=2)
