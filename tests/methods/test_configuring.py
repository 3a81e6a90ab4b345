"""Settings of a method that are not of their type: the option that was given is named, with what it takes."""

import pytest

from sentcli.errors import InputError
from sentcli.methods import get_method
from sentcli.methods.configuring import configure


@pytest.mark.parametrize(
    ("key", "value", "given"),
    [
        ("matryoshka.dims", "x", "--set matryoshka.dims=x"),
        ("settings.keep_layers", "0-1", "--layers 0-1"),
        ("temperature", "warm", "--set temperature=warm"),
    ],
)
def test_the_option_that_was_given_is_named(key, value, given):
    with pytest.raises(InputError) as refused:
        configure(get_method("simcse"), [(key, value)])
    message = str(refused.value)
    assert message.startswith(f"{given}: ")
    assert "()" not in message and "settings" not in message.removeprefix(given)
