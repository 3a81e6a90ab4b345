"""Parameters of commands convert their values by rules of Typer's own where its names are not the known ones."""

import pytest

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
