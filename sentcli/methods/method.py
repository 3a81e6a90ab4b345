"""What a method is: data. `sentcli.methods` lists them, `configure` changes their settings by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sentcli.errors import InputError, nearest
from sentcli.methods.heads import HEADS, Head, MLPHead
from sentcli.methods.modules import CNN, Fit, Twin
from sentcli.methods.settings import Settings
from sentcli.methods.views import VIEWS, Copies, ViewMaker
from sentcli.objectives import OBJECTIVES, Objective, checks


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to train: which views, which head, which terms of the loss, which settings.

    The name of each objective is its key in ``--set`` and in ``metrics.jsonl``.
    """

    name: str
    title: str
    """Paper, authors, venue."""
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    views: ViewMaker = field(default_factory=Copies)
    head: Head = field(default_factory=MLPHead)
    settings: Settings = field(default_factory=Settings)
    pooling: str = "cls"
    """A value of ``--pooling``; ``own`` takes what the start model's folder says."""
    cnn: CNN | None = None
    """Convolutions over the token vectors that become part of the encoder."""
    twin: Twin | None = None
    """A second encoder for the second view."""
    fit: Fit | None = None
    """A transformation that is fitted instead of training."""
    stages: Mapping[str, Method] = field(default_factory=dict)
    """Other trainings of the same paper, for ``--stage``."""

    def sections(self) -> dict[str, Any]:
        """Return everything that has settings, by the name that ``--set`` calls it."""
        parts = {"head": self.head, "views": self.views, "cnn": self.cnn, "twin": self.twin, "fit": self.fit}
        return {
            **self.objectives,
            **{name: part for name, part in parts.items() if part is not None},
            "settings": self.settings,
        }

    def with_section(self, name: str, value: Any) -> Method:
        """Return the method with one section replaced."""
        if name in self.objectives:
            return replace(self, objectives={**self.objectives, name: value})
        return replace(self, **{name: value})

    def describe(self) -> dict[str, Any]:
        """Return name and every setting but the shared ones, for reports and model cards."""
        kinds: dict[str, Mapping[str, type[Any]]] = {"head": HEADS, "views": VIEWS}
        kinds.update(dict.fromkeys(self.objectives, OBJECTIVES))
        described: dict[str, Any] = {"name": self.name}
        for section, part in self.sections().items():
            if section == "settings":
                continue
            kind = next((k for k, cls in kinds.get(section, {}).items() if type(part) is cls), None)
            shown = {"kind": kind} if kind not in (None, section) else {}
            counts = {"count": part.count} if section == "views" else {}
            described[section] = {**shown, **counts, **asdict(part)}
        return described


KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "whole numbers"}
"""What a setting of a type is called in messages."""


def configure(method: Method, assignments: Iterable[tuple[str, Any]]) -> Method:
    """Return the method with settings changed by name.

    Args:
        method: the start.
        assignments: ``("ami.weight", 1e-3)``; the section can be left out where one section alone has such a field
            (``temperature``) or joined by an underscore (``ami_weight``). ``("head", "none")`` replaces a whole
            section; ``("objectives+", "ami")`` adds an objective and ``objectives-`` removes one.

    Raises:
        InputError: for an unknown name or a value that does not fit.
    """
    given = [(key.replace("-", "_") if key != "objectives-" else key, value) for key, value in assignments]
    for key, value in given:
        if key in ("objectives+", "objectives-"):
            for name in value if isinstance(value, list) else str(value).split(","):
                method = _change_objectives(method, name.strip(), add=key.endswith("+"))
    kinds: dict[str, Mapping[str, type[Any]]] = {"head": HEADS, "views": VIEWS}
    for key, value in given:
        if key in kinds:
            method = method.with_section(key, _section(key, value, getattr(method, key), kinds[key]))
    names = {key.rpartition(".")[2] for key, _ in given}
    if "epochs" in names and "max_steps" not in names:  # the later word counts
        method = replace(method, settings=replace(method.settings, max_steps=0))
    for key, value in given:
        if key == "aux_init":
            key = _auxiliary(method)
        if key not in ("objectives+", "objectives-", *kinds):
            section, name = _find(method, key)
            changed = _assign(method.sections()[section], name, value, key)
            method = method.with_section(section, changed)
    return _with_enough_views(method)


def _auxiliary(method: Method) -> str:
    """Return the setting that ``--aux-init`` stands for."""
    name = next((name for name in ("auxiliary-mlm", "condenser-mlm") if name in method.objectives), None)
    if name is None:
        raise InputError(f"--aux-init: {method.name} has no auxiliary network; infocse has")
    return f"{name.replace('-', '_')}.init"


def _change_objectives(method: Method, name: str, *, add: bool) -> Method:
    if add:
        checks.one_of("objective", name, list(OBJECTIVES))
        if name in method.objectives:
            raise InputError(f"objectives+={name}: {method.name} has it already")
        return replace(method, objectives={**method.objectives, name: OBJECTIVES[name]()})
    if name not in method.objectives:
        raise InputError(f"objectives-={name}: {method.name} has only {', '.join(method.objectives) or 'none'}")
    return replace(method, objectives={key: value for key, value in method.objectives.items() if key != name})


def _section(key: str, value: Any, current: Any, kinds: Mapping[str, type[Any]]) -> Any:
    """Return a new section of the kind that is named; a bare number of views changes their count."""
    if key == "views" and str(value).isdigit() and isinstance(current, Copies):
        return Copies(count=int(value))
    checks.one_of(key, str(value), list(kinds))
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
    if key in owners:
        raise InputError(f"--set {key}: say which one: {', '.join(f'{section}.{key}' for section in owners[key])}")
    raise InputError(
        f"--set {key}: {method.name} has no such setting{nearest(key, [*known, *dotted])}; one of: {', '.join(known)}, "
        f"objectives+, objectives-, head, views"
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


def _with_enough_views(method: Method) -> Method:
    """Encode each sentence as often as the objectives need; text-made views cannot be multiplied."""
    needed = max((objective.views for objective in method.objectives.values()), default=1)
    if method.views.count >= needed:
        return method
    return replace(method, views=Copies(count=needed))
