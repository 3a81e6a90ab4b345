"""PromptBERT: the vector at the mask token of a template, here and elsewhere, and template denoising."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.methods import METHODS, configure
from sentcli.model.torch_backend import load_tokenizer
from sentcli.training.batches import BatchMaker, Order, to_tensors
from sentcli.training.data import read_corpus
from sentcli.training.prepare import load_start, make_model, view_tokenizers
from tests.conftest import save_backbone
from tests.methods.test_method import opens_everywhere, train
from tests.tolerance import VECTORS

FIRST, SECOND = 'a "[X]" is [MASK].', "the : [X] or [MASK]"
TEMPLATES = ["--set", f"template.first={FIRST}", "--set", f"template.second={SECOND}"]


def at_the_mask(folder, template, texts):
    """The last hidden state at the mask token of each text in a template, by transformers."""
    from transformers import AutoModel

    tokenizer, model = load_tokenizer(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        inputs = tokenizer(template.replace("[X]", text).replace("[MASK]", tokenizer.mask_token), return_tensors="pt")
        inputs.pop("token_type_ids", None)
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        rows.append(states[inputs["input_ids"] == tokenizer.mask_token_id])
    return torch.cat(rows).numpy()


TRACED = ["albert", pytest.param("modernbert", marks=pytest.mark.deep)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", *TRACED])
def test_the_mask_token_of_the_template_is_the_vector_everywhere(tmp_path, kind):
    texts = ["the cat sat", "a dog", "", "birds flew over"]
    model = save_backbone(tmp_path / kind, kind=kind)
    encoder = SentenceEncoder.load(model, backend="torch").in_template(FIRST)
    expected = at_the_mask(model, FIRST, texts)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=VECTORS)
    encoder.save(tmp_path / "saved")
    loaded = SentenceEncoder.load(tmp_path / "saved", backend="torch")
    assert loaded.spec.pooling == "mask"
    np.testing.assert_allclose(loaded.encode(texts), expected, atol=VECTORS)
    np.testing.assert_allclose(
        SentenceEncoder.load(tmp_path / "saved", backend="onnx").encode(texts), expected, atol=1e-4
    )
    opens_everywhere(tmp_path / "saved", texts)


def test_a_long_text_is_cut_and_the_template_is_not(tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert, backend="torch").in_template(FIRST)
    words = "the cat sat on the mat and ran under a tree or the house ".split() * 10
    tokens = encoder.tokenizer([" ".join(words)])
    names = encoder.hf_tokenizer.convert_ids_to_tokens(tokens.ids[0])
    room = 32 - 8  # [CLS] a " ... " is [MASK] . [SEP]
    assert names == ["[CLS]", "a", "[UNK]", *words[:room], "[UNK]", "is", "[MASK]", ".", "[SEP]"]
    assert tokens.excess_tokens.tolist() == [len(words) - room]
    np.testing.assert_array_equal(*(encoder.encode([" ".join(words[:count])])[0] for count in (room, 60)))
    pieces = encoder.encode([" ".join(words[:40])], on_long="chunk-mean")[0]
    first, second = encoder.encode([" ".join(words[:room]), " ".join(words[room:40])])
    np.testing.assert_allclose(pieces, (room * first + (40 - room) * second) / 40, atol=VECTORS)


@pytest.mark.slow
def test_a_template_replaces_that_of_the_start_model(invoke, tiny_bert, text, tmp_path):
    train(invoke, "prompt-bert", tiny_bert, text, tmp_path / "one", *TEMPLATES)
    train(invoke, "prompt-bert", tmp_path / "one", text, tmp_path / "two", "--set", f"template.first={SECOND}",
          "--set", "template.second=")  # fmt: skip
    texts = ["the cat sat", "a dog"]
    for folder, template in (("one", FIRST), ("two", SECOND)):
        encoder = SentenceEncoder.load(tmp_path / folder, backend="torch")
        tokens = encoder.hf_tokenizer.convert_ids_to_tokens(encoder.tokenizer(["the cat"]).ids[0])
        assert tokens.count("[CLS]") == tokens.count("[MASK]") == 1
        again = SentenceEncoder.load(tmp_path / folder, backend="torch").in_template(template)
        np.testing.assert_allclose(encoder.encode(texts), again.encode(texts), atol=VECTORS)


@pytest.mark.slow
def test_the_template_without_training(invoke, tiny_bert, tmp_path):
    invoke("train", "--method", "prompt-bert", "--stage", "untrained", "-m", tiny_bert, "-o", tmp_path / "m",
           "--set", f"template.first={FIRST}", check=0)  # fmt: skip
    texts = ["the cat sat", "a dog"]
    expected = at_the_mask(tiny_bert, FIRST, texts)
    np.testing.assert_allclose(SentenceEncoder.load(tmp_path / "m").encode(texts), expected, atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("denoise", [True, False])
def test_the_loss_is_that_of_the_authors_formulas(tiny_bert, text, denoise):
    """The vector of each template alone, the places of whose second half are moved by the tokens of the sentence."""
    chosen = [("first", FIRST), ("second", SECOND), ("denoise", denoise), ("dropout", 0.0), ("batch_size", 16)]
    method = configure(METHODS["prompt-bert"], chosen)
    encoder, _ = load_start(method, str(tiny_bert))
    torch.manual_seed(1)
    model = make_model(method, encoder).double().train()
    tokenizer, second_tokenizer = view_tokenizers(method, encoder, 25)
    corpus = read_corpus([str(text)])
    order = Order(len(corpus.sentences), 16)
    (batch,) = BatchMaker(corpus, tokenizer, order, method.views, second_tokenizer=second_tokenizer).step(0)
    loss, _ = model(to_tensors(batch, 0, 2, torch.device("cpu")))
    loss.backward()
    words = model.encoder.backbone.embeddings.word_embeddings.weight
    gradient, words.grad = words.grad, None

    plain, backbone = load_tokenizer(tiny_bert), model.encoder.backbone
    mask, views = plain.mask_token_id, []
    for template in (FIRST, SECOND):
        before, after = (plain(part, add_special_tokens=False)["input_ids"] for part in template.split("[X]"))
        before, after, rows = [plain.cls_token_id, *before], [*after, plain.sep_token_id], []
        for row in batch.rows:
            room = 25 - len(before) - len(after)
            sentence = plain(corpus.sentences[row], add_special_tokens=False)["input_ids"][:room]
            ids = torch.tensor([[*before, *sentence, *after]])
            vector = backbone(input_ids=ids).last_hidden_state[ids == mask]
            if denoise:
                alone, places = torch.tensor([[*before, *after]]), torch.arange(len(before) + len(after))
                places[len(before) :] += len(sentence)
                states = backbone(input_ids=alone, position_ids=places[None]).last_hidden_state
                vector = vector - states[alone == mask]
            rows.append(torch.tanh(model.head.dense(vector)))
        views.append(torch.cat(rows))
    logits = functional.cosine_similarity(views[0][:, None], views[1][None], dim=-1) / 0.05
    expected = functional.cross_entropy(logits, torch.arange(16))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(gradient, words.grad, rtol=1e-6, atol=1e-10)


@pytest.mark.slow
def test_gradient_caching_gives_the_same_gradient(tiny_bert, text):
    from sentcli.training.gradients import Gradients

    found = []
    for size in (0, 4):
        settings = [
            ("first", FIRST),
            ("second", SECOND),
            ("dropout", 0.0),
            ("batch_size", 16),
            ("mini_batch_size", size),
        ]
        method = configure(METHODS["prompt-bert"], settings)
        encoder, _ = load_start(method, str(tiny_bert))
        torch.manual_seed(1)
        model = make_model(method, encoder).double().train()
        tokenizer, second = view_tokenizers(method, encoder, 25)
        corpus = read_corpus([str(text)])
        (batch,) = BatchMaker(corpus, tokenizer, Order(90, 16), method.views, second_tokenizer=second).step(0)
        Gradients(model, method.settings).collect([to_tensors(batch, 0, 2, torch.device("cpu"))])
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-6, atol=1e-10, msg=name)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("template.first=a [MASK].", "[X]"),
        ("template.first=a [X] [X] [MASK].", "[X]"),
        ("template.second=a [X].", "[MASK]"),
    ],
)
def test_what_is_no_template(invoke, tiny_bert, text, tmp_path, setting, message):
    result = train(invoke, "prompt-bert", tiny_bert, text, tmp_path / "m", "--set", setting, check=2)
    assert message in result.stderr and not (tmp_path / "m").exists()


def test_a_template_needs_a_mask_token_and_room(tiny_bert, tmp_path):
    import shutil

    model = shutil.copytree(tiny_bert, tmp_path / "no-mask")
    config = json.loads((model / "tokenizer_config.json").read_text())
    config.pop("mask_token")
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="mask token"):
        SentenceEncoder.load(model, backend="torch").in_template(FIRST)
    with pytest.raises(InputError, match="at least 9"):
        SentenceEncoder.load(tiny_bert, backend="torch", max_length=8).in_template(FIRST)


@pytest.mark.slow
def test_word_weights_are_those_of_sentence_transformers(tiny_bert, tmp_path, sentences):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer, WordWeights

    transformer = Transformer(str(tiny_bert))
    vocabulary = transformer.tokenizer.get_vocab()
    names = sorted(vocabulary, key=vocabulary.get)
    weights = WordWeights(names, {"cat": 3.5, "the": 0.1, "[CLS]": 0.0}, 1.5)
    SentenceTransformer(modules=[transformer, weights, Pooling(32, "mean")], device="cpu").save(str(tmp_path / "m"))
    assert SentenceEncoder.load(tmp_path / "m").spec.pooling == "word-weights+mean"
    opens_everywhere(tmp_path / "m", sentences)
