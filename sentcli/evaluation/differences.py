"""The difference of two scores: what it is, how sure it is, and what this data could have shown."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sentcli.table import MINUS

LEVEL = 0.95
POWER = 0.8
"""The share of cases in which a difference of the size `Difference.smallest` is shown."""
MOST_SEEDS = 1000
"""The most seeds that are thought of."""


def student(freedom: float) -> float:
    """Return the quantile of Student's t that an interval of `LEVEL` reaches to, in standard errors."""
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, freedom))


@dataclass(frozen=True)
class Variation:
    """What a difference varies by, as Student's t takes it."""

    items: float
    """The variance that is due to the items."""
    seeds: float
    """The variance that is due to the seeds, at their number; 0 for models that are meant as they are."""
    item_freedom: float
    """Degrees of freedom of `items`."""
    seed_freedom: float = 1.0
    """Degrees of freedom of `seeds`."""
    runs: int = 1
    """The number of seeds of the smaller group that has several."""

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        return (self.items + self.seeds) ** 0.5

    @property
    def freedom(self) -> float:
        """The degrees of freedom f: 1 / f = w**1.15 / f_seeds + (1 - w) / f_items, where w is the share of the seeds.

        Satterthwaite (1946) has w**2; with two or three seeds w is often far too small by chance, and that rejects too
        often.
        """
        share = self.seeds / (self.items + self.seeds)
        # the power of the seeds' share of the variance was chosen by the simulations of the tests
        power = min(1.15, self.seed_freedom / 1.5)
        return 1 / (share**power / self.seed_freedom + (1 - share) / self.item_freedom)

    @property
    def half(self) -> float:
        """Half of the 95 % interval."""
        return student(self.freedom) * self.error

    @property
    def smallest(self) -> float:
        """The smallest difference that is shown with a power of 80 %, by the noncentral t distribution."""
        from scipy.special import nctdtrinc

        return float(nctdtrinc(self.freedom, 1 - POWER, self.half / self.error)) * self.error

    def with_runs(self, runs: int) -> Variation:
        """Return what the difference would vary by with another number of seeds of the smaller group.

        The other group keeps its proportion to it.
        """
        seeds = self.seeds * self.runs / runs
        freedom = self.seed_freedom * (runs - 1) / (self.runs - 1)
        return replace(self, seeds=seeds, seed_freedom=freedom, runs=runs)

    def seeds_needed(self, difference: float) -> int | None:
        """Return the seeds of the smaller group with which a difference would be shown, with a power of 80 %.

        It is None where no seeds were compared, and where no number of them would be enough: the items do not show it.
        """
        if self.seeds == 0 or self.with_runs(MOST_SEEDS).smallest > abs(difference):
            return None
        needed = range(2, MOST_SEEDS + 1)
        return needed[bisect_left(needed, -abs(difference), key=lambda runs: -self.with_runs(runs).smallest)]


@dataclass(frozen=True)
class Difference:
    """The score of a model, or the mean score of a group of seeds, minus that of another on the same items."""

    difference: float
    low: float | None = None
    """The ends of the 95 % interval; None where p is None, and where p is of McNemar's test."""
    high: float | None = None
    p: float | None = None
    """The two-sided p value: of Student's t, or of McNemar's exact test where `only_first` is a number."""
    reason: str | None = None
    """Why there is no p value."""
    only_first: int | None = None
    """The number of items that only the first model has right."""
    only_second: int | None = None
    p_holm: float | None = None
    """The p value, corrected for all differences that were looked at together (Holm)."""
    smallest: float | None = None
    """The smallest difference that this data would have shown with a power of 80 %; None where that is not known, and
    for two scores that are equal on all samples."""
    seeds_needed: int | None = None
    """The seeds of the smaller group with which a difference of this size would be shown so, if the other group grows
    in proportion and the spread is what these seeds show of it; see `Variation.seeds_needed`."""

    @classmethod
    def tested(cls, difference: float, variation: Variation) -> Difference:
        """Return a difference with Student's t and its interval."""
        from scipy.stats import t

        half = variation.half
        p = 2 * float(t.sf(abs(difference) / variation.error, variation.freedom))
        return cls(
            difference,
            difference - half,
            difference + half,
            p,
            smallest=variation.smallest,
            seeds_needed=variation.seeds_needed(difference),
        )

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any]) -> Difference:
        """Return a difference that was read from the JSON, which may be of an earlier version."""
        more = ("low", "high", "p", "reason", "only_first", "only_second", "smallest", "seeds_needed")
        return cls(entry["difference"], **{key: entry.get(key) for key in more})

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None if there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low, self.high

    @property
    def is_gain(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low is not None and self.low > 0

    @property
    def is_loss(self) -> bool:
        """Whether the interval lies below 0."""
        return self.high is not None and self.high < 0

    def excludes_loss(self, allow: float) -> bool:
        """Tell whether the interval excludes a loss beyond what is allowed."""
        return self.low is not None and self.low >= -allow

    def words(self, pattern: str = ".4f") -> str:
        """Return the difference with its interval in brackets, in the format of the scores."""
        words = format(self.difference, f"+{pattern}")
        if self.interval is not None:
            low, high = self.interval
            words += f" (95 % {low:+{pattern}} to {high:+{pattern}})"
        return words.replace("-", MINUS)

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of the JSON."""
        entry: dict[str, Any] = {"difference": self.difference}
        if self.only_first is not None:
            entry |= {"only_first": self.only_first, "only_second": self.only_second}
        else:
            entry |= {"low": self.low, "high": self.high}
        entry |= {"p": self.p, "p_holm": self.p_holm}
        more = {"smallest": self.smallest, "seeds_needed": self.seeds_needed, "reason": self.reason}
        for key, value in more.items():
            if value is not None:
                entry[key] = value
        return entry
