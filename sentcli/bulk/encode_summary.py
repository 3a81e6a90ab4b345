"""The result of encoding files, as it is said and as it is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.bulk.update import Changes
from sentcli.io.copies import is_scratch
from sentcli.io.dataset import Counts
from sentcli.model.encoding import OnLong

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True)
class EncodeSummary:
    """The result of one call of `encode_files`."""

    output: str
    rows: int
    """The number of rows in the output, or in this machine's share of it."""
    dimension: int
    rows_before: int
    """The number of rows that earlier runs had written."""
    nulls_skipped: int
    counts: Counts
    """The counts over the rows that this call encoded."""
    damaged: list[str]
    """What was wrong with shards of an earlier run, which were made again."""
    seconds: float
    repeated_ids: int = 0
    """The number of ids that rows of earlier inputs have, to which these were appended."""
    changes: Changes | None = None
    """What has changed in a directory that was updated."""

    @property
    def output_file(self) -> str | None:
        """The output; None for vectors that stay in memory, whose file is temporary."""
        return None if is_scratch(Path(self.output)) else self.output

    @property
    def rows_per_second(self) -> float:
        """The speed of this call."""
        return self.counts.rows / max(self.seconds, 1e-9)

    def say(self, encoder: SentenceEncoder, on_long: OnLong) -> None:
        """Say what was encoded, and warn of rows that were left out or cut."""
        counts = self.counts
        if self.changes is not None:
            console.note(f"{self.output}: {self.changes}")
        for problem in self.damaged:
            console.warn(f"{problem}: its shard was made again")
        before = f", {self.rows_before} were there" if self.rows_before else ""
        ran = f"{encoder.backend.name} on {encoder.backend.device}, {encoder.backend.precision}"
        if encoder.sent is not None:
            ran = f"{encoder.model} was sent {encoder.sent}"
        written = f"{self.output_file or 'a frame'} [{self.rows}, {self.dimension}]"
        console.note(
            f"{counts.rows} rows{before} -> {written} in {self.seconds:.1f} s "
            f"({self.rows_per_second:,.0f} rows/s, {counts.duplicates} duplicate and {counts.empty} empty rows; {ran})"
        )
        if self.nulls_skipped:
            console.warn(f"{self.nulls_skipped} rows without text were left out")
        if counts.truncated:
            fate = f"were cut, {counts.tokens_lost} tokens lost (--on-long, --max-length)"
            if on_long == "chunk-mean":
                fate = "are the mean of their pieces"
            limit = encoder.spec.max_length
            console.warn(f"{counts.truncated} rows are longer than {limit} tokens and {fate}")

    def to_dict(self, encoder: SentenceEncoder) -> dict[str, Any]:
        """Return the results as JSON, with what a model that is served was sent."""
        counts = self.counts
        results: dict[str, Any] = {
            "output": self.output_file,
            "rows": self.rows,
            "dimension": self.dimension,
            "rows_encoded": counts.rows,
            "rows_skipped": self.nulls_skipped,
            "distinct": counts.rows - counts.duplicates,
            "duplicates": counts.duplicates,
            "empty": counts.empty,
            "tokens": counts.tokens,
            "truncated": counts.truncated,
            "tokens_lost": counts.tokens_lost,
            "rows_per_second": self.rows_per_second,
        }
        if encoder.sent is not None:
            results["sent"] = asdict(encoder.sent)
        if self.changes is not None:
            results |= self.changes.to_dict()
        return results
