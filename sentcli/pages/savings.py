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
from sentcli.evaluation.readings import FLAGS
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
from sentcli.remaining import duration
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIZE = "MB for a million rows"
SPEED = "texts a second"
TIME = "seconds for all documents"
"""The titles of the panels, each with a cost against which the difference of the score is drawn."""


@dataclass(frozen=True)
class Savings(Part):
    """The ways of searching sets with models, compared."""

    comparisons: Mapping[tuple[str, str], VariantComparison]
    """The comparison of the ways of searching, by the names of model and set."""
    sets: Mapping[str, RetrievalSet]
    models: Mapping[str, EvaluatedModel]

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return the ways of searching a set with a model."""
        comparison = self.comparisons.get((scores.model, task))
        if comparison is None:  # the model has no score on the set
            return {"variants": None}
        entries = []
        for variant, on_front in zip(comparison.variants, comparison.front, strict=True):
            difference = comparison.difference(variant)
            entries.append(
                {
                    "name": variant.name,
                    "value": comparison.value(variant),
                    "difference": difference.difference,
                    "interval": list(difference.interval or ()),
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
            table = _table(comparison, title)
            figure = _figure(comparison, title, number)
            sentence = _sentence(comparison)
            sections.append(Section(title, [sentence], table, figure))
            commands = self.commands(comparison.chosen, model, name)
            sections.append(Section(f"Commands for {model} on {name}", code=commands, level=3))
        return sections

    @property
    def sentence(self) -> str:
        """What each model saves on each set and loses, with the commands."""
        sentences = []
        for (model, name), comparison in self.comparisons.items():
            sentences.append(f"{model} on {name}: {_sentence(comparison)}")
            for command in self.commands(comparison.chosen, model, name):
                sentences.append(f"  {command}")
            if self.sets[name].titled:
                sentences.append("  (The score is of title and text together: encode a column that holds both.)")
        return "\n".join(sentences)

    def commands(self, variant: Variant, model: str, name: str) -> list[str]:
        """Return the commands that make the vectors of a way, and its index."""
        storage = variant.storage
        encoding = variant.encoding
        evaluated = self.models[model]
        spec = evaluated.spec
        options = replace(evaluated.options, **encoding.options)
        load = _flags(vars(options), vars(LoadOptions()))
        search_prompts = []
        prompt = []
        if not encoding.prompts:
            search_prompts = ["--query-prompt", "", "--doc-prompt", ""]
            prompt = ["--prompt", ""]
        elif any(spec.prompts.values()):
            prompt = ["--prompt", spec.role_prompt("document")]
        corpus = corpus_arguments(self.sets[name].corpus)

        def encode(output: str, compression: Compression) -> str:
            flags = _flags(compression.protocol(), Compression().protocol())
            reading = FLAGS[variant.encoding.reading]
            return _command("encode", *corpus, "-o", output, "-m", model, *load, *prompt, *reading, *flags)

        folder = f"{name}-vectors"
        full = f"{folder}-full"
        commands = [encode(folder, storage.compression)]
        if storage.rescored:
            commands.append(encode(full, Compression("float16")))
            searched = ["--corpus", folder, "--rescore", full, "--query", "your question"]
            search = _command("retrieve", "-m", model, *load, *search_prompts, *searched)
            commands.append(search)
        if storage.index != "flat":
            commands.append(_command("index", folder, "--type", storage.index))
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


def compare_variants(scored: Sequence[tuple[EvaluatedModel, OwnTask]], grid: VariantGrid, allow: float) -> Savings:
    """Search sets in every way with models.

    Args:
        scored: models and sets on which they have a score.
        grid: what is tried.
        allow: the loss that is allowed, in units of the metric.
    """
    comparisons = {}
    sets = {}
    models = {}
    for model, task in scored:
        (retrieval,) = retrieval_tasks([task], "--variants")
        name = task.name
        sets[name] = retrieval.data
        models[model.name] = model
        comparison = variants.score_variants(model, retrieval.data, name, grid, allow)
        comparisons[model.name, name] = comparison
        score = comparison.value(comparison.variants[0])
        if allow >= score:
            console.warn(f"{model.name} on {name} scores {score:.4f}: --allow {allow:g} lets every way pass")
    return Savings(comparisons, sets, models)


def _command(*words: str) -> str:
    """Return a command of sentcli for a shell."""
    return shlex.join(["sentcli", *words])


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
    chosen = comparison.chosen
    first = comparison.variants[0]
    choosing, measuring = comparison.halves
    if chosen is first:
        loss = f"a loss of more than {comparison.allow:g} (--allow)"
        return f"nothing may be saved: by {len(choosing)} queries no cheaper way excludes {loss}"
    difference = comparison.difference(chosen)
    percent = 100 * chosen.bytes_per_vector / first.bytes_per_vector
    saved = f"{percent:.0f} % of the bytes"
    if chosen.encoding != first.encoding:
        percent = 100 * chosen.seconds / first.seconds
        saved += f" and {percent:.0f} % of the time"
    if not difference.excludes_loss(comparison.allow):
        saved += f"; they do not exclude a loss of {comparison.allow:g}"
    metric = _title(comparison)
    lost = f"{metric} {difference.words()}"
    return f"{chosen.name}: {lost} on the {len(measuring)} queries that it was not chosen by, {saved}"


def _table(comparison: VariantComparison, title: str) -> Table:
    choosing, measuring = comparison.halves
    metric = _title(comparison)
    rows: list[dict[str, Any]] = []
    texts = {}
    for variant, on_front in zip(comparison.variants, comparison.front, strict=True):
        marks = []
        if variant is comparison.chosen:
            marks.append("chosen")
        if on_front:
            marks.append("front")
        difference = comparison.difference(variant)
        if variant is not comparison.variants[0]:
            texts[len(rows), "difference"] = difference.words()
        row = {
            "vectors": variant.name,
            metric: comparison.value(variant),
            "difference": difference.difference,
            SIZE: variant.bytes_per_vector,  # a byte a vector is a megabyte for a million of them
            SPEED: variant.texts_per_second,
            "all documents": duration(variant.seconds),
            "queries a second": variant.queries_per_second,
            "mark": ", ".join(marks),
        }
        rows.append(row)
    formats = {metric: ".4f", "difference": "+.4f", SPEED: ",.0f", "queries a second": ",.0f"}
    notes = [
        f"Chosen by {len(choosing)} of the queries, the fewest bytes of those that exclude a loss of "
        f"{comparison.allow:g}; scores, differences and 95 % intervals are of the other {len(measuring)}.",
        "Front: no other way is as good in score, bytes and speeds; speeds within a quarter count as equal. Bits are "
        "the signs of the numbers; rescored: the best hits are compared by float16 vectors, whose bytes count.",
    ]
    return Table.of_rows(title, rows, formats=formats, texts=texts, notes=notes)


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
    about = f"Difference of {metric} of {len(comparison.variants)} ways against bytes, speed and time."
    note = "Each point is a way of encoding texts and keeping their vectors, with the 95 % interval of its difference."
    return Figure(f"variants-{number}", title, panels, data, [about], note)


def _draw(data: pd.DataFrame, metric: str, axes: Axes) -> None:
    from sentcli.pages import style

    style.error_bars(axes, data, ("not on the front", "on the front", "chosen"))
    panel = data["panel"].iloc[0]
    axes.set(title=panel, xlabel=panel, ylabel=f"difference of {metric}", xscale="log")
    style.plain_log_ticks(axes.xaxis)


def _title(comparison: VariantComparison) -> str:
    """Return the name of the metric for people."""
    return RETRIEVAL.columns.get(comparison.metric, comparison.metric)
