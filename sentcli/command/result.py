"""The result of every verb: one class for the console, notebooks, pages and programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError, SentcliError
from sentcli.machine import environment
from sentcli.pages.page import Figure, Section
from sentcli.table import Table, flat

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.score_page import Choices

SCREEN = (100, 20)
"""Characters of a line and lines of the text form of a result."""


@contextmanager
def written_if_interrupted(outcome: Callable[[], Result | None]) -> Iterator[None]:
    """Let ``--json`` be written if the work inside is interrupted, of what `outcome` then returns."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        error.outcome = outcome()  # type: ignore[union-attr]
        raise


@dataclass(repr=False)
class Result:
    """The result of a verb, which is made when the verb starts and filled while it works."""

    command: str
    model: str = ""
    protocol: dict[str, Any] = field(default_factory=dict)
    results: Any = None
    environment: dict[str, Any] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    """Tables and figures; `show` prints the tables that are not folded."""
    further: list[Section] = field(default_factory=list)
    """The same of scores, besides what a page of scores makes of `models`."""
    verdict: str = ""
    """A sentence below the tables."""
    listings: list[Any] = field(default_factory=list, repr=False)
    """What rich prints below the tables, such as the hits of queries."""
    note: str = ""
    """A note on standard error behind the listings."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further entries of the JSON object."""
    overview: Mapping[str, Any] = field(default_factory=dict)
    """What matters of the results, with its names in words: a notebook shows it as a table in front of the others."""
    rows: Sequence[Mapping[str, Any]] | None = None
    """The rows of `frame`; None takes the first table."""
    make_frame: Callable[[], pd.DataFrame] | None = field(default=None, repr=False)
    """Makes `frame` when it is asked for, where it is large and not always needed."""
    make_figure: Callable[[], Figure | None] | None = field(default=None, repr=False)
    """Makes a figure that notebooks alone show, when they do."""
    objects: Sequence[dict[str, Any]] = ()
    """The JSON objects of several models or runs, instead of one with `results`."""
    models: Sequence[ModelScores] = ()
    """The scores of models, of which pages are made."""
    choices: Choices | None = None
    """The choices for such a page."""
    folder: Path | None = None
    """The folder with the pictures of the figures."""
    silent: bool = False
    """Whether another process of the same training prints and writes the result."""
    on_console: bool = True
    """Whether `show` prints the tables, which a page that was written has as well."""
    started: float = field(default_factory=time.perf_counter, repr=False)
    seconds: float | None = None
    exit_code: int = 0
    """The exit code of the command, which is done: 3 where a model is worse than its baseline."""

    @classmethod
    def of_scores(cls, models: Sequence[ModelScores], tables: Iterable[Table], **more: Any) -> Result:
        """Return the scores of models as a result that shows `tables`; `more` are other fields."""
        from sentcli.evaluation.score_files import model_json

        return cls(
            models[0].command,
            sections=[Section(table.title, table=table) for table in tables],
            rows=[row for scores in models for row in scores.rows()],
            models=models,
            **{"objects": [model_json(scores) for scores in models], **more},
        )

    @property
    def tables(self) -> list[Table]:
        """The tables that are not folded."""
        sections = [*self.sections, *self.further]
        return [section.table for section in sections if section.table is not None and not section.folded]

    def finish(self, results: Any, tables: Sequence[Table] = ()) -> Result:
        """Set the results and their tables, and stop the clock."""
        self.results, self.seconds = results, time.perf_counter() - self.started
        self.sections = [Section(table.title, table=table) for table in tables]
        return self

    def ran_on(
        self, device: str | None, precision: str | None, seed: int | None = None, revision: str | None = None
    ) -> None:
        """Set the environment; None stands for what was not used, and for the commit of a model that has none."""
        self.environment = environment(device, precision, seed, revision)

    @contextmanager
    def kept_if_interrupted(self, done: Callable[[], dict[str, Any]]) -> Iterator[None]:
        """Keep what was done, for ``--json``, if the work inside is interrupted.

        Args:
            done: returns it; what is empty is not written.
        """

        def outcome() -> Result | None:
            so_far = done()
            self.more["interrupted"] = True
            return self.finish(so_far) if so_far else None

        with written_if_interrupted(outcome):
            yield

    def failed(self, message: str) -> SentcliError:
        """Return the error to end with after work that was partly done; ``--json`` is written all the same."""
        error = SentcliError(message)
        error.outcome = self
        return error

    def to_dict(self) -> Any:
        """Return the JSON: an object, or a list of them where there are several models or runs."""
        if self.objects:
            return self.objects[0] if len(self.objects) == 1 else list(self.objects)
        return {
            "command": self.command,
            "model": self.model,
            "protocol": self.protocol,
            "results": self.results,
            "environment": self.environment,
            "elapsed_seconds": round(self.seconds or 0.0, 3),
            **self.more,
        }

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
        return self.tables[0].to_frame() if self.tables else pd.json_normalize(self.results)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of `frame`."""
        return self.frame.copy()

    def show(self) -> None:
        """Print tables and verdict, as the command does."""
        if self.silent or not self.on_console:
            return
        self._print(console.output())
        if self.note:
            console.note(self.note)

    def _print(self, target: Console, *, overview: Table | None = None) -> None:
        for table in (*([] if overview is None else [overview]), *self.tables):
            console.show(table, target)
        if self.verdict:
            console.conclude(self.verdict, target)
        for listing in self.listings:
            target.print(listing)

    def __repr__(self) -> str:
        """Return what `show` prints, as far as it fits on a screen, with an overview of results without a table."""
        width, most = SCREEN
        target = console.recording(width)
        self._print(target, overview=self._overview())
        lines = target.file.getvalue().splitlines() or [self._title]  # type: ignore[attr-defined]
        if len(lines) > most:
            lines[most - 1 :] = ["... show() prints all, to_dict() and frame have the numbers"]
        return "\n".join(line.rstrip()[:width] for line in lines)

    def _overview(self) -> Table | None:
        """Return what matters of the results as a table; of results without a table, all that are single values."""
        values = self.overview
        if not values and not self.tables and self.rows is None and isinstance(self.results, Mapping):
            values = {key.replace("_", " "): value for key, value in flat(self.results).items() if value is not None}
        rows = [[name, _in_words(value)] for name, value in values.items() if not isinstance(value, list | tuple)]
        return Table(self._title, ["", "value"], rows) if rows else None

    @property
    def _title(self) -> str:
        return f"sentcli {self.command}, {self.model}" if self.model else f"sentcli {self.command}"

    def write_pages(self, files: Sequence[Path]) -> None:
        """Write scores as HTML, Markdown or LaTeX.

        Raises:
            InputError: if there are no scores.
        """
        from sentcli.pages.score_page import Choices, write_score_page

        if not self.models:
            raise InputError("--report makes pages of evaluations (--beir, --in-domain); --hits and --json write hits")
        write_score_page(self.models, files, self.choices or Choices(), self.further)

    def _repr_html_(self) -> str:
        """Show tables, figures and verdict in a notebook."""
        from html import escape

        overview = self._overview()
        parts = [] if overview is None else [overview._repr_html_()]
        for section in (*self.sections, *self.further):
            if section.table is not None and not section.folded:
                parts.append(section.table._repr_html_())
            if section.figure is not None and self.folder is not None:
                parts.append(_picture(section.figure, (self.folder / f"{section.figure.name}.png").read_bytes()))
        figure = None if self.make_figure is None else self.make_figure()
        if figure is not None:
            from sentcli.pages.figures import as_png

            parts.append(_picture(figure, as_png(figure)))
        if self.rows is not None and not self.models:
            parts.append(str(self.frame._repr_html_()))
        elif self.make_frame is not None and not self.sections:
            parts.append(str(self.frame.head()._repr_html_()))
        if self.verdict:
            parts.append(f"<p>{escape(self.verdict)}</p>")
        return "".join(parts) or f"<pre>{escape(repr(self))}</pre>"


def _in_words(value: Any) -> str:
    """Return a value of an overview as people read it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    whole = isinstance(value, int) or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def _picture(figure: Figure, png: bytes) -> str:
    """Return a picture of a figure as an element of HTML."""
    from base64 import b64encode
    from html import escape

    width, panels = figure.columns * 400, b64encode(png).decode()
    return f'<img width="{width}" alt="{escape(figure.alt)}" src="data:image/png;base64,{panels}">'
