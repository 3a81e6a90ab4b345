"""Scores and vectors that were computed before: found again, never wrongly, and never in the way."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.io.digests import cache_folder, least_recently_used
from sentcli.stores import vector_cache as cache
from tests.tolerance import VECTORS


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pairs(tmp_path):
    words = ["the cat sat", "a dog ran", "the river is big", "a fish swam", "the old tree", "a small house"]
    rows = [f"{words[i]}\t{words[-i - 1]}\t{i}" for i in range(6)]
    file = tmp_path / "mine.tsv"
    file.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    return file


def score(invoke, *call):
    return json.loads(invoke("sts-eval", "--json", "-", *call, check=0).stdout)


@pytest.mark.slow
def test_a_second_run_finds_the_score_without_loading_the_model(pairs, tiny_bert, invoke, monkeypatch):
    first = score(invoke, "-m", tiny_bert, "--pairs", pairs)
    assert "cached" not in first
    monkeypatch.setattr(SentenceEncoder, "load", lambda *a, **k: pytest.fail("the model was loaded"))
    again = score(invoke, "-m", tiny_bert, "--pairs", pairs)
    assert again["cached"] == ["mine"]
    for key in ("results", "protocol", "average"):
        assert again[key] == first[key]
    assert again["environment"]["device"] == first["environment"]["device"]


@pytest.mark.slow
def test_whatever_decides_the_score_is_looked_at(pairs, tiny_bert, tmp_path, invoke):
    score(invoke, "-m", tiny_bert, "--pairs", pairs)
    for change in (["--pooling", "max"], ["--max-length", 4], ["--no-intervals"], ["--aggregation", "mean"]):
        assert "cached" not in score(invoke, "-m", tiny_bert, "--pairs", pairs, *change), change
    SentenceEncoder.load(tiny_bert, backend="torch", pooling="max").save(tmp_path / "other")
    assert "cached" not in score(invoke, "-m", tmp_path / "other", "--pairs", pairs)
    pairs.write_text(pairs.read_text().replace("\t5\n", "\t4.5\n"))
    assert "cached" not in score(invoke, "-m", tiny_bert, "--pairs", pairs), "another gold score"


@pytest.mark.slow
def test_rerun_measures_again(pairs, tiny_bert, invoke, monkeypatch):
    score(invoke, "-m", tiny_bert, "--pairs", pairs)
    encoded = []
    whole = SentenceEncoder.encode_distinct
    monkeypatch.setattr(
        SentenceEncoder,
        "encode_distinct",
        lambda self, texts, *a, **k: encoded.extend(texts) or whole(self, texts, *a, **k),
    )
    assert "cached" not in score(invoke, "-m", tiny_bert, "--pairs", pairs, "--rerun")
    assert len(encoded) == 6, "the vectors, too"


@pytest.mark.slow
def test_only_what_is_new_is_encoded(pairs, tiny_bert, tmp_path, invoke, monkeypatch):
    score(invoke, "-m", tiny_bert, "--pairs", pairs)
    more = tmp_path / "more.tsv"
    more.write_text(pairs.read_text() + "a new text\tthe cat sat\t2.5\n")
    encoded = []
    whole = SentenceEncoder.encode_distinct
    monkeypatch.setattr(
        SentenceEncoder,
        "encode_distinct",
        lambda self, texts, *a, **k: encoded.extend(texts) or whole(self, texts, *a, **k),
    )
    found = score(invoke, "-m", tiny_bert, "--pairs", pairs, "--pairs", more)
    assert found["cached"] == ["mine"] and encoded == ["a new text"]
    monkeypatch.undo()
    fresh = score(invoke, "-m", tiny_bert, "--pairs", pairs, "--pairs", more, "--rerun")
    assert found["results"]["more"]["spearman"] == pytest.approx(fresh["results"]["more"]["spearman"])


@pytest.mark.slow
def test_counts_of_kept_texts_are_those_of_new_ones(tiny_bert, tmp_path, invoke):
    file = tmp_path / "long.tsv"
    file.write_text(f"sentence1\tsentence2\tscore\n{'cat ' * 50}\tdog\t1\n{'fish ' * 60}\tcat\t2\ndog\tcat\t3\n")
    first = score(invoke, "-m", tiny_bert, "--pairs", file)
    other = tmp_path / "again.tsv"  # another task of the same texts: vectors are kept, the score is not
    other.write_text(file.read_text())
    again = score(invoke, "-m", tiny_bert, "--pairs", other)
    assert first["protocol"]["truncated_texts"] == again["protocol"]["truncated_texts"] == 2
    assert first["results"]["long"]["truncated"] == again["results"]["again"]["truncated"] == 2
    assert first["average"] == again["average"]


@pytest.mark.parametrize("damage", [b"", b"not a database at all" * 100, b'{"a": 1}', None])
def test_damaged_files_are_made_anew(pairs, tiny_bert, own_cache, invoke, damage):
    first = score(invoke, "-m", tiny_bert, "--pairs", pairs)
    for file in [*own_cache.glob("vectors/*.db"), *own_cache.glob("scores/*/*.json")]:
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    again = score(invoke, "-m", tiny_bert, "--pairs", pairs)
    assert "cached" not in again and again["results"] == first["results"]
    assert "cached" in score(invoke, "-m", tiny_bert, "--pairs", pairs)


def test_a_cache_that_cannot_be_written_is_none(pairs, tiny_bert, own_cache, invoke):
    own_cache.write_text("a file where a folder should be")
    first = score(invoke, "-m", tiny_bert, "--pairs", pairs, "--backend", "torch")
    again = score(invoke, "-m", tiny_bert, "--pairs", pairs, "--backend", "torch")
    assert "cached" not in again and again["results"] == first["results"]


def encode(encoder, texts, progress=None, store=None):
    """The vectors of texts, through a store."""
    return store.encode(encoder, texts, progress).vectors


def texts(count, start=0):
    return [f"the cat {n} sat" for n in range(start, start + count)]


@pytest.mark.slow
def test_no_more_is_kept_than_allowed(tiny_bert, own_cache):
    encoder = SentenceEncoder.load(tiny_bert, backend="torch")
    for name in ("a", "b"):
        encode(encoder, texts(8000), store=cache.VectorCache(name * 32, megabytes=2))
        time.sleep(0.02)
    assert [file.name for file in cache_folder("vectors").glob("*.db")] == ["b" * 32 + ".db"], "the older one went"
    encode(encoder, texts(3000, 8000), store=cache.VectorCache("b" * 32, megabytes=1))
    found = cache.VectorCache("b" * 32, megabytes=1)
    counted = []
    encode(encoder, texts(10, 9000), progress=lambda added: counted.append(added.tokens), store=found)
    assert sum(counted) > 0, "there was no room for these"
    encode(encoder, texts(10), store=cache.VectorCache("c" * 32, megabytes=0))
    assert not (cache_folder("vectors") / ("c" * 32 + ".db")).exists()


def test_vectors_come_back_as_they_were(tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert, backend="torch")
    store = cache.VectorCache("k" * 32)
    odd = ["", " ", "a\0b", "the cat", "the cat ", "e\u0301", "\u00e9"]
    first = encode(encoder, odd, store=store)
    again = encode(encoder, odd[::-1], store=store)
    np.testing.assert_array_equal(first, again[::-1])
    np.testing.assert_array_equal(first, encoder.encode(odd))


def test_a_size_that_is_none_is_refused(monkeypatch, pairs, tiny_bert, invoke):
    monkeypatch.setenv("SENTCLI_VECTOR_CACHE_MB", "much")
    failed = invoke("sts-eval", "-m", tiny_bert, "--pairs", pairs, check=2)
    assert "SENTCLI_VECTOR_CACHE_MB=much" in failed.stderr
    with pytest.raises(InputError):
        cache.size_limit()


def test_what_goes_first(tmp_path):
    for age, name in enumerate(("new", "old", "oldest")):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    files = [*tmp_path.iterdir(), tmp_path / "gone"]
    gone = least_recently_used(files, tmp_path / "oldest", 20)
    assert gone == [tmp_path / "old"]
    assert least_recently_used(files, tmp_path / "new", 30) == []


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_what_it_had(tiny_bert, own_cache, tmp_path):
    """kill -9 while vectors are written: the next run goes on with those that were, and scores the same."""
    code = f"""
import os, signal
from sentcli import SentenceEncoder
from sentcli.stores import vector_cache as cache
cache.TEXTS_AT_A_TIME = 100
encoder = SentenceEncoder.load({str(tiny_bert)!r}, backend="torch")
seen = 0
def progress(added):
    global seen
    seen += added.texts
    if seen > 350:
        os.kill(os.getpid(), signal.SIGKILL)
cache.VectorCache("k" * 32).encode(encoder, [f"the cat {{n}} sat" for n in range(1000)], progress)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert done.returncode == -9, done.stderr
    encoder = SentenceEncoder.load(tiny_bert, backend="torch")
    added = []
    found = encode(encoder, texts(1000), lambda stats: added.append(stats), cache.VectorCache("k" * 32))
    assert added[0].texts == 300 and added[0].tokens == 0, "three parts were written"
    np.testing.assert_allclose(found, encoder.encode(texts(1000)), atol=VECTORS)
