"""Intervals and comparisons against scipy and against samples that are really drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, spearmanr, ttest_rel

from sentcli.evaluation import score_json, significance
from sentcli.evaluation.differences import Difference, Variation
from tests.examples import examples


@examples(50)
@given(st.integers(3, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_a_draw_is_the_correlation_of_the_pairs_that_were_drawn(n, seed, ties):
    random = np.random.default_rng(seed)
    predicted, gold = random.normal(size=n), random.normal(size=n)
    if ties:
        predicted, gold = np.round(predicted, 1), np.round(gold)
    found = significance.spearman_replicates(predicted, gold, 5)
    counts = np.concatenate(list(significance.resampled_counts(n, 5, 0))).astype(int)
    for value, count in zip(found, counts, strict=True):
        rows = np.repeat(np.arange(n), count)
        assert count.sum() == n
        if len(set(predicted[rows])) > 1 and len(set(gold[rows])) > 1:
            assert value == pytest.approx(100 * spearmanr(predicted[rows], gold[rows]).statistic, abs=1e-8)
        else:
            assert np.isnan(value), "a correlation that is not defined is no 0"


@pytest.mark.slow
def test_the_interval_covers_what_it_says():
    """Of 200 samples of a known correlation, about 95 % of the intervals hold it."""
    random = np.random.default_rng(0)
    rho = 0.7
    truth = 100 * 6 / np.pi * np.arcsin(rho / 2)  # of a normal distribution
    held = 0
    for _ in range(200):
        pairs = random.multivariate_normal([0, 0], [[1, rho], [rho, 1]], 150)
        low, high = significance.interval(significance.spearman_replicates(pairs[:, 0], pairs[:, 1], 300))
        held += low <= truth <= high
    assert 0.90 <= held / 200 <= 0.99


def test_a_model_is_compared_on_the_same_draws():
    random = np.random.default_rng(1)
    gold = random.normal(size=400)
    good, bad = gold + random.normal(size=400), gold + random.normal(0, 2, size=400)
    scores = [100 * spearmanr(p, gold).statistic for p in (good, bad)]
    draws = [significance.spearman_replicates(p, gold) for p in (good, bad)]
    found = significance.compare_two(*scores, *draws, 400)
    assert found.difference == pytest.approx(scores[0] - scores[1])
    assert 0 < found.low < found.difference < found.high
    assert found.p < 0.01
    same = significance.compare_two(scores[0], scores[0], draws[0], draws[0], 400)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    back = significance.compare_two(*scores[::-1], *draws[::-1], 400)
    assert back.p == pytest.approx(found.p) and back.low == pytest.approx(-found.high)


@pytest.mark.parametrize("n", [2, 7, 30])
def test_means_of_the_same_items_are_compared_by_students_t(n):
    random = np.random.default_rng(n)
    values, others = random.random(n), random.random(n)
    found = significance.compare_means(values, others)
    theirs = ttest_rel(values, others)
    low, high = theirs.confidence_interval()
    assert (found.difference, found.p) == pytest.approx((values.mean() - others.mean(), theirs.pvalue))
    assert found.interval == pytest.approx((low, high)) == significance.mean_interval(values - others)


def test_a_single_item_tells_nothing_of_others():
    assert significance.compare_means(np.array([0.5]), np.array([0.4])).interval == (-1, 1)
    assert significance.compare_means(np.array([0.5]), np.array([0.5])).interval == (0, 0)


def test_a_change_of_the_usual_size_is_added_where_hardly_anything_changes():
    """By hand: twelve items that stay and one change in each direction have a variance of 2 * 0.3**2 / 13."""
    low, high = significance.mean_interval(np.zeros(12), 0.3)
    half = 2.1604 * (2 * 0.09 / 13 / 14) ** 0.5
    assert (low, high) == pytest.approx((-half, half), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 15, 30, 100])
@pytest.mark.parametrize("zeros", [0, 0.4])
def test_the_interval_of_a_mean_covers_few_items(n, zeros):
    """2.5 % on each side are meant."""
    random = np.random.default_rng(0)
    above = below = 0
    for _ in range(2000):
        differences = random.normal(size=n) * (random.random(n) >= zeros)
        found = significance.compare_means(differences, np.zeros(n))
        above += found.is_gain
        below += found.is_loss
    assert max(above, below) <= 0.035 * 2000


@pytest.mark.slow
def test_samples_with_replacement_are_too_narrow_for_few_items():
    """Why gates do not use them: of ten items, they say a gain of nothing about twice as often as they should."""
    random = np.random.default_rng(0)
    above = 0
    for _ in range(2000):
        samples = significance.mean_replicates(random.normal(size=10))
        above += significance.interval(samples)[0] > 0
    assert above > 0.04 * 2000


def test_equal_models_have_an_interval_of_0():
    found = significance.compare_means(np.full(30, 0.3), np.full(30, 0.3))
    assert found.interval == (0, 0) and found.p == 1 and found.smallest is None


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "items"), [(1, 10), (1, 100), (3, 100), (5, 30)])
def test_the_smallest_difference_is_shown_in_four_of_five_cases(seeds, items):
    """Of what is really that large, with what is known of the spread; few seeds do not know theirs well."""
    random = np.random.default_rng(seeds)
    of_items, of_seeds = 0.5, 0.1 if seeds > 1 else 0.0
    variance = of_items**2 * 2 / items + 2 * of_seeds**2 / seeds
    spread = Variation(of_items**2 * 2 / items, 2 * of_seeds**2 / seeds, items - 1, max(2 * seeds - 2, 1))
    truth = spread.smallest
    assert truth == pytest.approx(2.8 * variance**0.5, rel=0.25)
    shown = 0
    for _ in range(1000):
        groups = []
        for mean in (truth, 0.0):
            means = mean + random.normal(0, of_seeds, (seeds, 1))
            groups.append(means + random.normal(0, of_items, items))
        shown += significance.compare_groups(*groups, (seeds == 1, seeds == 1)).p < 0.05
    assert 0.72 <= shown / 1000 <= 0.88


def test_the_seeds_that_would_show_a_difference():
    """With enough items the error falls with the root of the seeds; where the items alone hide it, none would."""
    spread = Variation(items=0.0001, seeds=2.0, item_freedom=1000, seed_freedom=4, runs=3)
    for difference in (2.0, 3.0, 8.0):
        needed = spread.seeds_needed(difference)
        assert spread.with_runs(needed).smallest <= difference < spread.with_runs(needed - 1).smallest
    assert Difference.tested(100.0, spread).seeds_needed == 2
    hidden = Variation(items=2.0, seeds=0.1, item_freedom=100, seed_freedom=4, runs=3)
    assert Difference.tested(1.0, hidden).seeds_needed is None
    of_items = Variation(items=2.0, seeds=0.0, item_freedom=100)
    assert Difference.tested(10.0, of_items).seeds_needed is None


def test_accuracies():
    correct = np.array([True] * 80 + [False] * 20)
    low, high = significance.accuracy_interval(correct)
    assert (low, high) == pytest.approx((71.31, 86.97), abs=0.01)
    chances = [binom.sf(79, 100, low / 100) + binom.sf(80, 100, low / 100), 2 * binom.cdf(79, 100, high / 100)]
    assert chances[0] / 2 == pytest.approx(0.025)
    assert (chances[1] + binom.pmf(80, 100, high / 100)) / 2 == pytest.approx(0.025)
    assert significance.accuracy_interval(np.ones(50, bool)) == pytest.approx((100 * 0.05 ** (1 / 50), 100))
    assert significance.accuracy_interval(np.zeros(50, bool)) == pytest.approx((0, 100 - 100 * 0.05 ** (1 / 50)))
    others = np.array([True] * 70 + [False] * 30)
    found = significance.mcnemar(correct, others)
    assert (found.difference, found.only_first, found.only_second) == (10, 10, 0)
    assert found.p == pytest.approx(2 / 2**10)
    assert significance.mcnemar(correct, correct).p == 1


def test_systems_are_compared_by_means_over_seeds():
    """Seeds that differ much widen the interval, by hand: their pooled variance, with 4 degrees of freedom."""
    random = np.random.default_rng(0)
    noise = random.normal(size=1000)  # of the items, which all models share
    ours, theirs = (np.array([[mean] for mean in means]) + noise for means in ((50, 52, 57), (50, 49, 48)))
    found = significance.compare_seeds([50, 52, 57], [50, 49, 48], ours, theirs, 10**6)
    assert found.difference == pytest.approx(4)
    error = ((13 + 1) / 2 * (1 / 3 + 1 / 3)) ** 0.5
    assert (found.low, found.high) == pytest.approx((4 - 2.7764 * error, 4 + 2.7764 * error), abs=1e-3)
    assert found.p == pytest.approx(0.1383, abs=1e-3)
    same = significance.compare_seeds([50, 52, 57], [50, 52, 57], ours, ours, 10**6)
    assert same.difference == 0 and same.p == 1 and same.low == -same.high
    alone = significance.compare_seeds([50, 52, 57], [49.5], ours, theirs[:1] - 0.5, 10**6)
    assert (alone.difference, alone.p, alone.low) == (pytest.approx(3.5), None, None)
    fixed = significance.compare_seeds([50, 52, 57], [49.5], ours, theirs[:1] - 0.5, 10**6, (False, True))
    half = 4.3027 * (13 / 3) ** 0.5
    assert (fixed.low, fixed.high) == pytest.approx((3.5 - half, 3.5 + half), abs=1e-3)


def test_two_models_are_compared_over_the_items_as_their_samples_say():
    random = np.random.default_rng(1)
    gold = random.normal(size=300)
    scores, draws = [], []
    for spread in (1, 1.2):
        predicted = gold + random.normal(0, spread, size=300)
        scores.append(100 * spearmanr(predicted, gold).statistic)
        draws.append(significance.spearman_replicates(predicted, gold))
    found = significance.compare_two(*scores, *draws, 300)
    low, high = significance.interval(draws[0] - draws[1])
    assert found.difference == scores[0] - scores[1]
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05 * (high - low))
    assert found.smallest == pytest.approx(2.8 / 3.92 * (high - low), rel=0.05)
    assert significance.compare_seeds(scores[:1], scores[1:], draws[0][None], draws[1][None], 300).smallest is None


def test_holm():
    assert significance.holm([]) == []
    assert significance.holm([0.03]) == [0.03]
    # by hand: 4 * 0.01, 3 * 0.015, 2 * 0.04 and 0.5
    assert significance.holm([0.04, 0.01, 0.5, 0.015]) == pytest.approx([0.08, 0.04, 0.5, 0.045])
    assert significance.holm([0.02, 0.02, 0.021]) == pytest.approx([0.06, 0.06, 0.06])
    assert significance.holm([0.6, 0.7]) == [1.0, 1.0]


def test_samples_are_a_line_of_json():
    draws = np.linspace(-3, 80, 1000)
    np.testing.assert_allclose(score_json.unpack_values(score_json.pack_values(draws)), draws, rtol=1e-6)
    for wrong in ("", "AAAA", "no base64!", score_json.pack_values(np.array([1.0, np.nan]))):
        with pytest.raises(ValueError):
            score_json.unpack_values(wrong)
