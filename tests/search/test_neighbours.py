"""Rows whose scores are equal but for rounding stand in the order of the corpus, however they were computed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.search.neighbours import ROUNDING, Neighbours
from tests.examples import examples

LEVELS = st.lists(st.integers(1, 6), min_size=1, max_size=30)


@examples(100)
@given(levels=LEVELS, seed=st.integers(0, 1000))
def test_rounding_is_no_order(levels, seed):
    """Scores of a few levels, each with noise of some last digits, as a product in blocks gives them."""
    generator = np.random.default_rng(seed)
    exact = np.array(levels, np.float32) / 8
    noise = generator.integers(-1, 2, len(exact)) * np.spacing(exact)
    noisy = (exact + noise).astype(np.float32)
    positions = generator.permutation(len(exact)).astype(np.int64)
    falling = np.argsort(-noisy, kind="stable")
    settled = Neighbours(positions[None, falling], noisy[None, falling]).in_order_of_rows()
    expected = np.lexsort((positions, -exact))
    assert settled.positions[0].tolist() == positions[expected].tolist()
    assert np.abs(settled.scores[0] - exact[expected]).max() <= ROUNDING
    for level in set(levels):
        assert len(set(settled.scores[0][exact[expected] == np.float32(level / 8)])) == 1


def test_what_is_not_there_stays_behind():
    hits = Neighbours(np.array([[4, 2, -1, -1]]), np.array([[0.5, 0.5, 0.0, 0.0]], np.float32)).in_order_of_rows()
    assert hits.positions.tolist() == [[2, 4, -1, -1]]


@pytest.mark.parametrize("copies", [5, 30])
def test_equal_rows_are_found_in_their_order_whatever_the_product_says(
    invoke, tiny_bert, tmp_path, monkeypatch, copies
):
    """Fewer and more copies than are asked for at first, the last of which have the largest noise."""
    from sentcli.search.searcher import Searcher

    pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")
    corpus = tmp_path / "rows.jsonl"
    rows = [{"id": f"r{number}", "text": "the cat sat"} for number in range(copies)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"id": "other", "text": "a dog ran"}]))
    invoke("encode", corpus, "-o", tmp_path / "d", "-m", tiny_bert, "--backend", "torch", check=0)
    search = Searcher.search

    def noisy(self, queries, k, mask=None):
        hits = search(self, queries, len(self.blocks), mask)
        scores = hits.scores + hits.positions.astype(np.float32) * np.float32(2.0**-27)
        best = Neighbours(hits.positions, scores).best_first()
        return Neighbours(best.positions[:, :k], best.scores[:, :k])

    monkeypatch.setattr(Searcher, "search", noisy)
    ask = ("--query", "the cat sat", "--top-k", 4, "--json", "-", "--backend", "torch")
    done = invoke("retrieve", "--corpus", tmp_path / "d", "-m", tiny_bert, *ask, check=0)
    assert [hit["id"] for hit in json.loads(done.stdout)["results"][0]["hits"]] == ["r0", "r1", "r2", "r3"]
