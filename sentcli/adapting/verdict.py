"""Whether an adapted model is taken: its gain on queries that chose nothing has to lie above 0 with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sentcli.evaluation.baseline import BaselineComparison
from sentcli.table import Table

START = "start"
"""The name of the choice where no candidate was better than the start."""


@dataclass(frozen=True)
class Verdict:
    """The best candidate against the start."""

    chosen: str
    """The name of the candidate that was best on the dev set; `START` if none was better there."""
    gain: BaselineComparison
    """On the queries that chose nothing."""
    queries: int
    kept: BaselineComparison | None
    """On the set of general similarity; None if there is none."""
    tried: int
    """The number of candidates that were trained."""
    smallest: float
    """The smallest gain of the best candidate that would have been seen in four of five cases."""

    @property
    def adopted(self) -> bool:
        """Whether the candidate is taken: its gain lies above 0, and no loss beyond what is allowed is possible."""
        if self.chosen == START or not self.gain.difference.is_gain:
            return False
        return self.kept is None or self.kept.passed

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        gain = self.gain
        results: dict[str, Any] = {
            "adopted": self.adopted,
            "chosen": self.chosen,
            "metric": gain.metric,
            "start": gain.before,
            "value": gain.after,
            "difference": gain.difference.difference,
            "interval": list(gain.interval),
            "smallest": self.smallest,
            "queries": self.queries,
        }
        if self.kept is not None:
            results["keep"] = self.kept.to_dict()
        return results

    @property
    def sentence(self) -> str:
        """What was found, and what the folder holds."""
        gain = self.gain
        measured = (
            f"on {self.queries:,} queries that chose nothing, {gain.metric} {gain.before:.4f} -> {gain.after:.4f}: "
            f"{gain.difference.words()}"
        )
        if self.adopted:
            return f"{self.chosen} is taken: {measured}."
        tried = f"{self.tried} candidates were tried, and the start is kept"
        if self.chosen == START:
            return (
                f"{tried}: none was better on the queries that choose. On {self.queries:,} others the smallest gain "
                f"that would be seen in four of five cases is {self.smallest:.4f}."
            )
        if gain.difference.is_gain and self.kept is not None:
            return (
                f"{tried}: {self.chosen} finds more ({measured}), but it may lose more than {self.kept.allow:g} of the "
                f"{self.kept.metric} that is to be kept: {self.kept.difference.words()}."
            )
        return (
            f"{tried}: {self.chosen} was the best of them, and {measured}. The smallest gain that would be seen in "
            f"four of five cases is {self.smallest:.4f}; more queries (--test) see smaller ones."
        )

    def table(self) -> Table:
        """Return the start beside what was chosen, on each set."""
        rows: list[list[Any]] = []
        for what, comparison in (("finds", self.gain), ("keeps", self.kept)):
            if comparison is not None:
                values = [comparison.before, comparison.after, comparison.difference.difference]
                rows.append([what, comparison.metric, *values, *comparison.interval])
        numbers = ("start", "chosen", "difference", "low", "high")
        notes = ["Low and high: the 95 % interval of the difference, over the same items."]
        return Table(
            "The start and what was chosen",
            ["what", "metric", *numbers],
            rows,
            dict.fromkeys(numbers, ".4f"),
            notes=notes,
        )
