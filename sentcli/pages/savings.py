"""What may be saved without losing hits: the tables, figures, sentences and commands of ``evaluate --variants``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.compression import Compression
from sentcli.errors import InputError
from sentcli.evaluation import variants
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_tasks import retrieval_tasks
from sentcli.evaluation.score_kinds import RETRIEVAL
from sentcli.evaluation.scores import ModelScores
from sentcli.evaluation.set_manifest import corpus_arguments
from sentcli.evaluation.variant_grid import VariantGrid
from sentcli.evaluation.variants import LEAST_TO_CHOOSE, Variant, VariantComparison
from sentcli.model.options import LoadOptions
from sentcli.pages.page import Figure, Section
from sentcli.pages.parts import Part
from sentcli.table import MINUS, Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIZE, SPEED, TIME = "MB for a million rows", "texts a second", "seconds for all documents"
"""What the difference of the score is drawn against."""


@dataclass(frozen=True)
class Savings(Part):
    """The ways of searching sets with models, compared."""

    comparisons: Mapping[tuple[str, str], VariantComparison]
    """By model and set."""
    sets: Mapping[str, RetrievalSet]
    models: Mapping[str, EvaluatedModel]

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return the ways of searching a set with a model."""
        comparison = self.comparisons[scores.model, task]
        entries = []
        for variant, on_front in zip(comparison.variants, comparison.front, strict=True):
            difference = comparison.difference(variant)
            entries.append(
                {
                    "name": variant.name,
                    "value": comparison.value(variant),
                    "difference": difference.difference,
                    "interval": [difference.low, difference.high],
                    "bytes_per_vector": variant.bytes_per_vector,
                    "texts_per_second": variant.texts_per_second,
                    "queries_per_second": variant.queries_per_second,
                    "seconds": variant.seconds,
                    "pareto": on_front,
                    "chosen": variant is comparison.chosen,
                    "command": " && ".join(self.commands(variant, scores.model, task)),
                }
            )
        return {"variants": entries}

    def sections(self) -> Sequence[Section]:
        """Return a table, a figure and the commands of the chosen way, for each model and set."""
        sections = []
        for number, ((model, name), comparison) in enumerate(self.comparisons.items(), 1):
            title = f"What {model} may save on {name}"
            text = [_sentence(comparison)]
            table, figure = _table(comparison, title), _figure(comparison, title, number)
            commands = self.commands(comparison.chosen, model, name)
            sections.append(Section(title, text, table=table, figure=figure))
            sections.append(Section(f"Commands for {model} on {name}", code=commands, level=3))
        return sections

    @property
    def sentence(self) -> str:
        """What each model saves on each set and loses, with the commands."""
        sentences = []
        for (model, name), comparison in self.comparisons.items():
            commands = self.commands(comparison.chosen, model, name)
            sentences.append("\n  ".join([f"{model} on {name}: {_sentence(comparison)}", *commands]))
            if self.sets[name].titled:
                sentences.append("  (The score is of title and text together: encode a column that holds both.)")
        return "\n".join(sentences)

    def commands(self, variant: Variant, model: str, name: str) -> list[str]:
        """Return the commands that make the vectors of a way, and its index."""
        storage, folder = variant.storage, f"{name}-vectors"
        spec = self.models[model].spec
        options = replace(self.models[model].options, **variant.encoding.options)
        load = _flags(vars(options), vars(LoadOptions()))
        prompts = []
        prompt = []
        if not variant.encoding.prompts:
            prompts = ["--query-prompt", "", "--doc-prompt", ""]
            prompt = ["--prompt", ""]
        elif any(spec.prompts.values()):
            prompt = ["--prompt", spec.role_prompt("document")]

        def encode(output: str, compression: Compression) -> str:
            flags = [*load, *prompt, *_flags(compression.protocol(), Compression().protocol())]
            corpus = corpus_arguments(self.sets[name].corpus)
            return shlex.join(["sentcli", "encode", *corpus, "-o", output, "-m", model, *flags])

        commands = [encode(folder, storage.compression)]
        if storage.rescored:
            commands.append(encode(f"{folder}-full", Compression("float16")))
            searched = ["--corpus", folder, "--rescore", f"{folder}-full", "--query", "your question"]
            commands.append(shlex.join(["sentcli", "retrieve", "-m", model, *load, *prompts, *searched]))
        if storage.index != "flat":
            commands.append(shlex.join(["sentcli", "index", folder, "--type", storage.index]))
        return commands


def read_grid(name: str, tasks: Sequence[OwnTask]) -> VariantGrid:
    """Return what ``--variants`` tries.

    Raises:
        InputError: if the file is damaged, or some data are no retrieval set or one of few queries.
    """
    for task in retrieval_tasks(tasks, "--variants"):
        count = len(task.data.queries)
        if count < LEAST_TO_CHOOSE:
            raise InputError(
                f"--variants chooses by half of the queries: {LEAST_TO_CHOOSE} at least, {task.name} has {count}"
            )
    return VariantGrid.read(name)


def compare_variants(
    models: Sequence[EvaluatedModel], tasks: Sequence[OwnTask], grid: VariantGrid, allow: float
) -> Savings:
    """Search every set in every way with every model.

    Args:
        models: those of the command.
        tasks: the sets.
        grid: what is tried.
        allow: the loss that is allowed, in units of the metric.
    """
    sets = {task.name: task.data for task in retrieval_tasks(tasks, "--variants")}
    comparisons = {}
    for model in models:
        for name, data in sets.items():
            comparisons[model.name, name] = variants.score_variants(model, data, name, grid, allow)
    for (model_name, name), comparison in comparisons.items():
        score = comparison.value(comparison.variants[0])
        if allow >= score:
            console.warn(f"{model_name} on {name} scores {score:.4f}: --allow {allow:g} lets every way pass")
    return Savings(comparisons, sets, {model.name: model for model in models})


def _flags(options: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command, without those that are as usual."""
    words = []
    for key, value in options.items():
        if value == usual[key]:
            continue
        words.append(f"--{key.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return words


def _sentence(comparison: VariantComparison) -> str:
    """Say what the chosen way loses on the queries that it was not chosen by, and what it saves."""
    chosen, first = comparison.chosen, comparison.variants[0]
    part, rest = comparison.halves
    if chosen is first:
        lost = f"a loss of more than {comparison.allow:g} (--allow)"
        return f"nothing may be saved: by {len(part)} queries no cheaper way excludes {lost}"
    difference = comparison.difference(chosen)
    interval = f"{_signed(difference.low)} to {_signed(difference.high)}"
    numbers = f"{_signed(difference.difference)} ({interval})"
    saved = f"{100 * chosen.bytes_per_vector / first.bytes_per_vector:.0f} % of the bytes"
    if chosen.encoding != first.encoding:
        saved += f" and {100 * chosen.seconds / first.seconds:.0f} % of the time"
    if difference.low < -comparison.allow:
        saved += f"; they do not exclude a loss of {comparison.allow:g}"
    title = _title(comparison)
    return f"{chosen.name}: {title} {numbers} on the {len(rest)} queries that it was not chosen by, {saved}"


def _table(comparison: VariantComparison, title: str) -> Table:
    part, rest = comparison.halves
    rows: list[list[Any]] = []
    texts = {}
    for variant, on_front in zip(comparison.variants, comparison.front, strict=True):
        marks = []
        if variant is comparison.chosen:
            marks.append("chosen")
        if on_front:
            marks.append("front")
        difference = comparison.difference(variant)
        if variant is not comparison.variants[0]:
            numbers = (_signed(value) for value in difference)
            texts[len(rows), 2] = "{} ({} to {})".format(*numbers)
        # a byte a vector is a megabyte for a million of them
        costs = [variant.bytes_per_vector, variant.texts_per_second, console.duration(variant.seconds)]
        row = [variant.name, comparison.value(variant), difference.difference, *costs, variant.queries_per_second]
        rows.append([*row, ", ".join(marks)])
    columns = ["vectors", _title(comparison), "difference", SIZE, SPEED, "all documents", "queries a second", "mark"]
    formats = {columns[1]: ".4f", "difference": "+.4f", SPEED: ",.0f", "queries a second": ",.0f"}
    notes = [
        f"Chosen by {len(part)} of the queries, the fewest bytes of those that exclude a loss of {comparison.allow:g}; "
        f"scores, differences and 95 % intervals are of the other {len(rest)}.",
        "Front: no other way is as good in score, bytes and speeds; speeds within a quarter count as equal. Bits are "
        "the signs of the numbers; rescored: the best hits are compared by float16 vectors, whose bytes count.",
    ]
    return Table(title, columns, rows, formats=formats, texts=texts, notes=notes)


def _figure(comparison: VariantComparison, title: str, number: int) -> Figure:
    """Return the difference of each way against what it costs; the figures of a command are numbered."""
    import pandas as pd

    rows = []
    for variant, on_front in zip(comparison.variants, comparison.front, strict=True):
        difference = comparison.difference(variant)
        series = "on the front" if on_front else "not on the front"
        if variant is comparison.chosen:
            series = "chosen"
        y = {"y": difference.difference, "low": difference.low, "high": difference.high, "label": variant.name}
        costs = {SIZE: variant.bytes_per_vector, SPEED: variant.texts_per_second, TIME: variant.seconds}
        for panel, cost in costs.items():
            rows.append({"panel": panel, "series": series, "x": float(cost), **y})
    data = pd.DataFrame(rows)
    metric = _title(comparison)
    panels = {panel: partial(_draw, data[data["panel"] == panel], metric) for panel in (SIZE, SPEED, TIME)}
    alt = f"Difference of {metric} of {len(comparison.variants)} ways against bytes, speed and time."
    note = "Each point is a way of encoding texts and keeping their vectors, with the 95 % interval of its difference."
    return Figure(f"variants-{number}", title, panels, data, alt, note)


def _draw(data: pd.DataFrame, metric: str, axes: Axes) -> None:
    from sentcli.pages import style

    for number, name in enumerate(("not on the front", "on the front", "chosen")):
        part = data[data["series"] == name]
        down, up = part["y"] - part["low"], part["high"] - part["y"]
        look: dict[str, Any] = {"color": style.colour(number), "marker": style.marker(number), "linestyle": ""}
        axes.errorbar(part["x"], part["y"], yerr=[down, up], label=name, elinewidth=0.8, **look)
    panel = data["panel"].iloc[0]
    axes.set(title=panel, xlabel=panel, ylabel=f"difference of {metric}", xscale="log")
    style.plain_log_ticks(axes.xaxis)


def _title(comparison: VariantComparison) -> str:
    """Return the name of the metric for people."""
    return RETRIEVAL.columns.get(comparison.metric, comparison.metric)


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", MINUS)
