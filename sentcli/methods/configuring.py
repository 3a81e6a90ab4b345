"""Changing the settings of a method by name: ``--set``, recipes and options all end here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sentcli.bounds import one_of
from sentcli.errors import InputError, nearest
from sentcli.methods.heads import HEADS
from sentcli.methods.method import Method
from sentcli.methods.views import VIEWS, Copies
from sentcli.objectives import OBJECTIVES

ADD, REMOVE = "objectives+", "objectives-"
SECTIONS: dict[str, Mapping[str, type[Any]]] = {"head": HEADS, "views": VIEWS}
"""Parts of a method that are replaced as a whole, and the kinds that there are."""
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "whole numbers"}
"""What a setting of a type is called in messages."""


def configure(method: Method, assignments: Sequence[tuple[str, Any]]) -> Method:
    """Return the method with settings changed by name.

    Args:
        method: the start.
        assignments: ``("ami.weight", 1e-3)``; the section can be left out where one section alone has such a field
            (``temperature``) or joined by an underscore (``ami_weight``). ``("head", "none")`` replaces a whole
            section; ``("objectives+", "ami")`` adds an objective and ``objectives-`` removes one.
    """
    foreign = ("objectives", "settings", *SECTIONS)
    if method.fit is not None and any(key.rstrip("+-").split(".")[0] in foreign for key, _ in assignments):
        raise InputError(f"{method.name} is fitted, not trained: it has no objectives, views or training settings")
    given = [(key if key == REMOVE else key.replace("-", "_"), value) for key, value in assignments]
    for key, value in given:
        if key in (ADD, REMOVE):
            for name in value if isinstance(value, list) else str(value).split(","):
                method = _change_objectives(method, name.strip(), add=key == ADD)
    for key, value in given:
        if key in SECTIONS:
            method = method.with_section(key, _section(key, value, getattr(method, key)))
    plain = [(_auxiliary(method) if key == "aux_init" else key, value) for key, value in given]
    places = [(key, *_find(method, key), value) for key, value in plain if key not in (ADD, REMOVE, *SECTIONS)]
    names = {name for _, section, name, _ in places if section == "settings"}
    if "epochs" in names and "max_steps" not in names:  # the method's own number of steps must not win
        method = replace(method, settings=replace(method.settings, max_steps=0))
    for key, section, name, value in places:
        method = method.with_section(section, _assign(method.sections()[section], name, value, key))
    views_given = any(key == "views" for key, _ in given) or any(section == "views" for _, section, _, _ in places)
    return _with_enough_views(method, views_given=views_given)


def _auxiliary(method: Method) -> str:
    """Return the setting that ``--aux-init`` stands for."""
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
    """Return a new section of the kind that is named; a bare number of views changes their count."""
    kinds = SECTIONS[key]
    if key == "views" and str(value).isdigit() and isinstance(current, Copies):
        return Copies(count=int(value))
    one_of(key, str(value), list(kinds))
    return current if type(current) is kinds[str(value)] else kinds[str(value)]()


def _find(method: Method, key: str) -> tuple[str, str]:
    """Return the section and field that a key means."""
    owners: dict[str, list[str]] = {}
    for section, part in method.sections().items():
        for f in fields(part):
            owners.setdefault(f.name, []).append(section)
    dotted = {
        f"{section}.{name}".replace("-", "_"): (section, name) for name, all_ in owners.items() for section in all_
    }
    joined = {path.replace(".", "_"): place for path, place in dotted.items()}
    if key in dotted or (key not in owners and key in joined):
        return dotted.get(key) or joined[key]
    if len(owners.get(key, [])) == 1:
        return owners[key][0], key
    known = [name if len(all_) == 1 else f"{all_[0]}.{name}" for name, all_ in owners.items()]
    others = [ADD, REMOVE, *SECTIONS] if method.fit is None else []
    if key == "objectives":
        raise InputError(f"--set {key}: objectives+=NAME adds one, objectives-=NAME removes one")
    if key in owners:
        raise InputError(f"--set {key}: say which one: {', '.join(f'{section}.{key}' for section in owners[key])}")
    raise InputError(
        f"--set {key}: {method.name} has no such setting{nearest(key, [*known, *dotted])}; "
        f"it has: {', '.join([*known, *others]) or 'none'}"
    )


def _assign(part: Any, name: str, value: Any, key: str) -> Any:
    """Return the dataclass with one field set, converted to the type of what is there."""
    declared = str(next(f.type for f in fields(part) if f.name == name))
    return replace(part, **{name: _convert(key, value, getattr(part, name), declared)})


def _convert(key: str, value: Any, current: object, declared: str) -> object:
    optional = "None" in declared
    if optional and str(value).lower() == "none":
        return None
    kind: type[Any] = float if optional else type(current)
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value).strip()
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is tuple:
            return tuple(int(item) for item in text.strip("()[]").split(",") if item)
        return kind(text)
    except (ValueError, KeyError) as error:
        raise InputError(f"--set {key}={value}: expected {KINDS[kind]}, like {current!r}") from error


def _with_enough_views(method: Method, *, views_given: bool) -> Method:
    """Encode each sentence as often as the objectives need."""
    terms = method.objectives.items()
    needed = max((objective.views for _, objective in terms), default=1)
    if method.views.count < needed:
        if views_given:
            name = next(name for name, objective in terms if objective.views == needed)
            raise InputError(f"views: {name} needs {needed} of each sentence, not {method.views.count}")
        return replace(method, views=Copies(count=needed))
    if views_given and method.views.count > needed and not any(objective.every_view for _, objective in terms):
        raise InputError(f"views: no objective of {method.name} looks at more than {needed} of {method.views.count}")
    return method
