"""The result of every verb: one class for the console, notebooks, pages and programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError, SentcliError
from sentcli.machine import environment
from sentcli.pages.page import Section

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.score_page import Choices
    from sentcli.table import Table


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
    kept_frame: pd.DataFrame | None = field(default=None, repr=False)
    """The data frame of `to_frame`, where it is more than tables and numbers say, such as vectors."""
    picture: Callable[[], str] | None = field(default=None, repr=False)
    """Draws an SVG for a notebook, such as the curve of a training."""
    rows: Sequence[Mapping[str, Any]] | None = None
    """The rows of `to_frame`; None takes the first table."""
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
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as error:
            if so_far := done():
                self.more["interrupted"] = True
                error.outcome = self.finish(so_far)  # type: ignore[union-attr]
            raise

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

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame.

        Scores have a row for each model, task and metric, hits a row for each hit. Any other result is its first table,
        or a row for each of the results if there is no table.
        """
        import pandas as pd

        if self.kept_frame is not None:
            return self.kept_frame
        if self.rows is not None:
            return pd.DataFrame(list(self.rows))
        return self.tables[0].to_frame() if self.tables else pd.json_normalize(self.results)

    @property
    def frame(self) -> pd.DataFrame:
        """The data frame of `to_frame`."""
        return self.to_frame()

    def show(self) -> None:
        """Print tables and verdict, as the command does."""
        if self.silent or not self.on_console:
            return
        for table in self.tables:
            console.show(table)
        if self.verdict:
            console.conclude(self.verdict)
        for listing in self.listings:
            console.output().print(listing)
        if self.note:
            console.note(self.note)

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
        from base64 import b64encode
        from html import escape

        parts = []
        for section in (*self.sections, *self.further):
            if section.table is not None and not section.folded:
                parts.append(section.table._repr_html_())
            if section.figure is not None and self.folder is not None:
                picture = b64encode((self.folder / f"{section.figure.name}.png").read_bytes()).decode()
                parts.append(f'<img width="{section.figure.columns * 400}" src="data:image/png;base64,{picture}">')
        if self.rows is not None and not self.models:
            parts.append(str(self.to_frame()._repr_html_()))
        if self.verdict:
            parts.append(f"<p>{escape(self.verdict)}</p>")
        if not parts:
            parts.append(self._numbers()._repr_html_())
        if self.picture is not None:
            parts.append(self.picture())
        return "".join(parts)

    def _numbers(self) -> Table:
        """Return the results that are single values as a table, and the choices of the model before them."""
        from sentcli.table import Table

        chosen = {key: self.protocol.get(key) for key in ("pooling", "precision", "backend")}
        single = {**({"model": self.model} if self.model else {}), **chosen, **_single_values(self.results)}
        rows = [[key.replace("_", " "), value] for key, value in single.items() if value is not None]
        return Table(self.command, ["", "value"], [[key, str(value)] for key, value in rows])

    def __repr__(self) -> str:
        """Return the command with its single results, as many as fit on a screen."""
        table = self._numbers()
        lines = [f"  {table.shown(row, 0)}: {table.shown(row, 1)[:100]}" for row in range(len(table.rows))]
        more = [f"  and {len(lines) - MOST_LINES} more, see to_dict()"] if len(lines) > MOST_LINES else []
        verdict = [f"  {self.verdict}"] if self.verdict else []
        return "\n".join([f"sentcli {self.command}", *lines[:MOST_LINES], *more, *verdict])


MOST_LINES = 16
"""The most values in the text form of a result."""


def _single_values(results: Any, prefix: str = "") -> dict[str, Any]:
    """Return the numbers, texts and yes/no of results by name, also of a dictionary inside them."""
    found: dict[str, Any] = {}
    for key, value in results.items() if isinstance(results, dict) else ():
        if isinstance(value, float):
            found[f"{prefix}{key}"] = f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
        elif isinstance(value, int | str | bool):
            found[f"{prefix}{key}"] = value
        elif isinstance(value, dict) and not prefix:
            found |= _single_values(value, f"{key} ")
    return found
