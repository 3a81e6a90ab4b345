"""From runs to a page: which tables there are, what stands in which, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sentcli import __version__
from sentcli.reports import details, protocols
from sentcli.reports.page import Page, Section
from sentcli.reports.published import print_table, printed
from sentcli.reports.runs import Run
from sentcli.reports.scores import SHORT, Scores, score_figure, score_table
from sentcli.reports.systems import Pattern, check_patterns, systems


@dataclass(frozen=True)
class Choices:
    """What the user says about a page."""

    title: str | None = None
    groups: tuple[Pattern, ...] = ()
    """Runs that are seeds of one system."""
    names: tuple[Pattern, ...] = ()
    """Labels of models."""


def collect(runs: Sequence[Run], choices: Choices | None = None, inside: Sequence[Section] = ()) -> Page:
    """Make a page of some runs.

    Args:
        runs: of any commands and protocols; those of different protocols do not share a table.
        choices: title, seeds, labels.
        inside: what else the page shows, between the scores and how they were measured.

    Raises:
        InputError: if a pattern matches nothing, or the seeds of a system differ in a setting.
    """
    choices = choices or Choices()
    check_patterns(choices.groups, runs)
    check_patterns(choices.names, runs)
    found = [_scores(group, title, choices) for group, title in _titled(protocols.tables(runs))]
    several = len(found) > 1
    commands = ", ".join(dict.fromkeys(run.command for run in runs))
    sections = [section for scores in found for section in _sections(scores, several)]
    return Page(
        title=choices.title or _title(found),
        sections=(*sections, *inside, *(_about(found) if found else ())),
        text=(f"Made by sentcli {__version__}{f' from the results of {commands}' if commands else ''}.",),
    )


def _title(found: Sequence[Scores]) -> str:
    rows = [system for scores in found for system in scores.systems]
    names = list(dict.fromkeys(row.label if row.grouped else row.members[0].name for row in rows))
    if not names:
        return "Report"
    return f"Evaluation of {names[0] if len(names) == 1 else f'{len(names)} models'}"


def _titled(groups: Sequence[list[Run]]) -> list[tuple[list[Run], str]]:
    """Give each table a title, which says what sets its protocol apart from that of others of its command."""
    titles = [protocols.title(group[0]) for group in groups]
    found = []
    for group, title in zip(groups, titles, strict=True):
        twins = [other for other, name in zip(groups, titles, strict=True) if name == title]
        each = protocols.differing([{"score": t[0].measure, **protocols.evaluation(t[0])} for t in twins])
        own = each[twins.index(group)]
        mark = own.get("name") or protocols.words(own) or f"data {twins.index(group) + 1} of {len(twins)}"
        found.append((group, f"{title} ({mark})" if len(twins) > 1 else title))
    return found


def _scores(runs: list[Run], title: str, choices: Choices) -> Scores:
    rows = systems(runs, choices.groups, choices.names)
    labels = {id(run): member.label for system in rows for member in system.members for run in member.runs}
    against = printed(runs, {i: labels[id(run)] for i, run in enumerate(runs)})
    return Scores(tuple(runs), tuple(rows), tuple(against), title)


def _sections(scores: Scores, several: bool) -> list[Section]:
    """Return the sections of a table of scores; their titles name it if there are several."""
    of = f": {scores.title}" if several else ""
    found = [Section(scores.title, table=score_table(scores), figure=score_figure(scores))]
    for one in scores.printed:
        found.append(Section(f"Against print{of}", table=print_table(one, SHORT), level=3))
    optional = (
        (f"Differences between models{of}", details.comparison_table(scores), False),
        (f"Subsets{of}", details.subset_table(scores), True),
        (f"Further measures{of}", details.measure_table(scores), True),
    )
    found += [Section(title, table=table, level=3, folded=folded) for title, table, folded in optional if table]
    return found


def _about(found: Sequence[Scores]) -> list[Section]:
    """Return how the numbers were made."""
    sections = []
    for scores in found:
        labelled = [(member.label, run) for member in details.members(scores) for run in member.runs]
        table = details.settings_table(
            f"Settings of {scores.title}", [(label, _settings(run)) for label, run in labelled]
        )
        sections.append(Section(f"Protocol: {scores.title}", table=table, level=3, folded=True))
    labelled = [(m.label, run) for scores in found for m in details.members(scores) for run in m.runs]
    versions = [(label, _machine(run)) for label, run in labelled]
    if any(found for _, found in versions):
        table = details.settings_table("Versions and hardware", versions)
        sections.append(Section("Environment", table=table, level=3, folded=True))
    commands = tuple(dict.fromkeys(details.command_line(run) for _, run in labelled))
    hint = "The same numbers on the same data; put in the places of models and data that hold on your machine."
    sections.append(Section("Commands", text=(hint,), code=commands, level=3, folded=True))
    return [Section("How it was measured"), *sections]


def _machine(run: Run) -> dict[str, object]:
    """Return versions and hardware, without what the protocol says already."""
    return {key: value for key, value in run.environment.items() if value is not None and key not in run.protocol}


def _settings(run: Run) -> dict[str, object]:
    seconds = {} if run.seconds is None else {"seconds": round(run.seconds, 1)}
    return {**run.protocol, **seconds}
