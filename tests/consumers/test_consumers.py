"""What sentcli exports is opened by the programs of others, which give the vectors that sentcli gives."""

import json
import subprocess

import numpy as np
import pytest
from safetensors import safe_open

import sentcli
from sentcli import SentenceEncoder
from tests.model import folders
from tests.tolerance import VECTORS

pytestmark = pytest.mark.slow

LONG = "The beginning of a text that is cut. " + "It goes on and on, with Words and words. " * 80 + "This is its end."
HOSTILE = [
    "",
    "a",
    "The QUICK Brown Fox JUMPS over the lazy DOG",
    "Ünïcödé façade, naïve café, Ångström, smørrebrød, İstanbul, ΟΔΥΣΣΕΥΣ, STRASSE, Straße",
    "今天天气很好。東京は日本の首都です。대한민국의 수도는 서울이다.",
    "Быстрая КОРИЧНЕВАЯ лиса, مرحبا بالعالم, नमस्ते दुनिया, สวัสดีชาวโลก",
    "tabs\tand\nline breaks  and   blanks",
    "https://example.org/a/b?c=d 3.14159 -17 1,000,000",
    "🙂👩‍🔬 \u2603 xqzzv flurbnitz",
]
WORDS = "the cat sat on a mat under big red house near river tree and or not is small".split()
SHORT = [*HOSTILE, *(f"Sentence {n}: {' '.join((WORDS * 3)[n : 2 * n + 1])}." for n in range(1, 39))]
TEXTS = [*SHORT, LONG, LONG[::-1], "word " * 700]
"""Fifty, of which three are longer than any model here takes."""


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    """MiniLM in the hub's layout in three graphs."""
    folder = tmp_path_factory.mktemp("hub") / "minilm"
    sentcli.export(model="minilm", output=folder, layout="hub", verify=False)
    sentcli.export(model="minilm", output=folder, layout="hub", verify=False, precision="int8")
    sentcli.export(model="minilm", output=folder, layout="hub", verify=False, runtime="openvino")
    return folder


@pytest.fixture(scope="session")
def first_token(tmp_path_factory):
    """A tiny model with [CLS] pooling and layers of Dense, whose folder has a graph with token vectors."""
    folder = folders.make(tmp_path_factory.mktemp("cls") / "model", "first-dense", ["lower-case"])
    sentcli.export(model=str(folder), output=folder, layout="hub", tokens=True)
    sentcli.export(model=str(folder), output=folder, layout="hub", tokens=True, runtime="openvino")
    return folder


def expected(folder, texts=TEXTS):
    return SentenceEncoder.load(str(folder), backend="torch", device="cpu").encode(texts)


def unit(vectors):
    """Vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


OPENVINO = {"backend": "openvino", "model_kwargs": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}}
"""Without the setting OpenVINO computes in bf16 where a processor has it."""


@pytest.mark.parametrize("which", ["hub", pytest.param("first_token", marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("over", "options"),
    [
        pytest.param("nothing", {}, marks=pytest.mark.deep),
        ("optimum", {"backend": "onnx"}),
        pytest.param("optimum-intel", OPENVINO, marks=pytest.mark.deep),
    ],
)
def test_sentence_transformers(over, options, which, consume, request):
    folder = request.getfixturevalue(which)
    vectors = consume("sentence_transformers_backend.py", over, folder, TEXTS, json.dumps(options))
    np.testing.assert_allclose(vectors, expected(folder), atol=VECTORS)


@pytest.mark.deep
def test_sentence_transformers_takes_the_graph_in_int8(consume, hub):
    options = {"backend": "onnx", "model_kwargs": {"file_name": "onnx/model_quantized.onnx"}}
    vectors = consume("sentence_transformers_backend.py", "optimum", hub, SHORT, json.dumps(options))
    assert (vectors * expected(hub, SHORT)).sum(1).min() > 0.95
    assert np.abs(vectors - expected(hub, SHORT)).max() > 1e-3  # it is the graph that was asked for


@pytest.mark.parametrize("program", ["with_fastembed.py", "with_light_embed.py"])
@pytest.mark.parametrize("which", [pytest.param("hub", marks=pytest.mark.deep), "first_token"])
def test_programs_that_take_the_first_output(program, which, consume, request):
    folder = request.getfixturevalue(which)
    vectors, wanted = consume(program, "light", folder, TEXTS, "onnx/model.onnx"), expected(folder)
    if program == "with_light_embed.py":  # which normalises by itself
        wanted = unit(wanted)
    np.testing.assert_allclose(vectors, wanted, atol=VECTORS)


@pytest.mark.deep
def test_txtai_takes_a_graph_with_one_output(consume, tmp_path, invoke):
    invoke("export", "-m", "minilm", "-o", tmp_path / "out", "--no-tokens", check=0)
    vectors = consume("with_txtai.py", "light", tmp_path / "out", TEXTS, "model.onnx")
    np.testing.assert_allclose(vectors, expected("minilm"), atol=1e-5)


@pytest.mark.parametrize(("which", "pooling"), [("hub", "mean"), ("first_token", "cls")])
def test_transformers_js(which, pooling, node, tmp_path, request):
    """It drops the last special token where it cuts, so that long texts differ, and knows no further layers."""
    folder = request.getfixturevalue(which)
    if which == "first_token":
        folder = folders.make(tmp_path / "plain", "cls", ["lower-case"])
        sentcli.export(model=str(folder), output=folder, layout="hub", tokens=True)
    short = [text for text in SHORT if len(text) < 60]
    if which == "first_token":  # whose words are split by \\w, which stands for ASCII alone in JavaScript
        short = [text for text in short if text.isascii()]
    (tmp_path / "texts.json").write_text(json.dumps(short))
    command = ["node", node, folder, tmp_path / "texts.json", tmp_path / "out.json", "fp32", pooling]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    wanted = unit(expected(folder, short))
    np.testing.assert_allclose(np.array(json.loads((tmp_path / "out.json").read_text())), wanted, atol=VECTORS)


def test_transformers_js_takes_the_graph_in_int8(node, hub, tmp_path):
    (tmp_path / "texts.json").write_text(json.dumps(SHORT))
    command = ["node", node, hub, tmp_path / "texts.json", tmp_path / "out.json", "q8", "mean"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    vectors = np.array(json.loads((tmp_path / "out.json").read_text()))
    assert (vectors * expected(hub, SHORT)).sum(1).min() > 0.95


@pytest.mark.parametrize("normalize", [False, True])
def test_model2vec_opens_static_embeddings(normalize, tmp_path):
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, StaticEmbedding

    tokenizer = folders.tokenizer().backend_tokenizer
    modules = [StaticEmbedding(tokenizer, embedding_dim=24)]
    if normalize:
        modules.append(Normalize())
    static = SentenceTransformer(modules=modules, device="cpu")
    static.save(str(tmp_path / "static"), create_model_card=False)
    SentenceEncoder.load(str(tmp_path / "static")).save(tmp_path / "saved")
    texts = ["the cat sat on the mat", "a dog", "the house near the river"]
    vectors = StaticModel.from_pretrained(tmp_path / "saved").encode(texts)
    wanted = expected(tmp_path / "saved", texts)
    np.testing.assert_allclose(vectors, wanted, atol=VECTORS)
    np.testing.assert_allclose(
        SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(texts), wanted, atol=1e-5
    )


def test_weights_are_in_a_folder_once(hub):
    weights = [path for path in hub.rglob("*.safetensors") if "embeddings.word_embeddings.weight" in names(path)]
    assert len(weights) == 1


def names(path):
    with safe_open(path, "numpy") as file:
        return set(file.keys())
