"""Thresholds and probabilities: against scikit-learn, on data whose probabilities are known, and by the command."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sentcli.errors import InputError
from sentcli.evaluation import observed_hits, thresholds
from sentcli.evaluation.observed_hits import FOLDS, Observed, groups_of_pairs
from sentcli.evaluation.thresholds import Cuts, find_threshold, fit_isotonic, fit_logistic
from sentcli.search.calibration import Calibration, LearnedFrom
from tests.evaluation.test_labelled_tasks import NOUNS, write
from tests.examples import examples

SOURCE = LearnedFrom("made", "binary", "digest", "cosine")


def observed(similarities, right, groups=None):
    groups = np.arange(len(right)) if groups is None else groups
    return Observed(SOURCE, np.asarray(similarities, float), np.asarray(right, bool), np.asarray(groups))


def drawn(random, hits, *, slope=2.0, shift=0.0, alike=0.0, of_group=10):
    """Draw hits with known probabilities; those of a group are alike by `alike`, the deviation of their log odds."""
    numbers = np.arange(hits) // (of_group if alike else 1)
    groups = numbers.max() + 1
    similarities = random.normal(size=hits)
    odds = slope * similarities + shift + random.normal(0, alike, groups)[numbers] if alike else None
    odds = slope * similarities + shift if odds is None else odds
    probabilities = 1 / (1 + np.exp(-odds))
    return observed(similarities, random.random(hits) < probabilities, numbers), probabilities


def true_threshold(precision, **data):
    """The similarity from which on the precision of endless data is the one that is asked for."""
    hits, probabilities = drawn(np.random.default_rng(0), 1_000_000, **data)
    order = np.argsort(-hits.similarities)
    precisions = np.cumsum(probabilities[order]) / np.arange(1, len(order) + 1)
    return hits.similarities[order][np.flatnonzero(precisions >= precision)[-1]]


def test_isotonic_is_that_of_scikit_learn():
    from sklearn.isotonic import IsotonicRegression

    hits, _ = drawn(np.random.default_rng(1), 500)
    new = np.linspace(-5, 5, 1001)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(hits.similarities, hits.right).predict(new)
    np.testing.assert_allclose(fit_isotonic(hits)(new), theirs, atol=1e-12)


def test_logistic_finds_the_slope_and_is_level_where_right_hits_are_the_less_similar():
    hits, _ = drawn(np.random.default_rng(1), 20_000, slope=3.0, shift=-1.0)
    curve = fit_logistic(hits)
    assert (curve.slope, curve.intercept) == pytest.approx((3.0, -1.0), abs=0.1)
    level = fit_logistic(observed(-hits.similarities, hits.right))
    assert level.slope == 0 and level(np.array([0.0])) == pytest.approx(hits.right.mean(), abs=1e-3)


@pytest.mark.parametrize("ties", [False, True])
def test_cuts_are_what_counting_gives(ties):
    random = np.random.default_rng(2)
    hits, _ = drawn(random, 300, alike=1.0)
    if ties:
        hits = replace(hits, similarities=np.round(hits.similarities, 1))
    cuts = Cuts.of(hits)
    assert len(cuts.similarities) == len(np.unique(hits.similarities))
    for number in range(0, len(cuts.similarities), 7):
        above = hits.similarities >= cuts.similarities[number]
        right = np.bincount(hits.groups[above], weights=hits.right[above])
        count = np.bincount(hits.groups[above])
        assert (cuts.above[number], cuts.right[number]) == (above.sum(), hits.right[above].sum())
        squares = [(right**2).sum(), (right * count).sum(), (count**2).sum()]
        np.testing.assert_allclose(cuts.squares[:, number], squares)


def test_the_threshold_is_the_lowest_similarity_with_the_precision():
    hits, _ = drawn(np.random.default_rng(3), 2000)
    found = find_threshold(hits, 0.9)
    above = hits.similarities >= found.similarity
    assert hits.right[above].mean() >= 0.9
    for similarity in hits.similarities[~above]:
        assert hits.right[hits.similarities >= similarity].mean() < 0.9
    assert found.interval[0] <= found.similarity <= found.interval[1]
    brier = found.brier_of
    assert found.brier == brier[found.form] == min(brier["isotonic"], brier["logistic"]) < brier["share"]
    assert sum(part.count for part in found.reliability) == len(hits)


def coverage(precision, cases, hits, **data):
    """Return how often the interval holds the true similarity, and the held-out precisions."""
    truth = true_threshold(precision, **data)
    held, precisions = [], []
    for seed in range(cases):
        sample, _ = drawn(np.random.default_rng([7, seed]), hits, **data)
        found = find_threshold(sample, precision)
        if found.similarity is not None:
            low, high = found.interval
            held.append(low <= truth and (high is None or truth <= high))
        precisions.append(found.held_out_precision)
    return float(np.mean(held)), len(held), np.array([value for value in precisions if value is not None])


@pytest.mark.slow
def test_the_interval_holds_the_true_similarity_and_held_out_precision_is_that():
    """Of 60 cases at 95 %, fewer than 53 happen once in two thousand times."""
    held, cases, precisions = coverage(0.8, 60, 1000, shift=-1.0)
    assert cases == 60 and held >= 53 / 60
    assert precisions.mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("precision", "hits", "data"),
    [
        (0.9, 1000, {}),
        (0.9, 1000, {"shift": 1.0, "slope": 1.0}),
        (0.8, 3000, {"shift": -1.0, "alike": 1.0}),
    ],
    ids=str,
)
def test_intervals_hold_in_93_to_98_of_100_cases(precision, hits, data):
    """Of 400 cases, three standard deviations of a share of 0.95 are 0.033."""
    held, cases, precisions = coverage(precision, 400, hits, **data)
    assert cases >= 380
    assert 0.917 <= held <= 0.99, held
    assert precisions.mean() == pytest.approx(precision, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_shuffled_labels_reach_no_precision_above_their_share(share):
    reached = 0
    for seed in range(20):
        random = np.random.default_rng([11, seed])
        hits = observed(random.normal(size=1000), random.random(1000) < share)
        found = find_threshold(hits, 0.95)
        reached += found.similarity is not None
        if found.similarity is not None:
            assert found.interval[1] is None, "no similarity is sure to reach it"
    assert reached <= 1


@pytest.mark.parametrize("right", [0, 1, 7, 60])
def test_the_interval_of_a_share_holds_it(right):
    low, high = observed_hits.share_interval(observed(np.zeros(60), np.arange(60) < right))
    assert 0 <= low <= right / 60 <= high <= 1 and low < high


def test_alike_hits_of_a_group_count_less():
    right = np.repeat(np.random.default_rng(1).random(60) < 0.7, 10)
    low, high = observed_hits.share_interval(observed(np.zeros(600), right))
    grouped_low, grouped_high = observed_hits.share_interval(
        observed(np.zeros(600), right, np.repeat(np.arange(60), 10))
    )
    assert grouped_high - grouped_low > 2.5 * (high - low)


@pytest.mark.parametrize(("right", "wrong"), [(49, 500), (500, 49), (0, 100)])
def test_too_few_right_or_wrong_are_refused(right, wrong):
    hits = observed(np.linspace(0, 1, right + wrong), [True] * right + [False] * wrong)
    with pytest.raises(InputError, match="50"):
        find_threshold(hits, 0.9)


def test_too_few_groups_are_refused():
    hits, _ = drawn(np.random.default_rng(1), 500)
    with pytest.raises(InputError, match="10"):
        find_threshold(replace(hits, groups=np.arange(500) % 9), 0.9)


def test_folds_keep_groups_together_and_are_equal_in_size():
    groups = np.random.default_rng(1).integers(0, 60, 700)
    fold = observed_hits.folds(groups)
    for group in range(60):
        assert len(set(fold[groups == group])) == 1
    sizes = np.bincount(fold)
    assert len(sizes) == FOLDS and sizes.max() - sizes.min() <= 5


def test_pairs_that_share_a_text_also_by_others_are_one_group():
    groups = groups_of_pairs(["a", "b", "x", "c", "y"], ["b", "c", "y", "d", "z"])
    assert groups[0] == groups[1] == groups[3] != groups[2] == groups[4]


hits_of_any_kind = st.lists(st.tuples(st.floats(-1, 1, width=32), st.booleans()), min_size=4, max_size=80).filter(
    lambda pairs: 0 < sum(right for _, right in pairs) < len(pairs)
)


@examples(80)
@given(hits_of_any_kind, st.sampled_from(["isotonic", "logistic"]), st.lists(st.floats(-1e6, 1e6), min_size=2))
def test_probabilities_rise_from_0_to_1_and_are_the_same_when_read_back(pairs, form, asked):
    hits = observed(*zip(*pairs, strict=True))
    calibration = Calibration(thresholds.FITS[form](hits), "m", "f", SOURCE, hits.positives, hits.negatives, 0.9, None)
    probabilities = calibration.probabilities(sorted(asked))
    assert (np.diff(probabilities) >= 0).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    text = json.dumps(asdict(calibration))
    assert TypeAdapter(Calibration).validate_json(text, strict=True) == calibration


# The command


def pairs_table(path, *, right=lambda number: number % 2):
    """Write pairs of which the right ones differ by a word, and the wrong ones by all but a few."""
    rows = []
    for number in range(240):
        noun, other = NOUNS[number % 11], NOUNS[(number + 3) % 11]
        first = f"the {noun} number {number} sat on the mat"
        is_near = (number // 2) % 8 if number % 2 else number % 16 == 0
        second = f"the {noun} number {number} sat on a mat" if is_near else f"a {other} runs at {number * 7}"
        rows.append((first, second, right(number)))
    return write(path, ["sentence1", "sentence2", "label"], rows)


@pytest.mark.slow
def test_evaluate_gives_each_model_a_threshold_of_its_own(tiny_bert, tiny_roberta, invoke, tmp_path):
    table = pairs_table(tmp_path / "pairs.tsv")
    page = tmp_path / "page.html"
    models = ["-m", tiny_bert, "-m", tiny_roberta]
    result = invoke(
        "evaluate", table, *models, "--threshold", "0.8", "--json", tmp_path / "r.json", "--report", page, check=0
    )
    found = [each["results"]["pairs.tsv"]["threshold"] for each in json.loads((tmp_path / "r.json").read_text())]
    assert found[0]["similarity"] != found[1]["similarity"]
    for entry in found:
        assert entry["precision"] == 0.8
        low, high = entry["interval"]
        assert low <= entry["similarity"] <= high
        assert entry["held_out_interval"][0] <= entry["held_out_precision"] <= entry["held_out_interval"][1]
        assert 0 < entry["recall"] <= 1 and 0 < entry["brier"] < 0.25
        assert (entry["positives"], entry["negatives"]) == (120, 120)
        assert entry["form"] in ("isotonic", "logistic") and "f1_threshold" in entry
        assert f"{entry['similarity']:.5f}" in result.stdout
    assert "predicted probability" in page.read_text()
    again = invoke("report", tmp_path / "r.json", "-o", tmp_path / "again.md")
    assert again.exit_code == 0


def test_a_precision_that_is_not_reached_is_null(tiny_bert, invoke, tmp_path):
    table = pairs_table(tmp_path / "pairs.tsv", right=lambda number: number // 2 % 2)
    result = invoke("evaluate", table, "-m", tiny_bert, "--threshold", "0.99", "--json", tmp_path / "r.json", check=0)
    entry = json.loads((tmp_path / "r.json").read_text())["results"]["pairs.tsv"]["threshold"]
    assert entry["similarity"] is None and entry["interval"] == [None, None]
    assert entry["highest"]["precision"] < 0.99
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("columns", "row", "word"),
    [
        (["sentence1", "sentence2", "label"], lambda i: (f"a cat {i}", f"a dog {i}", i % 5 == 0), "right"),
        (["sentence1", "sentence2", "score"], lambda i: (f"a cat {i}", f"a dog {i}", i % 5), "scores"),
        (["anchor", "positive"], lambda i: (f"a cat {i}", f"a dog {i}"), "wrong"),
        (["anchor", "positive", "negative"], lambda i: (f"a cat {i}", f"a dog {i}", f"a mat {i}"), "negatives"),
        (["text", "label"], lambda i: (f"a cat {i}", "xy"[i % 2]), "classes"),
    ],
)
def test_data_without_right_and_wrong_are_refused_by_name(columns, row, word, tiny_bert, invoke, tmp_path):
    rows = [[int(cell) if isinstance(cell, bool) else cell for cell in row(number)] for number in range(100)]
    table = write(tmp_path / "data.tsv", columns, rows)
    result = invoke("evaluate", table, "-m", tiny_bert, "--threshold", "0.9", check=2)
    assert "data.tsv" in result.stderr and "--threshold" in result.stderr and word in result.stderr


@pytest.mark.parametrize("precision", ["0", "1", "1.5", "-0.1", "nan"])
def test_a_precision_is_between_0_and_1(precision, tiny_bert, invoke, tmp_path):
    table = pairs_table(tmp_path / "pairs.tsv")
    result = invoke("evaluate", table, "-m", tiny_bert, f"--threshold={precision}", check=2)
    assert "--threshold" in result.stderr
