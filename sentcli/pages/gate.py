"""Whether a model is still as good as a baseline: tables, sentences and exit code of ``evaluate --baseline``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sentcli import console
from sentcli.errors import DegenerateVectorsError, InputError
from sentcli.evaluation.baseline import Baseline, BaselineComparison
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
from sentcli.evaluation.options import GateOptions
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.score_kinds import SCORE_KINDS
from sentcli.evaluation.scores import ModelScores
from sentcli.pages.page import Section
from sentcli.pages.parts import Part
from sentcli.printable import safe as printable
from sentcli.table import Table

WORSE = 3
"""The exit code where a loss beyond what is allowed is not excluded."""


@dataclass(frozen=True)
class Gate(Part):
    """The comparisons of models with a baseline, by model and data set."""

    baseline: Baseline
    comparisons: Mapping[tuple[str, str], BaselineComparison]
    queries: Mapping[str, Mapping[str, str]]
    """The texts of queries by their ids, by data set."""
    titles: Mapping[str, str]
    """The names of the metrics, by data set."""
    kinships: Mapping[str, tuple[str, str]]
    """What each model is to that of the baseline, by its vectors of a few fixed texts: in a word and in a sentence."""
    undefined: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why a model has no score on a data set, which is not as good, by model and data set."""

    def sections(self) -> Sequence[Section]:
        """Return the comparisons, and the queries that lost the most where a model is not as good."""
        numbers = ("before", "now", "difference", "low", "high", "allowed")
        rows = []
        for (model, task), comparison in self.comparisons.items():
            change = comparison.difference.difference
            row = [model, task, comparison.before, comparison.after, change, *comparison.interval]
            rows.append([*row, -comparison.allow, comparison.judgement])
        title = f"Compared with the baseline ({printable(self.baseline.model)})"
        notes = ["Low and high: the 95 % interval."]
        columns = ["model", "task", *numbers, "verdict"]
        table = Table(title, columns, rows, dict.fromkeys(numbers, ".4f"), notes=notes)
        sections = [Section.of(table, text=self.sentences())]
        for (model, task), comparison in self.comparisons.items():
            if comparison.worst and not comparison.passed:
                title = f"The queries of {task} on which {model} lost the most"
                worst = comparison.worst_table(title, self.queries.get(task, {}))
                sections.append(Section.of(worst, level=3))
        return sections

    def sentences(self) -> list[str]:
        """Return a sentence for each comparison."""
        sentences = []
        for (model, task), comparison in self.comparisons.items():
            sentence = (
                f"On {task}, {model} against {printable(self.baseline.model)} is {comparison.judgement}: "
                f"{self.titles[task]} {comparison.words}."
            )
            if model in self.kinships:
                sentence += f" By fixed texts it is {self.kinships[model][1]}."
            sentences.append(sentence)
        for (model, task), reason in self.undefined.items():
            sentences.append(f"{model} has no score on {task}: {reason}.")
        return sentences

    def _judged(self) -> Iterator[tuple[tuple[str, str], str, BaselineComparison | None]]:
        """Yield model and data set, the sentence and the comparison, which is None where there is no score."""
        keys = [*self.comparisons, *self.undefined]
        for key, sentence in zip(keys, self.sentences(), strict=True):
            yield key, printable(sentence), self.comparisons.get(key)

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return the comparison of a model on a data set."""
        label = scores.label
        if (label, task) in self.undefined:
            return {}
        entry = self.comparisons[label, task].to_dict()
        if label in self.kinships:
            entry["model_is"] = self.kinships[label][0]
        return {"baseline": entry}

    @property
    def sentence(self) -> str:
        """Whether each model is still as good on each data set."""
        return "\n".join(self.sentences())

    @property
    def exit_code(self) -> int:
        """`WORSE` unless all models are still as good on all data sets."""
        passed = not self.undefined and all(comparison.passed for comparison in self.comparisons.values())
        return 0 if passed else WORSE

    def print_for_program(self, form: Literal["github", "junit"]) -> None:
        """Print the comparisons on standard output: annotations of GitHub, or JUnit's XML."""
        if form == "github":
            self._write_commands()
        else:
            self._write_xml()

    def _write_commands(self) -> None:
        """Print the workflow commands of GitHub, which become annotations."""
        for _, sentence, comparison in self._judged():
            level = "error"
            if comparison is not None and comparison.passed:
                level = "notice"
            text = sentence.replace("%", "%25")
            sys.stdout.write(f"::{level} title=sentcli::{text}\n")

    def _write_xml(self) -> None:
        """Print the XML of JUnit: a test case for each model and data set."""
        from xml.etree import ElementTree

        failures = 0
        suite = ElementTree.Element("testsuite", name="sentcli evaluate", tests=str(len(self.sentences())))
        for (model, task), text, comparison in self._judged():
            case = ElementTree.SubElement(suite, "testcase", classname=printable(model), name=printable(task))
            if comparison is not None and comparison.passed:
                ElementTree.SubElement(case, "system-out").text = text
                continue
            failures += 1
            lost = []
            if comparison is not None:
                for worst in comparison.worst:
                    query = self.queries.get(task, {}).get(worst.item, worst.item)
                    line = f"{query}: {worst.before:.4f} -> {worst.after:.4f}"
                    lost.append(printable(line))
            ElementTree.SubElement(case, "failure", message=text).text = "\n".join(lost)
        suite.set("failures", str(failures))
        xml = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
        sys.stdout.write(f"{xml}\n")


def save_baseline(file: Path, model: EvaluatedModel, scores: ModelScores, tasks: Sequence[OwnTask]) -> None:
    """Keep the scores and hits of a model in a file, for a later model to be compared with."""
    if scores.lacking:
        lacking = ", ".join(scores.lacking)
        raise DegenerateVectorsError(f"--save-baseline {file}: {model.name} has no score on {lacking}; leave it out")
    Baseline.of_scores(scores, tasks, model.canaries()).write(file)
    console.note(f"wrote {file}, with which --baseline compares a later model")


def compare_with_baseline(
    models: Sequence[EvaluatedModel],
    scores: Sequence[ModelScores],
    tasks: Sequence[OwnTask],
    baseline: Baseline,
    options: GateOptions,
) -> Gate:
    """Compare models with a baseline.

    Args:
        models: those of the command.
        scores: of these models.
        tasks: the data sets.
        baseline: what `GateOptions.read_baseline` returned.
        options: the file of the baseline, and the loss that is allowed.

    Raises:
        InputError: if the baseline is damaged, or kept answers may be those of another model.
    """
    file = options.baseline
    assert file is not None
    kinships = {}
    if baseline.canaries is not None:
        for model in models:
            kinships[model.name] = _kinship(model, baseline, file)
    comparisons = {}
    titles = {}
    undefined = {}
    for of_model in scores:
        for score in of_model.tasks:
            if score.reason:
                undefined[of_model.label, score.task] = score.reason
                continue
            comparison = baseline.compare(score, options.allow, file)
            comparisons[of_model.label, score.task] = comparison
            metric = comparison.metric
            titles[score.task] = SCORE_KINDS[score.kind].columns.get(metric, metric)
    queries = {task.name: task.data.queries for task in tasks if isinstance(task, RetrievalTask)}
    return Gate(baseline, comparisons, queries, titles, kinships, undefined)


def _kinship(model: EvaluatedModel, baseline: Baseline, file: Path) -> tuple[str, str]:
    """Return what a model is to that of a baseline, by the vectors of a few fixed texts."""
    assert baseline.canaries is not None
    kinship = baseline.canaries.compare(model.canaries())
    model.release()
    may_be_kept = model.is_served and model.name == baseline.model and not model.rerun
    if kinship[0] == "another model" and may_be_kept:
        raise InputError(
            f"{model.name} is another model than when {file} was written, and its answers may have "
            "been kept from then: --rerun asks it anew"
        )
    return kinship
