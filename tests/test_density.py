"""What `tests.density` counts, and when it says that a package became denser."""

from tests.density import count_file, denser, densities

SOURCE = '''
"""A docstring of the module,
in two lines."""

value = 1 if flag else 2 if other else 3  # two ternaries, one inside the other


def pairs(rows):
    """A docstring."""
    # a comment

    return [cell for row in rows for cell in [item for item in row]]
'''


def test_counts_code_lines_ternaries_and_comprehensions():
    count = count_file(SOURCE)
    assert count["lines"] == 3  # without docstrings, comments and blanks
    assert (count["ternaries"], count["nested ternaries"]) == (2, 1)
    assert (count["comprehensions"], count["nested comprehensions"]) == (2, 1)


def test_a_package_that_became_denser_is_named_and_a_lighter_one_is_not():
    figures = densities(count_file(SOURCE))
    lighter = {name: value * 2 for name, value in figures.items()}
    denser_before = {name: value / 2 for name, value in figures.items()}
    assert list(denser({"io": figures}, {"io": lighter})) == []
    lines = list(denser({"io": figures}, {"io": denser_before}))
    assert len(lines) == len(figures)
    assert all(line.startswith("io: ") for line in lines)
