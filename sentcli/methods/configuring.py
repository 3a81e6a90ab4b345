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
    of_training = ("objectives", "settings", *SECTIONS)
    if method.fit is not None and any(key.rstrip("+-").split(".")[0] in of_training for key, _ in assignments):
        raise InputError(f"{method.name} is fitted, not trained: it has no objectives, views or training settings")
    named = [(key if key == REMOVE else key.replace("-", "_"), value) for key, value in assignments]
    for key, value in named:
        if key in (ADD, REMOVE):
            for name in value if isinstance(value, list) else str(value).split(","):
                method = _change_objectives(method, name.strip(), add=key == ADD)
    for key, value in named:
        if key in SECTIONS:
            method = method.with_section(key, _section(key, value, getattr(method, key)))
    settings = [(_aux_init(method) if key == "aux_init" else key, value) for key, value in named]
    fields_to_set = [
        (key, *_find(method, key), value) for key, value in settings if key not in (ADD, REMOVE, *SECTIONS)
    ]
    shared = {field for _, section, field, _ in fields_to_set if section == "settings"}
    if "epochs" in shared and "max_steps" not in shared:  # otherwise the method's own max_steps would override them
        method = replace(method, settings=replace(method.settings, max_steps=0))
    for key, section, field, value in fields_to_set:
        part = method.sections()[section]
        method = method.with_section(section, replace(part, **{field: _convert(key, value, part, field)}))
    views_given = any(key == "views" for key, _ in named) or any(s == "views" for _, s, _, _ in fields_to_set)
    return _with_enough_views(method, views_given=views_given)


def _aux_init(method: Method) -> str:
    """Return the name of the setting that ``--aux-init`` stands for."""
    name = next((name for name in ("auxiliary-mlm", "condenser-mlm") if name in method.objectives), None)
    if name is None:
        raise InputError(f"--aux-init: {method.name} has no auxiliary network; infocse has")
    return f"{name.replace('-', '_')}.init"


def _change_objectives(method: Method, name: str, *, add: bool) -> Method:
    if add:
        one_of("objective", name, list(OBJECTIVES))
        if name in method.objectives:
            raise InputError(f"objectives+={name}: {method.name} has it already")
        return replace(method, objectives={**method.objectives, name: OBJECTIVES[name]()})
    if name not in method.objectives:
        raise InputError(f"objectives-={name}: {method.name} has only {', '.join(method.objectives) or 'none'}")
    return replace(method, objectives={key: value for key, value in method.objectives.items() if key != name})


def _section(key: str, value: Any, current: Any) -> Any:
    """Return a section of the kind that `value` names; a number for ``views`` stands for that many copies."""
    kinds = SECTIONS[key]
    count = whole_number(str(value))
    if key == "views" and count is not None and isinstance(current, Copies):
        return Copies(count=count)
    one_of(key, str(value), list(kinds))
    return current if type(current) is kinds[str(value)] else kinds[str(value)]()


def _find(method: Method, key: str) -> tuple[str, str]:
    """Return the section and the field that a key stands for."""
    sections_of: dict[str, list[str]] = {}
    for section, part in method.sections().items():
        for f in fields(part):
            sections_of.setdefault(f.name, []).append(section)
    dotted = {
        f"{section}.{name}".replace("-", "_"): (section, name)
        for name, sections in sections_of.items()
        for section in sections
    }
    joined = {path.replace(".", "_"): place for path, place in dotted.items()}
    if key in dotted or (key not in sections_of and key in joined):
        return dotted.get(key) or joined[key]
    if len(sections_of.get(key, [])) == 1:
        return sections_of[key][0], key
    if key == "objectives":
        raise InputError(f"--set {key}: objectives+=NAME adds one, objectives-=NAME removes one")
    if key in sections_of:
        raise InputError(f"--set {key}: say which one: {', '.join(f'{s}.{key}' for s in sections_of[key])}")
    names = [name if len(sections) == 1 else f"{sections[0]}.{name}" for name, sections in sections_of.items()]
    others = [ADD, REMOVE, *SECTIONS] if method.fit is None else []
    raise InputError(
        f"--set {key}: {method.name} has no such setting{nearest(key, [*names, *dotted])}; "
        f"it has: {', '.join([*names, *others]) or 'none'}"
    )


def _convert(key: str, value: Any, part: Any, field: str) -> object:
    """Convert a value to the type of a field; one that may be None is a number otherwise."""
    current = getattr(part, field)
    declared = str(next(f.type for f in fields(part) if f.name == field))
    optional, item_kind = "None" in declared, float if "float" in declared else int
    if optional and str(value).lower() == "none":
        return None
    kind: type[Any] = float if optional else type(current)
    parts = value if isinstance(value, list | tuple) and kind is tuple else [value]
    if any(isinstance(part, dict | list | tuple) or (isinstance(part, bool) and kind is not bool) for part in parts):
        raise InputError(f"--set {key}={value}: expected {VALUE_NAMES[kind]}, like {current!r}")
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value).strip()
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is tuple:
            return tuple(item_kind(item) for item in text.strip("()[]").split(",") if item)
        return kind(text)
    except (ValueError, KeyError) as error:
        raise InputError(f"--set {key}={value}: expected {VALUE_NAMES[kind]}, like {current!r}") from error


def _with_enough_views(method: Method, *, views_given: bool) -> Method:
    """Return the method with as many views as its objectives need, unless the user chose their number."""
    terms = method.objectives.items()
    needed = max((objective.views for _, objective in terms), default=1)
    if method.views.count < needed and method.views.joint:
        name = next(name for name, objective in terms if objective.views == needed)
        raise InputError(f"{name} compares the vectors of texts, and {method.name} makes none")
    if method.views.count < needed:
        if views_given:
            name = next(name for name, objective in terms if objective.views == needed)
            raise InputError(f"views: {name} needs {needed} of each sentence, not {method.views.count}")
        return replace(method, views=Copies(count=needed))
    if method.views.reads == "pairs":  # its views are as many as the data has columns
        return method
    if views_given and method.views.count > needed and not any(objective.every_view for _, objective in terms):
        raise InputError(f"views: no objective of {method.name} looks at more than {needed} of {method.views.count}")
    return method
