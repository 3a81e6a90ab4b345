"""Static embeddings: word vectors as text, sentence-transformers' and model2vec's folders, and bags of words."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity
from typer.testing import CliRunner

from sentcli import SentenceEncoder
from sentcli.cli.app import app
from sentcli.errors import InputError
from tests.tolerance import VECTORS

TEXTS = ["The cat sat.", "a dog, the cat", "unknown", "", "the the dog"]
WORDS = {"the": [1.0, 0, 0], "cat": [0, 2.0, 0], "dog": [0, 0, 3.0], "sat": [1.0, 1.0, 1.0], ".": [0.5, 0, 0]}


def glove(path, words=WORDS, head=""):
    path.write_text(head + "".join(f"{word} {' '.join(map(str, v))}\n" for word, v in words.items()), "utf-8")
    return path


def direction(*words):
    total = np.sum([WORDS[word] for word in words], axis=0)
    return total / np.linalg.norm(total)


@pytest.mark.parametrize("form", ["glove", "word2vec", "gz"])
def test_word_vectors_are_averaged_over_the_words_that_have_one(form, tmp_path):
    path = glove(tmp_path / "vectors.txt", head="5 3\n" if form == "word2vec" else "")
    if form == "gz":
        packed = tmp_path / "vectors.txt.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    vectors = SentenceEncoder.load(path, normalize=True).encode(TEXTS)
    expected = [direction("the", "cat", "sat", "."), direction("dog", "the", "cat"), *np.zeros((2, 3))]
    np.testing.assert_allclose(vectors, [*expected, direction("the", "the", "dog")], atol=VECTORS)


def test_sentence_transformers_opens_what_is_read_and_what_is_saved(tmp_path):
    encoder = SentenceEncoder.load(glove(tmp_path / "vectors.txt"))
    encoder.save(tmp_path / "saved")
    for folder in (encoder.spec.folder, tmp_path / "saved"):
        peer = SentenceTransformer(str(folder), device="cpu")
        np.testing.assert_allclose(encoder.encode(TEXTS), peer.encode(TEXTS), atol=VECTORS)
        np.testing.assert_allclose(encoder.encode(TEXTS), SentenceEncoder.load(folder).encode(TEXTS), atol=VECTORS)


def test_prompts_and_normalisation_of_a_folder_count(tmp_path):
    encoder = SentenceEncoder.load(glove(tmp_path / "vectors.txt"), normalize=True)
    encoder.save(tmp_path / "saved")
    settings = tmp_path / "saved" / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"prompts": {"query": "cat "}, "default_prompt_name": "query"}), "utf-8")
    found = SentenceEncoder.load(tmp_path / "saved")
    assert found.spec.normalizes
    assert found.spec.usual_prompt == "cat "
    peer = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(found.encode(["the dog"]), peer.encode(["the dog"]), atol=VECTORS)


def test_model2vecs_rows_and_weights_are_read_by_its_own_rule(tmp_path):
    source = SentenceEncoder.load(glove(tmp_path / "vectors.txt")).spec.folder
    folder = tmp_path / "model2vec"
    folder.mkdir()
    tokenizer = json.loads((source / "tokenizer.json").read_text("utf-8"))
    # a token at the end that encoding must not add
    special = [{"SpecialToken": {"id": "the", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*special, {"Sequence": {"id": "B", "type_id": 0}}]
    names = {"the": {"id": "the", "ids": [1], "tokens": ["the"]}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": special, "pair": pair, "special_tokens": names
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (folder / "modules.json").write_bytes((source / "modules.json").read_bytes())
    generator = np.random.default_rng(0)
    parts = {
        "embeddings": generator.standard_normal((3, 4)).astype(np.float32),
        "mapping": np.array([0, 1, 2, 2, 1, 0]),
        "weights": generator.random(6),
    }
    save_file(parts, folder / "model.safetensors")
    known = TEXTS[0], TEXTS[4]  # sentence-transformers averages unknown tokens, model2vec leaves them out
    expected = SentenceTransformer(str(folder), device="cpu").encode(known)
    np.testing.assert_allclose(SentenceEncoder.load(folder).encode(known), expected, atol=VECTORS)
    save_file({**parts, "mapping": np.array([0, 1, 2, 2, 1, 7])}, folder / "model.safetensors")
    with pytest.raises(InputError, match="row"):
        SentenceEncoder.load(folder)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"the 1 2 3\ncat 1 2\n", "line 2"),
        (b"the 1 2 3\ncat 1 nan 2\n", "line 2"),
        (b"two plain words\n", "is a file"),
        (b"", "no word vectors"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_other_files_are_refused_with_their_line(content, named, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=named):
        SentenceEncoder.load(path)


def test_poolings_and_exports_are_refused(tmp_path):
    path = glove(tmp_path / "vectors.txt")
    with pytest.raises(InputError, match="mean"):
        SentenceEncoder.load(path, pooling="cls")
    result = CliRunner().invoke(app, ["export", "-m", str(path), "-o", str(tmp_path / "export")])
    assert result.exit_code == 2
    assert not (tmp_path / "export").exists()


def made(tmp_path, sentences, *settings):
    data, output = tmp_path / "text.txt", tmp_path / "words"
    data.write_text("\n".join(sentences), "utf-8")
    options = ["-m", "sentcli-bert-mini", "--data", str(data), "-o", str(output), "--overwrite"]
    chosen = [part for setting in settings for part in ("--set", setting)]
    result = CliRunner().invoke(app, ["train", "--method", "bag-of-words", *options, *chosen])
    assert result.exit_code == 0, result.output
    return SentenceEncoder.load(output)


SENTENCES = [
    "The cat sat on the mat.", "A dog and a cat sat down.", "Dogs bark at night", "the night is dark, the dog too",
    "Bark is on trees", "A mat is on the floor",
]  # fmt: skip


def test_tf_idf_has_the_cosines_of_scikit_learn(tmp_path):
    encoder = made(tmp_path, SENTENCES)
    peer = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]").fit(SENTENCES)
    asked = [*SENTENCES, "cat cat dog zebra", "night night mat"]
    expected = cosine_similarity(peer.transform(asked))
    np.testing.assert_allclose(cosine_similarity(encoder.encode(asked)), expected, atol=VECTORS)
    hashed = made(tmp_path, SENTENCES, "dimensions=12")
    assert hashed.dimension == 12
    assert not np.allclose(cosine_similarity(hashed.encode(asked)), expected, atol=0.01)


def test_counts_and_content_words(tmp_path):
    counts = made(tmp_path, SENTENCES, "weights=counts").encode(["cat cat mat", "cat", "the"])
    np.testing.assert_allclose(cosine_similarity(counts)[0], [1, 2 / 5**0.5, 0], atol=VECTORS)
    content = made(tmp_path, SENTENCES, "weights=content-words").encode(["the cat on a mat.", "cat mat", "the and ."])
    np.testing.assert_allclose(cosine_similarity(content)[0], [1, 1, 0], atol=VECTORS)
    most = made(tmp_path, SENTENCES, "words=2").encode(["is", "the"])  # three words are in three sentences
    assert most.shape == (2, 2)
    assert most[0].any()
    assert not most[1].any()


def test_pairs_train_a_table(tmp_path):
    generator = np.random.default_rng(0)
    words = {f"w{i}": generator.standard_normal(8).round(3).tolist() for i in range(40)}
    path, data = glove(tmp_path / "vectors.txt", words), tmp_path / "pairs.csv"
    rows = [f"w{i} w{(i + 1) % 20},w{i + 20} w{(i + 1) % 20 + 20}" for i in range(20)]
    data.write_text("\n".join(["anchor,positive", *rows]), "utf-8")
    output = tmp_path / "trained"
    options = ["--pooling", "own", "--data", str(data), "-o", str(output), "--batch-size", "20", "--max-steps", "30"]
    command = ["train", "--method", "simcse", "-m", str(path), *options, "--learning-rate", "0.05"]
    assert CliRunner().invoke(app, command).exit_code == 0
    before, after = (
        np.diag(cosine_similarity(*(encoder.encode([row.split(",")[side] for row in rows]) for side in (0, 1)))).mean()
        for encoder in (SentenceEncoder.load(path), SentenceEncoder.load(output))
    )
    assert after > before + 0.2
    peer = SentenceTransformer(str(output), device="cpu")
    np.testing.assert_allclose(SentenceEncoder.load(output).encode(["w1 w2"]), peer.encode(["w1 w2"]), atol=VECTORS)


def test_one_sentence_without_dropout_is_refused(tmp_path):
    path, data = glove(tmp_path / "vectors.txt"), tmp_path / "text.txt"
    data.write_text("the cat\nthe dog\ncat sat\n", "utf-8")
    options = ["--data", str(data), "-o", str(tmp_path / "out"), "--batch-size", "3", "--pooling", "own"]
    assert CliRunner().invoke(app, ["train", "--method", "simcse", "-m", str(path), *options]).exit_code == 2


@pytest.mark.parametrize("normalize", [False, True])
def test_numpy_gives_the_vectors_that_torch_gives(normalize, tmp_path):
    """Also those of a text that is longer than what is summed at a time."""
    folder = SentenceEncoder.load(glove(tmp_path / "vectors.txt")).spec.folder
    texts, vectors, facts = [*TEXTS, "the cat sat dog. " * 3000], {}, []
    for backend, name in (("auto", "numpy"), ("torch", "torch")):
        encoder = SentenceEncoder.load(folder, backend=backend, device="cpu", normalize=normalize)
        assert encoder.backend.name == name
        vectors[name] = encoder.encode(texts)
        facts.append((encoder.fingerprint(), {**encoder.describe(), "backend": ""}))
    assert facts[0] == facts[1]
    np.testing.assert_allclose(vectors["numpy"], vectors["torch"], atol=VECTORS)


def test_a_static_model_starts_without_torch(tmp_path):
    """Torch and transformers take two seconds to import, many times as long as the vectors of a table."""
    folder = SentenceEncoder.load(glove(tmp_path / "vectors.txt")).spec.folder
    script = f"""
import sys
from sentcli import SentenceEncoder
SentenceEncoder.load({str(folder)!r}, device="cpu").encode(["the cat"])
print([name for name in ("torch", "transformers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
