"""Which combinations of values are tried where: every value, of three axes and more every pair.

A test with several ``parametrize`` that is marked ``drawn`` keeps a few of its combinations. The others are slow, so
that CI tries them, or deep if the test is slow itself: `make test-deep` tries those, by hand before a release.
"""

from collections import defaultdict
from itertools import combinations

import pytest


def parts_of(item):
    """Return what a combination tries: its values, or its pairs of values if it has three or more axes."""
    values = []
    for number, mark in enumerate(item.iter_markers("parametrize")):
        names = mark.args[0]
        names = names.replace(" ", "").split(",") if isinstance(names, str) else names
        values.append((number, *(repr(item.callspec.params[name]) for name in names)))
    return set(combinations(values, 2)) if len(values) > 2 else set(values)


def kept(items):
    """Return combinations in which all parts stand: each time one that has the most parts that are still lacking."""
    parts = {item: parts_of(item) for item in items}
    lacking = set().union(*parts.values())
    chosen = []
    while lacking:
        best = max(items, key=lambda item: len(parts[item] & lacking))  # the first of several
        chosen.append(best)
        lacking -= parts[best]
    return chosen


def mark_what_is_not_drawn(items):
    """Mark the combinations of drawn tests that are left out."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("drawn"):
            tests[item.path, item.originalname, bool(item.get_closest_marker("slow"))].append(item)
    for (_, _, is_slow), combined in tests.items():
        for item in {*combined} - {*kept(combined)}:
            item.add_marker(pytest.mark.deep if is_slow else pytest.mark.slow)
