"""Which systems of a table are best."""

from __future__ import annotations

from dataclasses import dataclass

from sentcli.evaluation.systems import System
from sentcli.pages.score_tables import ScoreTable
from sentcli.pages.weights import listed


@dataclass(frozen=True)
class Leaders:
    """The systems of a table that are best by its last column, which is the average if there is one."""

    best: tuple[System, ...]
    """The systems whose value is the highest, equal in the digits that the table prints."""
    value: float
    others: tuple[System, ...]
    """The rest of those that have a value, the best one first."""

    @property
    def all_equal(self) -> bool:
        """Whether several systems are compared and all have the same value."""
        return len(self.best) > 1 and not self.others

    @property
    def names(self) -> str:
        """The labels of the best systems."""
        return listed([system.label for system in self.best])


def leaders(table: ScoreTable) -> Leaders | None:
    """Return the best systems of a table by its last column; None if no system has a value there."""
    column = table.columns[-1]
    pattern = table.format_of(column)
    means = []
    for system in table.systems:
        mean, _ = system.mean_and_deviation(column)
        if mean is not None:
            means.append((mean, system))
    if not means:
        return None
    means.sort(key=lambda entry: -entry[0])
    highest = means[0][0]
    best = []
    others = []
    for mean, system in means:
        if format(mean, pattern) == format(highest, pattern):
            best.append(system)
        else:
            others.append(system)
    return Leaders(tuple(best), highest, tuple(others))
