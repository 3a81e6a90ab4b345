"""Parameters of commands convert their values by rules of Typer's own where its names are not the known ones."""

from itertools import pairwise

import pytest
from typer.testing import CliRunner

from sentcli.cli.app import app
from sentcli.cli.base import Conversion, convert_where_needed


class Parameter:
    """One of a release of Typer that converts otherwise."""


class WithRules(Parameter):
    def get_runtime_param(self):
        return "rules"


class WithType(WithRules):
    type_descriptor = None


@pytest.mark.parametrize("kind", [Parameter, WithRules])
def test_a_parameter_of_another_release_stays_as_it_is(kind):
    parameter = kind()
    assert convert_where_needed([parameter]) == [parameter]
    assert not vars(parameter)


def test_a_parameter_of_this_release_takes_a_conversion_that_has_the_rules():
    parameter = WithType()
    assert convert_where_needed([parameter]) == [parameter]
    conversion = parameter.get_runtime_param()
    assert isinstance(conversion, Conversion) and conversion.by_rules() == "rules"


@pytest.mark.parametrize("verb", ["index", "migrate", "adapt", "evaluate", "report"])
def test_paragraphs_of_help_fill_their_lines_and_examples_keep_theirs(verb):
    """No line ends before a word that it has room for, but at the end of a paragraph."""
    for width in (60, 80, 100):
        shown = CliRunner().invoke(app, [verb, "--help"], terminal_width=width, env={"COLUMNS": str(width)}).stdout
        paragraphs, _, examples = shown.partition("Examples:")
        for line, following in pairwise(paragraphs.splitlines()[3:]):
            words = following.split(maxsplit=1)
            if line.strip() and words:
                assert len(line.rstrip()) + 1 + len(words[0]) >= width - 2
        assert f"\n   sentcli {verb} " in examples


def test_the_short_help_of_index_names_update():
    options = CliRunner().invoke(app, ["index", "--help"]).stdout.partition("Options")[2]
    assert "--update " in options
