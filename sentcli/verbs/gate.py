"""Whether a model is still as good as a baseline: options, tables and sentences of ``evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.console import safe as printable
from sentcli.errors import InputError
from sentcli.pages.page import Section
from sentcli.table import MINUS, Table

if TYPE_CHECKING:
    from sentcli.command.result import Result
    from sentcli.evaluation.baseline import Baseline, BaselineComparison
    from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
    from sentcli.evaluation.options import GateOptions
    from sentcli.evaluation.scores import ModelScores

WORSE = 3
"""The exit code where a loss beyond what is allowed is not excluded."""


@dataclass(frozen=True)
class Gate:
    """The comparisons of models with a baseline, by model and data set."""

    baseline: Baseline
    comparisons: Mapping[tuple[str, str], BaselineComparison]
    queries: Mapping[tuple[str, str], str]
    """The texts of queries, by data set and id."""
    titles: Mapping[str, str]
    """The names of the metrics, by data set."""
    kinships: Mapping[str, str]
    """What each model is to that of the baseline, by its vectors of a few fixed texts."""
    form: str | None = None
    """What is printed for a program."""

    @property
    def passed(self) -> bool:
        """Whether all models are still as good on all data sets."""
        return all(comparison.passed for comparison in self.comparisons.values())

    def tables(self) -> Iterator[Table]:
        """Yield the comparisons, and the queries that lost the most where a model is not as good."""
        rows = [
            [model, task, c.value, c.value + c.difference, c.difference, *c.interval, -c.allow, _judgement(c)]
            for (model, task), c in self.comparisons.items()
        ]
        columns = ["model", "task", "before", "now", "difference", "low", "high", "allowed", "verdict"]
        title = f"Compared with the baseline ({printable(self.baseline.model)})"
        notes = ["Low and high: the 95 % interval."]
        formats = dict.fromkeys(columns[2:8], ".4f")
        yield Table(title, columns, rows, formats=formats, notes=notes)
        for (model, task), comparison in self.comparisons.items():
            if comparison.worst and not comparison.passed:
                yield self._worst(model, task, comparison)

    def _worst(self, model: str, task: str, comparison: BaselineComparison) -> Table:
        rows = [
            [self._text(task, w.item), w.before, w.after, ", ".join(w.hits_before[:5]), ", ".join(w.hits_after[:5])]
            for w in comparison.worst
        ]
        title = f"The queries of {task} on which {model} lost the most"
        formats, notes = {"before": ".4f", "now": ".4f"}, ["Hits: the first five documents."]
        columns = ["query", "before", "now", "hits before", "hits now"]
        return Table(title, columns, rows, formats=formats, notes=notes, wide=("query", "hits before", "hits now"))

    def sentences(self) -> list[str]:
        """Return a sentence for each comparison."""
        return [
            f"On {task}, {model} against {printable(self.baseline.model)} is {_judgement(c)}: "
            f"{self.titles[task]} {_number(c.difference)} (95 % {_number(c.interval[0])} to {_number(c.interval[1])}), "
            f"where a loss of {c.allow:g} is allowed."
            + (f" By fixed texts it is {self.kinships[model]}." if model in self.kinships else "")
            for (model, task), c in self.comparisons.items()
        ]

    def added(self, result: Result) -> Result:
        """Return a result with the comparisons in tables, verdict and exit code, and print those for a program."""
        compared, *worst = self.tables()
        result.further.append(Section(compared.title, text=self.sentences(), table=compared))
        result.further += [Section(table.title, table=table, level=3) for table in worst]
        result.verdict = "\n".join(filter(None, [result.verdict, *self.sentences()]))
        result.exit_code = 0 if self.passed else WORSE
        if self.form == "github":
            self._write_commands()
        elif self.form == "junit":
            self._write_xml()
        return result

    def _write_commands(self) -> None:
        """Print the workflow commands of GitHub, which become annotations."""
        for sentence, comparison in zip(self.sentences(), self.comparisons.values(), strict=True):
            text = printable(sentence).replace("%", "%25")
            sys.stdout.write(f"::{'notice' if comparison.passed else 'error'} title=sentcli::{text}\n")

    def _write_xml(self) -> None:
        """Print the XML of JUnit: a test case for each model and data set."""
        from xml.etree import ElementTree

        failures = sum(not comparison.passed for comparison in self.comparisons.values())
        counts = {"tests": str(len(self.comparisons)), "failures": str(failures)}
        suite = ElementTree.Element("testsuite", {"name": "sentcli evaluate", **counts})
        for ((model, task), comparison), sentence in zip(self.comparisons.items(), self.sentences(), strict=True):
            case = ElementTree.SubElement(suite, "testcase", classname=printable(model), name=printable(task))
            if comparison.passed:
                ElementTree.SubElement(case, "system-out").text = printable(sentence)
                continue
            lost = (f"{self._text(task, w.item)}: {w.before:.4f} -> {w.after:.4f}" for w in comparison.worst)
            ElementTree.SubElement(case, "failure", message=printable(sentence)).text = "\n".join(map(printable, lost))
        sys.stdout.write(ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n")

    def _text(self, task: str, item: str) -> str:
        return self.queries.get((task, item), item)


def settle(
    models: Sequence[EvaluatedModel],
    scores_of: Sequence[ModelScores],
    tasks: Sequence[OwnTask],
    baseline: Baseline | None,
    options: GateOptions,
) -> Gate | None:
    """Keep the scores of the model as a baseline, or compare all models with one; the JSON of the tasks tells it."""
    if options.save_baseline is not None:
        from sentcli.evaluation.baseline import Baseline

        Baseline.of_scores(scores_of[0], tasks, models[0].canaries()).write(options.save_baseline)
        console.note(f"wrote {options.save_baseline}, with which --baseline compares a later model")
    if baseline is None or options.baseline is None:
        return None
    from sentcli.evaluation.score_kinds import SCORE_KINDS

    comparisons, titles, kinships = {}, {}, dict[str, str]()
    for model, scores in zip(models, scores_of, strict=True):
        kinship = None
        if baseline.canaries is not None:
            kinship, kinships[scores.model] = baseline.canaries.compare(model.canaries())
            model.release()
            if kinship == "another model" and model.is_served and model.name == baseline.model and not model.rerun:
                raise InputError(
                    f"{model.name} is another model than when {options.baseline} was written, and its answers may have "
                    "been kept from then: --rerun asks it anew"
                )
        for place, score in enumerate(scores.tasks):
            comparison = baseline.compare(score, options.allow, options.baseline)
            comparisons[scores.model, score.task] = comparison
            entry = comparison.to_dict() | ({} if kinship is None else {"model_is": kinship})
            titles[score.task] = SCORE_KINDS[score.kind].columns.get(comparison.metric, comparison.metric)
            scores.tasks[place] = replace(score, details={**score.details, "baseline": entry})
    from sentcli.evaluation.retrieval_tasks import RetrievalTask

    queries = {
        (task.name, key): text
        for task in tasks
        if isinstance(task, RetrievalTask)
        for key, text in task.data.queries.items()
    }
    return Gate(baseline, comparisons, queries, titles, kinships, options.format)


def _judgement(comparison: BaselineComparison) -> str:
    if comparison.passed:
        return "still as good"
    return "worse" if comparison.interval[1] < 0 else "not shown to be as good"


def _number(value: float) -> str:
    return f"{value:.4f}".replace("-", MINUS)
