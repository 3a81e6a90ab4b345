"""The losses of labelled data equal sentence-transformers' on the same vectors, and SimCSE's own formula."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from sentcli.objectives import (
    angle_similarity,
    info_nce,
    nt_xent,
    online_contrastive_loss,
    ranking_loss,
)


@pytest.fixture
def vectors():
    """Anchors, positives and two negatives of 8 rows ``[4, 8, 15]``; the dimension is odd for AnglE's sake."""
    return torch.randn(4, 8, 15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def of_peer(name, *arguments, vectors, labels=None, **options):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    loss = getattr(losses, name)(torch.nn.Identity(), *arguments, **options)
    return loss.compute_loss_from_embeddings(list(vectors), labels)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_hard_negatives_are_multiple_negatives_ranking(vectors, count):
    anchors, positives, *negatives = vectors[:count]
    ours = info_nce(anchors, positives, hard_negatives=torch.stack(negatives) if negatives else None)
    peer = of_peer("MultipleNegativesRankingLoss", scale=20.0, vectors=vectors[:count])
    assert float(ours) == pytest.approx(float(peer), abs=1e-9)


def test_gradients_are_those_of_the_peer(vectors):
    ours, theirs = vectors[:3].clone().requires_grad_(), vectors[:3].clone().requires_grad_()
    info_nce(ours[0], ours[1], hard_negatives=ours[2:]).backward()
    of_peer("MultipleNegativesRankingLoss", scale=20.0, vectors=theirs).backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-9)


def test_the_weight_of_hard_negatives_is_the_papers(vectors):
    """SimCSE's eq. in appendix D.2: alpha multiplies the exponential of an anchor's own hard negative alone."""
    anchors, positives, negatives = (functional.normalize(part, dim=1) for part in vectors[:3])
    alpha, tau = 2.5, 0.05
    in_batch, hard = torch.exp(anchors @ positives.T / tau), torch.exp(anchors @ negatives.T / tau)
    weights = torch.ones(8, 8, dtype=torch.float64) + (alpha - 1) * torch.eye(8, dtype=torch.float64)
    expected = -torch.log(in_batch.diagonal() / (in_batch.sum(1) + (weights * hard).sum(1))).mean()
    ours = info_nce(*vectors[:2], hard_negatives=vectors[2:3], hard_negative_weight=alpha)
    assert float(ours) == pytest.approx(float(expected), abs=1e-9)


def test_equal_texts_are_no_negatives_of_each_other(vectors):
    """Rows 0 and 1 share their anchor; row 2's hard negative is row 3's positive, row 4's is row 5's anchor."""
    texts = torch.arange(24).view(3, 8)
    texts[0, 1] = texts[0, 0]
    texts[2, 2] = texts[1, 3]
    texts[2, 4] = texts[0, 5]
    logits = torch.cat([functional.normalize(part, dim=1) for part in vectors[1:3]])
    logits = functional.normalize(vectors[0], dim=1) @ logits.T / 0.05
    for anchor, candidate in ((0, 1), (1, 0), (3, 8 + 2), (5, 8 + 4)):
        logits[anchor, candidate] = -math.inf
    expected = functional.cross_entropy(logits, torch.arange(8))
    ours = info_nce(*vectors[:2], hard_negatives=vectors[2:3], texts=texts)
    assert float(ours) == pytest.approx(float(expected), abs=1e-9)


def test_masked_texts_leave_nothing_to_learn_where_all_are_equal(vectors):
    same = torch.zeros(2, 8, dtype=torch.long)
    assert float(info_nce(*vectors[:2], texts=same)) == 0
    assert float(nt_xent(*vectors[:2], texts=same)) == 0
    assert float(nt_xent(*vectors[:2], texts=torch.arange(16).view(2, 8))) == pytest.approx(
        float(nt_xent(*vectors[:2]))
    )


@pytest.mark.parametrize("labels", [[0.1, 0.9, 0.5, 0.5, 1.0, 0.0, 0.3, 0.2], [1.0] * 8, [0, 1, 0, 1, 1, 0, 0, 1]])
def test_losses_of_order_equal_the_peers(vectors, labels):
    labels = torch.tensor(labels, dtype=torch.float64)
    cosines = functional.cosine_similarity(vectors[0], vectors[1], dim=1)
    cosent = of_peer("CoSENTLoss", vectors=vectors[:2], labels=labels)
    assert float(ranking_loss(cosines, labels)) == pytest.approx(float(cosent), abs=1e-9)
    angle = of_peer("AnglELoss", vectors=vectors[:2], labels=labels)
    assert float(ranking_loss(angle_similarity(vectors[0], vectors[1]), labels)) == pytest.approx(
        float(angle), abs=1e-9
    )


@pytest.mark.parametrize("labels", [[0, 1, 0, 1, 1, 0, 0, 1], [0] * 8, [1] * 8])
def test_online_contrastive_equals_the_peers(vectors, labels):
    labels = torch.tensor(labels)
    near = vectors[0] + 0.7 * vectors[1]
    peer = of_peer("OnlineContrastiveLoss", vectors=[vectors[0], near], labels=labels)
    assert float(online_contrastive_loss(vectors[0], near, labels)) == pytest.approx(float(peer), abs=1e-9)


def test_a_large_batch_is_computed_in_parts(monkeypatch, vectors):
    whole = info_nce(*vectors[:2], hard_negatives=vectors[2:], texts=torch.arange(32).view(4, 8))
    monkeypatch.setattr("sentcli.objectives.contrastive.LARGEST_TABLE", 48)
    parts = info_nce(*vectors[:2], hard_negatives=vectors[2:], texts=torch.arange(32).view(4, 8))
    assert np.isclose(float(parts), float(whole), atol=1e-12)


def test_the_supervised_contrastive_loss_is_equation_2():
    from sentcli.objectives import nt_xent, supervised_contrastive_loss

    generator = torch.Generator().manual_seed(0)
    views = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0.0, 1.0, 0.0, 2.0, 1.0])
    z = torch.nn.functional.normalize(views.flatten(0, 1), dim=1)
    classes, terms = labels.repeat(2), []
    for i in range(10):
        others = [a for a in range(10) if a != i]
        whole = torch.logsumexp(torch.stack([z[i] @ z[a] / 0.1 for a in others]), 0)
        positives = [a for a in others if classes[a] == classes[i]]
        terms.append(-sum(z[i] @ z[p] / 0.1 - whole for p in positives) / len(positives))
    assert supervised_contrastive_loss(views, labels).item() == pytest.approx(
        torch.stack(terms).mean().item(), abs=1e-9
    )
    alone = supervised_contrastive_loss(views, torch.arange(5.0), 0.05)  # every class once: NT-Xent
    assert alone.item() == pytest.approx(nt_xent(views[0], views[1], 0.05).item(), abs=1e-9)
