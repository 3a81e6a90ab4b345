"""``sentcli analyze map``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli import console
from sentcli.cli import analyzing, options
from sentcli.cli.base import command
from sentcli.errors import DataError, InputError

if TYPE_CHECKING:
    from sentcli.analysis.mapping import Mapped, MapSettings
    from sentcli.analysis.whitening import Whitening
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.candidate import Candidate
    from sentcli.reports.analyses.map import Labelled, Named


@command("map", analyzing.group)
def map_(
    texts: Annotated[
        str, typer.Argument(metavar="TEXTS", help="Texts, one a line or a row of a table.", show_default=False)
    ],
    output: analyzing.Output,
    model: analyzing.Models = None,
    text_field: analyzing.TextField = "text",
    label_field: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of a table with labels: clusters are compared with them, and up to 12 of them are colours.",
            show_default=False,
            rich_help_panel=analyzing.INPUT,
        ),
    ] = None,
    limit: analyzing.Limit = 2000,
    clusters: Annotated[int, typer.Option(min=2, help="k of k-means.")] = 10,
    perplexity: Annotated[float, typer.Option(min=1, help="Neighbours that t-SNE attends to.")] = 30,
    neighbours: Annotated[int, typer.Option(min=1, help="Nearest texts and points that are compared.")] = 10,
    whiten: Annotated[
        str | None,
        typer.Option(
            metavar="zca|groups:N",
            help="A second map of each model: all columns whitened together, or in N shuffled groups (WhitenedCSE).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of clusters, map and groups of columns.")] = 42,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    rerun: options.Rerun = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Texts on a plane, with their clusters: one map for each model.

    Places texts by t-SNE and colours them by their cluster (k-means of the
    vectors), as InforMin-CL's fig. 2 has it; clusters are matched between models
    and described by the words that set them apart. Measures how much of the
    neighbourhoods the map keeps, and how many neighbours models share. --whiten
    sets whitened vectors beside them (WhitenedCSE, fig. 1).

    \b
    Examples:
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze map news.csv --text-field title --label-field topic -m minilm -o news
      sentcli analyze map sentences.txt -m runs/simcse --whiten groups:128 -o whitened
    """  # noqa: D301
    from sentcli.analysis import tsne
    from sentcli.analysis.mapping import MapSettings
    from sentcli.analysis.whitening import Whitening
    from sentcli.reports.analyses.map import sections

    analyzing.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models (-m) to map the texts with")
    settings = MapSettings(clusters, perplexity, seed, neighbours)
    whitening = Whitening.parse(whiten) if whiten is not None else None
    loading = analyzing.Loading(pooling, max_length, backend, precision, device, rerun)
    candidates = loading.candidates(model)
    kept, labelled = _read(texts, text_field, label_field, limit)
    if len(kept) < clusters:
        raise InputError(f"--clusters {clusters}: {texts} has only {len(kept)} distinct texts")
    tsne.require(len(kept))
    measure = MapMeasure(kept, labelled, settings, whitening, analyzing.labels(model))
    reports = [measure.model(candidate) for candidate in candidates]
    chosen = (
        f"{len(kept):,} distinct texts of {texts}. t-SNE of unit vectors, perplexity {measure.perplexity:g}; k-means "
        f"with {clusters} clusters; seed {seed}."
        + (f" Whitened: {whitening.title}, with the statistics of these texts." if whitening else "")
    )
    objects = [measure.complete(report) for report in reports]
    analyzing.finish("map", output, sections(measure.found, kept, labelled, chosen), objects, json)


def _read(file: str, text_field: str, label_field: str | None, limit: int) -> tuple[list[str], Labelled | None]:
    """Return distinct texts and their labels.

    Raises:
        DataError: as `analyzing.read_texts`; also for a text without a label.
    """
    if label_field is None:
        return analyzing.read_texts(file, text_field, limit), None
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.sources import open_source

    source, found, total = open_source(file), dict[str, str](), 0
    for line, row in enumerate(rows(source, ReadOptions(text_field=text_field, on_null="skip")), 1):
        if row is None or not row.text.strip():
            continue
        if label_field not in row.extras:
            has = ", ".join([text_field, *row.extras])
            raise DataError(source.name, f"no column {label_field!r} for labels; it has: {has}", line=line, unit="row")
        total += 1
        found.setdefault(row.text, "" if row.extras[label_field] is None else str(row.extras[label_field]))
        if len(found) == limit:
            break
    return analyzing.enough(list(found), file, total), _labelled(label_field, list(found.values()))


def _labelled(column: str, labels: list[str]) -> Labelled:
    import numpy as np

    from sentcli.reports.analyses.map import Labelled

    names, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    if len(names) == 1:
        console.warn(f"all texts have the same label {names[0]!r} in {column}")
    return Labelled(column, tuple(str(names[i]) or "(none)" for i in order), np.argsort(order)[numbers])


class MapMeasure:
    """What is measured of each model, the same for all; `report` does so too."""

    def __init__(
        self,
        texts: Sequence[str],
        labelled: Labelled | None,
        settings: MapSettings,
        whitening: Whitening | None,
        names: dict[str, str],
    ) -> None:
        self.texts, self.labelled, self.settings = texts, labelled, settings
        self.whitening, self.names = whitening, names
        self.found: list[Named] = []

    @property
    def perplexity(self) -> float:
        """That was used."""
        return self.found[0].map.layout.perplexity

    def model(self, candidate: Candidate) -> Report:
        """Map the texts, with a model and with its whitened vectors."""
        from sentcli.cli.json_report import Report
        from sentcli.machine import environment

        report = Report("analyze", candidate.name)
        vectors = analyzing.vectors_of(candidate, self.texts).of(self.texts)
        if self.whitening is not None:
            self.whitening.check(*vectors.shape)
        name = self.names[candidate.name]
        results: dict[str, Any] = {"texts": len(self.texts), **self._map(name, vectors).to_dict()}
        if self.whitening is not None:
            whitened = self.whitening.apply(vectors, self.settings.seed)
            results["whitened"] = self._map(f"{name}, whitened", whitened).to_dict()
        described = candidate.described
        report.protocol = {
            "kind": "map",
            **asdict(self.settings),
            "perplexity": self.perplexity,
            "tsne": self.found[0].map.layout.library,
            "label_field": self.labelled.name if self.labelled else None,
            "whitening": str(self.whitening) if self.whitening else None,
            **{key: value for key, value in described.items() if key != "device"},
        }
        report.environment = environment(described.get("device"), described.get("precision"), self.settings.seed)
        report.results = results
        report.finish()
        return report

    def _map(self, name: str, vectors: Any) -> Mapped:
        from sentcli.analysis.mapping import mapped
        from sentcli.reports.analyses.map import Named

        reference = self.found[0].map.groups if self.found else None
        free = 1 + max((int(one.map.groups.max()) for one in self.found), default=-1)
        numbers = self.labelled.numbers if self.labelled else None
        with console.working(f"{name}: clusters and map of {len(vectors):,} vectors"):
            try:
                one = mapped(vectors, self.texts, self.settings, numbers, reference, free)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        self.found.append(Named(name, one))
        console.detail(f"{name}: t-SNE took {one.layout.seconds:.1f} s")
        return one

    def complete(self, report: Report) -> dict[str, Any]:
        """Return the JSON of a model, with the neighbours that it shares with every other map."""
        from sentcli.analysis.neighbourhoods import overlap

        own = next(one for one in self.found if one.name == self.names[report.model])
        shared = {one.name: overlap(own.map.neighbours, one.map.neighbours) for one in self.found if one is not own}
        report.results = {**report.results, "shared_neighbours": shared}
        return report.to_dict()
