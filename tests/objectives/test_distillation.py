"""What is learnt from a teacher, against sentence-transformers' losses on the same vectors."""

import pytest
import torch
from torch.nn import functional

from sentcli.errors import InputError
from sentcli.methods import configure, get_method
from sentcli.methods.modules import Matryoshka
from sentcli.objectives import (
    MarginMSE,
    SimilarityDistillation,
    VectorDistillation,
    Views,
    info_nce,
    similarity_distance,
    vector_distance,
)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def peer(name, **options):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    return getattr(losses, name)(torch.nn.Identity(), **options)


def test_margins_are_those_of_the_peer():
    student, teacher = random(4, 8, 16), random(8, 3, seed=1)
    views = Views({}, projected=student, teacher_scores=teacher)
    ours = MarginMSE(scale=3.0)(views)

    def similarity(first, second):
        return 3 * functional.cosine_similarity(first, second)

    margins = teacher[:, :1] - teacher[:, 1:]
    loss = peer("MarginMSELoss", similarity_fct=similarity)
    theirs = loss.compute_loss_from_embeddings(list(student), margins)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


def test_vectors_are_those_of_the_peer():
    student, teacher = random(8, 16), random(8, 16, seed=1)
    theirs = peer("MSELoss").compute_loss_from_embeddings([student], [teacher])
    assert float(vector_distance(student, teacher, "mse")) == pytest.approx(float(theirs), rel=1e-9)
    assert float(vector_distance(student, 3 * student)) == pytest.approx(0, abs=1e-9)


def test_similarities_are_compared_without_each_text_itself():
    student, teacher = random(5, 16), random(5, 7, seed=1)
    first, second = (functional.normalize(vectors) for vectors in (student, teacher))
    table = (first @ first.T - second @ second.T).square()
    expected = table[~torch.eye(5, dtype=torch.bool)].mean()
    assert float(similarity_distance(student, teacher)) == pytest.approx(float(expected), rel=1e-9)
    views = Views({}, pooled=student[None], teachers=(teacher[None],))
    assert float(SimilarityDistillation()(views)) == pytest.approx(float(expected), rel=1e-9)


def test_first_dimensions_of_a_contrast_are_those_of_the_peer():
    views = random(2, 8, 16)
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    whole = float(info_nce(*views))
    cut = float(info_nce(*views[..., :4]))
    inner = losses.MultipleNegativesRankingLoss(torch.nn.Identity())
    first = float(inner.compute_loss_from_embeddings(list(views[..., :4]), None))
    assert cut == pytest.approx(first, rel=1e-6) and cut != pytest.approx(whole)
    assert Matryoshka(dims=(4,), weights=(0.5,)).parts() == [(4, 0.5)]


def test_projection_is_used_where_dimensions_differ():
    from types import SimpleNamespace

    same = VectorDistillation().build(SimpleNamespace(dimension=16, teacher_widths=(16,)))
    other = VectorDistillation().build(SimpleNamespace(dimension=16, teacher_widths=(24,)))
    assert not isinstance(same, torch.nn.Module)
    student = torch.randn(1, 8, 16, requires_grad=True)
    loss = other(Views({}, pooled=student, teachers=(torch.randn(1, 8, 24),)))
    loss.backward()
    assert student.grad.abs().sum() > 0 and other.projection.weight.grad.abs().sum() > 0
    part = other(Views({}, pooled=student[..., :4], teachers=(torch.randn(1, 8, 24),)))
    assert torch.isfinite(part)


@pytest.mark.parametrize("value", ["0,4", "4,4", "-1"])
def test_dimensions_are_different_and_positive(value):
    with pytest.raises(InputError):
        configure(get_method("simcse"), [("matryoshka.dims", value)])


def test_weights_go_with_dimensions():
    with pytest.raises(InputError):
        configure(get_method("simcse"), [("matryoshka.dims", "8,4"), ("matryoshka.weights", "1")])
