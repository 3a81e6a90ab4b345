"""ESimCSE: which tokens are repeated, and the loss of some steps against the authors' formulas."""

import copy
import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from sentcli.methods import METHODS, configure
from sentcli.methods.views import WordRepetition
from sentcli.model.torch_backend import text_tokenizer
from sentcli.training.batches import BatchMaker, Order, to_tensors
from sentcli.training.data import read_corpus
from sentcli.training.prepare import load_start, make_model
from tests.methods.test_method import train


@pytest.mark.parametrize("length", [2, 3, 4, 7, 16, 32, 60])
@pytest.mark.parametrize("rate", [0.32, 0.9])
def test_as_many_tokens_are_repeated_as_in_the_authors_code(length, rate):
    """They draw the number by randrange(min(10, int(rate * length))), and the places from 1 to length - 2."""
    rng = np.random.default_rng(0)
    made = [WordRepetition(rate=rate).places(length, rng) for _ in range(400)]
    numbers = {len(places) - length for places in made}
    assert numbers == set(range(min(10, max(1, int(rate * length)), length - 1)))
    counts = np.array([np.bincount(places, minlength=length) for places in made])
    assert (counts[:, [0, -1]] == 1).all() and counts.min() == 1 and counts.max() <= 2
    assert all(places == sorted(places) for places in made)
    if max(numbers):
        assert (counts[:, 1:-1].max(axis=0) == 2).all()


@pytest.fixture
def maker(tiny_bert, text):
    """Batches of a tiny model, for a process of several."""
    encoder, _ = load_start(METHODS["esimcse"], str(tiny_bert))
    corpus = read_corpus([str(text)])

    def make(batch=16, rank=0, processes=1):
        tokenizer = text_tokenizer(encoder.hf_tokenizer, encoder.spec, 20)
        order = Order(len(corpus.sentences), batch, processes=processes)
        return BatchMaker(corpus, tokenizer, order, METHODS["esimcse"].views, rank=rank)

    return make


def test_view_2_is_longer_than_the_cut_text_and_new_at_each_step(maker):
    whole = maker(120)  # nearly all sentences, in another order in each epoch
    (batch,), (again,), (later,) = whole.step(0), whole.step(0), whole.step(whole.order.per_epoch)
    plain, longer = batch.views
    assert longer.ids == again.views[1].ids
    assert max(map(len, plain.ids)) == 20 < max(map(len, longer.ids))
    now = dict(zip(batch.rows, longer.ids, strict=True))
    assert any(now.get(row, ids) != ids for row, ids in zip(later.rows, later.views[1].ids, strict=True))


def test_processes_repeat_different_tokens_of_the_texts_of_one_process(maker):
    whole = maker(16).step(0)[0]
    parts = [maker(8, rank, 2).step(0)[0] for rank in range(2)]
    assert [ids for part in parts for ids in part.views[0].ids] == whole.views[0].ids
    same = [WordRepetition().tokens([part.views[0]], np.random.default_rng(3))[1] for part in parts]
    assert any(part.views[1].ids != one.ids for part, one in zip(parts, same, strict=True))


@pytest.mark.slow
def test_the_loss_of_some_steps_is_that_of_the_authors_formulas(tiny_bert, maker):
    """A queue that the momentum encoder fills with view 1, without dropout, after the loss."""
    method = configure(METHODS["esimcse"], [("dropout", 0.0), ("queue_size", 40), ("batch_size", 16)])
    encoder, _ = load_start(method, str(tiny_bert))
    torch.manual_seed(1)
    model = make_model(method, encoder).double().train()
    online, averaged = model.encoder.backbone, copy.deepcopy(model.encoder.backbone).eval()
    queue = torch.zeros(0, 32, dtype=torch.float64)

    def vectors(backbone, inputs):
        return torch.tanh(model.head.dense(backbone(**inputs).last_hidden_state[:, 0]))

    for number in range(4):
        (batch,) = maker().step(number)
        inputs = to_tensors(batch, 0, 2, torch.device("cpu"))
        loss, _ = model(inputs)
        with torch.no_grad():
            first, second = vectors(online, inputs).chunk(2)
            for mean, current in zip(averaged.parameters(), online.parameters(), strict=True):
                mean.copy_(0.995 * mean + 0.005 * current)
            candidates = torch.cat([second, queue])
            logits = functional.cosine_similarity(first[:, None], candidates[None], dim=-1) / 0.05
            assert loss.item() == pytest.approx(functional.cross_entropy(logits, torch.arange(16)).item(), rel=1e-6)
            queue = torch.cat([queue, vectors(averaged, {k: v[:16] for k, v in inputs.items()})])[-40:]
            for parameter in online.parameters():  # stands for the step of the optimiser
                parameter.add_(0.05 * torch.randn_like(parameter))
    assert len(queue) == 40


def test_repeated_tokens_have_to_fit_the_positions(invoke, tiny_bert, text, tmp_path):
    result = train(invoke, "esimcse", tiny_bert, text, tmp_path / "long", "--max-length", 40, check=2)
    assert "40 positions" in result.stderr and not (tmp_path / "long").exists()
    train(invoke, "esimcse", tiny_bert, text, tmp_path / "m")
    assert json.loads((tmp_path / "m" / "run.json").read_text())["settings"]["max_length"] == 40 - 9
