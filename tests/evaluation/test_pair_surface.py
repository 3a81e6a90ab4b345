"""Surface features of sentence pairs."""

import numpy as np
import pytest

from sentcli.evaluation.pair_surface import followed, surface


def test_features_of_pairs():
    first = ["The man is running.", "A dog", "?", "Übung macht Spaß"]
    second = ["A man was running fast", "a dog", "", "ÜBUNG macht müde"]
    found = surface(first, second)
    assert found["length"].tolist() == [-1, 0, 0, 0]
    assert found["first_word"].tolist() == [0, 1, 1, 1]
    assert found["function_words"].tolist() == [0, 1, 1, 1]  # {the, is} and {a, was}; {a}; none; none
    np.testing.assert_allclose(found["other_words"], [2 / 3, 1, 1, 2 / 4])


def test_what_values_follow_is_scipys_correlation_and_nothing_for_a_constant():
    from scipy.stats import spearmanr

    values, feature = np.array([0.1, 0.5, 0.2, 0.9]), np.array([1.0, 3.0, 3.0, 4.0])
    found = followed(values, {"feature": feature, "constant": np.ones(4)})
    assert found["feature"] == pytest.approx(100 * spearmanr(values, feature).statistic)
    assert found["constant"] is None
    assert followed(np.ones(4), {"feature": feature}) == {"feature": None}
