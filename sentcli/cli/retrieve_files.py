"""Files beside the JSON of `retrieve --beir`: runs that are written and read, and the scores of each query."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.evaluation.retrieval import RetrievalSet
    from sentcli.evaluation.retrieval_bench import OnRun
    from sentcli.evaluation.retrieval_scores import RetrievalResult
    from sentcli.search.trec import Run


@dataclass(frozen=True)
class RunFiles:
    """Where runs are written."""

    target: Path
    single: bool
    """There is one run, and `target` its file; else it is a folder."""
    several_models: bool

    def check(self, runs: Sequence[tuple[str, str | None, str]], others: Iterable[Path], *, overwrite: bool) -> None:
        """Refuse a target that exists or cannot be written, and a run where something else is written.

        Args:
            runs: that are going to be written: set, model or None, and way of each.
            others: files that are written beside them.
            overwrite: replace what exists.

        Raises:
            InputError: if so.
        """
        from sentcli.io.atomic import check_output

        check_output(self.target, overwrite=overwrite, folder=not self.single)
        taken = {path.resolve() for path in others}
        found: dict[Path, tuple[str, str | None, str]] = {}
        for run in runs:
            file = self.file(*run)
            if file.resolve() in taken:
                raise InputError(f"{file}: one of the runs is written there; choose another file")
            other = found.setdefault(file, run)
            if other is not run:
                one, two = (" of ".join(filter(None, (model, name))) for name, model, _ in (other, run))
                raise InputError(
                    f"--run: the runs of {one} and of {two} would both be {file.name}; write one of them another time"
                )

    def file(self, name: str, model: str | None, way: str) -> Path:
        """Return where the run of a set, a model (or None) and a way is written."""
        own = [model] if model is not None and self.several_models else []
        return self.target if self.single else self.target / ".".join(map(_plain, [name, *own, way, "trec"]))

    def writer(self, model: str | None) -> OnRun:
        """Return what writes the runs of a model, or of what needs none."""
        from sentcli.search.trec import write_run

        def write(name: str, way: str, run: Run) -> None:
            path = self.file(name, model, way)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_run(run, path)

        return write


def _plain(name: str) -> str:
    """Return a name that a file can have."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


def read_runs(files: Sequence[Path], data: RetrievalSet) -> dict[str, Run]:
    """Read runs by their names; hits of other queries are left out, and what is odd is said.

    Raises:
        InputError: as `search.trec.read_run`; also if no query of a run is judged.
    """
    from sentcli.search.trec import read_run

    times = Counter(file.name for file in files)
    found = {}
    for file in files:
        run = read_run(file)
        name = file.name if times[file.name] == 1 else str(file)
        if name in found:
            raise InputError(f"--from-run {file} is given twice")
        judged = {query: dict(hits) for query, hits in run.items() if query in data.qrels}
        if not judged:
            raise InputError(f"{file}: none of its {len(run)} queries is judged in {data.name}; a run of another set?")
        _told(name, run, judged, data)
        for query in data.own_rows:
            judged.get(query, {}).pop(query, None)
        found[name] = judged
    return found


def _told(name: str, run: Run, judged: Run, data: RetrievalSet) -> None:
    there = set(data.ids)
    unknown = sum(document not in there for hits in judged.values() for document in hits)
    if len(run) > len(judged):
        console.note(f"{name}: {len(run) - len(judged)} queries are not judged in {data.name} and were left out")
    if unknown:
        console.warn(f"{name}: {unknown} hits are documents that are not in the corpus")
    if lacking := sum(query not in judged for query in data.qrels):
        console.warn(f"{name}: {lacking} of {len(data.qrels)} judged queries are not in the run: they score 0")


def write_queries(target: Path, results: Iterable[tuple[str, str, RetrievalResult]]) -> None:
    """Write one line of JSON for each query of each set and search.

    Args:
        target: the file.
        results: of each search, after the model's name and the way.
    """
    from sentcli.io.atomic import replacing

    with replacing(target) as temporary, temporary.open("w", encoding="utf-8") as handle:
        for model, way, result in results:
            for name, scores in result.each():
                for row, query in enumerate(scores.queries):
                    values = {metric: float(found[row]) for metric, found in scores.values.items()}
                    line = {"model": model, "search": way, "set": name, "query": query, **values}
                    handle.write(json.dumps(line, ensure_ascii=False) + "\n")
