"""mteb runs on our engines: its tasks give the scores that they give with sentence-transformers."""

from types import SimpleNamespace

import numpy as np
import pytest

from sentcli import SentenceEncoder
from tests.conftest import make_backbone
from tests.tolerance import VECTORS

mteb = pytest.importorskip("mteb", minversion="2", reason="mteb is not installed (pip install mteb)")
mock_tasks = pytest.importorskip("mteb.mocks.mock_tasks", reason="this version of mteb has no tasks without data sets")

TASKS = [
    "MockRetrievalTask",
    "MockSTSTask",
    "MockPairClassificationTask",
    "MockRerankingTask",
    "MockClassificationTask",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model in the layout of sentence-transformers, with prompts for queries and documents."""
    from sentence_transformers import SentenceTransformer, models

    backbone, tokenizer = make_backbone()
    plain = tmp_path_factory.mktemp("mteb") / "plain"
    backbone.save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    transformer = models.Transformer(str(plain))
    model = SentenceTransformer(modules=[transformer, models.Pooling(32, "mean")], device="cpu")
    model.prompts = {"query": "find the ", "document": "text : ", "STS": "a pair : "}
    model.save(str(plain.parent / "model"))
    return plain.parent / "model"


def scores(model, name):
    result = mteb.evaluate(model, getattr(mock_tasks, name)(), cache=None, show_progress_bar=False)
    (task,) = result.task_results
    return {key: value for split in task.scores["test"] for key, value in split.items() if isinstance(value, float)}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_of_mteb_gives_the_scores_of_sentence_transformers(name, folder):
    from sentence_transformers import SentenceTransformer

    from sentcli.mteb import MtebEncoder

    expected = scores(SentenceTransformer(str(folder), device="cpu"), name)
    assert expected["main_score"] == expected["main_score"]
    found = scores(MtebEncoder(SentenceEncoder.load(folder, device="cpu")), name)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=1e-5, nan_ok=True), key


def test_the_encoder_fits_the_protocol_and_its_name_tells_models_apart(folder, tiny_bert):
    from sentcli.mteb import MtebEncoder

    encoder, other = (MtebEncoder(SentenceEncoder.load(model, device="cpu")) for model in (folder, tiny_bert))
    assert isinstance(encoder, mteb.models.EncoderProtocol)
    metas = [each.mteb_model_meta for each in (encoder, other)]
    assert metas[0].name == "sentcli/model" and metas[0].revision != metas[1].revision and metas[0].embed_dim == 32
    task = {"task_metadata": SimpleNamespace(name="Own", type="Retrieval"), "hf_split": "test", "hf_subset": "default"}
    role = mteb.types.PromptType
    batches = [{"text": ["a cat"], "id": ["1"]}, {"text": ["the dog sat", "a cat"], "id": ["2", "3"]}]
    texts = ["a cat", "the dog sat", "a cat"]
    for prompt_type, prompt in ((role.query, "find the "), (role.document, "text : "), (None, "")):
        made = encoder.encode(batches, prompt_type=prompt_type, **task)
        assert np.allclose(made, encoder.encoder.encode(texts, prompt=prompt), atol=VECTORS)
    task["task_metadata"].type = "STS"
    assert np.allclose(encoder.encode(batches, **task), encoder.encoder.encode(texts, prompt="a pair : "), atol=VECTORS)
    first, second = np.eye(3, 4, dtype=np.float32), np.ones((3, 4), np.float32)
    assert np.allclose(encoder.similarity(first, second), 0.5) and encoder.similarity(first, second).shape == (3, 3)
    assert np.allclose(encoder.similarity_pairwise(first, second), 0.5)
