"""A graph whose rows change finds what one built anew finds: never rows that are gone, the others where they stand."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from sentcli.errors import DataError, InputError
from sentcli.search import exact, index, recall, searcher
from sentcli.search.faiss_index import FaissIndex
from sentcli.search.index import IndexManifest, IndexRequest
from sentcli.search.stored_vectors import SearchRequest
from sentcli.search.vector_directory import VectorDirectory
from tests.search.conftest import clustered, write_directory

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

ROWS = 1000


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def rows_like(count, seed, width=16):
    return unit(clustered(count, width, seed))


QUERIES = rows_like(50, 3)


@pytest.fixture(autouse=True)
def quickly_measured(monkeypatch):
    monkeypatch.setattr(recall, "SAMPLE_ROWS", 100)


def make(folder, kind="hnsw", **options):
    store = VectorDirectory.open(folder)
    return index.build(store, IndexRequest(kind, **options), lambda count: None, lambda step: None)


def updated(before, folder, vectors, kind="hnsw", **options):
    """Write a directory of other rows, with the index of the one before brought up to date."""
    write_directory(folder, vectors)
    return make(folder, kind, earlier=before / "indexes" / kind, **options)


def opened(folder, name="hnsw"):
    return VectorDirectory.open(folder).open_index(SearchRequest(name))[0]


def recall_of(search, vectors, queries=QUERIES, k=10):
    """The share of the exact neighbours that are found; rows of equal similarity count as the same."""
    true = exact.search(queries, [vectors], k)
    found = search.search(queries, k)
    assert (found.positions >= 0).all()
    assert all(len(set(row)) == len(row) for row in found.positions.tolist())
    similarities = np.einsum("qd,qkd->qk", queries, vectors[found.positions])
    assert np.allclose(similarities, found.scores, atol=1e-5), "the rows that are named have the scores"
    return np.mean(similarities >= true.scores[:, -1:] - 1e-6)


def inserted(rows, seed):
    places = np.random.default_rng(seed).integers(0, len(rows), 30)
    return np.insert(rows, places, rows_like(30, seed + 10), 0)


def changed(rows, seed):
    rows = rows.copy()
    rows[np.random.default_rng(seed).choice(len(rows), 30, replace=False)] = rows_like(30, seed + 20)
    return rows


def deleted(rows, seed):
    return np.delete(rows, np.random.default_rng(seed).choice(len(rows), 40, replace=False), 0)


def reordered(rows, seed):
    return np.random.default_rng(seed).permutation(rows)


def with_duplicates(rows, seed):
    return np.concatenate([rows[:40], rows, rows[10:30], rows[10:20]])


def prefix_gone(rows, seed):
    return rows[50:]


@pytest.fixture
def before(tmp_path):
    """A directory with a graph."""
    write_directory(tmp_path / "before", rows_like(ROWS, 0))
    make(tmp_path / "before")
    return tmp_path / "before"


@pytest.fixture
def rows():
    return rows_like(ROWS, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file_rows", "history"),
    [
        (None, (inserted,)),
        (None, (changed, changed)),
        (300, (deleted, inserted, deleted)),
        (300, (reordered, prefix_gone)),
        (None, (with_duplicates, deleted, reordered)),
        (300, (inserted, changed, deleted, reordered, with_duplicates)),
    ],
)
def test_histories(history, file_rows, tmp_path, rows):
    folder = tmp_path / "0"
    write_directory(folder, rows)
    make(folder, file_rows=file_rows)
    for number, step in enumerate(history, 1):
        there = len({row.tobytes() for row in rows})
        rows = step(rows, number)
        new = len({row.tobytes() for row in rows})
        manifest, added = updated(folder, tmp_path / str(number), rows, file_rows=file_rows)
        folder = tmp_path / str(number)
        assert manifest.rows == len(rows)
        assert added <= 100 < min(there, new), "most of the graph stays"
        assert VectorDirectory.open(folder).check_index("hnsw") == []
    updated_recall = recall_of(opened(folder), rows)
    write_directory(tmp_path / "fresh", rows)
    make(tmp_path / "fresh", file_rows=file_rows)
    assert abs(updated_recall - recall_of(opened(tmp_path / "fresh"), rows)) <= 0.005
    assert recall_of(opened(folder), rows, rows[:300], k=1) > 0.99, "each row is found by itself"


def test_a_graph_to_which_rows_are_added_alone_has_the_files_of_a_fresh_one(before, rows, tmp_path):
    more = np.concatenate([rows, rows_like(100, 5)])
    manifest, added = updated(before, tmp_path / "after", more)
    assert (manifest.format, added, manifest.dead) == (1, 100, 0)
    form = json.loads((tmp_path / "after" / "indexes" / "hnsw" / "index.json").read_text())
    assert set(form["files"][0]) == {"name", "first", "rows", "bytes", "sha256"}
    write_directory(tmp_path / "same", rows)
    make(tmp_path / "same", earlier=before / "indexes" / "hnsw")
    names = [path.name for path in (tmp_path / "same" / "indexes" / "hnsw").iterdir()]
    for name in names:
        if name != "index.json":
            same = (tmp_path / "same" / "indexes" / "hnsw" / name).read_bytes()
            assert same == (before / "indexes" / "hnsw" / name).read_bytes()


def test_files_whose_rows_stay_are_kept(tmp_path, rows):
    write_directory(tmp_path / "before", rows)
    before, _ = make(tmp_path / "before", file_rows=250)
    manifest, added = updated(tmp_path / "before", tmp_path / "after", np.delete(rows, [3, 400], 0), file_rows=250)
    assert (added, manifest.dead, manifest.format) == (0, 2, 2)
    assert [file.sha256 for file in manifest.files] == [file.sha256 for file in before.files]
    assert [file.dead for file in manifest.files] == [1, 1, 0, 0]
    without_first = rows[250:]
    fewer, added = updated(tmp_path / "after", tmp_path / "fewer", without_first, file_rows=250)
    assert (added, len(fewer.files), fewer.dead) == (0, 3, 0), "a file of dead nodes goes, and a row comes back"
    assert recall_of(opened(tmp_path / "fewer"), without_first) > 0.95


def test_a_row_that_comes_back_takes_its_node_again(before, rows, tmp_path):
    manifest, _ = updated(before, tmp_path / "without", rows[50:])
    assert manifest.dead == 50
    manifest, added = updated(tmp_path / "without", tmp_path / "again", np.roll(rows, 7, 0))
    assert (added, manifest.dead) == (0, 0)
    assert recall_of(opened(tmp_path / "again"), np.roll(rows, 7, 0)) > 0.95


def test_conditions_are_met_by_rows_of_an_updated_graph(before, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(searcher, "EXACT_ROWS", 0)
    rows = reordered(deleted(inserted(rows, 1), 2), 3)
    updated(before, tmp_path / "after", rows)
    search = opened(tmp_path / "after")
    mask = np.random.default_rng(0).random(len(rows)) < 0.4
    found = search.search(QUERIES, 10, mask)
    assert mask[found.positions].all()
    true = search.exactly().search(QUERIES, 10, mask)
    assert np.mean(found.scores >= true.scores[:, -1:] - 1e-5) > 0.95


@pytest.mark.parametrize("k", [10, 500, 5000])
def test_many_hits_are_rows_that_live(k, before, rows, tmp_path):
    rows = np.delete(rows, np.argsort(-(rows @ QUERIES[0]))[:250], 0)  # those nearest to a query are gone
    manifest, _ = updated(before, tmp_path / "after", rows)
    assert manifest.dead == 250
    found = opened(tmp_path / "after").search(QUERIES, k)
    assert found.positions.shape == (50, min(k, len(rows)))
    assert (found.positions >= 0).all()
    assert recall_of(opened(tmp_path / "after"), rows, k=min(k, len(rows))) > 0.95


def test_where_dead_nodes_hide_the_others_rows_are_searched_exactly(before, rows, tmp_path, monkeypatch):
    rows = deleted(rows, 2)
    updated(before, tmp_path / "after", rows)
    original = FaissIndex.search

    def finds_two(part, *arguments):
        hits = original(part, *arguments)
        hits.positions[::2, 2:] = -1
        return hits

    monkeypatch.setattr(FaissIndex, "search", finds_two)
    search = opened(tmp_path / "after")
    found = search.search(QUERIES, 10)
    assert (found.positions >= 0).all()
    assert np.array_equal(found.positions[::2], search.exactly().search(QUERIES[::2], 10).positions)


@pytest.mark.parametrize("left", [0, 1, 5, 650])
def test_a_graph_of_mostly_dead_nodes_is_built_anew(left, before, rows, tmp_path):
    manifest, added = updated(before, tmp_path / "after", rows[:left])
    assert (manifest.rows, added, manifest.dead, manifest.format) == (left, left, 0, 1)
    assert opened(tmp_path / "after").search(QUERIES, 10).positions.shape == (50, min(left, 10))


def test_rows_are_added_to_an_updated_graph(before, rows, tmp_path):
    after = tmp_path / "after"
    updated(before, after, rows[30:])
    more = rows_like(300, 9)
    write_directory(after, more, append=True)
    both = np.concatenate([rows[30:], more])
    assert recall_of(opened(after), both) > 0.95, "what the index lacks is searched exactly"
    manifest, added = make(after)
    assert (manifest.rows, added, manifest.dead) == (len(both), 300, 30)
    assert len(list((after / "indexes" / "hnsw").glob("*.npy"))) == 1
    assert recall_of(opened(after), both) > 0.95


def test_an_interrupted_update_goes_on_with_the_graph_that_was_kept(before, rows, tmp_path, monkeypatch):
    after = tmp_path / "after"
    rows = inserted(rows[20:], 1)

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(index, "fill_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            updated(before, after, rows)
    assert not (after / "indexes" / "hnsw").exists()
    manifest, added = make(after, earlier=before / "indexes" / "hnsw")
    assert (added, manifest.dead) == (30, 20)
    assert recall_of(opened(after), rows) > 0.95


def test_building_anew_does_not_go_on_with_a_graph_that_was_kept(before, rows, tmp_path, monkeypatch):
    after = tmp_path / "after"
    with monkeypatch.context() as patched:
        patched.setattr(index, "tune", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            updated(before, after, rows[20:])
    manifest, added = make(after, overwrite=True)
    assert (manifest.format, added, manifest.dead) == (1, len(rows) - 20, 0)


def test_other_settings_build_the_graph_anew(before, rows, tmp_path):
    manifest, added = updated(before, tmp_path / "after", rows[9:], settings={"efConstruction": 80})
    assert (added, manifest.dead) == (len(rows) - 9, 0)
    assert opened(tmp_path / "after").parts[0].index.hnsw.efConstruction == 80


def test_a_damaged_graph_is_built_anew(before, rows, tmp_path, capsys):
    file = next((before / "indexes" / "hnsw").glob("rows-*.faiss"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    manifest, added = updated(before, tmp_path / "after", rows[9:])
    assert (added, manifest.dead) == (len(rows) - 9, 0)
    assert file.name in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["missing", "bytes", "other rows", "shape"])
def test_rows_of_nodes_that_are_damaged_are_refused(damage, before, rows, tmp_path):
    folder = tmp_path / "after"
    manifest, _ = updated(before, folder, rows[9:])
    place = folder / "indexes" / "hnsw"
    file = manifest.files[0]
    path = place / file.nodes_name
    if damage == "missing":
        path.unlink()
    elif damage == "bytes":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:  # with a checksum that fits
        numbers = np.load(path)
        numbers = numbers[None] if damage == "shape" else np.where(numbers == 5, -1, numbers)
        np.save(path, numbers)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        replace(manifest, files=[replace(file, nodes=digest)]).write(place)
    with pytest.raises(DataError, match="nodes"):
        opened(folder)
    if damage in ("missing", "bytes"):
        assert VectorDirectory.open(folder).check_index("hnsw") != []
        manifest, _ = make(folder, overwrite=True)
        assert manifest.format == 1


def test_earlier_versions_refuse_an_updated_graph_by_its_format(before, rows, tmp_path):
    updated(before, tmp_path / "after", rows[1:])
    place = tmp_path / "after" / "indexes" / "hnsw" / "index.json"
    form = json.loads(place.read_text())
    assert form["format"] == 2
    place.write_text(json.dumps({**form, "format": 3}))
    with pytest.raises(InputError, match="format"):
        IndexManifest.read(place.parent)


@pytest.mark.parametrize("kind", ["HNSW16,SQ8", "IVF20,Flat"])
def test_what_is_no_graph_over_whole_vectors_is_filled_anew(kind, rows, tmp_path):
    write_directory(tmp_path / "before", rows)
    make(tmp_path / "before", kind)
    write_directory(tmp_path / "after", rows[9:])
    [place] = (tmp_path / "before" / "indexes").iterdir()
    manifest, added = make(tmp_path / "after", kind, earlier=place)
    assert (manifest.format, added) == (1, len(rows) - 9)
    assert recall_of(opened(tmp_path / "after", kind), rows[9:]) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_vectors_of_other_lengths_and_types_are_known_again(similarity, dtype, tmp_path):
    rows = (clustered(ROWS, 16) * 30).astype(dtype)
    write_directory(tmp_path / "before", rows)
    make(tmp_path / "before", similarity=similarity)
    manifest, added = updated(tmp_path / "before", tmp_path / "after", reordered(rows[9:], 0), similarity=similarity)
    assert (added, manifest.dead) == (0, 9)
