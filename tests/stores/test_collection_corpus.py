"""The same texts and queries in every store give the same ids in the same order, through updates."""

import json
import random
import re
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
lancedb = pytest.importorskip("lancedb", reason="needs the extra sentcli[lance]")
pytest.importorskip("milvus_lite", reason="needs the extra sentcli[milvus]")
pytestmark = pytest.mark.usefixtures("soon_indexed")

SENTENCES = [
    "the connections of the pipes are welded", "he walked along the river with the dog", "the the of of and and",
    "a letter was written to the mayor", "The café near the résumé office", "state-of-the-art well-being",
    "Die Maße der Straße", "国際標準化に関する動向", "我想申请退款因为包裹没有到", "ＦＵＬＬ ｗｉｄｔｈ",
    "İstanbul co\u00adoperates", "2³ is a power", "ขอคืนเงินเพราะพัสดุ", "हिन्दी में लिखना", "connecting letters walk",
]  # fmt: skip
QUERIES = [
    "connect", "walking", "letters", "of the", "cafe\u0301 resume\u0301", "STRASSE", "masse", "well being", "国際標準",
    "退款", "full width", "istanbul", "cooperate", "23", "เงิน", "हिन्दी", "river dog letter",
]  # fmt: skip


def texts():
    """Some 200 rows, of which many are equal: each sentence as it is, in NFD, in capitals and with another."""
    rows = []
    for number, first in enumerate(SENTENCES):
        for second in SENTENCES[number : number + 12]:
            rows += [first, unicodedata.normalize("NFD", f"{first} {second}")]
    rows = (rows * 2)[:200]
    return [{"id": f"d{number}", "text": text, "n": number % 7} for number, text in enumerate(rows)]


def changed(rows, seed):
    """The rows after an update: some gone, also the first, some changed, some moved, and new ones in between."""
    draw = random.Random(seed)
    rows = [dict(row) for row in rows[1:] if draw.random() > 0.05]
    for row in draw.sample(rows, 10):
        row["text"] = draw.choice(SENTENCES)
    for _ in range(3):
        rows.insert(draw.randrange(len(rows)), rows.pop(draw.randrange(len(rows))))
    for number in range(8):
        row = {"id": f"new{seed}-{number}", "text": draw.choice(SENTENCES), "n": 1}
        rows.insert(draw.randrange(len(rows)), row)
    return rows


@pytest.fixture
def stores(tmp_path):
    """Each store: how a corpus is written into it, and how it is asked."""
    lance = f"lance:{tmp_path / 'tables'}"
    milvus = f"milvus:{tmp_path / 'rows.db'}"
    return {
        "directory": (("-o", tmp_path / "d", "--type", "bm25"), (tmp_path / "d",)),
        "lance": (("--to", lance), (lance,)),
        "milvus": (("--to", milvus, "--collection", "rows"), (milvus, "--collection", "rows")),
    }


@pytest.fixture
def found(invoke, tiny_bert):
    """A function that asks a store by words, by vectors and by both, and returns the ids of all hits."""

    def call(place, *options, queries=QUERIES):
        asked = [part for query in queries for part in ("--query", query)]
        command = ("retrieve", "--corpus", *place, *asked, "--search", "bm25,dense,rrf", "--top-k", 30, *options)
        done = invoke(*command, "--backend", "torch", "--json", "-", check=0)
        results = json.loads(done.stdout)["results"]
        return [(result["query"], result["search"], [hit["id"] for hit in result["hits"]]) for result in results]

    return call


@pytest.fixture
def write(invoke, tiny_bert):
    """A function that writes files into a store and returns the results."""

    def call(source, store, *options):
        model = ("-m", tiny_bert, "--backend", "torch")
        done = invoke("index", source, *store[0], *model, *options, "--json", "-", check=0)
        return json.loads(done.stdout)["results"]

    return call


@pytest.mark.slow
def test_every_store_finds_the_same_rows_in_the_same_order(write, found, stores, tmp_path):
    rows = texts()
    steps = 4
    source = tmp_path / "rows.jsonl"
    for step in range(steps):
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        update = ("--update",) if step else ()
        answers = {}
        for name, store in stores.items():
            write(source, store, *update)
            answers[name] = found(store[1])
            if step == steps - 1:
                answers[name] += found(store[1], "--where", "n > 2")
        text_of = {row["id"]: row["text"] for row in rows}
        for (query, mode, ids), *others in zip(*answers.values(), strict=True):
            for _, _, other_ids in others:
                if mode == "bm25":
                    assert other_ids == ids, query
                    assert bool(ids) != (query == "of the")
                elif (
                    mode == "dense"
                ):  # vectors of other texts may differ by rounding, as they were made in other batches
                    assert_equal_texts_in_order(other_ids, ids, text_of)
        rows = changed(rows, step)


def assert_equal_texts_in_order(ids, others, text_of):
    """Rows of one text have one vector, so that those that are among both hits stand in one order."""
    for text in {text_of[key] for key in ids} & {text_of[key] for key in others}:
        first, second = ([key for key in hits if text_of[key] == text] for hits in (ids, others))
        count = min(len(first), len(second))
        assert first[:count] == second[:count], text


def pages(folder, order=1):
    """A handbook whose pages have titles that their texts do not name, and other columns."""
    folder.mkdir(exist_ok=True)
    for number, title in enumerate(["Travel expenses", "Holidays", "Sick days", "Équipement"]):
        lines = [f"title: {title}", f"year: {2020 + number}", f"owner: team {number}"][::order]
        page = ["---", *lines, "---", "The office pays within ten days.", "", "## Carrying over", "", "The cat sat."]
        (folder / f"page{number}.md").write_text("\n".join(page))


TITLES = {"Travel expenses": "page0.md#0", "holiday": "page1.md#0", "sick": "page2.md#0", "EQUIPEMENT É": "page3.md#0"}


@pytest.mark.slow
@pytest.mark.parametrize("context", ["title", "headings"])
def test_words_see_what_stands_before_a_passage(write, found, invoke, tiny_bert, stores, tmp_path, context):
    pages(tmp_path / "kb")
    cut = ("--passages", "--context", context)
    file = tmp_path / "kb.parquet"
    model = ("-m", tiny_bert, "--backend", "torch")
    invoke("encode", tmp_path / "kb", "-o", file, *model, *cut, check=0)
    invoke("encode", tmp_path / "kb", "-o", tmp_path / "plain", *model, *cut, check=0)
    queries = ["Travel expenses", "Holidays", "sick day", "E\u0301QUIPEMENT"]
    expected = None
    for place in ((file,), (tmp_path / "plain",), *(store[1] for store in stores.values())):
        for options, asked in stores.values():
            if asked == place:
                write(tmp_path / "kb", (options,), *cut)
        answers = found(place, queries=queries)
        expected = expected or answers
        assert answers == expected
        first = [ids[0].partition("#")[0] for _, mode, ids in answers if mode == "bm25"]
        assert first == [f"page{number}.md" for number in range(4)], place


def take_away(tmp_path, name, field):
    """Do what another program may: let a row of a database have no text, or no place."""
    if name == "lance":
        lancedb.connect(tmp_path / "tables").open_table("corpus").update(where="id = 'd3'", values={field: None})
        return
    for path in (tmp_path / "rows.db").rglob("data_*.parquet"):
        table = pq.read_table(path)
        place = table.column_names.index(field)
        pq.write_table(table.set_column(place, field, pa.nulls(len(table), table.schema.field(field).type)), path)


@pytest.mark.parametrize("name", ["lance", "milvus"])
def test_a_row_without_its_place_is_named(invoke, tiny_bert, stores, tmp_path, name):
    options, place = stores[name]
    corpus = tmp_path / "rows.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in texts()[:12]))
    invoke("index", corpus, *options, "-m", tiny_bert, check=0)
    take_away(tmp_path, name, "sentcli_order")
    for asked in (("retrieve", "--corpus", *place, "--query", "x"), ("index", corpus, *options, "-m", tiny_bert)):
        assert "sentcli_order" in invoke(*asked, check=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lance", "milvus"])
def test_a_row_without_a_text_is_named(invoke, tiny_bert, stores, tmp_path, name):
    options, place = stores[name]
    corpus = tmp_path / "rows.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in texts()[:12]))
    invoke("index", corpus, *options, "-m", tiny_bert, check=0)
    take_away(tmp_path, name, "text")
    for search in ("dense", "bm25", "rrf"):
        asked = ("--query", "the river", "--search", search, "--json", tmp_path / "out.json")
        assert re.search("row 'd[0-9]+' has no text", invoke("retrieve", "--corpus", *place, *asked, check=2).stderr)
        assert not (tmp_path / "out.json").exists()
    assert "row 'd3'" in invoke("retrieve", "--corpus", *place, "--like", "d3", check=2).stderr
    moved = invoke("migrate", *place, "-m", tiny_bert, "--max-length", 9, "--anyway", check=2)
    assert "has no text" in moved.stderr
    invoke("index", corpus, *options, "-m", tiny_bert, "--overwrite", check=0)  # what the message says
    invoke("retrieve", "--corpus", *place, "--query", "the river", "--search", "rrf", check=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lance", "milvus"])
def test_only_what_changed_is_encoded(write, found, stores, tmp_path, name):
    """The order of keys in the front matter, a page that is gone and one that has another name change no text."""
    store, cut = stores[name], ("--passages", "--context", "title")
    pages(tmp_path / "kb")
    made = write(tmp_path / "kb", store, *cut)
    assert made["encoded"] == made["written"] == made["rows"] > 3
    pages(tmp_path / "kb", order=-1)
    again = write(tmp_path / "kb", store, *cut, "--update")
    assert (again["written"], again["encoded"], again["unchanged"]) == (0, 0, made["rows"])
    (tmp_path / "kb" / "page0.md").unlink()
    (tmp_path / "kb" / "page1.md").rename(tmp_path / "kb" / "a.md")
    page = tmp_path / "kb" / "page2.md"
    page.write_text(page.read_text().replace("owner: team 2", "owner: another"))
    said = write(tmp_path / "kb", store, *cut, "--update", "--dry-run")
    fewer = write(tmp_path / "kb", store, *cut, "--update")
    assert (said["written"], said["encoded"]) == (fewer["written"], 0)
    assert fewer["encoded"] == 0 and 0 < fewer["written"] < made["rows"]
    assert {ids[0].partition("#")[0] for _, mode, ids in found(store[1], queries=["Holidays"]) if mode == "bm25"} == {
        "a.md"
    }
