"""Losses against their peers and against plain loops; what the golden files do not cover."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sentcli.methods.heads import WhiteningHead
from sentcli.model import attention
from sentcli.objectives import (
    AttentionMI,
    Contrastive,
    Views,
    Vocabulary,
    attention_mutual_information,
    contrastive_tension_loss,
    cosine_regression_loss,
    info_nce,
    masked_lm,
    multi_positive_info_nce,
    nt_xent,
    reconstruction_loss,
    shuffled_group_whitening,
)
from sentcli.objectives.masked_lm import IGNORED, LMHead, mask_tokens
from sentcli.objectives.mutual_information import chosen_layers, draw, draw_with_replacement
from tests.conftest import make_backbone
from tests.examples import examples


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Fixed(torch.nn.Module):
    """Stands in for a sentence-transformers model: hands on given vectors."""

    def __init__(self, *vectors):
        super().__init__()
        self.vectors = list(vectors)

    def forward(self, features):
        return {"sentence_embedding": self.vectors[features]}


def test_info_nce_is_sentence_transformers_multiple_negatives_ranking_loss():
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    first, second = random(8, 16), random(8, 16, seed=1)
    theirs = MultipleNegativesRankingLoss(Fixed(first, second), scale=20.0)([0, 1], None)
    torch.testing.assert_close(info_nce(first, second, 0.05), theirs)
    extra = random(5, 16, seed=2)
    logits = torch.nn.functional.cosine_similarity(first[:, None], torch.cat([second, extra])[None], dim=-1) / 0.05
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(8))
    torch.testing.assert_close(info_nce(first, second, 0.05, extra), expected)


def test_regression_is_sentence_transformers_cosine_similarity_loss():
    from sentence_transformers.losses import CosineSimilarityLoss

    first, second, scores = random(8, 16), random(8, 16, seed=1), torch.rand(8, dtype=torch.float64)
    theirs = CosineSimilarityLoss(Fixed(first, second))([0, 1], scores)
    torch.testing.assert_close(cosine_regression_loss(first, second, scores), theirs)


def test_contrastive_tension_is_the_sum_or_mean_of_binary_cross_entropies():
    first, second = random(16, 8), random(16, 8, seed=1)
    matched = torch.arange(16) % 8 == 0
    scores = (first * second).sum(dim=1)
    signs = torch.where(matched, 1.0, -1.0)
    expected = torch.nn.functional.softplus(-signs * scores)
    torch.testing.assert_close(contrastive_tension_loss(first, second, matched), expected.mean())
    torch.testing.assert_close(contrastive_tension_loss(first, second, matched, "sum"), expected.sum())


def test_nt_xent_counts_both_views_as_anchors_and_as_negatives():
    first, second = random(4, 6), random(4, 6, seed=1)
    rows = torch.nn.functional.normalize(torch.cat([first, second]), dim=1)
    terms = []
    for i in range(8):
        logits = [rows[i] @ rows[j] / 0.04 for j in range(8) if j != i]
        target = rows[i] @ rows[(i + 4) % 8] / 0.04
        terms.append(torch.logsumexp(torch.stack(logits), 0) - target)
    torch.testing.assert_close(nt_xent(first, second, 0.04), torch.stack(terms).mean())


def test_identical_vectors_and_wrong_shapes():
    same = torch.ones(4, 3)
    assert info_nce(same, same).item() == pytest.approx(math.log(4))
    with pytest.raises(ValueError, match=r"\(4, 3\).*\(3, 3\)"):
        info_nce(torch.ones(4, 3), torch.ones(3, 3))
    with pytest.raises(ValueError, match="m >= 2"):
        multi_positive_info_nce(torch.ones(1, 4, 3))
    with pytest.raises(ValueError, match="l1"):
        reconstruction_loss(same, same, "l1")


def test_duplicates_are_not_negatives():
    first, second, queue = random(6, 8), random(6, 8, seed=1), random(3, 8, seed=2)
    groups = torch.tensor([0, 1, 0, 2, 3, 1])
    logits = torch.nn.functional.cosine_similarity(first[:, None], torch.cat([second, queue])[None], dim=-1) / 0.05
    for i, j in [(0, 2), (2, 0), (1, 5), (5, 1)]:
        logits[i, j] = -torch.inf
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(6))
    torch.testing.assert_close(info_nce(first, second, 0.05, queue, texts=torch.stack([groups, groups])), expected)
    ids = torch.tensor([[2, 7, 3], [2, 8, 3], [2, 7, 3]]).repeat(2, 1)
    both = torch.stack([first[:3], second[:3]])
    views = Views({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, projected=both, pooled=both)
    masked = Contrastive(mask_duplicates=True)(views)
    torch.testing.assert_close(masked, info_nce(first[:3], second[:3], texts=torch.tensor([[0, 1, 0]] * 2)))
    assert masked < Contrastive()(views)


def test_positives_only_ignores_the_negatives():
    first, second = random(6, 8), random(6, 8, seed=1)
    positive = torch.nn.functional.cosine_similarity(first, second) / 0.05
    expected = (torch.log(positive.exp() + 5) - positive).mean()
    torch.testing.assert_close(info_nce(first, second, 0.05, positives_only=True), expected)


GATHERED = """
import sys, torch, torch.distributed as dist
from sentcli.objectives import Contrastive, Views, info_nce
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
generator = torch.Generator().manual_seed(0)
whole = torch.randn(2, 8, 6, generator=generator, dtype=torch.float64)
groups = torch.tensor([0, 1, 2, 3, 0, 5, 6, 7])
mine = slice(4 * rank, 4 * rank + 4)
a, b = (x[mine].clone().requires_grad_() for x in whole)
loss = info_nce(a, b, texts=groups[mine].repeat(2, 1), cross_device=True)
loss.backward()
c, d = (x.clone().requires_grad_() for x in whole)
one = info_nce(c, d, texts=groups.repeat(2, 1))
one.backward()
total = loss.detach().clone()
dist.all_reduce(total)
torch.testing.assert_close(total / 2, one.detach())
words = [7, 8, 9, 5, 7, 4, 10, 6]  # texts 0 and 4 are equal, in different processes
ids = torch.tensor([[2, word, 3, 0] if word != 9 else [2, word, word, 3] for word in words])
def views(rows, width):  # each process pads to its own longest text
    part = ids[rows, :width]
    inputs = {"input_ids": part.repeat(2, 1), "attention_mask": (part > 0).long().repeat(2, 1)}
    return Views(inputs, projected=whole[:, rows], pooled=whole[:, rows])
term = Contrastive(mask_duplicates=True)
mine_of_two = term(views(mine, 3 if rank else 4))
dist.all_reduce(mine_of_two)
alone = info_nce(*whole, texts=torch.tensor([[0, 1, 2, 3, 0, 5, 6, 7]] * 2))
torch.testing.assert_close(mine_of_two / 2, alone)
for part, full in ((a, c), (b, d)):  # data parallelism averages gradients over the processes
    torch.testing.assert_close(part.grad / 2, full.grad[mine])
triplets = torch.randn(3, 8, 6, generator=generator, dtype=torch.float64)
texts = torch.arange(24).view(3, 8)
texts[2, 1] = texts[1, 6]  # a hard negative of the first process is a positive of the second
def of_triplets(rows, **options):
    leaves = [x[rows].clone().requires_grad_() for x in triplets]
    hard = {"hard_negatives": leaves[2][None], "hard_negative_weight": 2.0}
    value = info_nce(leaves[0], leaves[1], texts=texts[:, rows], **hard, **options)
    value.backward()
    return value.detach(), leaves
mine_of_two, parts = of_triplets(mine, cross_device=True)
alone, wholes = of_triplets(slice(0, 8))
dist.all_reduce(mine_of_two)
torch.testing.assert_close(mine_of_two / 2, alone)
for part, full in zip(parts, wholes):
    torch.testing.assert_close(part.grad / 2, full.grad[mine])
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_give_the_loss_and_gradients_of_one(tmp_path):
    runs = [
        subprocess.Popen([sys.executable, "-c", GATHERED, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for run in runs:
        _, stderr = run.communicate(timeout=120)
        assert run.returncode == 0, stderr.decode()


def attentions(seed, layers=2, batch=3, heads=4, width=7):
    scores = random(layers, batch, heads, width, width, seed=seed)
    return scores.softmax(dim=-1)


def test_mutual_information_grows_with_agreement_and_is_bounded():
    first, noise = attentions(0), attentions(1)
    lengths = torch.tensor([7, 7, 7])
    arguments = {"samples": None, "scale_by_share": False}
    values = [
        attention_mutual_information(first, (1 - t) * noise + t * first, lengths, **arguments).item()
        for t in (0.0, 0.5, 0.9, 1.0)
    ]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(0.5 * math.log(1e6))  # the floor of 1 - rho^2
    assert 0 <= values[0] < 0.2


def test_gradients_stay_finite_where_attention_vanishes():
    first, second = attentions(0).float(), attentions(1).float()
    first[..., :3] = 1e-42
    second[:, 1, :, :, 5:] = 0
    first.requires_grad_()
    attention_mutual_information(first, second, torch.tensor([7, 5, 7]), samples=20).backward()
    assert bool(torch.isfinite(first.grad).all())
    # a batch in which nothing is common: no information, and no NaN
    nothing = attention_mutual_information(first * 0, second, torch.tensor([7, 5, 7]))
    assert nothing.item() == 0


def test_a_draw_repeats_with_its_generator():
    first, second, lengths = attentions(0), attentions(1), torch.tensor([7, 6, 5])

    def once(seed):
        return attention_mutual_information(
            first, second, lengths, samples=10, generator=torch.Generator().manual_seed(seed)
        ).item()

    assert once(3) == once(3) != once(4)


@pytest.mark.parametrize(("slicing", "real"), [("head-pairs", False), ("layer-pairs", True), ("layer-pairs", False)])
def test_padding_makes_the_term_smaller_only_in_the_codes_form(slicing, real):
    """Longer padding, which another sentence of the batch brings, is no reason for another weight of the term."""
    views = [torch.rand(2, 3, 4, 6, 6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    lengths = torch.tensor([6, 6, 6])
    values = [
        attention_mutual_information(
            *(torch.nn.functional.pad(view, (0, padding, 0, padding)) for view in views),
            lengths, slicing, None, True, real_queries=real,
        )
        for padding in (0, 6)
    ]  # fmt: skip
    plain = attention_mutual_information(*views, lengths, slicing, None, False)
    torch.testing.assert_close(values[0], plain * (1 + 1e-6))
    codes_form = slicing == "layer-pairs" and not real
    torch.testing.assert_close(values[1], plain * ((1 / 16 if codes_form else 1) + 1e-6))


@examples(30)
@given(st.integers(1, 6), st.integers(3, 40), st.integers(1, 20), st.integers(0, 2**31))
def test_draws_are_distinct_and_true(slices, width, samples, seed):
    joint = torch.rand(slices, width, generator=torch.Generator().manual_seed(seed)) < 0.6
    joint[:, 0] = True
    kept, positions = draw(joint, samples)
    assert bool(joint[kept].gather(1, positions).all())
    assert all(len(set(row)) == len(row) for row in positions.tolist())
    enough = (joint.sum(dim=1) >= samples).nonzero().squeeze(1).tolist()
    assert kept.tolist() == (enough or list(range(slices)))
    assert positions.shape[1] == (samples if enough else int(joint.sum(dim=1).min()))


def test_each_positive_of_whitenedcse_may_have_its_own_weight():
    views = random(3, 6, 8)
    first, second = (info_nce(views[0], views[m]) for m in (1, 2))
    torch.testing.assert_close(multi_positive_info_nce(views, lambdas=(1.0, 0.25)), first + 0.25 * second)
    torch.testing.assert_close(multi_positive_info_nce(views), first + second)


def test_a_draw_with_replacement_takes_each_true_position_as_often():
    joint = torch.tensor([[True, False, True, True, False], [False, True, False, False, False]])
    kept, positions = draw_with_replacement(joint, 9000, torch.Generator().manual_seed(1))
    assert kept.tolist() == [0, 1] and positions.shape == (2, 1)  # no slice has as many: the smallest count is drawn
    joint = joint.repeat(1, 4000)
    kept, positions = draw_with_replacement(joint, 3000, torch.Generator().manual_seed(1))
    assert kept.tolist() == [0, 1] and joint.gather(1, positions).all()
    assert len(positions[1].unique()) < 3000  # some twice
    shares = torch.bincount(positions[0] % 5, minlength=5) / 3000
    assert torch.allclose(shares, torch.tensor([1, 0, 1, 1, 0]) / 3, atol=0.03)


@pytest.mark.parametrize(
    ("text", "depth", "layers"),
    [
        ("-5:-1", 12, (7, 8, 9, 10)),
        ("-5:-1", 6, (1, 2, 3, 4)),
        ("auto", 24, (19, 20, 21, 22)),
        ("auto", 12, (7, 8, 9, 10)),
        ("auto", 6, (1, 2, 3, 4)),
        ("auto", 5, (0, 1, 2, 3)),
        ("auto", 4, (1, 2)),
        ("auto", 3, (0, 1)),
        ("auto", 2, (0, 1)),
        ("7:11", 12, (7, 8, 9, 10)),
        ("0.58:0.92", 12, (7, 8, 9, 10)),
        ("0.58:0.92", 24, tuple(range(14, 22))),
        ("0.0:1.0", 6, tuple(range(6))),
    ],
)
def test_layers_as_numbers_and_as_shares_of_the_depth(text, depth, layers):
    assert chosen_layers(text, depth) == layers
    assert AttentionMI(layers=text).attention_layers(depth) == layers


@examples(25)
@given(st.sampled_from([1, 2, 3, 4, 6, 12]), st.integers(13, 40), st.integers(0, 2**31))
def test_whitened_groups_have_unit_covariance(groups, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, 12, generator=generator, dtype=torch.float64) @ random(12, 12)
    order = torch.randperm(12, generator=generator)
    out = shuffled_group_whitening(features, groups, order)
    covariance = torch.cov(out.T, correction=0)[order][:, order]
    width = 12 // groups
    for g in range(groups):
        block = covariance[g * width : (g + 1) * width, g * width : (g + 1) * width]
        torch.testing.assert_close(block, torch.eye(width, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(out.mean(dim=0), torch.zeros(12, dtype=torch.float64), atol=1e-9, rtol=0)


def test_whitening_that_cannot_be():
    with pytest.raises(ValueError, match=r"5 .*12 "):
        shuffled_group_whitening(random(64, 12), 5, torch.arange(12))
    with pytest.raises(ValueError, match=r"6 rows .*6 columns"):
        shuffled_group_whitening(random(6, 12), 2, torch.arange(12))


@pytest.mark.parametrize("kind", ["zca", "pca"])
def test_full_whitening_approaches_the_identity_as_its_statistics_run(kind):
    head = WhiteningHead(kind=kind, statistics_momentum=0.5, eps=1e-6).build(6, 4).double()
    mixing = random(6, 6)
    for step in range(60):  # batches of 4 rows, fewer than the 6 columns
        head.whiten(random(4, 6, seed=step) @ mixing)
    head.settings = WhiteningHead(kind=kind, statistics_momentum=0.98)
    for step in range(400):
        head.whiten(random(40, 6, seed=1000 + step) @ mixing)
    out = head.whiten(random(20000, 6, seed=7) @ mixing)
    torch.testing.assert_close(torch.cov(out.T), torch.eye(6, dtype=torch.float64), atol=0.15, rtol=0)


def test_masking_leaves_special_tokens_and_follows_the_shares():
    torch.manual_seed(0)
    vocabulary = Vocabulary(1000, 4, frozenset({0, 2, 3}), 0)
    ids = torch.randint(10, 1000, (200, 60))
    ids[:, 0], ids[:, 50], ids[:, 51:] = 2, 3, 0
    masked, labels = mask_tokens(ids, vocabulary, 0.3)
    chosen = labels != IGNORED
    assert not bool(chosen[:, [0, *range(50, 60)]].any())
    assert torch.equal(labels[chosen], ids[chosen])
    assert torch.equal(masked[~chosen], ids[~chosen])
    assert chosen[:, 1:50].float().mean().item() == pytest.approx(0.3, abs=0.02)
    became_mask = (masked[chosen] == 4).float().mean().item()
    stayed = (masked[chosen] == ids[chosen]).float().mean().item()
    assert became_mask == pytest.approx(0.8, abs=0.03)
    assert stayed == pytest.approx(0.1, abs=0.02)


def test_whole_words_are_masked_together_and_as_often():
    vocabulary = Vocabulary(1000, 4, frozenset({0, 2, 3, 4}), 0, torch.arange(1000) >= 500)
    row = [2, *[10, 600, 700, 11, 12, 800] * 40, 3, 0, 0]
    torch.manual_seed(0)
    _, labels = mask_tokens(torch.tensor([row] * 200), vocabulary, 0.15, whole_words=True)
    chosen = (labels != -100)[:, 1:-3].view(200, 40, 6)
    assert (chosen[..., 0] == chosen[..., 1]).all() and (chosen[..., 1] == chosen[..., 2]).all()  # 10 600 700
    assert (chosen[..., 4] == chosen[..., 5]).all() and (chosen[..., 3] != chosen[..., 4]).any()  # 11 | 12 800
    assert chosen.float().mean() == pytest.approx(0.15, abs=0.01)
    assert (labels[:, [0, -3, -2, -1]] == -100).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "mpnet", "albert", "electra", "modernbert"])
def test_recorded_attention_is_what_transformers_returns(kind):
    backbone, _ = make_backbone(kind, layers=3)
    ids = torch.randint(5, 40, (4, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 9:] = mask[2, 3:] = 0
    backbone.set_attn_implementation("eager")
    with torch.no_grad():
        expected = backbone(input_ids=ids, attention_mask=mask, output_attentions=True)
        installed = attention.install(backbone)
        assert installed == (kind != "mpnet")
        with attention.recording(backbone, (0, 2)) as recorder:
            options = {} if recorder else {"output_attentions": True}
            output = backbone(input_ids=ids, attention_mask=mask, **options)
    weights = recorder.weights if recorder else dict(enumerate(output.attentions))
    real = mask.bool()
    for layer in (0, 2):
        ours, theirs = (w.transpose(1, 2)[real] for w in (weights[layer], expected.attentions[layer]))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
        assert float((weights[layer] * (mask[:, None, None] == 0)).abs().max()) == 0  # padded keys: exact zeros
    torch.testing.assert_close(output.last_hidden_state[real], expected.last_hidden_state[real], atol=1e-5, rtol=1e-4)


def test_dropped_heads_are_whole_and_rescaled():
    torch.manual_seed(0)
    out = attention.drop_heads(torch.ones(500, 3, 8, 4), 0.25)
    per_head = out[:, 0, :, 0]
    assert bool((out == per_head[:, None, :, None]).all())
    torch.testing.assert_close(per_head.sum(dim=1), torch.full((500,), 8.0))
    assert (per_head == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert bool((attention.drop_heads(torch.ones(50, 1, 4, 1), 0.999).sum(dim=2) == 4).all())  # one head stays


def test_float32_and_float64_agree():
    first, second = attentions(0), attentions(1)
    lengths = torch.tensor([7, 6, 5])
    wide = attention_mutual_information(first, second, lengths, samples=None)
    narrow = attention_mutual_information(first.float(), second.float(), lengths, samples=None)
    np.testing.assert_allclose(narrow, wide, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"positives_only": True}, {"grouped": True}, {"queue": True}])
def test_a_large_table_of_cosines_is_made_in_parts(monkeypatch, options):
    """The same loss and gradient, never more cosines at a time than allowed."""
    from sentcli.objectives import contrastive

    rng = torch.Generator().manual_seed(0)
    found = []
    for largest in (2**22, 50):
        anchors, positives = (torch.randn(20, 6, generator=rng.manual_seed(i), dtype=torch.float64) for i in (1, 2))
        anchors.requires_grad_(), positives.requires_grad_()
        texts = (torch.arange(20) // 2).repeat(2, 1) if "grouped" in options else None
        queue = torch.randn(7, 6, generator=rng.manual_seed(3), dtype=torch.float64) if "queue" in options else None
        sizes, cosines = [], contrastive.cosines
        monkeypatch.setattr(contrastive, "LARGEST_TABLE", largest)
        monkeypatch.setattr(
            contrastive, "cosines", lambda a, b, c=cosines, s=sizes: (s.append(len(a) * len(b)), c(a, b))[1]
        )
        loss = contrastive.info_nce(
            anchors, positives, 0.1, queue, texts=texts, positives_only=options.get("positives_only", False)
        )
        loss.backward()
        monkeypatch.undo()
        assert max(sizes) <= largest
        found.append((loss.detach(), anchors.grad, positives.grad))
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("tied", [True, False])
def test_words_are_scored_in_parts_and_their_scores_are_not_kept(monkeypatch, tied):
    backbone, _ = make_backbone()
    head = LMHead(backbone, tied=tied).double()
    backbone.double()
    words = len(head.bias)
    hidden, labels = random(3, 20, backbone.config.hidden_size), torch.randint(words, (3, 20))
    labels[0, 5:] = labels[2] = IGNORED
    hidden.requires_grad_()
    weights = [hidden, *head.parameters(), *([backbone.get_input_embeddings().weight] if tied else [])]

    whole = torch.nn.functional.cross_entropy(head(hidden, backbone)[labels != IGNORED], labels[labels != IGNORED])
    expected = torch.autograd.grad(whole, weights)
    rows, kept = [], []
    monkeypatch.setattr(masked_lm, "WORD_SCORES", 4 * words)
    watch = head.dense.register_forward_hook(lambda module, given, output: rows.append(len(output)))
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved.shape) or saved, lambda saved: saved):
        loss = masked_lm.masked_loss(head, hidden, labels, backbone)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(torch.autograd.grad(loss, weights), expected)
    watch.remove()
    assert set(rows) == {4} and sum(rows) == 2 * 28  # 25 words filled up, once forward, once backward
    assert not [shape for shape in kept if shape[-1:] == (words,) and shape != head.bias.shape]
    with torch.no_grad():
        torch.testing.assert_close(masked_lm.masked_loss(head, hidden, labels, backbone), whole)


def test_no_chosen_word_has_no_loss():
    backbone, _ = make_backbone()
    labels = torch.full((2, 5), IGNORED)
    loss = masked_lm.masked_loss(LMHead(backbone, tied=True), torch.rand(2, 5, 32), labels, backbone)
    assert float(loss.detach()) == 0
