"""RankCSE and SimCSE++ on random inputs, against the values of published code: the community's and the authors'.

The files hold what ListNet and ListMLE of github.com/perceptiveshawty/RankCSE (17c5226) return, and what `dcl_loss` and
the branch ``off_dropout`` of github.com/Jiahao004/SimCSE-plus-plus return, in float64. ListMLE has its `eps` at 0: 1e-7
before a logarithm changes the far end of every list.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from sentcli.objectives import (
    RankingDistillation,
    Views,
    dimension_wise_loss,
    off_dropout_info_nce,
    ranking_consistency,
)
from sentcli.objectives.ranking import mixed_similarities

FOLDER = Path(__file__).parent / "golden"


@pytest.fixture
def lists():
    return {name: torch.from_numpy(value) for name, value in np.load(FOLDER / "rankcse_lists.npz").items()}


@pytest.fixture
def plus_plus():
    return {name: torch.from_numpy(value) for name, value in np.load(FOLDER / "simcse_plus_plus.npz").items()}


def test_two_teachers_are_mixed_by_their_share(lists):
    mixed = mixed_similarities([lists["teacher_a"], lists["teacher_b"]], 1 / 3) / 0.05
    np.testing.assert_allclose(mixed, lists["mixed"], atol=1e-9)


@pytest.mark.parametrize("kind", ["listnet", "listmle"])
@pytest.mark.parametrize("teachers", [1, 2])
def test_a_list_of_the_teacher_is_learnt(lists, kind, teachers):
    vectors = (lists["teacher_a"][None], lists["teacher_b"][None])[:teachers]
    views = Views({}, projected=torch.stack([lists["first"], lists["second"]]), teachers=vectors)
    ours = RankingDistillation(kind=kind, temperature=0.05, teacher_temperature=0.05)(views)
    theirs = lists[kind if teachers == 2 else f"{kind}_one"]
    assert float(ours) == pytest.approx(float(theirs), rel=1e-9)


def test_consistency_is_the_jensen_shannon_divergence(lists):
    first, second = (torch.nn.functional.normalize(lists[name]) for name in ("first", "second"))
    table = first @ second.T / 0.05
    forward, backward = table.softmax(1).numpy(), table.T.softmax(1).numpy()
    expected = np.mean(jensenshannon(forward, backward, axis=1) ** 2)
    assert float(ranking_consistency(first, second)) == pytest.approx(expected, rel=1e-6)
    assert float(ranking_consistency(first, first)) == pytest.approx(0, abs=1e-9)


def test_contrast_of_dimensions(plus_plus):
    ours = dimension_wise_loss(plus_plus["first"], plus_plus["second"])
    assert float(ours) == pytest.approx(float(plus_plus["dimensions"]), rel=1e-9)


def test_negatives_without_dropout(plus_plus):
    ours = off_dropout_info_nce(plus_plus["first"], plus_plus["second"], plus_plus["plain"])
    assert float(ours) == pytest.approx(float(plus_plus["off_dropout"]), rel=1e-6)
