"""Intervals and comparisons against scipy and against samples that are really drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, permutation_test, spearmanr

from sentcli.evaluation import score_json, significance
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
            assert value == 0


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
    found = significance.paired_bootstrap(*scores, *draws)
    assert found.difference == pytest.approx(scores[0] - scores[1])
    assert 0 < found.low < found.difference < found.high
    assert found.p < 0.01
    same = significance.paired_bootstrap(scores[0], scores[0], draws[0], draws[0])
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    back = significance.paired_bootstrap(*scores[::-1], *draws[::-1])
    assert back.p == found.p and back.low == pytest.approx(-found.high)


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 11])
def test_the_interval_of_a_mean_excludes_0_where_random_signs_refuse_it(n):
    """Compared with scipy's exact test; where its p is near the level, so many random subsets cannot tell."""
    random = np.random.default_rng(n)
    excluded = 0
    for _ in range(100):
        differences = random.normal(0.9, 1, n)
        p = permutation_test(
            (differences,), np.mean, permutation_type="samples", alternative="greater", n_resamples=np.inf
        ).pvalue
        low, high = significance.mean_interval(differences)
        assert low <= differences.mean() <= high
        if not 0.015 < p < 0.035:
            assert (low > 0) == (p < 0.025)
            excluded += low > 0
    assert excluded > 10


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 25])
@pytest.mark.parametrize("zeros", [0, 0.4])
def test_the_interval_of_a_mean_covers_few_items(n, zeros):
    """2.5 % on each side are meant."""
    random = np.random.default_rng(0)
    above = below = 0
    for _ in range(2000):
        differences = random.normal(size=n) * (random.random(n) >= zeros)
        low, high = significance.mean_interval(differences)
        above += low > 0
        below += high < 0
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
    assert significance.mean_interval(np.zeros(30)) == (0, 0)


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


def test_two_fixed_models_are_compared_over_the_items():
    random = np.random.default_rng(1)
    gold = random.normal(size=300)
    scores, draws = [], []
    for spread in (1, 1.2):
        predicted = gold + random.normal(0, spread, size=300)
        scores.append(100 * spearmanr(predicted, gold).statistic)
        draws.append(significance.spearman_replicates(predicted, gold))
    pair = significance.paired_bootstrap(*scores, *draws)
    group = significance.compare_seeds(scores[:1], scores[1:], draws[0][None], draws[1][None], 300, (True, True))
    assert group.difference == pair.difference
    width = pair.high - pair.low
    assert (group.low, group.high) == pytest.approx((pair.low, pair.high), abs=0.05 * width)
    assert group.p == pytest.approx(pair.p, abs=0.02)


@pytest.mark.parametrize("above", range(15, 35))
def test_an_interval_without_0_goes_with_a_small_p(above):
    """The quantiles were interpolated, so that 0 could lie outside of the interval with a p value above 0.05."""
    differences = np.concatenate([np.full(above, -1.0), np.full(1000 - above, 1e-6)])
    found = significance.paired_bootstrap(1.0, 0.0, differences, np.zeros(1000))
    assert (found.low > 0) == (found.p < 0.05)


def test_holm():
    assert significance.holm([]) == []
    assert significance.holm([0.03]) == [0.03]
    # by hand: 4 * 0.01, 3 * 0.015, 2 * 0.04 and 0.5
    assert significance.holm([0.04, 0.01, 0.5, 0.015]) == pytest.approx([0.08, 0.04, 0.5, 0.045])
    assert significance.holm([0.02, 0.02, 0.021]) == pytest.approx([0.06, 0.06, 0.06])
    assert significance.holm([0.6, 0.7]) == [1.0, 1.0]


def test_samples_are_a_line_of_json():
    draws = np.linspace(-3, 80, 1000)
    np.testing.assert_allclose(score_json.unpack(score_json.pack(draws)), draws, rtol=1e-6)
    for wrong in ("", "AAAA", "no base64!", score_json.pack(np.array([1.0, np.nan]))):
        with pytest.raises(ValueError):
            score_json.unpack(wrong)
