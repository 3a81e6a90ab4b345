"""Samples of distinct texts: the same for a seed, fair, in the order of the file."""

import numpy as np
import pytest

from sentcli.io.sampling import DistinctTexts

TEXTS = [f"text {number}" for number in range(1000)]


def drawn(texts, limit=50, seed=7):
    distinct = DistinctTexts(limit, seed)
    for place, text in enumerate(texts):
        distinct.add(text, place)
    return distinct


def test_the_same_texts_are_drawn_in_any_order_and_however_often_they_come():
    once, again = drawn(TEXTS), drawn([*TEXTS[::-1], *TEXTS])
    assert set(once.texts) == set(again.texts)
    assert again.texts == {text: 999 - place for text, place in once.texts.items()}, "facts of the first"
    assert list(once.texts.values()) == sorted(once.texts.values()), "in the order of the file"
    assert vars(once.sample) == vars(again.sample) == {"texts": 50, "of": 1000, "seed": 7}
    assert set(once.texts) != set(drawn(TEXTS, seed=8).texts)


def test_a_sample_is_not_the_beginning():
    """The mean place of a fair sample of 50 of 1,000 lies within 4 standard errors of the middle, for each seed."""
    means = [np.mean(list(drawn(TEXTS, seed=seed).texts.values())) for seed in range(20)]
    error = np.sqrt((1000**2 - 1) / 12 / 50 * (1 - 50 / 1000))
    assert np.abs(np.array(means) - 499.5).max() < 4 * error


@pytest.mark.parametrize("limit", [None, 1000, 2000])
def test_all_texts_are_taken_where_there_are_no_more(limit):
    distinct = drawn(TEXTS, limit)
    assert list(distinct.texts) == TEXTS
    assert (distinct.sample.texts, distinct.sample.of) == (1000, 1000)
