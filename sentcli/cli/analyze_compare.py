"""``sentcli analyze compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli import console
from sentcli.cli import analyzing, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.analysis.compare import Compared
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.candidate import Candidate


@command("compare", analyzing.group)
def compare(
    texts: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Texts, one a line or a row of a table; of vectors, those that they were made of.",
            show_default=False,
            rich_help_panel=analyzing.INPUT,
        ),
    ],
    output: analyzing.Output,
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]",
            help="Two models; or vectors of the texts: a .npy file, a directory of encode.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="The same as A and B: a model or vectors.", show_default=False),
    ] = None,
    text_field: analyzing.TextField = "text",
    limit: analyzing.Limit = 50_000,
    neighbours: Annotated[int, typer.Option(min=1, help="Nearest texts of each text that are compared.")] = 10,
    top: Annotated[int, typer.Option(min=1, help="Texts to list, of the most and of the least changed.")] = 10,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    rerun: options.Rerun = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Texts whose nearest neighbours differ most between two models.

    Finds the nearest texts of every text by cosine in both models, counts those
    that are the same, and lists the texts that changed most with the neighbours
    of both models side by side, and those that changed least. Neighbours are
    compared, not vectors: the models may differ in their dimensions.

    \b
    Examples:
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
      sentcli analyze compare old.npy new.npy --texts sentences.txt --neighbours 5 -o versions
      sentcli analyze compare minilm encoded/ --texts docs.parquet --text-field body -o compare
    """  # noqa: D301
    from sentcli.analysis.compare import compare as compare_vectors
    from sentcli.reports.analyses.compare import sections

    analyzing.check(output, overwrite=overwrite)
    given = [*(sides or []), *(model or [])]
    if len(given) != 2:
        raise InputError(f"compare needs two models or vectors, and {len(given)} were given: A B, or -m A -m B")
    if given[0] == given[1]:
        raise InputError(f"{given[0]} is given twice")
    loading = analyzing.Loading(pooling, max_length, backend, precision, device, rerun)
    candidates = {one.name: one for one in loading.candidates([name for name in given if not _is_vectors(name)])}
    stored = {name: _stored(name) for name in given if name not in candidates}
    kept = _Texts.read(texts, text_field, limit, stored)
    both = [_vectors(name, candidates.get(name), stored.get(name), kept) for name in given]
    with console.working(f"neighbours of {len(kept.texts):,} texts"):
        found = compare_vectors(both[0][0], both[1][0], neighbours)
    called = analyzing.labels(given)
    names = called[given[0]], called.get(given[1], given[1])
    chosen = f"{len(kept.texts):,} distinct texts of {texts}; their {found.k} nearest others by cosine."
    reports = [report for _, report in both]
    objects = [
        _object(report, found, side, reports[1 - side].model, kept.texts, top) for side, report in enumerate(reports)
    ]
    analyzing.finish("compare", output, sections(found, names, kept.texts, top, chosen), objects, json)


def _is_vectors(name: str) -> bool:
    """Say whether a name is that of vectors on disk, not of a model."""
    path = Path(name)
    return path.suffix == ".npy" or (path / "manifest.json").is_file()


def _stored(name: str) -> Any:
    """Return vectors on disk.

    Raises:
        InputError: if there are none.
    """
    from sentcli.analysis.stored_vectors import read_vectors

    return read_vectors(Path(name), analyzing.LEAST)


@dataclass(frozen=True)
class _Texts:
    """Distinct texts."""

    texts: list[str]
    rows: list[int]
    """Where each stands in the file, among the rows that have a text."""

    @classmethod
    def read(cls, file: str, text_field: str, limit: int, stored: dict[str, Any]) -> _Texts:
        """Read texts that may have vectors already.

        Raises:
            InputError: if there are more or fewer rows than vectors; also as `analyzing.read_texts`.
        """
        from sentcli.io.readers import ReadOptions, rows
        from sentcli.io.sources import open_source

        found: dict[str, int] = {}
        total = 0
        for row in rows(open_source(file), ReadOptions(text_field=text_field, on_null="skip")):
            if row is None:  # encode --on-null skip makes no vector of it
                continue
            if row.text.strip() and len(found) < limit:
                found.setdefault(row.text, total)
            elif not stored and len(found) == limit:
                break
            total += 1
        for name, vectors in stored.items():
            if len(vectors) != total:
                raise InputError(f"{name} has {len(vectors):,} vectors, {file} has {total:,} texts: not the same texts")
        return cls(analyzing.enough(list(found), file, total), list(found.values()))


def _vectors(name: str, candidate: Candidate | None, stored: Any, kept: _Texts) -> tuple[Any, Report]:
    """Return the vectors of the texts in one model, and a report that knows how they were made."""
    import numpy as np

    from sentcli.cli.json_report import Report
    from sentcli.machine import environment

    report = Report("analyze", name)
    if candidate is None:
        vectors, described = np.asarray(stored[kept.rows]), dict[str, Any]()
    else:
        vectors = analyzing.vectors_of(candidate, kept.texts).of(kept.texts)
        described = candidate.described
    report.protocol = {key: value for key, value in described.items() if key != "device"}
    report.environment = environment(described.get("device"), described.get("precision"))
    report.finish()
    return vectors, report


def _object(report: Report, found: Compared, side: int, other: str, texts: list[str], top: int) -> dict[str, Any]:
    """Return the JSON of one of the two models: what they share, and its own neighbours."""
    neighbours, cosines = found.neighbours[side], found.cosines[side]

    def listed(rows: list[int]) -> list[dict[str, Any]]:
        return [
            {
                "text": texts[row],
                "shared": int(found.shared[row]),
                "neighbours": [
                    {"text": texts[near], "cosine": float(cosine)}
                    for near, cosine in zip(neighbours[row], cosines[row], strict=True)
                ],
            }
            for row in rows
        ]

    report.protocol = {
        "kind": "compare",
        "compared_with": other,
        "similarity": "cosine",
        "neighbours": found.k,
        **report.protocol,
    }
    report.results = {
        "texts": len(texts),
        "overlap": found.overlap,
        "overlap_by_chance": found.by_chance,
        "jaccard": found.jaccard,
        "same_nearest": found.same_nearest,
        "histogram": found.histogram.tolist(),
        "mean_neighbour_cosine": float(cosines.mean()),
        "most_changed": listed(found.most_changed(top)),
        "least_changed": listed(found.least_changed(top)),
    }
    return report.to_dict()
