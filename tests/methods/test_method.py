"""Methods are data: the papers' defaults, settings by name, and every method on every kind of backbone."""

import itertools
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.methods import METHODS, configure, get_method
from sentcli.methods.modules import whitening_transform
from sentcli.methods.views import RandomPairs, SpanMask
from sentcli.model import stored_heads
from sentcli.objectives import OBJECTIVES, Views
from sentcli.training.data import TrainingSentences
from sentcli.training.prepare import load_start, make_model, prepare
from sentcli.training.request import TrainRequest
from sentcli.training.run import run
from tests.conftest import save_backbone
from tests.tolerance import VECTORS

WORDS = "embeddings.word_embeddings.weight"
PAPERS = ("simcse", "informin-cl", "micse", "infocse", "is-bert", "whitenedcse")
TRAINED = tuple(name for name, method in METHODS.items() if method.fit is None)
SCORED = {name: method for name, method in METHODS.items() if any(term.needs for term in method.objectives.values())}
"""The methods that read scores, classes or pairs with these; their objectives have them as labels."""
OF_SCORES = {objective for method in SCORED.values() for objective in method.objectives}
OF_TRIPLETS = "margin-mse"
"""The method, and its objective, that needs triplets; it is tried in tests/training/test_teachers.py, as is static."""
TAUGHT = tuple(name for name in TRAINED if any(term.teacher for term in METHODS[name].objectives.values()))


@pytest.fixture
def pairs(tmp_path, sentences):
    path = tmp_path / "pairs.jsonl"
    kept = [s for s in sentences if s.strip()]
    rows = [{"sentence1": a, "sentence2": b, "score": i % 6} for i, (a, b) in enumerate(itertools.pairwise(kept))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def train(call, method, model, data, output, *options, check=0):
    return call(
        "train", "--method", method, "-m", model, "--data", data, "-o", output, "--max-steps", 3, "--batch-size", 16,
        *options, check=check,
    )  # fmt: skip


def steps(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def opens_everywhere(folder, sentences):
    """The folder gives the same vectors here and in sentence-transformers, text by text."""
    from sentence_transformers import SentenceTransformer

    some = [s for s in sentences if s.strip()][:12]
    ours = SentenceEncoder.load(folder).encode(some)
    theirs = SentenceTransformer(str(folder), device="cpu").encode(some, batch_size=1)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.isfinite(ours).all() and np.abs(ours - ours[0]).max() > 0


@pytest.mark.parametrize(
    ("name", "batch", "rate", "epochs", "length"),
    [
        ("simcse", 64, 3e-5, 1, 32),
        ("informin-cl", 128, 3e-5, 1, 32),
        ("micse", 50, 3e-5, 1, 32),
        ("infocse", 64, 7e-6, 2, 32),
        ("is-bert", 32, 1e-6, 1, 128),
        ("whitenedcse", 64, 3e-5, 1, 32),
        ("mirror-bert", 200, 2e-5, 1, 50),
        ("ct", 16, 1e-5, 1, 75),
        ("esimcse", 64, 3e-5, 1, 32),
        ("prompt-bert", 256, 1e-5, 1, 42),
        ("sts-regression", 16, 2e-5, 4, 128),
        ("cross-encoder", 16, 2e-5, 4, 256),
        ("sbert-nli", 16, 2e-5, 1, 128),
        ("rankcse", 128, 3e-5, 1, 32),
        ("simcse-plus-plus", 64, 3e-5, 1, 32),
        ("margin-mse", 32, 2e-5, 1, 256),
    ],
)
def test_the_papers_settings(name, batch, rate, epochs, length):
    s = get_method(name).settings
    assert (s.batch_size, s.learning_rate, s.epochs, s.max_length) == (batch, rate, epochs, length)


def test_the_papers_hyper_parameters():
    micse = get_method("micse").objectives
    assert (micse["contrastive"].queue_size, micse["contrastive"].momentum) == (384, 0.995)
    assert (micse["ami"].weight, micse["ami"].samples, get_method("micse").settings.warmup_steps) == (2.5e-3, 150, 250)
    auxiliary = get_method("infocse").objectives["auxiliary-mlm"]
    assert (auxiliary.weight, auxiliary.rate, auxiliary.layers) == (1e-5, 0.4, 2)
    assert get_method("informin-cl").objectives["reconstruction"].weight == 0.4
    assert get_method("whitenedcse").views.count == 3
    assert get_method("whitenedcse").head.groups(768) == 384
    assert get_method("is-bert").cnn.kernels == (1, 3, 5)
    esimcse = get_method("esimcse")
    assert (esimcse.objectives["contrastive"].queue_size, esimcse.views.rate) == (160, 0.32)
    for name, method in METHODS.items():
        assert method.name == name
        terms = {key: o for key, o in method.objectives.items() if hasattr(o, "temperature")}
        expected = {
            ("mirror-bert", "nt-xent"): 0.04,
            ("supcon", "supcon"): 0.1,
            ("simcse-plus-plus", "dimensions"): 5.0,
        }
        assert all(o.temperature == expected.get((name, key), 0.05) for key, o in terms.items())


def test_settings_by_name():
    micse = METHODS["micse"]
    changed = configure(
        micse,
        [
            ("temperature", "0.1"), ("ami.weight", "1e-3"), ("ami_layers", "0:2"), ("contrastive-queue-size", "8"),
            ("head", "none"), ("batch_size", 7), ("dropout", "0.2"), ("ami.log", "false"),
        ],
    )  # fmt: skip
    contrastive, ami = changed.objectives.values()
    assert (contrastive.temperature, contrastive.queue_size, changed.settings.batch_size) == (0.1, 8, 7)
    assert (ami.weight, ami.layers, ami.log, changed.settings.dropout) == (1e-3, "0:2", False, 0.2)
    assert changed.describe()["head"] == {"kind": "none"}
    assert micse.objectives["contrastive"].temperature == 0.05  # the method itself stays
    assert configure(changed, [("dropout", "none")]).settings.dropout is None
    assert configure(METHODS["is-bert"], [("cnn.kernels", "3,5,7")]).cnn.kernels == (3, 5, 7)
    assert configure(METHODS["is-bert"], [("kernels", [3, 5, 7])]).cnn.kernels == (3, 5, 7)
    assert configure(METHODS["whitenedcse"], [("views", "5")]).views.count == 5
    both = configure(METHODS["is-bert"], [("objectives+", "contrastive,ami"), ("contrastive.weight", 2)])
    assert list(both.objectives) == ["jsd", "contrastive", "ami"]
    assert both.views.count == 2  # InfoNCE needs two views, IS-BERT makes one
    assert list(configure(micse, [("objectives-", "ami")]).objectives) == ["contrastive"]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("temperatur=1", "--set temperatur: micse .*'temperature'"),
        ("ami.wieght=1", "--set ami.wieght: micse .*'ami.weight'"),
        ("weight=1", "--set weight: .*contrastive.weight, ami.weight"),
        ("objectives+=amy", "'amy'.*'ami'"),
        ("objectives+=ami", r"objectives\+=ami: micse "),
        ("objectives-=mlm", "objectives-=mlm: micse .*contrastive, ami"),
        ("head=big", "'big'.*mlp, batchnorm, whitening, none"),
        ("views=0", "count .*1.*0"),
        ("ami.layers=7:11", "7:11 .*0:2"),
        ("ami.layers=-5:-1", "layers .*0:2"),
        ("ami.layers=0:1", "ami: .*0:1 .*layer-pairs"),
        ("ami.layers=first", "first.*FIRST:END"),
        ("ami.slicing=heads", "'heads'.*'head-pairs'"),
        ("ami.log=maybe", "--set ami.log=maybe: .*true .*false"),
        ("queue_size=-1", "queue_size .*0.*-1"),
        ("momentum=1", "momentum .*1"),
        ("temperature=0", "temperature .*0"),
        ("learning_rate=nan", "learning_rate .*0.*nan"),
        ("optimizer=sgd", "'sgd'.*adamw, rmsprop"),
        ("schedule=cosine", "'cosine'.*linear, constant, staircase"),
        ("dropout=0", "--set dropout=0.1"),
        ("dropout=1", "dropout .*1"),
    ],
)
def test_settings_that_cannot_be(invoke, tiny_bert, text, tmp_path, pair, message):
    result = train(invoke, "micse", tiny_bert, text, tmp_path / "m", "--set", pair, check=2)
    assert re.search(message, " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("whitenedcse", ["--set", "num_groups=5"], "num_groups=5 .*32 "),
        ("whitenedcse", ["--set", "num_groups=1"], "groups of 32 .*16 .*33"),
        ("whitenedcse", ["--set", "kind=zca", "--set", "eps=0"], "kind=zca .*eps .*0"),
        ("whitenedcse", ["--set", "views_from=shuffle", "--set", "kind=group"], "views_from=shuffle: group "),
        ("whitenedcse", ["--set", "views_from=shuffle", "--set", "objectives+=ami"], "views_from=shuffle"),
        ("infocse", ["--set", "skip_from=2"], "skip_from 2 .*2"),
        ("infocse", ["--set", "auxiliary_mlm.layers=9"], "layers 9: .*1 .*2"),
        ("infocse", ["--aux-init", "/nowhere"], "--aux-init /nowhere: .*copy-top .*random"),
        ("infocse", ["--stage", "pretain"], "--stage pretain: infocse .*'pretrain'"),
        ("simcse", ["--stage", "pretrain"], "--stage pretrain: simcse "),
        ("simcse", ["--aux-init", "random"], "--aux-init: simcse .*infocse"),
        ("simcse", ["--set", "objectives-=contrastive"], "simcse .*objective"),
        ("is-bert", ["--set", "kernels=2,4"], r"kernels \(2, 4\)"),
        ("whitenedcse", ["--set", "lambdas=1,x"], "lambdas=1,x"),
        ("whitenedcse", ["--set", "lambdas=1,0.5,2", "--max-steps", "1"], r"lambdas \(1.0, 0.5, 2.0\): expected 2"),
        ("micse", ["--set", "contrastive.denominator=both"], "'both'.*own-view, other-view"),
        ("micse", ["--set", "denominator=own-view", "--set", "positives_only=true"], "positives_only"),
        ("is-bert", ["--set", "discriminator=cnn"], "'cnn'.*dot, bilinear, mlp"),
        ("simcse", ["--set", "objectives+=rtd", "--set", "generator=self"], "language-modelling head"),
        ("whitenedcse", ["--set", "views_from=shuffle", "--set", "views=span-mask"], "views_from=shuffle"),
        ("ct", ["--set", "views=copies", "--set", "views.count=3"], "views: .*ct .*2 .*3"),
        ("ct", ["--set", "views=copies", "--set", "views.count=3", "--set", "objectives+=mlm"], "ct .*3"),
        ("ct", ["--set", "objectives+=jsd", "--batch-size", "8"], "batch_size 8: .*9"),
        ("simcse", ["--set", "views=random-pairs", "--batch-size", "8"], "batch_size 8: .*9"),
        ("simcse", ["--set", "views=1"], "views: contrastive .*2 .*1"),
        ("simcse", ["--set", "views=4"], "views: .*simcse .*2 .*4"),
        ("simcse", ["--set", "weight=nan"], "weight .*nan"),
        ("simcse", ["--set", "weight_decay=inf"], "weight_decay .*0.*inf"),
        ("simcse", ["--seed", "99999999999"], "seed .*99999999999"),
        ("simcse", ["--set", "objectives=ami"], r"--set objectives: objectives\+=NAME .*objectives-=NAME"),
        ("micse", ["--set", "ami.layers=1.e999:2"], "FIRST:END"),
        ("micse", ["--set", "samples=2"], "samples .*3.*2"),
        ("micse", ["--set", "queue_size=100000000000000"], "queue_size .*100000000000000"),
        ("infocse", ["--recipe", "infocse-bert-base", "--stage", "pretrain"], "recipe infocse-bert-base"),
        ("simcse", ["--recipe", "micse-bert-bsae"], "'micse-bert-bsae'.*'micse-bert-base'"),
        ("simcse", ["--recipe", "micse-bert-base"], "--method simcse: .*micse"),
    ],
)  # fmt: skip
def test_what_a_method_refuses(invoke, tiny_bert, text, tmp_path, method, options, message):
    result = train(invoke, method, tiny_bert, text, tmp_path / "m", *options, check=2)
    assert re.search(message, " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists()


def test_the_published_groups_of_bert_large_are_refused_with_the_reason():
    head = configure(METHODS["whitenedcse"], [("num_groups", 384)]).head
    head.build(768, 64)
    with pytest.raises(InputError, match=r"num_groups=384 .*1,024.* 512"):
        head.build(1024, 64)


def test_method_and_model_are_needed(invoke, text, tmp_path):
    assert "--method " in invoke("train", "-m", "x", "--data", text, "-o", tmp_path / "m", check=2).stderr
    assert "--model " in invoke("train", "--method", "simcse", "--data", text, "-o", tmp_path / "m", check=2).stderr
    result = invoke("train", "--method", "simcse", "-m", "minilm", "-o", tmp_path / "m", check=2)
    assert "--data" in result.stderr


def test_a_model_without_attention_is_refused(invoke, text, tmp_path):
    from transformers import FNetConfig, FNetModel

    from tests.conftest import wordpiece_tokenizer

    tokenizer = wordpiece_tokenizer()
    config = FNetConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, intermediate_size=64)
    config.num_attention_heads = 4
    FNetModel(config).save_pretrained(tmp_path / "fnet")
    tokenizer.save_pretrained(tmp_path / "fnet")
    result = train(invoke, "micse", tmp_path / "fnet", text, tmp_path / "m", check=2)
    assert "attention" in result.stderr
    assert not (tmp_path / "m").exists()


def test_a_tokenizer_without_mask_token_is_refused(invoke, tiny_bert, text, tmp_path):
    model = tmp_path / "no-mask"
    shutil.copytree(tiny_bert, model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    config.pop("mask_token")
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    for method in ("infocse", "mlm"):
        result = train(invoke, method, model, text, tmp_path / "m", check=2)
        assert "mask token" in result.stderr


def test_one_line_and_blank_corpora(invoke, tiny_bert, tmp_path):
    for content, message in [
        ("one line\n", " 1 "),
        ("   \n \n", "/t.txt"),
        ("", "/t.txt"),
    ]:
        (tmp_path / "t.txt").write_text(content)
        for method in PAPERS:
            result = train(invoke, method, tiny_bert, tmp_path / "t.txt", tmp_path / "m", check=2)
            assert message in result.stderr


@pytest.fixture(scope="session")
def other_bert(tmp_path_factory):
    """A teacher for the tiny BERT."""
    return save_backbone(tmp_path_factory.mktemp("models") / "other-bert", seed=1)


@pytest.mark.parametrize("method", [name for name in TRAINED if name not in (*SCORED, OF_TRIPLETS, "static")])
def test_every_method_trains_a_tiny_bert(invoke, tiny_bert, other_bert, text, tmp_path, sentences, method):
    options = ["--teacher", other_bert] if method in TAUGHT else []
    result = train(invoke, method, tiny_bert, text, tmp_path / "m", "-v", *options)
    assert bool(re.search(r"\b250\b.*\b3\b", " ".join(result.stderr.split()))) == (method == "micse")
    assert f"batch_size 16, learning_rate {METHODS[method].settings.learning_rate}" in result.stderr
    terms = METHODS[method].objectives
    for line in steps(tmp_path / "m"):
        assert set(terms) <= set(line)
        expected = sum(o.weight * line[name] for name, o in terms.items())
        assert line["loss"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    before, after = (
        torch.tensor(SentenceEncoder.load(m, pooling="cls").encode(sentences)) for m in (tiny_bert, tmp_path / "m")
    )
    assert method in ("micse",) or not torch.equal(before, after)  # miCSE's warm-up starts at 0
    opens_everywhere(tmp_path / "m", sentences)


DEEP = ["micse", "infocse", "is-bert", "whitenedcse", "ct"]
"""Methods that look into the backbone."""
BACKBONES = ["roberta", "distilbert", "mpnet", "albert", "electra", "modernbert"]


def _on_backbones():
    """Every pair of a method and a backbone, of which CI tries each method and each backbone twice."""
    for i, kind in enumerate(BACKBONES):
        for j, method in enumerate(DEEP):
            is_tried = (j - i) % len(DEEP) < 2
            yield pytest.param(kind, method, marks=[] if is_tried else [pytest.mark.deep])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), _on_backbones())
def test_methods_on_other_backbones(invoke, tmp_path, text, sentences, kind, method):
    model = save_backbone(tmp_path / kind, kind=kind)
    train(invoke, method, model, text, tmp_path / "m")
    opens_everywhere(tmp_path / "m", sentences)
    assert all(math.isfinite(line["loss"]) for line in steps(tmp_path / "m"))


def test_the_last_two_layers_and_the_lower_layers_are_those_of_the_encoder(tmp_path):
    """The frozen copy's output is the hidden state of that layer, on every backbone."""
    from sentcli.model import surgery
    from tests.conftest import make_backbone

    for kind in ("bert", "roberta", "distilbert", "mpnet", "albert", "electra", "modernbert"):
        backbone, _ = make_backbone(kind, layers=4)
        ids = torch.randint(5, 40, (3, 10))
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        real = mask.bool()
        with torch.no_grad():
            whole = backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True)
            lower = surgery.lower_layers(backbone, 2)(input_ids=ids, attention_mask=mask).last_hidden_state
            torch.testing.assert_close(lower[real], whole.hidden_states[2][real], atol=1e-5, rtol=1e-4)
            upper = surgery.upper_layers(backbone, 2)(inputs_embeds=lower, attention_mask=mask).last_hidden_state
            torch.testing.assert_close(upper[real], whole.last_hidden_state[real], atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="session")
def tiny_lm(tmp_path_factory, tiny_bert, sentences):
    """A tiny BERT after some masked language modelling: it has a head for words."""
    folder = tmp_path_factory.mktemp("lm")
    (folder / "t.txt").write_text("\n".join(s for s in sentences if s.strip()), "utf-8")
    request = TrainRequest(
        "mlm", str(tiny_bert), [str(folder / "t.txt")], folder / "m", assignments=[("batch_size", 32), ("max_steps", 3)]
    )
    run(prepare(request))
    return folder / "m"


@pytest.mark.slow
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_any_objective_joins_any_method(tiny_lm, text, objective):
    """One step of every method with every further objective; its gradient reaches the encoder.

    The vectors of a teacher are random, and of another width than those of the tiny model.
    """
    from sentcli.model.torch_backend import text_tokenizer
    from sentcli.training.batches import BatchMaker, Order, to_tensors
    from sentcli.training.data import read_corpus

    corpus = read_corpus([str(text)])
    for method in TRAINED:
        if objective in METHODS[method].objectives or method in SCORED or objective in OF_SCORES:
            continue
        if OF_TRIPLETS in (method, objective):
            continue
        needs_two_views = OBJECTIVES[objective].views > 1 and METHODS[method].settings.dropout == 0
        if needs_two_views:
            continue  # the copies of a sentence would be the same
        extra = {"ami": [("ami.layers", "0:2")], "rtd": [("generator", "self")]}.get(objective, [])
        own = {
            "micse": [("ami.layers", "0:2")],
            "ct": [("dropout", 0.1)],
            "is-bert": [("cnn.kernels", "1,3"), ("cnn.channels", 16)],  # as wide as the tiny model
            "prompt-bert": [("template.first", "a [X] [MASK]"), ("template.second", "")],
        }.get(method, [])
        changed = configure(METHODS[method], [("objectives+", objective), *extra, *own, ("batch_size", 16)])
        changed = configure(changed, [(f"{name}.weight", 0) for name in METHODS[method].objectives])
        changed = configure(changed, [(f"{objective}.weight", 1)])
        encoder, _ = load_start(changed, str(tiny_lm))
        model = make_model(changed, encoder, (24,)).train()
        tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, 20)
        (batch,) = BatchMaker(corpus, tokenizer, Order(len(corpus.sentences), 16), changed.views).step(0)
        tensors = to_tensors(batch, tokenizer.pad_id, changed.views.count, torch.device("cpu"))
        if any(term.teacher for term in changed.objectives.values()):
            tensors["teacher_0"] = torch.randn(1, 16, 24)
        loss, terms = model(tensors)
        loss.backward()
        assert set(terms) == set(changed.objectives)
        words = model.encoder.backbone.embeddings.word_embeddings.weight.grad
        assert torch.isfinite(loss) and words is not None and float(words.abs().sum()) > 0, (method, objective)


def test_the_auxiliary_losses_reach_the_encoder_through_the_sentence_vector_alone(tiny_lm, text):
    from sentcli.model.torch_backend import text_tokenizer

    sentences = text.read_text().splitlines()[:8]
    for objective in ("auxiliary-mlm", "rtd"):
        settings = [("objectives+", objective), *([("generator", "self")] if objective == "rtd" else [])]
        method = configure(METHODS["simcse"], [*settings, ("head", "none"), ("batch_size", 8)])
        encoder, _ = load_start(method, str(tiny_lm))
        model = make_model(method, encoder).train()
        tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, 20)
        from sentcli.methods.views import BatchTexts
        from sentcli.training.batches import TrainingBatch, to_tensors

        batch = to_tensors(
            TrainingBatch([tokenizer(sentences)], BatchTexts([])), tokenizer.pad_id, 2, torch.device("cpu")
        )
        states = []
        hook = model.encoder.backbone.register_forward_hook(lambda module, given, out, s=states: s.append(out))
        views = model.encode_views(batch)
        hook.remove()
        states[0].last_hidden_state.retain_grad()
        model.objectives[objective](views).backward()
        gradient = states[0].last_hidden_state.grad
        assert float(gradient[:, 0].abs().sum()) > 0
        assert float(gradient[:, 1:].abs().sum()) == 0


def in_training(method, folder, sentences, views=1):
    """The model of a method, in training mode, and a batch of sentences."""
    from sentcli.methods.views import BatchTexts
    from sentcli.model.torch_backend import text_tokenizer
    from sentcli.training.batches import TrainingBatch, to_tensors

    encoder, _ = load_start(method, str(folder))
    model = make_model(method, encoder).train()
    tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, 20)
    texts = TrainingBatch([tokenizer(sentences)], BatchTexts([]))
    return model, to_tensors(texts, tokenizer.pad_id, views, torch.device("cpu"))


@pytest.mark.parametrize("method", ["mlm", "condenser-mlm"])
def test_whole_words_of_the_tokenizer_are_masked(tiny_lm, method):
    pretraining = METHODS["mlm"] if method == "mlm" else get_method("infocse", "pretrain")
    chosen = configure(pretraining, [(f"{method}.whole_words", True), (f"{method}.rate", 0.4), ("batch_size", 8)])
    encoder, _ = load_start(chosen, str(tiny_lm))
    model = make_model(chosen, encoder)
    tokens = encoder.hf_tokenizer(["the xyzq sees a qwert"] * 200, return_tensors="pt")
    texts = encoder.hf_tokenizer.convert_ids_to_tokens(tokens["input_ids"][0])
    torch.manual_seed(1)
    _, labels = model.objectives[method].masked(tokens["input_ids"])
    masked = labels != -100
    goes_on = [place for place, text in enumerate(texts) if text.startswith("##")]
    assert len(goes_on) == 7 and all((masked[:, place] == masked[:, place - 1]).all() for place in goes_on)
    assert 0.3 < masked[:, 2].float().mean() < 0.5 and (masked[:, 1] != masked[:, 2]).any()


@pytest.mark.parametrize("in_place", [True, False])
def test_words_are_masked_in_a_copy_or_in_the_text_that_all_objectives_see(tiny_lm, text, in_place):
    """InforMin-CL's code overwrites the ids that its contrastive term encodes with the masked ones."""
    from sentcli.objectives.masked_lm import mask_tokens

    plain = [("head", "none"), ("batch_size", 8)]
    with_words = [*plain, ("objectives+", "mlm"), ("mlm.in_place", in_place), ("mlm.rate", 0.4)]
    sentences = text.read_text().splitlines()[:8]
    model, batch = in_training(configure(METHODS["informin-cl"], with_words), tiny_lm, sentences, views=2)
    other, _ = in_training(configure(METHODS["informin-cl"], plain), tiny_lm, sentences, views=2)
    model.eval(), other.eval()  # without dropout the two views differ by their masks alone
    torch.manual_seed(5)
    _, terms = model(batch)
    torch.manual_seed(5)
    objective = model.objectives["mlm"]
    masked, words = mask_tokens(batch["input_ids"], objective.vocabulary, 0.4)
    _, expected = other({**batch, "input_ids": masked if in_place else batch["input_ids"]})
    for name, term in expected.items():
        assert torch.allclose(terms[name], term, atol=1e-6), name
    of_masked = Views({**batch, "input_ids": masked}, model.encoder, masked_words=words)
    assert torch.allclose(terms["mlm"], objective(of_masked), atol=1e-6)


@pytest.mark.parametrize(("discriminator", "over_tokens"), [("dot", "sum"), ("mlp", "mean"), ("bilinear", "mean")])
def test_the_bound_of_is_bert_as_eq_3_prints_it(tiny_bert, text, discriminator, over_tokens):
    """The mean over sentences of the sum over tokens, and a network that is trained as the discriminator."""
    settings = [("jsd.discriminator", discriminator), ("jsd.over_tokens", over_tokens), ("batch_size", 4)]
    method = configure(METHODS["is-bert"], settings)
    model, batch = in_training(method, tiny_bert, text.read_text().splitlines()[:4])
    views, objective = model.encode_views(batch), model.objectives["jsd"]
    tokens, sentences, mask = views.tokens[0], views.pooled[0], views.mask[0].bool()
    own, others, network = [], [], objective.discriminator
    for i in range(4):
        scores = torch.stack([network(tokens[i, j : j + 1], sentences)[0] for j in range(int(mask[i].sum()))])
        of_own = np.log(2) - torch.nn.functional.softplus(-scores[:, i])
        rest = torch.nn.functional.softplus(scores[:, [b for b in range(4) if b != i]]) - np.log(2)
        own.append(of_own)
        others.append(rest.mean(dim=1))
    if over_tokens == "sum":
        expected = (
            torch.stack([part.sum() for part in others]).mean() - torch.stack([part.sum() for part in own]).mean()
        )
    else:
        expected = torch.cat(others).mean() - torch.cat(own).mean()
    assert torch.allclose(objective(views), expected, atol=1e-5)
    loss, _ = model(batch)
    loss.backward()
    gradients = [p.grad for p in objective.parameters()]
    assert len(gradients) == {"dot": 0, "bilinear": 1, "mlp": 5}[discriminator]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)


def test_stage_1_is_condensers(tiny_lm):
    pretrain = get_method("infocse", "pretrain")
    condenser, training = pretrain.objectives["condenser-mlm"], pretrain.settings
    assert (condenser.tie, condenser.init, condenser.rate, condenser.layers) == (True, "random", 0.15, 2)
    assert (training.learning_rate, training.warmup_share, training.weight_decay) == (1e-4, 0.1, 0.01)
    kept = stored_heads.lm_head_weights(tiny_lm)
    networks = {}
    for init in ("random", "copy-top"):
        for tie in ("true", "false"):
            method = configure(pretrain, [("aux_init", init), ("tie", tie)])
            encoder, _ = load_start(method, str(tiny_lm))
            networks[init, tie] = make_model(method, encoder).objectives["condenser-mlm"].network
    for (init, tie), network in networks.items():
        assert (network.lm_head.decoder is None) == (tie == "true")
        own = torch.equal(network.lm_head.dense.weight, kept["dense.weight"])
        assert own == (tie == "true" or init == "copy-top")  # the tied head is the encoder's own
        top = encoder.torch_module.backbone.encoder.layer[-1].output.dense.weight
        assert torch.equal(network.layers.encoder.layer[-1].output.dense.weight, top) == (init == "copy-top")


@pytest.mark.parametrize("tie", ["true", "false"])
def test_stage_1_trains_the_sentence_vector(tiny_lm, text, tie):
    """[CLS] is never predicted itself: its gradient is that of the network, and all vectors move."""
    method = configure(get_method("infocse", "pretrain"), [("tie", tie), ("batch_size", 8)])
    model, batch = in_training(method, tiny_lm, text.read_text().splitlines()[:8])
    states = []

    def keep(module, given, output):
        output.last_hidden_state.retain_grad()
        states.append(output.last_hidden_state)

    hook = model.encoder.backbone.register_forward_hook(keep)
    model(batch)[0].backward()
    hook.remove()
    assert states[0].grad[:, 0].any()

    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        before = model.encoder.eval().backbone(**inputs).last_hidden_state[:, 0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        model.train()(batch)[0].backward()
        optimizer.step()
    with torch.no_grad():
        after = model.encoder.eval().backbone(**inputs).last_hidden_state[:, 0]
    assert (torch.nn.functional.cosine_similarity(before, after) < 0.99).all()


@pytest.mark.slow
def test_infocse_in_two_stages(invoke, tiny_bert, text, tmp_path, sentences):
    train(invoke, "infocse", tiny_bert, text, tmp_path / "one", "--stage", "pretrain", "--learning-rate", "1e-3")
    assert set(steps(tmp_path / "one")[0]) >= {"loss", "condenser-mlm"}
    from safetensors.torch import load_file

    kept = load_file(tmp_path / "one" / "training_head" / "auxiliary.safetensors")
    opens_everywhere(tmp_path / "one", sentences)
    train(
        invoke,
        "infocse",
        tmp_path / "one",
        text,
        tmp_path / "two",
        "--aux-init",
        tmp_path / "one",
        "--learning-rate",
        "1e-12",
    )
    again = load_file(tmp_path / "two" / "training_head" / "auxiliary.safetensors")
    kept["lm_head.decoder.weight"] = load_file(tmp_path / "one" / "model.safetensors")[WORDS]  # it was tied to them
    assert set(kept) == set(again)
    for name, value in kept.items():
        torch.testing.assert_close(again[name], value, atol=1e-6, rtol=0)
    train(
        invoke,
        "infocse",
        tmp_path / "one",
        text,
        tmp_path / "three",
        "--aux-init",
        "random",
        "--learning-rate",
        "1e-12",
    )
    other = load_file(tmp_path / "three" / "training_head" / "auxiliary.safetensors")
    assert any(not torch.allclose(other[name], value, atol=1e-3) for name, value in kept.items())
    wider = save_backbone(tmp_path / "wider", kind="distilbert")
    refused = train(invoke, "infocse", wider, text, tmp_path / "four", "--aux-init", tmp_path / "one", check=2)
    assert re.search(f"--aux-init {tmp_path}/one: .*layers\\.", refused.stderr)


@pytest.mark.parametrize("stored", ["decoder", "tied"])
def test_condensers_own_file_of_extra_layers_is_read(invoke, tiny_bert, text, tmp_path, stored):
    from safetensors.torch import load_file

    train(invoke, "infocse", tiny_bert, text, tmp_path / "one", "--stage", "pretrain")
    kept = load_file(tmp_path / "one" / "training_head" / "auxiliary.safetensors")
    prefix = "layers.encoder.layer."
    state = {f"c_head.{k.removeprefix(prefix)}": v for k, v in kept.items() if k.startswith(prefix)}
    names = {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"}
    words = {
        "cls.predictions.bias": kept["lm_head.bias"],
    }
    if stored == "decoder":  # transformers leaves it out, because it is tied to the word embeddings
        words["cls.predictions.decoder.weight"] = load_file(tiny_bert / "model.safetensors")[WORDS]
    words |= {f"{names[part]}.{kind}": kept[f"lm_head.{part}.{kind}"] for part in names for kind in ("weight", "bias")}
    condenser = tmp_path / "condenser"
    shutil.copytree(tiny_bert, condenser)
    torch.save(state, condenser / "model.pt")
    encoder = load_file(condenser / "model.safetensors")
    (condenser / "model.safetensors").unlink()
    torch.save({**{f"bert.{k}": v for k, v in encoder.items()}, **words}, condenser / "pytorch_model.bin")
    train(invoke, "infocse", condenser, text, tmp_path / "two", "--aux-init", condenser, "--learning-rate", "1e-12")
    again = load_file(tmp_path / "two" / "training_head" / "auxiliary.safetensors")
    for name, value in kept.items():
        torch.testing.assert_close(again[name], value, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_mlm_from_a_config_alone_and_on_from_its_own_head(invoke, tiny_bert, text, tmp_path):
    scratch = tmp_path / "scratch"
    shutil.copytree(tiny_bert, scratch)
    (scratch / "model.safetensors").unlink()
    result = train(invoke, "mlm", scratch, text, tmp_path / "a", "--max-steps", 150, "--learning-rate", "5e-3")
    assert f"{scratch} " in " ".join(result.stderr.split())
    losses = [line["mlm"] for line in steps(tmp_path / "a")]
    assert np.mean(losses[-20:]) < 0.8 * np.mean(losses[:5])
    goes_on = train(invoke, "mlm", tmp_path / "a", text, tmp_path / "b", "--learning-rate", "1e-5")
    assert "language-modelling head" not in goes_on.stderr
    assert steps(tmp_path / "b")[0]["mlm"] < np.mean(losses[:5])
    refused = train(invoke, "simcse", scratch, text, tmp_path / "c", check=2)
    assert re.search(rf"{scratch} .*model\.safetensors", refused.stderr)


def test_whitening_makes_the_data_white(invoke, tiny_bert, text, tmp_path, sentences):
    invoke("train", "--method", "whitening", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", check=0)
    kept = [s for s in sentences if s.strip()]
    vectors = SentenceEncoder.load(tmp_path / "m").encode(kept)
    np.testing.assert_allclose(np.cov(vectors.T, bias=True), np.eye(vectors.shape[1]), atol=1e-2)
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-3)
    opens_everywhere(tmp_path / "m", sentences)
    modules = json.loads((tmp_path / "m" / "modules.json").read_text())
    assert [m["type"].rsplit(".", 1)[-1] for m in modules] == [
        "Transformer",
        "WeightedLayerPooling",
        "Pooling",
        "Dense",
    ]
    invoke(
        "train", "--method", "whitening", "-m", tiny_bert, "--data", text, "-o", tmp_path / "n",
        "--set", "dimensions=8", "--pooling", "mean", check=0,
    )  # fmt: skip
    assert SentenceEncoder.load(tmp_path / "n").dimension == 8
    few = invoke(
        "train", "--method", "whitening", "-m", tiny_bert, "--data", text, "--limit", 20, "-o", tmp_path / "o", check=2
    )
    assert re.search("whitening .*32 .*20", few.stderr)
    before = (tmp_path / "m" / "model.safetensors").read_bytes()
    options = ("--data", text, "--limit", 20, "-o", tmp_path / "m", "--overwrite")
    invoke("train", "--method", "whitening", "-m", tiny_bert, *options, check=2)
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before  # what fails costs nothing
    for options, message in [
        (["--set", "objectives+=ami"], "whitening .*objectives"),
        (["--batch-size", "8"], "whitening"),
        (["--set", "dimension=8"], "'dimensions'"),
    ]:
        refused = invoke(
            "train", "--method", "whitening", "-m", tiny_bert, "--data", text, "-o", tmp_path / "p", *options
        )
        assert refused.exit_code == 2 and re.search(message, " ".join(refused.stderr.split()))
    card = (tmp_path / "m" / "README.md").read_text()
    assert "training_head" not in card and "fit.dimensions" in card
    with pytest.raises(InputError, match="--set dimensions=2"):
        whitening_transform(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], np.float32), 3)


@pytest.mark.slow
def test_first_last_avg_needs_no_data(invoke, tiny_bert, tmp_path, sentences):
    invoke("train", "--method", "first-last-avg", "-m", tiny_bert, "-o", tmp_path / "m", check=0)
    expected = SentenceEncoder.load(tiny_bert, pooling="first-last-avg").encode(sentences)
    np.testing.assert_allclose(SentenceEncoder.load(tmp_path / "m").encode(sentences), expected, atol=VECTORS)


@pytest.mark.slow
def test_regression_on_pairs(invoke, tiny_bert, pairs, text, tmp_path, sentences):
    train(
        invoke,
        "sts-regression",
        tiny_bert,
        pairs,
        tmp_path / "m",
        "--max-steps",
        60,
        "--learning-rate",
        "3e-3",
        "--pooling",
        "mean",
    )
    losses = [line["regression"] for line in steps(tmp_path / "m")]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    opens_everywhere(tmp_path / "m", sentences)
    # after IS-BERT, whose convolutions stay
    train(invoke, "is-bert", tiny_bert, text, tmp_path / "is")
    train(invoke, "sts-regression", tmp_path / "is", pairs, tmp_path / "both")
    assert SentenceEncoder.load(tmp_path / "both").spec.pooling == "cnn+mean"
    for rows, message in [
        ('{"sentence1": "a", "score": 1}\n', ", line 1: .*'sentence2'"),
        ('{"sentence1": "a", "sentence2": "b", "score": "high"}\n', ", line 1: .*'high'"),
        ("", ": "),
    ]:
        (tmp_path / "bad.jsonl").write_text(rows)
        result = train(invoke, "sts-regression", tiny_bert, tmp_path / "bad.jsonl", tmp_path / "x", check=2)
        assert re.search(rf"bad\.jsonl{message}", " ".join(result.stderr.split()))
    wrong = train(invoke, "simcse", tiny_bert, text, tmp_path / "y", "--set", "objectives+=regression", check=2)
    assert re.search("regression .*--method sts-regression", wrong.stderr)


def test_sts_train_pairs_of_a_senteval_folder(data):
    from sentcli.training.data import Subset
    from sentcli.training.pairs import read_training_pairs

    whole, _ = read_training_pairs([str(data / "senteval")])
    assert len(whole.sentences) == len(whole.texts[1]) == 5749
    assert min(whole.scores) == 0 and max(whole.scores) == 1
    alone, _ = read_training_pairs(
        [str(data / "senteval" / "STS" / "STSBenchmark" / "sts-train.csv")], subset=Subset(10)
    )
    assert alone.sentences == whole.sentences[:10]


@pytest.mark.slow
def test_is_bert_with_relu_is_a_sentence_transformers_model_too(invoke, tiny_bert, text, tmp_path, sentences):
    train(invoke, "is-bert", tiny_bert, text, tmp_path / "m", "--set", "cnn.relu=true", "--learning-rate", "1e-3")
    opens_everywhere(tmp_path / "m", sentences)
    encoder = SentenceEncoder.load(tmp_path / "m")
    assert (encoder.encode(sentences) >= -1e-6).all()
    relu = encoder.torch_module.stack[1].linear.weight
    assert torch.equal(relu, torch.eye(len(relu))) and not relu.requires_grad
    other = train(invoke, "is-bert", tmp_path / "m", text, tmp_path / "o", check=2)
    assert "--set cnn.relu=true" in " ".join(other.stderr.split())
    train(invoke, "is-bert", tmp_path / "m", text, tmp_path / "o", "--set", "cnn.relu=true")
    assert SentenceEncoder.load(tmp_path / "o").spec.pooling == "cnn-relu+mean"
    result = train(invoke, "is-bert", tiny_bert, text, tmp_path / "n", "--pooling", "max")
    assert "--pooling max " in " ".join(result.stderr.split())


def test_contrastive_tension_keeps_the_encoder_that_is_asked_for(tiny_bert, text):
    from sentcli.training.loop import BestKeeper

    kept = {}
    for keep in ("first", "second", "best"):
        method = configure(METHODS["ct"], [("twin.keep", keep)])
        model = make_model(method, load_start(method, str(tiny_bert))[0])
        with torch.no_grad():
            model.second.backbone.embeddings.word_embeddings.weight.add_(1)
        second = model.second.backbone.embeddings.word_embeddings.weight.clone()
        BestKeeper(model, None, None, None, method.settings, None).restore_best()
        kept[keep] = torch.equal(model.encoder.backbone.embeddings.word_embeddings.weight, second)
    assert kept == {"first": False, "second": True, "best": True}


@pytest.mark.parametrize(("keep", "kept"), [("best", 2), ("second", 2), ("first", 1)])
@pytest.mark.parametrize("best_step", [0, 10])
def test_which_of_two_encoders_is_kept(tiny_bert, tmp_path, keep, kept, best_step):
    """The folder's weights are those of the encoder and the step that had the best score."""
    from sentcli.training.dev import DevSet
    from sentcli.training.loop import BestKeeper
    from sentcli.training.run_folder import RunFolder

    method = configure(METHODS["ct"], [("twin.keep", keep)])
    model = make_model(method, load_start(method, str(tiny_bert))[0])
    weights = [e.backbone.embeddings.word_embeddings.weight for e in (model.encoder, model.second)]
    scores = {id(model.encoder): 10.0, id(model.second): 20.0}
    step = 0

    def score(encoder, is_start):
        assert is_start == (step == 0)
        return {"dev_spearman": scores[id(encoder)] + (5 if step == best_step else 0)}

    dev = DevSet("STSBenchmark", "spearman", "dev_spearman", None)
    keeper = BestKeeper(model, RunFolder(tmp_path / "m"), score, None, method.settings, dev)
    snapshots = {}
    for step in (0, 10):
        with torch.no_grad():
            weights[1].add_(1)
            weights[0].add_(0.5)
        snapshots[step] = [weight.detach().clone() for weight in weights]
        keeper.evaluate(step)
    keeper.restore_best()
    assert (keeper.scores.best, keeper.scores.best_step) == (
        scores[id((model.encoder, model.second)[kept - 1])] + 5,
        best_step,
    )
    assert torch.equal(weights[0], snapshots[best_step][kept - 1])


def test_views_made_from_text(sentences):
    corpus = TrainingSentences(([s for s in sentences if s.strip()],), (), 0)
    rows = list(range(24))
    pairs = RandomPairs(negatives=7).texts(rows, corpus, np.random.default_rng(0))
    first, second = pairs.views
    assert pairs.matched.nonzero()[0].tolist() == [0, 8, 16]
    assert all(first[i] == second[i] for i in (0, 8, 16))
    assert sum(a != b for a, b in zip(first, second, strict=True)) >= 18
    plain, masked = SpanMask(span=5).texts(rows, corpus, np.random.default_rng(0)).views
    for before, after in zip(plain, masked, strict=True):
        if len(before) < 30:
            assert before == after
        else:
            left, right = after.split(" [MASK] ")
            assert before.startswith(left) and before.endswith(right)
            assert len(left) + len(right) + 5 == len(before)
    again = SpanMask(span=5).texts(rows, corpus, np.random.default_rng(0)).views[1]
    assert masked == again != SpanMask(span=5).texts(rows, corpus, np.random.default_rng(1)).views[1]


@pytest.mark.slow
def test_two_runs_of_each_method_have_the_same_bytes(invoke, tiny_bert, text, tmp_path):
    for method in ("micse", "infocse", "whitenedcse", "is-bert", "ct", "mirror-bert"):
        files = []
        for name in ("a", "b"):
            train(invoke, method, tiny_bert, text, tmp_path / method / name, "--max-steps", 3)
            files.append((tmp_path / method / name / "model.safetensors").read_bytes())
        assert files[0] == files[1], method


def test_the_momentum_encoder_starts_as_asked(tiny_bert):
    for start, equal in (("online", True), ("random", False)):
        method = configure(METHODS["micse"], [("momentum_init", start), ("ami.layers", "0:2")])
        model = make_model(method, load_start(method, str(tiny_bert))[0])
        memory = model.objectives["contrastive"].encoder
        pairs = zip(memory.parameters(), model.encoder.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs) == equal
        assert not any(p.requires_grad for p in memory.parameters())
        assert {part.p for part in memory.modules() if isinstance(part, torch.nn.Dropout)} == {0.3}


@pytest.mark.slow
def test_what_a_run_reads_is_not_replaced(invoke, tiny_bert, tiny_lm, text, tmp_path):
    train(invoke, "infocse", tiny_bert, text, tmp_path / "one", "--stage", "pretrain")
    before = (tmp_path / "one" / "model.safetensors").read_bytes()
    options = ("--aux-init", tmp_path / "one", "--overwrite")
    refused = train(invoke, "infocse", tiny_bert, text, tmp_path / "one", *options, check=2)
    assert re.search(f"{tmp_path}/one.*-o", " ".join(refused.stderr.split()))
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == before
    generator = ("--set", "objectives+=rtd", "--set", f"generator={tmp_path / 'one'}", "--overwrite")
    refused = train(invoke, "simcse", tiny_bert, text, tmp_path / "one", *generator, check=2)
    assert re.search(f"{tmp_path}/one.*-o", " ".join(refused.stderr.split()))


def test_a_generator_with_other_words_is_refused(invoke, tiny_lm, text, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_lm, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["cat"], vocabulary["dog"] = vocabulary["dog"], vocabulary["cat"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    options = ("--set", "objectives+=rtd", "--set", f"generator={other}")
    refused = train(invoke, "simcse", tiny_lm, text, tmp_path / "m", *options, check=2)
    assert f"generator {other} " in refused.stderr
    options = ("--set", "objectives+=rtd", "--set", f"generator={tiny_lm}")
    train(invoke, "simcse", tiny_lm, text, tmp_path / "m", *options)


def test_last_batches_that_are_too_small_are_left_out_and_said(invoke, tiny_bert, text, tmp_path):
    options = ("--set", "num_groups=4", "--limit", 37, "--max-steps", 5)
    result = train(invoke, "whitenedcse", tiny_bert, text, tmp_path / "m", *options)
    assert re.search(r"warning: .*\b5 .*\b9\b", " ".join(result.stderr.split()))


def test_the_length_that_was_trained_with_is_recorded(invoke, tiny_bert, text, tmp_path):
    result = train(invoke, "ct", tiny_bert, text, tmp_path / "m", "--json", tmp_path / "r.json")
    assert re.search(r"warning: ct .*\b40 ", " ".join(result.stderr.split()))
    assert json.loads((tmp_path / "m" / "sentcli.json").read_text())["settings"]["max_length"] == 40
    assert json.loads((tmp_path / "r.json").read_text())["protocol"]["max_length"] == 40


def test_an_added_objective_is_reported(invoke, tiny_bert, text, tmp_path):
    train(
        invoke, "simcse", tiny_bert, text, tmp_path / "m", "--set", "objectives+=ami", "--set", "ami.layers=0:2",
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert {"contrastive", "ami"} <= set(steps(tmp_path / "m")[0])
    assert json.loads((tmp_path / "r.json").read_text())["protocol"]["ami"]["layers"] == "0:2"
    config = json.loads((tmp_path / "m" / "sentcli.json").read_text())
    assert config["method"]["ami"]["weight"] == 2.5e-3
    assert "ami.layers" in (tmp_path / "m" / "README.md").read_text()
