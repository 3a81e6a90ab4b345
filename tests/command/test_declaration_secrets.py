"""What an argument names may hold a password: no verb prints or writes it, whatever is wrong with the name."""

import itertools
import re
from importlib import import_module
from pathlib import Path

import pytest

from sentcli import printable
from sentcli.cli.app import Sentcli

ADDRESSES = {
    "postgresql://reader:{}@db.example/d": "hunter2",
    "milvus:http://root:{}@127.0.0.1:1": "hunter2",
    "lance:s3://reader:{}@bucket/place": "ab+c/de@f9",
    "https://127.0.0.1:1/texts.jsonl?x=1&X-Amz-Signature={}": "0123456789abcdef",
    "nonsense+v2://:{}@h": "hunter2",
}
"""Addresses, and the secret that stands in each."""


def declared(group, before=()):
    """Yield the words and the declaration of each command."""
    for name, place in group.verbs.items():
        if isinstance(place, str):
            module, _, function = place.partition(":")
            yield (*before, name), getattr(import_module(f"sentcli.{module}"), function).verb
        else:
            yield from declared(place, (*before, name))


VERBS = dict(declared(Sentcli))


def places(verb):
    """Return the arguments that name files, models or databases."""
    found = []
    for argument in verb.arguments:
        kinds = str(argument.type)
        if (
            argument.name != "null"
            and not argument.holds_text
            and ("str" in kinds or "Path" in kinds)
            and "Literal" not in kinds
        ):
            found.append(argument)
    return found


def words_of(name, verb, argument, address, model):
    """Return a command in which an argument has an address, and those that are needed have what is there."""
    words = list(name)
    for other in places(verb):
        value = {"model": model, "output": "out"}.get(other.name)
        if other.flag.positional:
            value = "texts.txt"
        if other is argument:
            value = address
        if value is not None:
            words += [value] if other.flag.positional else [other.long, value]
    return words


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", VERBS, ids=" ".join)
def test_no_secret_of_an_address_is_printed_or_written(name, whole, tiny_bert, tmp_path, invoke, monkeypatch):
    """In turn for each argument one of the addresses, or each of them for all."""
    monkeypatch.chdir(tmp_path)
    cases = list(itertools.product(places(VERBS[name]), ADDRESSES))
    for argument, form in cases if whole else cases[:: len(ADDRESSES) + 1]:
        monkeypatch.setattr(printable, "_sent", set())
        monkeypatch.setattr(printable, "_sent_users", set())
        Path("texts.txt").write_text("the cat sat\n")
        secret = ADDRESSES[form]
        done = invoke(*words_of(name, VERBS[name], argument, form.format(secret), tiny_bert))
        said = done.stdout + done.stderr
        for path in tmp_path.rglob("*"):
            said += str(path)
            if path.is_file():
                said += path.read_text("utf-8", errors="replace")
        assert secret not in re.sub(r"[\s│]+", "", said), (argument.option, form)
        assert done.exit_code in (0, 1, 2, 3), (argument.option, form, done.exception)
