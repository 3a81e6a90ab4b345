"""Texts longer than the model reads: an error, or the mean of their pieces."""

import json
import re

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.model import encoding
from tests.conftest import WORDS as VOCABULARY
from tests.stores.outputs import manifest_of, message_of, vectors_of
from tests.tolerance import VECTORS

WORDS = [word for word in VOCABULARY if word.isalpha()]
LONG = " ".join((WORDS * 3)[:75])  # pieces of 30, 30 and 15 words


def pieces(text, size=30):
    words = text.split()
    return [" ".join(words[start : start + size]) for start in range(0, len(words), size)]


@pytest.mark.parametrize("name", ["v.npy", "v"])
def test_an_error_names_file_row_and_id(encode, tmp_path, name):
    source = tmp_path / "rows.jsonl"
    rows = [{"key": "x", "text": "a cat"}, {"key": "y", "text": LONG}, {"key": "z", "text": LONG * 2}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    failed = encode(source, "-o", tmp_path / name, "--id-field", "key", "--on-long", "error", check=2)
    words = rf"{source}, row 2 \(id y\): .*77 tokens.*32 .*--on-long truncate .*chunk-mean"
    assert re.search(words, message_of(failed))
    assert not list(tmp_path.rglob("vectors-*")) + list(tmp_path.glob("*.npy"))


def test_an_error_names_the_file_that_the_row_is_in(encode, write, tmp_path):
    short, long = write("short.txt", ["a cat", "a dog"]), write("long.txt", ["a bird", LONG])
    failed = encode(short, long, "-o", tmp_path / "v.npy", "--on-long", "error", check=2)
    assert f"error: {long}, row 2 (id 3): " in message_of(failed)


def test_an_error_names_one_of_many_long_rows_with_its_own_length(encode, write, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK", 4)  # texts go through the tokenizer longest first
    texts = [f"the cat {n}" for n in range(5)] + [f"{LONG} {'a ' * n}" for n in range(10)]
    failed = encode(write("a.txt", texts), "-o", tmp_path / "v.npy", "--on-long", "error", check=2)
    assert re.search(r"a\.txt, row 12 \(id 11\): .*83 tokens", message_of(failed))


def test_shards_before_a_long_row_stay_and_another_choice_does_not_continue_them(encode, write, tmp_path):
    source, out = write("a.txt", ["cat", "dog", "bird", LONG]), tmp_path / "v"
    call = [source, "-o", out, "--shard-rows", 2]
    assert "row 4 (id 3)" in message_of(encode(*call, "--on-long", "error", check=2))
    assert manifest_of(out)["rows_done"] == 2
    refused = encode(*call, "--resume", check=2)
    assert re.search("on_long 'error' .*'truncate' ", message_of(refused))


def test_index_names_no_option_that_it_lacks(encode, invoke, write, tiny_bert, tmp_path):
    """`encode` alone has ``--on-long``."""
    source, out = write("a.txt", ["a cat", LONG]), tmp_path / "v"
    cut = "warning: 1 rows are longer than 32 tokens and were cut, 45 tokens lost "
    assert f"{cut}(--on-long, --max-length)" in encode(source, "-o", tmp_path / "v.npy").stderr
    indexed = invoke("index", source, "-o", out, "-m", tiny_bert, check=0)
    written = invoke("index", source, "--to", f"lance:{tmp_path / 'lance'}", "-m", tiny_bert, check=0)
    assert f"{cut}(--max-length)" in indexed.stderr
    assert f"{cut}(--max-length)" in written.stderr


def test_texts_that_just_fit_are_not_long(encode, write, tmp_path):
    encode(write("a.txt", ["the " * 30, "cat"]), "-o", tmp_path / "v.npy", "--on-long", "error")
    assert len(vectors_of(tmp_path / "v.npy")) == 2


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_chunk_mean_is_the_mean_of_the_pieces_weighted_by_their_words(
    encode, write, tmp_path, tiny_bert, backend, normalize
):
    flag = "--normalize" if normalize else "--no-normalize"
    call = ["--on-long", "chunk-mean", "--backend", backend, flag]
    done = encode(write("a.txt", ["a cat", LONG, "the " * 31]), "-o", tmp_path / "v.npy", *call)
    assert re.search("warning: 2 rows .*32 tokens ", message_of(done))
    encoder = SentenceEncoder.load(tiny_bert, backend=backend, normalize=normalize)
    expected = []
    for text in ("a cat", LONG, "the " * 31):
        parts = pieces(text)
        weights = np.array([[len(part.split())] for part in parts])
        mean = (encoder.encode(parts) * weights).sum(0) / weights.sum()
        expected.append(mean / np.linalg.norm(mean) if normalize else mean)
    np.testing.assert_allclose(vectors_of(tmp_path / "v.npy"), np.array(expected), atol=VECTORS)


def test_the_python_library_has_the_same_choices(encoder):
    from sentcli.model.encoding import LongTextError

    with pytest.raises(LongTextError, match=r"1.*77.*32"):
        encoder.encode(["cat", LONG], on_long="error")
    long, cut = encoder.encode([LONG], on_long="chunk-mean"), encoder.encode([LONG])
    assert np.abs(long - cut).max() > 1e-3
    np.testing.assert_array_equal(encoder.encode(["cat"], on_long="chunk-mean"), encoder.encode(["cat"]))


def test_short_texts_beside_long_ones_keep_their_vectors(encoder):
    texts = ["a cat", LONG, "", "the dog sat", LONG[:-3], "a bird"]
    means, cut = encoder.encode(texts, on_long="chunk-mean"), encoder.encode(texts)
    np.testing.assert_allclose(means[[0, 2, 3, 5]], cut[[0, 2, 3, 5]], atol=VECTORS)


def test_pieces_find_their_texts_whatever_is_tokenised_together(encoder, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK", 7)
    texts = [f"{'cat ' * (25 + 11 * n % 70)}{n}" for n in range(100)]
    found = encoder.encode(texts, on_long="chunk-mean")
    for n in range(0, 100, 9):
        np.testing.assert_allclose(found[n], encoder.encode([texts[n]], on_long="chunk-mean")[0], atol=VECTORS)


def test_pieces_and_a_prompt_do_not_go_together(encode, write, tmp_path):
    source = write("a.txt", ["cat", LONG])
    failed = encode(source, "-o", tmp_path / "v.npy", "--on-long", "chunk-mean", "--prompt", "the ", check=2)
    assert re.search("chunk-mean .*prompt", message_of(failed))
    assert not (tmp_path / "v.npy").exists()
