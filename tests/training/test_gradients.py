"""The gradient of a step, however it is made: at once, through a cache, over several batches, in half precision."""

import gc
import json
import re
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pytest
import torch

from sentcli.errors import InputError
from sentcli.methods import METHODS, configure
from sentcli.model import surgery
from sentcli.model.torch_backend import text_tokenizer
from sentcli.precision import half_precision_supported
from sentcli.training.batches import BatchMaker, Order, to_tensors
from sentcli.training.data import read_corpus
from sentcli.training.gradients import Gradients
from sentcli.training.prepare import load_start, make_model, seed_everything
from tests.conftest import save_backbone

CPU = torch.device("cpu")


def prepared(folder, text, method="simcse", *, batch=16, steps=1, **settings):
    """A model in float64 and the batches of its first steps."""
    chosen = configure(
        METHODS[method], [("batch_size", batch), *((k.replace("__", "."), v) for k, v in settings.items())]
    )
    seed_everything(3)
    encoder, _ = load_start(chosen, str(folder), device="cpu")
    model = make_model(chosen, encoder).double().train()
    tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, 20)
    corpus = read_corpus([str(text)])
    order = Order(len(corpus.sentences), batch)
    maker = BatchMaker(corpus, tokenizer, order, chosen.views, chosen.settings.accumulate)
    made = [maker.step(i) for i in range(steps)]
    tensors = [[to_tensors(b, tokenizer.pad_id, chosen.views.count, CPU) for b in step] for step in made]
    return Gradients(model, chosen.settings), tensors


def gradient(gradients, batches):
    torch.manual_seed(9)
    values, norm, _ = gradients.collect(batches)
    found = {name: p.grad.clone() for name, p in gradients.model.named_parameters() if p.grad is not None}
    gradients.optimizer.zero_grad()
    return (values, norm), found


@pytest.mark.drawn
@pytest.mark.parametrize("size", [1, 5, 16, 100])
@pytest.mark.parametrize("method", ["simcse", "informin-cl", "micse", "whitenedcse", "mirror-bert", "ct", "infocse"])
def test_gradient_caching_gives_the_same_gradient(tiny_bert, text, method, size):
    settings = {"dropout": 0.0, "views": "copies"}
    if method == "micse":
        settings |= {"objectives-": "ami", "queue_size": 20, "momentum_dropout": 0.0}
    if method == "infocse":
        settings |= {"objectives-": "auxiliary-mlm"}
    if method == "whitenedcse":
        settings |= {"views": "3"}
    found = []
    for cached in (0, size):
        gradients, batches = prepared(tiny_bert, text, method, clip_norm=0, mini_batch_size=cached, **settings)
        found.append(gradient(gradients, batches[0]))
    ((whole, whole_norm), expected), ((values, norm), got) = found
    assert values == pytest.approx(whole, rel=1e-12)
    assert norm == pytest.approx(whole_norm, rel=1e-10)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_gradient_caching_draws_the_same_dropout_twice(tiny_bert, text):
    gradients, batches = prepared(tiny_bert, text, mini_batch_size=5)
    seen, encode = [], gradients.model.vectors

    def watched(encoder, rows):
        seen.append(encode(encoder, rows))
        return seen[-1]

    gradients.model.vectors = watched
    gradient(gradients, batches[0])
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert len(first) == 4 and not first[0].requires_grad and second[0].requires_grad
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one, two)
    assert len({tuple(row.tolist()) for part in first for row in part}) == 32  # and every row its own


@pytest.mark.parametrize(
    ("method", "sight"),
    [("micse", "ami"), ("is-bert", "jsd"), ("infocse", "auxiliary-mlm")],
)
def test_where_gradient_caching_would_be_wrong_it_is_refused(tiny_bert, text, method, sight):
    small = (
        {"ami__layers": "0:2"} if method == "micse" else {"skip_from": 1, "layers": 1} if method == "infocse" else {}
    )
    with pytest.raises(InputError, match=f"mini_batch_size.*{sight} "):
        prepared(tiny_bert, text, method, mini_batch_size=8, **small)


def test_accumulated_batches_give_the_mean_of_their_gradients(tiny_bert, text):
    plain = {"dropout": 0.0, "clip_norm": 0}
    single, batches = prepared(tiny_bert, text, steps=3, **plain)
    parts = [gradient(single, batch) for batch in batches]
    joined, windows = prepared(tiny_bert, text, accumulate=3, **plain)
    assert len(windows[0]) == 3
    (values, _), got = gradient(joined, windows[0])
    assert values["loss"] == pytest.approx(np.mean([part["loss"] for (part, _), _ in parts]), rel=1e-12)
    for name, value in got.items():
        torch.testing.assert_close(value, sum(found[name] for _, found in parts) / 3, rtol=1e-9, atol=1e-12, msg=name)


def test_grouping_by_length_stays_inside_a_step(text):
    from sentcli.methods.views import Copies

    corpus = read_corpus([str(text)])
    plain = BatchMaker(corpus, lambda texts: None, Order(len(corpus.sentences), 8), Copies(), accumulate=4)
    grouped = BatchMaker(corpus, lambda texts: None, plain.order, Copies(), accumulate=4, group_by_length=True)
    for number in range(3):
        one, two = ([list(batch.rows) for batch in maker.step(number)] for maker in (plain, grouped))
        assert sorted(chain(*one)) == sorted(chain(*two)) and [len(b) for b in one] == [len(b) for b in two]
        spans = [[len(corpus.sentences[row]) for row in batch] for batch in two]
        assert all(max(first) <= min(second) for first, second in pairwise(spans))


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_process_has_as_many_matching_rows(text, processes):
    """InfoNCE beside Contrastive Tension gathers them."""
    from sentcli.methods.views import RandomPairs

    corpus = read_corpus([str(text)])
    order = Order(len(corpus.sentences), 7, processes=processes)
    makers = [
        BatchMaker(corpus, lambda texts: None, order, RandomPairs(negatives=3), rank=rank) for rank in range(processes)
    ]
    for number in range(order.per_epoch):  # the last is smaller
        batches = [maker.step(number)[0] for maker in makers]
        assert len({int(batch.texts.matched.sum()) for batch in batches}) == 1
        assert list(chain(*(batch.rows for batch in batches))) == order.batch(number)
        for batch in batches:
            assert [corpus.sentences[row] for row in batch.rows] == batch.texts.views[0]


def test_the_share_of_each_term_in_the_gradient(tiny_bert, text):
    gradients, batches = prepared(tiny_bert, text, "informin-cl", dropout=0.1)
    torch.manual_seed(9)
    *_, shares = gradients.collect(batches[0], measure=True)
    encoder = [p for p in gradients.model.encoder.parameters() if p.requires_grad]
    norms = {}
    for name in shares:
        torch.manual_seed(9)
        _, terms = gradients.model(batches[0][0])
        weighted = gradients.model.weights[name] * terms[name]
        found = torch.autograd.grad(weighted, encoder, allow_unused=True)
        norms[name] = float(torch.cat([g.flatten() for g in found if g is not None]).norm())
    assert set(shares) == {"contrastive", "reconstruction"}
    for name, norm in norms.items():
        assert shares[name] == pytest.approx(norm / sum(norms.values()), rel=1e-9)


@pytest.mark.slow
def test_shares_are_measured_now_and_then_and_change_nothing(invoke, tiny_bert, text, tmp_path):
    for every in (0, 3):
        invoke(
            "train", "--method", "informin-cl", "-m", tiny_bert, "--data", text, "-o", tmp_path / str(every),
            "--batch-size", 16, "--max-steps", 6, "--set", f"share_every={every}", check=0,
        )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "3" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "share_contrastive" in line] == [1, 3, 6]
    assert lines[0]["share_contrastive"] + lines[0]["share_reconstruction"] == pytest.approx(1)
    weights = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in "03"]
    assert weights[0] == weights[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert", "mpnet", "modernbert"])
def test_the_last_layer_at_the_first_token_alone(tmp_path, sentences, kind, monkeypatch):
    """The same vectors and the same gradients as with all tokens, where the architecture allows it."""
    from sentcli import SentenceEncoder

    encoder = SentenceEncoder.load(save_backbone(tmp_path / kind, kind=kind), pooling="cls")
    module = encoder.torch_module
    assert module.first_token_suffices == (kind in ("bert", "roberta", "electra"))
    assert not SentenceEncoder.load(tmp_path / kind, pooling="mean").torch_module.first_token_suffices
    tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, 20)
    from sentcli.methods.views import BatchTexts
    from sentcli.training.batches import TrainingBatch

    batch = to_tensors(TrainingBatch([tokenizer(sentences[:12])], BatchTexts([])), tokenizer.pad_id, 1, CPU)
    module = module.double()
    found = []
    for short in (True, False):
        module.zero_grad()
        features = module.features(batch, sentence_only=short)
        assert features.tokens.shape[1] == (1 if short and module.first_token_suffices else batch["input_ids"].shape[1])
        (features.sentence * torch.arange(features.sentence.shape[1])).sum().backward()
        found.append(
            (features.sentence, {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None})
        )
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-10, atol=1e-12)
    assert found[0][1].keys() == found[1][1].keys()
    for name, value in found[1][1].items():
        torch.testing.assert_close(found[0][1][name], value, rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.slow
def test_a_copy_of_the_encoder_has_a_last_layer_of_its_own(tiny_bert, sentences):
    """What takes an encoder apart or copies it sees all tokens; threads do not disturb each other."""
    import copy
    from concurrent.futures import ThreadPoolExecutor

    from sentcli import SentenceEncoder

    encoder = SentenceEncoder.load(tiny_bert, pooling="cls")
    twin = copy.deepcopy(encoder.torch_module)
    layers = [surgery.layer_list(module.backbone)[1] for module in (encoder.torch_module, twin)]
    assert layers[1][-1].forward.layer is layers[1][-1] is not layers[0][-1]
    ids = torch.tensor([[2, 5, 6, 3]])
    assert twin.backbone(input_ids=ids).last_hidden_state.shape == (1, 4, 32)
    expected = encoder.encode(sentences)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: encoder.encode(sentences), range(8)):
            np.testing.assert_array_equal(vectors, expected)


def train(invoke, model, text, out, *options, check=0):
    return invoke(
        "train", "--method", "simcse", "-m", model, "--data", text, "-o", out, "--batch-size", 16, *options, check=check
    )


@pytest.mark.slow
@pytest.mark.skipif(not half_precision_supported(CPU, "bf16"), reason="this processor does not compute in bf16")
def test_bf16_trains_like_fp32(invoke, tiny_bert, text, tmp_path):
    losses = {}
    for precision in ("fp32", "bf16"):
        train(
            invoke, tiny_bert, text, tmp_path / precision, "--max-steps", 40, "--learning-rate", "3e-3", "--set",
            f"precision={precision}",
        )  # fmt: skip
        lines = [json.loads(line) for line in (tmp_path / precision / "metrics.jsonl").read_text().splitlines()]
        losses[precision] = [line["loss"] for line in lines]
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"][0] == pytest.approx(losses["fp32"][0], rel=0.02)
    assert np.mean(losses["bf16"][-5:]) < 0.7 * losses["bf16"][0]


def test_half_precision_is_refused_where_it_would_be_slow(invoke, tiny_bert, text, tmp_path, monkeypatch):
    from sentcli import precision

    monkeypatch.setattr(precision, "half_precision_supported", lambda device, name: False)
    result = train(invoke, tiny_bert, text, tmp_path / "m", "--set", "precision=bf16", check=2)
    assert re.search("cpu .*bf16", " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists()


def test_a_gradient_that_is_not_a_number_stops_before_the_weights_change(
    invoke, tiny_bert, text, tmp_path, monkeypatch
):
    """The batch is kept with its rows and texts."""
    clip, calls = torch.nn.utils.clip_grad_norm_, 0

    def nan(parameters, largest):
        nonlocal calls
        calls += 1
        return clip(parameters, largest) if calls < 3 else torch.tensor(float("nan"))

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", nan)
    result = train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 5, check=1)
    message = " ".join(result.stderr.split())
    assert re.search(r"step 3: .*gradient .*nan.*failed-batch\.json", message)
    failed = json.loads((tmp_path / "m" / "failed-batch.json").read_text())
    sentences = text.read_text().splitlines()
    assert failed["step"] == 3 and len(failed["rows"][0]) == 16
    assert failed["views"][0][0] == [sentences[row] for row in failed["rows"][0]]
    assert not (tmp_path / "m" / "model.safetensors").exists()


@pytest.mark.deep
def test_compiling_without_a_compiler(run, tiny_bert, text, tmp_path):
    """In a process of its own, since torch remembers which compiler it found."""
    env = {"CXX": "/nonexistent/g++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    result = train(partial(run, env=env), tiny_bert, text, tmp_path / "m", "--set", "compile=true", check=2)
    assert re.search(r"compile=true.*/nonexistent/g\+\+", " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists()


@pytest.mark.deep
def test_compile(invoke, tiny_bert, text, tmp_path):
    """The compiled encoder trains the same model."""
    import shutil

    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    for name, compiled in (("a", "false"), ("b", "true")):
        options = ["--max-steps", 3, "--set", "dropout=0.0", "--set", "drop_heads=0.0", "--set", f"compile={compiled}"]
        train(
            invoke,
            save_backbone(tmp_path / f"model-{name}"),
            text,
            tmp_path / name,
            "--set",
            "views=span-mask",
            *options,
        )
    from safetensors.torch import load_file

    one, two = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert one.keys() == two.keys()
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=1e-3, atol=1e-4, msg=key)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["simcse", "informin-cl", "micse", "infocse", "is-bert", "whitenedcse", "mlm", "ct", "mirror-bert", "esimcse"],
)
def test_a_step_leaves_no_tensors_to_the_garbage_collector(method, invoke, tiny_bert, text, tmp_path):
    """A circle of references holds the token vectors and attentions of a step until the collector happens to run."""
    from sentcli.objectives import Views

    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        options = ("--max-steps", 3, "--batch-size", 8, "-o", tmp_path / "m")
        invoke("train", "--method", method, "-m", tiny_bert, "--data", text, *options, check=0)
        gc.collect()
        assert not [found for found in gc.garbage if isinstance(found, Views)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
