"""What every verb returns: JSON objects, and what the console, notebooks and pages show of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError, SentcliError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.page import Figure, Section
    from sentcli.pages.parts import Part
    from sentcli.pages.score_page import Choices
    from sentcli.table import Table

SCREEN = (100, 20)
"""Characters of a line and lines of the text form of a result."""


class Clock:
    """Measures how long a verb works, from when it was made."""

    def __init__(self) -> None:
        self.started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds since then."""
        return time.perf_counter() - self.started


@dataclass(frozen=True)
class Record:
    """The JSON object of a command, or of one of several models or runs of a command."""

    command: str
    model: str = ""
    protocol: Mapping[str, Any] = field(default_factory=dict)
    """Every choice that moves the results."""
    results: Any = None
    environment: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = field(default_factory=dict)
    """The versions, the device and the seed, as `machine.environment` returns them, or what returns them: reading the
    versions of libraries takes longer than encoding some texts, and many commands show none of it."""
    seconds: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further entries."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        environment = self.environment
        if callable(environment):
            environment = environment()
        return {
            "command": self.command,
            "model": self.model,
            "protocol": self.protocol,
            "results": self.results,
            "environment": environment,
            "elapsed_seconds": round(self.seconds, 3),
            **self.more,
        }


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a verb."""

    records: Sequence[Record | dict[str, Any]]
    """The `objects`, or what they are made of when they are asked for."""
    sections: Sequence[Section] = ()
    """Tables and figures; `show` prints the tables that are not folded."""
    verdict: str = ""
    """A sentence below the tables."""
    exit_code: int = 0
    """The exit code of the command, whose work is done: 3 where a gate did not pass."""
    listings: Sequence[Any] = ()
    """What rich prints below the tables, such as the hits of queries."""
    note: str = ""
    """A note on standard error behind the listings."""
    overview: Mapping[str, Any] = field(default_factory=dict)
    """What matters of the results, with its names in words: a notebook shows it as a table in front of the others."""
    rows: Sequence[Mapping[str, Any]] | None = None
    """The rows of `frame`; None takes the first table."""
    make_frame: Callable[[], pd.DataFrame] | None = None
    """Makes `frame` when it is asked for, where it is large and not always needed."""
    make_figure: Callable[[], Figure | None] | None = None
    """Makes a figure that notebooks alone show, when they do."""
    scores: Sequence[ModelScores] = ()
    """The scores that the command has measured, of each model."""
    write_page: Callable[[Sequence[ModelScores], Sequence[Path]], None] | None = None
    """Writes `scores` as pages."""
    folder: Path | None = None
    """The folder with the pictures of the figures."""
    silent: bool = False
    """Whether another process of the same training prints and writes the result."""
    on_console: bool = True
    """Whether `show` prints the tables, which a page that was written has as well."""

    @classmethod
    def of(cls, record: Record, tables: Iterable[Table] = (), **more: Any) -> Result:
        """Return a result of one JSON object that shows `tables`; `more` are other fields."""
        sections: list[Section] = []
        if tables:  # a line that is encoded has none, and pages need not be imported
            from sentcli.pages.page import Section

            sections = list(map(Section.of, tables))
        return cls(**{"records": [record], "sections": sections, **more})

    def with_results(self, more: Mapping[str, Any]) -> Result:
        """Return this result with more numbers in the results of its one record."""
        (record,) = self.records
        assert isinstance(record, Record)
        return replace(self, records=[replace(record, results={**record.results, **more})])

    @classmethod
    def of_scores(cls, scores: Sequence[ModelScores], choices: Choices, parts: Sequence[Part] = ()) -> Result:
        """Return the scores of models, compared, with what was found beside them.

        Args:
            scores: of the models of a command.
            choices: of a page of scores.
            parts: what was found beside them.
        """
        from sentcli.evaluation.score_json import model_json
        from sentcli.evaluation.scores import long_rows
        from sentcli.pages.page import Section
        from sentcli.pages.parts import with_parts
        from sentcli.pages.score_page import write_score_page
        from sentcli.pages.score_report import ScoreReport

        report = ScoreReport.of(scores, choices.groups, choices.names)
        verdict = report.verdict
        whole = []
        for of_model in report.with_differences(scores):
            if verdict:
                of_model = of_model.with_entries({"verdict": verdict})
            whole.append(with_parts(of_model, parts))
        more_sections: list[Section] = []
        sentences = [verdict]
        exit_code = 0
        for part in parts:
            more_sections += part.sections()
            sentences.append(part.sentence)
            exit_code = max(exit_code, part.exit_code)
        task_scores = list(chain.from_iterable(of_model.tasks for of_model in whole))
        if task_scores and all(score.reason for score in task_scores):
            exit_code = max(exit_code, 1)
        sections = list(map(Section.of, report.console_tables()))
        return cls(
            records=list(map(model_json, whole)),
            sections=[*sections, *more_sections],
            verdict="\n".join(filter(None, sentences)),
            exit_code=exit_code,
            rows=long_rows(whole),
            scores=whole,
            write_page=partial(write_score_page, choices=choices, more=more_sections),
        )

    def measured_by(self, command_line: str) -> Result:
        """Return the result with the command that has measured its scores, in the JSON and on pages."""
        objects = [{**each, "command_line": command_line} for each in self.objects]
        scores = [replace(of_model, command_line=command_line) for of_model in self.scores]
        return replace(self, records=objects, scores=scores)

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """The JSON objects: one, or one for each model or run."""
        objects = []
        for record in self.records:
            if isinstance(record, Record):
                record = record.to_dict()
            objects.append(record)
        return objects

    def settle(self) -> None:
        """Make the `objects` now, for a caller that may keep the result long: they say how things are at this time."""
        _ = self.objects

    @property
    def tables(self) -> list[Table]:
        """The tables that are not folded."""
        return [section.table for section in self.sections if section.table is not None and not section.folded]

    def to_dict(self) -> Any:
        """Return the JSON: an object, or a list of them where there are several models or runs."""
        if len(self.objects) == 1:
            return self.objects[0]
        return list(self.objects)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A data frame.

        Scores have a row for each model, task and metric, hits a row for each hit, near duplicates a row for each pair,
        and maps and vectors that `encode` did not write a row for each row of the input. Any other result is its first
        table, or a row for each of the results if there is no table.
        """
        import pandas as pd

        if self.make_frame is not None:
            return self.make_frame()
        if self.rows is not None:
            return pd.DataFrame(list(self.rows))
        if self.tables:
            return self.tables[0].to_frame()
        return pd.json_normalize(self._results)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of `frame`."""
        return self.frame.copy()

    def show(self) -> None:
        """Print tables and verdict, as the command does."""
        if self.silent or not self.on_console:
            return
        self._print(console.output(), self.tables)
        if self.note:
            console.note(self.note)

    def _print(self, target: Console, tables: Sequence[Table]) -> None:
        for table in tables:
            console.show(table, target)
        if self.verdict:
            console.conclude(self.verdict, target)
        for listing in self.listings:
            target.print(listing)

    def __repr__(self) -> str:
        """Return what `show` prints, as far as it fits on a screen, with an overview of results without a table."""
        width, most = SCREEN
        target = console.recording_console(width)
        self._print(target, [*self._overview(), *self.tables])
        text: str = target.file.getvalue()  # type: ignore[attr-defined]
        lines = text.splitlines() or [self._title]
        if len(lines) > most:
            lines[most - 1 :] = ["... show() prints all, to_dict() and frame have the numbers"]
        return "\n".join(line.rstrip()[:width] for line in lines)

    @property
    def _results(self) -> Any:
        """The results of the only JSON object; None where there are several."""
        if len(self.objects) > 1:
            return None
        return self.objects[0].get("results")

    def _overview(self) -> list[Table]:
        """Return what matters of the results as a table, if anything is known of that.

        Of results without a table all that are single values matter.
        """
        from sentcli.table import Table, flat

        values = dict(self.overview)
        has_frame = bool(self.tables) or self.rows is not None
        if not values and not has_frame and isinstance(self._results, Mapping):
            for key, value in flat(self._results).items():
                if value is not None:
                    values[key.replace("_", " ")] = value
        rows = []
        for name, value in values.items():
            if not isinstance(value, list | tuple):
                rows.append([name, _in_words(value)])
        if not rows:
            return []
        return [Table(self._title, ["", "value"], rows)]

    @property
    def _title(self) -> str:
        first = self.objects[0]
        title = f"sentcli {first['command']}"
        if len(self.objects) == 1 and first["model"]:
            title += f", {first['model']}"
        return title

    def write_pages(self, files: Sequence[Path]) -> None:
        """Write scores as HTML, Markdown or LaTeX.

        Raises:
            InputError: if there are no scores.
        """
        if self.write_page is None:
            raise InputError("--report makes pages of evaluations (--beir, --in-domain); --hits and --json write hits")
        self.write_page(self.scores, files)

    def _repr_html_(self) -> str:
        """Show tables, figures and verdict in a notebook."""
        from html import escape

        parts = [table._repr_html_() for table in self._overview()]
        for section in self.sections:
            if section.table is not None and not section.folded:
                parts.append(section.table._repr_html_())
            if section.figure is not None and self.folder is not None:
                parts.append(_picture(section.figure, (self.folder / f"{section.figure.name}.png").read_bytes()))
        figure = self.make_figure() if self.make_figure is not None else None
        if figure is not None:
            from sentcli.pages.figures import as_png

            parts.append(_picture(figure, as_png(figure)))
        if self.rows is not None and self.write_page is None:
            parts.append(str(self.frame._repr_html_()))
        elif self.make_frame is not None and not self.sections:
            parts.append(str(self.frame.head()._repr_html_()))
        if self.verdict:
            parts.append(f"<p>{escape(self.verdict)}</p>")
        return "".join(parts) or f"<pre>{escape(repr(self))}</pre>"


@contextmanager
def written_if_interrupted(outcome: Callable[[], Result | None]) -> Iterator[None]:
    """Let ``--json`` be written if the work inside is interrupted, of what `outcome` then returns."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        error.outcome = outcome()  # type: ignore[union-attr]
        raise


@contextmanager
def kept_if_interrupted(record: Record, clock: Clock, done: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Keep what was done, for ``--json``, if the work inside is interrupted.

    Args:
        record: what is known of the JSON object before the work.
        clock: of the command.
        done: returns the results so far; what is empty is not written.
    """

    def outcome() -> Result | None:
        so_far = done()
        if not so_far:
            return None
        return Result.of(replace(record, results=so_far, seconds=clock.seconds, more={"interrupted": True}))

    with written_if_interrupted(outcome):
        yield


def failed(result: Result, message: str) -> SentcliError:
    """Return the error to end with after work that was partly done; ``--json`` is written all the same."""
    error = SentcliError(message)
    error.outcome = result
    return error


def _in_words(value: Any) -> str:
    """Return a value of an overview as people read it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _picture(figure: Figure, png: bytes) -> str:
    """Return a picture of a figure as an element of HTML."""
    from base64 import b64encode
    from html import escape

    width = figure.columns * 400
    panels = b64encode(png).decode()
    return f'<img width="{width}" alt="{escape(figure.alt)}" src="data:image/png;base64,{panels}">'
