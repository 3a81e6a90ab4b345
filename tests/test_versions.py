"""constraints.txt, pyproject.toml and what is installed agree; `make test-oldest` tries the versions themselves."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.versions.__main__ import difference
from tests.versions.resolving import CUDA, above_bounds, declared, lower_bound, pinned

ROOT = Path(__file__).parent.parent
INSTALLED = ("cpu", "minilm", "dev")
"""The extras of `make install`."""


def brought(name, extras=frozenset()):
    """Yield the names of all distributions that one with some extras needs, its own among them."""
    seen, left = set(), [(name, frozenset(extras))]
    while left:
        name, extras = left.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        yield name
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            wanted = needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in ("", *extras))
            if wanted:
                left.append((canonicalize_name(needed.name), frozenset(needed.extras)))


def test_constraints_name_everything_that_make_install_brings():
    named = {"sentcli", *pinned()}
    missing = {name for name in brought("sentcli", INSTALLED) if name not in named and not name.startswith(CUDA)}
    assert not missing, f"not in constraints.txt: {', '.join(sorted(missing))}; write NAME==VERSION there"


def test_constraints_are_names_and_versions_alone():
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    wrong = [line for line in lines if not re.fullmatch(r"#.*|[a-z0-9-]+==[0-9][\w.]*", line)]
    assert wrong == []
    assert len(pinned()) == sum(not line.startswith("#") for line in lines), "a name stands twice"


def test_what_is_pinned_is_inside_the_ranges():
    for lines in declared().values():
        for requirement in lines:
            version = pinned().get(canonicalize_name(requirement.name))
            assert version is None or requirement.specifier.contains(version), f"{requirement}, pinned at {version}"


def test_a_library_has_one_range_in_all_extras():
    ranges = {}
    for lines in declared().values():
        for requirement in lines:
            name = canonicalize_name(requirement.name).removesuffix("-gpu").removesuffix("-cpu")
            if name != "faiss":  # its builds have versions of their own
                ranges.setdefault(name, set()).add(str(requirement.specifier))
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}


def test_every_range_has_a_lower_bound():
    assert all(lower_bound(line) is not None for lines in declared().values() for line in lines)


def test_the_page_of_installation_has_every_extra():
    rows = re.findall(r"^\| `([a-z]+)` \|", (ROOT / "docs" / "install.md").read_text("utf-8"), re.MULTILINE)
    assert set(rows) == declared().keys() - {""}


def test_a_bound_that_is_not_reached_is_named():
    reached = {canonicalize_name(line.name): lower_bound(line) for line in declared()[""]}
    assert above_bounds(reached, [""]) == []
    wrong = above_bounds({**reached, "pandas": Version("99")}, [""])
    assert len(wrong) == 1 and wrong[0].startswith("pandas>=") and wrong[0].endswith("99")


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ([1.0, {"a": [2.0]}], [1.0, {"a": [2.5]}], 0.2),
        ([1.0], [1.0, 2.0], float("inf")),
        (["p1"], ["p2"], float("inf")),
        ([9, True], [9, True], 0.0),
    ],
)
def test_results_of_two_environments_are_compared(first, second, apart):
    assert difference(first, second) == pytest.approx(apart)
