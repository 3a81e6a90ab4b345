"""``sentcli analyze similarity``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentcli.cli import analyzing, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.candidate import Candidate
    from sentcli.evaluation.sts import Pairs
    from sentcli.reports.analyses.similarity import ScoredPairs, Similar


@command("similarity", analyzing.group)
def similarity(
    output: analyzing.Output,
    model: analyzing.Models = None,
    data: analyzing.Data = None,
    pairs: analyzing.PairsFile = None,
    split: Annotated[
        Literal["test", "dev", "train"], typer.Option(help="Of STS-B.", rich_help_panel=analyzing.INPUT)
    ] = "test",
    top: Annotated[int, typer.Option(min=1, help="Pairs to list, of those least and of those most agreed with.")] = 10,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    rerun: options.Rerun = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Cosine against gold score of sentence pairs, and the pairs that a model sees otherwise.

    Draws every pair of STS-B's test split, or of a table of yours, by gold score
    and cosine (miCSE, fig. 7), and the density of the cosines in each fifth of
    the gold scores. Lists the pairs whose ranks by cosine and by gold score
    differ most, and least. Says how far the cosines follow length, the first
    word, function words and other words.

    \b
    Examples:
      sentcli analyze similarity -m minilm -m runs/simcse --data downstream -o similarity
      sentcli analyze similarity -m runs/simcse --pairs pairs.tsv --top 30 -o own
    """  # noqa: D301
    from sentcli.reports.analyses.similarity import sections

    analyzing.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models (-m) whose cosines are to be compared with gold scores")
    candidates = analyzing.Loading(pooling, max_length, backend, precision, device, rerun).candidates(model)
    tasks = analyzing.read_stsb(data, pairs, split)
    name, subsets = next(iter(tasks.items()))
    shown = f"{name} {split}" if data else name
    scored = joined(shown, subsets, str(pairs or data))
    names = analyzing.labels(model)
    found: list[Similar] = []
    reports: list[Report] = []
    for candidate in candidates:
        one, report = measured(candidate, names[candidate.name], scored, subsets, top)
        report.protocol = {"kind": "similarity", "pairs": shown, **report.protocol}
        found.append(one)
        reports.append(report)
    chosen = f"{len(scored.gold):,} pairs of {shown}, gold scores {scored.gold.min():g} to {scored.gold.max():g}."
    objects = [report.to_dict() for report in reports]
    analyzing.finish("similarity", output, sections(found, scored, top, chosen), objects, json)


def joined(name: str, subsets: list[Pairs], source: str) -> ScoredPairs:
    """Return the pairs of all subsets.

    Raises:
        InputError: if there are too few.
    """
    import numpy as np

    from sentcli.analysis.gold import edges
    from sentcli.analysis.surface import surface
    from sentcli.reports.analyses.similarity import ScoredPairs

    gold = np.concatenate([subset.gold for subset in subsets])
    if len(gold) < analyzing.LEAST:
        raise InputError(f"{source}: {len(gold)} pairs; an analysis needs at least {analyzing.LEAST}")
    first, second = (tuple(text for one in subsets for text in getattr(one, side)) for side in ("first", "second"))
    return ScoredPairs(name, first, second, gold, edges(gold), {"gold": gold, **surface(first, second)})


def measured(
    candidate: Candidate, name: str, pairs: ScoredPairs, subsets: list[Pairs], top: int
) -> tuple[Similar, Report]:
    """Score a model; the correlations are those of sts-eval."""
    import numpy as np

    from sentcli.analysis.gold import disagreements, rank_difference
    from sentcli.analysis.surface import followed
    from sentcli.cli.json_report import Report
    from sentcli.evaluation import sts
    from sentcli.machine import environment
    from sentcli.reports.analyses.similarity import Similar

    report = Report("analyze", candidate.name)
    vectors = analyzing.vectors_of(candidate, [*pairs.first, *pairs.second])
    first, second = vectors.of(pairs.first), vectors.of(pairs.second)
    mean = np.concatenate([first, second]).mean(axis=0, dtype=np.float64)
    cosines, centred = sts.cosine(first, second), sts.cosine(first - mean, second - mean)
    follows = {"raw": followed(cosines, pairs.features), "centred": followed(centred, pairs.features)}
    one = Similar(name, cosines, sts.score(pairs.name, subsets, vectors), follows)
    differences = rank_difference(cosines, pairs.gold)
    least, most = (
        [
            {
                "sentence1": pairs.first[i],
                "sentence2": pairs.second[i],
                "gold": float(pairs.gold[i]),
                "cosine": float(cosines[i]),
                "rank_difference": float(differences[i]),
            }
            for i in rows
        ]
        for rows in disagreements(differences, top)
    )
    described = candidate.described
    report.protocol = {
        "similarity": "cosine",
        "aggregation": sts.AGGREGATIONS["all"].title,
        "bins": pairs.edges.tolist(),
        **{key: value for key, value in described.items() if key != "device"},
    }
    report.environment = environment(described.get("device"), described.get("precision"))
    report.results = {
        "pairs": len(cosines),
        "spearman": one.score.spearman,
        "pearson": one.score.pearson,
        "bins": [part.to_dict() for part in one.bins(pairs)],
        "follows": follows,
        "least_agreed": least,
        "most_agreed": most,
    }
    report.finish()
    return one, report
