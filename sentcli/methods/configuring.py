"""Changing the settings of a method by name: ``--set``, recipes and options all end here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sentcli.bounds import one_of, whole_number
from sentcli.errors import InputError, nearest
from sentcli.methods.heads import HEADS
from sentcli.methods.method import Method
from sentcli.methods.views import VIEWS, Copies
from sentcli.objectives import OBJECTIVES

ADD, REMOVE = "objectives+", "objectives-"
SECTIONS: dict[str, Mapping[str, type[Any]]] = {"head": HEADS, "views": VIEWS}
"""The parts of a method that are replaced as a whole, with the kinds of each."""
VALUE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "numbers"}
"""The name of a setting's type in messages."""
OPTIONS = {"settings.keep_layers": "--layers", "aux_init": "--aux-init"}
"""The settings that have an option of their own on the command line."""


def configure(method: Method, assignments: Sequence[tuple[str, Any]]) -> Method:
    """Return the method with settings changed by name.

    Args:
        method: the method to change.
        assignments: names and values such as ``("ami.weight", 1e-3)``. The section can be left out where only one
            section has such a field (``temperature``), or be joined by an underscore (``ami_weight``).
            ``("head", "none")`` replaces a whole section; ``("objectives+", "ami")`` adds an objective and
            ``objectives-`` removes one.

    Raises:
        InputError: for a setting that does not exist, or a value that it cannot have.
    """
    if method.fit is not None:
        _refuse_training_settings(method, assignments)
    named = [(key if key == REMOVE else key.replace("-", "_"), value) for key, value in assignments]
    for key, value in named:
        if key in (ADD, REMOVE):
            method = _change_objectives(method, value, add=key == ADD)
    for key, value in named:
        if key in SECTIONS:
            method = method.with_section(key, _section(key, value, getattr(method, key)))
    changes = []
    for key, value in named:
        if key not in (ADD, REMOVE, *SECTIONS):
            name = _aux_init(method) if key == "aux_init" else key
            changes.append((name, *_find(method, name), value))
    places = [(section, field) for _, section, field, _ in changes]
    if ("settings", "epochs") in places and ("settings", "max_steps") not in places:
        # otherwise the method's own max_steps would override them
        method = replace(method, settings=replace(method.settings, max_steps=0))
    for key, section, field, value in changes:
        part = method.settable()[section]
        method = method.with_section(section, replace(part, **{field: _convert(key, value, part, field)}))
    sections = [key for key, _ in named] + [section for section, _ in places]
    return _with_enough_views(method, views_given="views" in sections)


def _refuse_training_settings(method: Method, assignments: Sequence[tuple[str, Any]]) -> None:
    """Refuse settings that a method which is fitted instead of trained does not have."""
    for key, _ in assignments:
        section = key.rstrip("+-").split(".")[0]
        if section in ("objectives", "settings", *SECTIONS):
            raise InputError(f"{method.name} is fitted, not trained: it has no objectives, views or training settings")


def _aux_init(method: Method) -> str:
    """Return the name of the setting that ``--aux-init`` stands for."""
    for name in ("auxiliary-mlm", "condenser-mlm"):
        if name in method.objectives:
            return f"{name.replace('-', '_')}.init"
    raise InputError(f"--aux-init: {method.name} has no auxiliary network; infocse has")


def _change_objectives(method: Method, value: Any, *, add: bool) -> Method:
    """Add or remove objectives, given as a list of names or as names with commas between them."""
    objectives = dict(method.objectives)
    names = value if isinstance(value, list) else str(value).split(",")
    for name in map(str.strip, names):
        if add:
            one_of("objective", name, list(OBJECTIVES))
            if name in objectives:
                raise InputError(f"objectives+={name}: {method.name} has it already")
            objectives[name] = OBJECTIVES[name]()
        elif name in objectives:
            del objectives[name]
        else:
            raise InputError(f"objectives-={name}: {method.name} has only {', '.join(objectives) or 'none'}")
    return replace(method, objectives=objectives)


def _section(key: str, value: Any, current: Any) -> Any:
    """Return a section of the kind that `value` names; a number for ``views`` stands for that many copies."""
    count = whole_number(str(value))
    if key == "views" and count is not None and isinstance(current, Copies):
        return Copies(count=count)
    one_of(key, str(value), list(SECTIONS[key]))
    kind = SECTIONS[key][str(value)]
    return current if type(current) is kind else kind()


def _find(method: Method, key: str) -> tuple[str, str]:
    """Return the section and the field that a key stands for."""
    sections_of: dict[str, list[str]] = {}
    for section, part in method.settable().items():
        for setting in fields(part):
            sections_of.setdefault(setting.name, []).append(section)
    dotted: dict[str, tuple[str, str]] = {}
    for name, sections in sections_of.items():
        for section in sections:
            dotted[f"{section}.{name}".replace("-", "_")] = (section, name)
    if key in dotted:
        return dotted[key]
    joined = {path.replace(".", "_"): place for path, place in dotted.items()}
    if key not in sections_of and key in joined:
        return joined[key]
    if key in sections_of and len(sections_of[key]) == 1:
        return sections_of[key][0], key
    raise InputError(f"--set {key}: {_why_not_found(method, key, sections_of, list(dotted))}")


def _why_not_found(method: Method, key: str, sections_of: Mapping[str, list[str]], dotted: list[str]) -> str:
    """Return what is wrong with a key, given the sections of each field and all names with their sections."""
    if key == "objectives":
        return "objectives+=NAME adds one, objectives-=NAME removes one"
    if key in sections_of:
        choices = [f"{section}.{key}" for section in sections_of[key]]
        return f"say which one: {', '.join(choices)}"
    names = []
    for name, sections in sections_of.items():
        names.append(name if len(sections) == 1 else f"{sections[0]}.{name}")
    hint = nearest(key, [*names, *dotted])
    if method.fit is None:
        names += [ADD, REMOVE, *SECTIONS]
    return f"{method.name} has no such setting{hint}; it has: {', '.join(names) or 'none'}"


def _convert(key: str, value: Any, part: Any, field: str) -> object:
    """Convert a value to the type of a field; one that may be None is a number otherwise."""
    current = getattr(part, field)
    declared = str(next(f.type for f in fields(part) if f.name == field))
    kind: type[Any] = type(current)
    if "None" in declared:
        if str(value).lower() == "none":
            return None
        kind = float
    is_list = isinstance(value, list | tuple)
    items = value if is_list and kind is tuple else [value]
    text = ",".join(map(str, value)) if is_list else str(value).strip()
    try:
        for item in items:
            if isinstance(item, dict | list | tuple) or (isinstance(item, bool) and kind is not bool):
                raise ValueError
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is tuple:
            item_kind = float if "float" in declared else int
            return tuple(item_kind(item) for item in text.strip("()[]").split(",") if item)
        return kind(text)
    except (ValueError, KeyError) as error:
        given = f"--set {key}={value}"
        if key in OPTIONS:
            given = f"{OPTIONS[key]} {value}"
        example = str(current)
        if kind is tuple:
            example = ",".join(map(str, current)) or "0,2,4"
        raise InputError(f"{given}: expected {VALUE_NAMES[kind]}, like {example}") from error


def _with_enough_views(method: Method, *, views_given: bool) -> Method:
    """Return the method with as many views as its objectives need, unless the user chose their number."""
    views, objectives = method.views, method.objectives
    name = max(objectives, key=lambda term: objectives[term].views, default="")
    needed = objectives[name].views if objectives else 1
    if views.count < needed:
        if views.joint:
            raise InputError(f"{name} compares the vectors of texts, and {method.name} makes none")
        if views_given:
            raise InputError(f"views: {name} needs {needed} of each sentence, not {views.count}")
        return replace(method, views=Copies(count=needed))
    if not views_given or views.reads == "pairs":  # the views of pairs are as many as the data has columns
        return method
    uses_all = any(objective.every_view for objective in objectives.values())
    if views.count > needed and not uses_all:
        raise InputError(f"views: no objective of {method.name} looks at more than {needed} of {views.count}")
    return method
