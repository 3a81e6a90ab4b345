"""What is taken without pydantic is what pydantic takes, to the last value; everything else it judges itself."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from annotated_types import Ge, Le, Lt, MaxLen, MinLen
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from sentcli.errors import DataError, InputError
from sentcli.io.forms import checked, read_json_form
from sentcli.io.typed import Unconverted, UndecidedError, ValueCheck, among, made
from sentcli.model.modules import NormalizeSpec, PoolingSpec
from sentcli.model.settings_files import PromptSettings, TextSettings, TokenizerSettings
from sentcli.model.spec_files import ModuleEntry, TransformerSizes
from tests.examples import examples


def odd(number):
    if number % 2 == 0:
        raise ValueError("is even")
    return number


@dataclass(frozen=True)
class Inner:
    name: str
    weight: float = 0.5


@dataclass(frozen=True)
class Strict:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    side: Literal["left", "right"] | None = None


@dataclass(frozen=True)
class ForTypeCheckers:
    """A class variable whose type is a name that only type checkers import."""

    tables: ClassVar["dict[str, Tables]"] = {}  # noqa: F821
    count: int = 0


@dataclass(frozen=True)
class Form:
    """A field of each kind that the package's own forms have."""

    count: Annotated[int, Ge(1), Lt(2**31)]
    share: Annotated[float, Ge(0), Le(1)] = 0.0
    word: Annotated[str, among("fp32", "int8")] = "fp32"
    number: Annotated[int, Unconverted(), ValueCheck(odd)] = 1
    version: Literal[1] = 1
    is_on: bool | None = None
    inner: Inner | None = None
    strict: Strict = field(default_factory=Strict)
    items: Annotated[tuple[Annotated[str, MaxLen(3)], ...], MinLen(1)] = ("a",)
    listed: list[Inner] = field(default_factory=list)
    by_name: dict[str, list[float]] = field(default_factory=dict)
    anything: Any = None
    several: int | str | None = None
    folder: Path | None = None


WHOLE = {
    "count": 3,
    "share": 0.25,
    "word": "int8",
    "number": 5,
    "version": 1,
    "is_on": True,
    "inner": {"name": "x"},
    "strict": {"side": "left"},
    "items": ["a", "b"],
    "listed": [{"name": "y", "weight": 1}],
    "by_name": {"z": [1, 2.5]},
    "anything": {"deep": [None]},
    "several": None,
}
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.just(2**70) | st.floats() | st.text(max_size=4)
scalars |= st.sampled_from(["fp32", "left", "1", "true", 1.0, 0, 1])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
CASES = [
    (Form, WHOLE),
    (TextSettings, {"max_seq_length": 32, "do_lower_case": False, "processor_kwargs": {"truncation_side": "left"}}),
    (TokenizerSettings, {"truncation_side": "right", "model_max_length": 512, "max_len": 1e30}),
    (PromptSettings, {"prompts": {"query": "q: ", "none": None}, "truncate_dim": 16}),
    (TransformerSizes, {"architectures": ["BertModel"], "hidden_size": 32, "num_hidden_layers": 2}),
    (ModuleEntry, {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}),
    (PoolingSpec, {"modes": ["cls", "mean"], "include_prompt": True, "folder": None}),
    (NormalizeSpec, {"on_tokens": False, "folder": None}),
]


def judged(kind, value, *, strict):
    """Return what pydantic makes of a value, and None where it refuses it."""
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(json.dumps(value), strict=True) if strict else adapter.validate_python(value)
    except ValidationError:
        return None


def exact(value):
    """Tell apart what compares as equal: 1, 1.0 and True."""
    return repr(value)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("kind", "whole"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_whole_file_is_taken_without_pydantic_and_is_the_same(kind, whole, strict):
    assert exact(made(kind, whole)) == exact(judged(kind, whole, strict=strict))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "whole"), CASES, ids=lambda case: getattr(case, "__name__", ""))
@examples(100)
@given(data=st.data())
def test_what_is_taken_is_what_pydantic_takes(kind, whole, data):
    changed = dict(whole)
    name = data.draw(st.sampled_from([*whole, "other"]))
    if name in changed and data.draw(st.booleans()):
        inner = changed[name]
        if isinstance(inner, dict) and inner:
            changed[name] = {**inner, data.draw(st.sampled_from([*inner, "more"])): data.draw(values)}
        else:
            del changed[name]
    else:
        changed[name] = data.draw(values)
    try:
        taken = made(kind, changed)
    except UndecidedError:
        return
    assert exact(taken) == exact(judged(kind, changed, strict=False))
    assert exact(taken) == exact(judged(kind, changed, strict=True))


@examples(100)
@given(values)
@example(True)
@example(10**400)
def test_a_number_of_another_type_is_left_to_pydantic(value):
    for kind in (int, float, bool, str, Literal[1], int | None, list[int], dict[str, float]):
        try:
            taken = made(kind, value)
        except UndecidedError:
            continue
        assert exact(taken) == exact(judged(kind, value, strict=False))


@pytest.mark.parametrize(
    "kind",
    [int | str, tuple[int, str], set[int], type("Model", (BaseModel,), {}), bytes, dataclass(type("Empty", (), {}))],
    ids=str,
)
def test_types_whose_rules_are_not_known_here_are_left_to_pydantic(kind):
    with pytest.raises(UndecidedError):
        made(kind, 1)


def test_a_class_variable_may_have_a_type_that_only_type_checkers_import():
    assert checked(ForTypeCheckers, {"count": 3}, "file") == ForTypeCheckers(3)


def test_an_unknown_key_is_refused_where_no_others_are_supported():
    with pytest.raises(DataError, match=r"processor_kwargs\.colour is an unknown key"):
        checked(TextSettings, {"processor_kwargs": {"colour": 1}}, "file")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"count": "3"}, "count: must be a whole number, not '3'"),
        ({"count": 0}, "count: must be greater than or equal to 1, not 0"),
        ({"word": "fp8"}, "word: must be one of fp32, int8, not 'fp8'"),
        ({"number": 4}, "number: is even"),
        ({"inner": 3}, "inner: must be an object, not 3"),
        ({"inner": {}}, "inner.name is missing"),
        ({"version": 2}, "version: must be 1, not 2"),
        ({"items": []}, "items: "),
    ],
    ids=str,
)
def test_what_is_refused_is_named(tmp_path, change, problem):
    path = tmp_path / "form.json"
    path.write_text(json.dumps({**WHOLE, **change}))
    with pytest.raises(InputError) as refused:
        read_json_form(Form, path, missing="missing", remedy="make it again")
    assert problem in str(refused.value) and "make it again" in str(refused.value)


def test_a_file_that_was_written_is_read_back(tmp_path):
    path, form = tmp_path / "form.json", made(Form, WHOLE)
    facts = asdict(form)
    del facts["folder"]
    path.write_text(json.dumps(facts))
    assert read_json_form(Form, path, missing="missing", remedy="") == form
