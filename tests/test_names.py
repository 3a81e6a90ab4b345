"""What `tests.names` counts as the definition of a name, and which repeated names it refuses."""

from tests.names import Plugin, definitions, public_names, repeated, unexcused

SOURCE = """
from typing import TYPE_CHECKING, TypeVar
from elsewhere import imported

if TYPE_CHECKING:
    from elsewhere import Imported

    Alias = dict[str, Imported]

T = TypeVar("T")
_PRIVATE = 1
FIRST, SECOND = 1, 2
LIMIT: int = 3


class Row:
    LOCAL = 4


def read(path):
    local = path
    return local
"""
METHODS = Plugin(("sentcli.methods.papers.*",), "the method of a file")


def package_of(folder, modules):
    """Write made-up modules, given as source by name, and return the folder above the package."""
    for name, text in modules.items():
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_names_are_what_a_module_defines_at_its_top():
    assert set(public_names(SOURCE)) == {"Alias", "FIRST", "SECOND", "LIMIT", "Row", "read"}


def test_a_repeated_name_is_found_and_an_excused_one_is_not(tmp_path):
    modules = {
        "sentcli.io.rows": "class Row: ...\nROWS = 1\n",
        "sentcli.search.rows": "class Row: ...\nfrom .rows import ROWS\n",
        "sentcli.methods.papers.simcse": "METHOD = 1\nLOSS = 1\n",
        "sentcli.methods.papers.micse": "METHOD = 2\nLOSS = 2\n",
    }
    found = repeated(definitions(package_of(tmp_path, modules)))
    assert set(found) == {"Row", "METHOD", "LOSS"}
    assert found["Row"] == ["sentcli.io.rows", "sentcli.search.rows"]
    (problem,) = unexcused(found, {"METHOD": METHODS, "LOSS": METHODS})
    assert problem.startswith("Row: defined in sentcli.io.rows and sentcli.search.rows")


def test_the_name_of_a_plugin_is_refused_elsewhere():
    found = {"METHOD": ["sentcli.methods.papers.simcse", "sentcli.training.loop"]}
    (problem,) = unexcused(found, {"METHOD": METHODS})
    assert problem.startswith("METHOD: defined in")


def test_a_name_that_is_excused_and_not_repeated_has_to_leave_the_list():
    (problem,) = unexcused({}, {"METHOD": METHODS})
    assert problem.startswith("METHOD: repeated no longer")
