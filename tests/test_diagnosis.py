"""``doctor`` says which installed versions are outside of the declared ranges, and what brought them."""

import json
import sys
from importlib import metadata

import pytest

from sentcli import diagnosis
from sentcli.machine import library_version

DECLARED = [
    "numpy>=2.0.2",
    "transformers<6,>=5.0",
    "onnxruntime!=1.24.0,>=1.21; extra == 'cpu'",
    "pytest>=99; extra == 'dev'",
    "tomllib-for-older>=9; python_version < '3'",
]


def install(folder, name, version, *needs):
    """Write the metadata of a distribution."""
    place = folder / f"{name}-{version}.dist-info"
    place.mkdir()
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in needs)]
    (place / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that stands before all others in which distributions are looked for."""
    monkeypatch.syspath_prepend(tmp_path)
    library_version.cache_clear()
    install(tmp_path, "sentcli", "9.9", *DECLARED)
    yield tmp_path
    library_version.cache_clear()


def test_versions_inside_the_ranges_are_not_named(site):
    for name, version in [("numpy", "2.0.2"), ("transformers", "5.3.0"), ("onnxruntime", "1.21.0"), ("pytest", "8.0")]:
        install(site, name, version)
    assert diagnosis.out_of_range() == []


@pytest.mark.parametrize(
    ("library", "version", "needs", "moved"),
    [
        ("numpy", "1.26.4", "numpy<2", ["other 1.0 (<2)"]),
        ("numpy", "1.26.4", "numpy<2; extra == 'old'", ["other[old] 1.0 (<2)"]),
        ("numpy", "1.26.4", "numpy<2; python_version < '3'", []),
        ("numpy", "1.26.4", "numpy>=1.20", []),
        ("numpy", "1.26.4", "no valid (requirement", []),
        ("transformers", "6.1.0", "transformers>=6", ["other 1.0 (>=6)"]),
        ("transformers", "4.57.0", "Transformers~=4.50", ["other 1.0 (~=4.50)"]),
        ("onnxruntime", "1.24.0", "onnxruntime==1.24.0", ["other 1.0 (==1.24.0)"]),
    ],
)
def test_a_version_outside_is_named_with_what_moved_it(site, library, version, needs, moved):
    install(site, library, version)
    install(site, "other", "1.0", needs)
    found = {line.library: line for line in diagnosis.out_of_range()}
    assert found[library].installed == version
    assert [mover for mover in found[library].moved_by if mover.startswith("other")] == moved


def test_doctor_shows_them(site, invoke):
    install(site, "onnxruntime", "1.20.1")
    install(site, "other", "1.0", "onnxruntime<1.21")
    done = invoke("doctor", "--json", "-", check=0)
    line = json.loads(done.stdout)["results"]["out_of_range"][0]
    assert line == {
        "library": "onnxruntime",
        "installed": "1.20.1",
        "range": "!=1.24.0,>=1.21",
        "moved_by": ["other 1.0 (<1.21)"],
    }
    assert "Outside of the ranges" in done.stderr and "1.20.1" in done.stderr


def test_the_names_of_extras_and_their_packages_are_read(site):
    assert diagnosis.extra_packages() == {"cpu": ["onnxruntime"], "dev": ["pytest"]}
    assert metadata.version("sentcli") == "9.9" and str(site) in sys.path
