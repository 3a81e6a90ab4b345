"""The options of evaluations, declared once for flags, keywords and the functions that score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from sentcli import console
from sentcli.bounds import Flag, Holds
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.evaluation.baseline import Baseline
    from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
    from sentcli.evaluation.published import Published
    from sentcli.evaluation.reranking import EvaluatedReranker
    from sentcli.evaluation.score_kinds import ScoreKind


def _list_published() -> None:
    from sentcli.evaluation.published import AVERAGES, published
    from sentcli.table import Table

    rows: list[list[Any]] = []
    for system in published().values():
        averages = [system.scores.get(key) for key in AVERAGES]
        rows.append([system.name, system.title, *averages])
    console.show(Table("Published scores, times 100", ["name", "system", *AVERAGES], rows))


@dataclass(frozen=True)
class ScoringOptions:
    """Comparison with published scores, and whether kept scores are used.

    Attributes:
        against: Set beside it what a paper prints, such as micse-bert-base, or mteb (a path). Runs that differ in
            the seed alone are seeds of one. list: all.
        group: Models that are seeds of one system, compared by their mean: NAME may have *.
        rerun: Encode and score anew, also what was measured before and is kept.
    """

    against: Annotated[str | None, Holds.PUBLISHED, Flag(metavar="NAME|list", lists=_list_published)] = None
    group: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="LABEL=NAME", excludes="corpus from_run")] = None
    rerun: bool = False

    def models(
        self, names: Sequence[str], options: LoadOptions, *, spares_export: bool = True, **more: Any
    ) -> list[EvaluatedModel]:
        """Return models, each of which is loaded when it has to encode something; the arguments are those of a model.

        A model is exported only where that pays for the texts that are scored.
        """
        from sentcli.evaluation.evaluated import EvaluatedModel

        more |= {"rerun": self.rerun, "spares_export": spares_export}
        return [EvaluatedModel(name, options, **more) for name in names]

    def published(self, kind: ScoreKind, tasks: Iterable[str]) -> Published | None:
        """Return the system of ``--against``, or None.

        Raises:
            InputError: if there is no such system, or no published score of it for these tasks.
        """
        from sentcli.evaluation import published

        if self.against is None:
            return None
        system = published.find_published(self.against)
        published.require(system, kind, tasks)
        return system


@dataclass(frozen=True)
class RerankOptions:
    """Whether the first hits of each query are ordered anew.

    Attributes:
        rerank: A cross-encoder that orders the first hits anew.
        rerank_depth: Hits of each query that --rerank reads, 10 to 100; the others stay behind them.
    """

    rerank: Annotated[
        str | None, Flag(metavar="MODEL", excludes="from_run in_domain variants group baseline save_baseline")
    ] = None
    rerank_depth: Annotated[int, Ge(10), Le(100), Flag(needs="rerank")] = 50

    def load(self, options: LoadOptions, *, rerun: bool) -> EvaluatedReranker | None:
        """Return the cross-encoder, which is loaded when pairs have to be scored, or None if none is named."""
        from sentcli.evaluation.reranking import EvaluatedReranker

        if self.rerank is None:
            return None
        return EvaluatedReranker(self.rerank, options, self.rerank_depth, rerun)


@dataclass(frozen=True)
class SetOptions:
    """Retrieval sets that are scored, and runs that are read and written.

    Attributes:
        beir: Score a retrieval set: a folder in BEIR layout, or a name of sentcli data list. May be given several
            times.
        split: Split of the qrels; default: test, but dev of msmarco.
        run: Write the hits as a TREC run; several runs become a folder.
        from_run: Score TREC runs of other tools or days, without a model; several are compared.
        per_query: Write the scores of each query as JSON Lines.
    """

    beir: Annotated[list[Path] | None, Holds.RETRIEVAL_SET, Flag(metavar="DIR|NAME", excludes="corpus in_domain")] = (
        None
    )
    split: Annotated[str | None, Flag(needs="beir")] = None
    run: Annotated[Path | None, Flag(metavar="FILE", needs="beir", excludes="from_run")] = None
    from_run: Annotated[
        list[Path] | None,
        Flag(
            metavar="FILE",
            needs="beir",
            excludes="model search index similarity query_prompt doc_prompt query_length max_length pooling",
        ),
    ] = None
    per_query: Annotated[Path | None, Flag(metavar="FILE", needs="beir")] = None


@dataclass(frozen=True)
class PairOptions:
    """Pairs whose second sentence is to be found by the first.

    Attributes:
        in_domain: Find the second sentence of a pair by the first: STS-B's sts-test.csv, or a table of your own.
        exclude: Which sentences do not count as answers; docs/retrieval-scores.md explains the rules.
        pair_fields: Columns of a table of your own; default: sentence1,sentence2 and, if it is there, score.
    """

    in_domain: Annotated[
        str | None, Holds.TEXT_FILE, Flag(metavar="FILE", excludes="search index query_prompt doc_prompt query_length")
    ] = None
    exclude: Annotated[Literal["equal-text-except-gold", "own", "equal-text", "s2-only"], Flag(needs="in_domain")] = (
        "equal-text-except-gold"
    )
    pair_fields: Annotated[str | None, Holds.WORDS, Flag(metavar="A,B[,SCORE]", needs="in_domain")] = None


@dataclass(frozen=True)
class GateOptions:
    """Whether a model is still as good as one before.

    Attributes:
        save_baseline: Keep the scores and hits of the model here, for --baseline.
        baseline: Compare with what --save-baseline wrote, on the same data; the exit code is 3 unless a loss of more
            than --allow is excluded at 95 %.
        allow: The loss that is allowed, in units of the metric: nDCG@10 from 0 to 1, Spearman times 100.
        format: Print the comparison for a program on standard output: annotations of GitHub, or JUnit's XML.
    """

    save_baseline: Annotated[Path | None, Flag(metavar="FILE", excludes="baseline")] = None
    baseline: Annotated[Path | None, Flag(metavar="FILE")] = None
    allow: Annotated[float, Ge(0), Flag(needs="baseline variants")] = 0.01
    format: Annotated[Literal["github", "junit"] | None, Holds.PRINTED, Flag(needs="baseline")] = None

    def read_baseline(
        self, models: Sequence[str], files: Sequence[str], tasks: Sequence[OwnTask], *, overwrite: bool
    ) -> Baseline | None:
        """Read the baseline and check that it fits the data, before anything is encoded."""
        from sentcli.evaluation.baseline import Baseline
        from sentcli.io.atomic import check_kept, check_output

        if self.save_baseline is not None:
            if len(models) > 1:
                raise InputError(f"--save-baseline {self.save_baseline} keeps one model, and -m names {len(models)}")
            check_kept(self.save_baseline, files)
            check_output(self.save_baseline, overwrite=overwrite)
        if self.baseline is None:
            return None
        baseline = Baseline.read(self.baseline)
        baseline.check(tasks, self.baseline)
        return baseline


@dataclass(frozen=True)
class ThresholdOptions:
    """From which similarity on hits are right with a precision.

    Attributes:
        threshold: Find the similarity from which on this share of hits is right, as 0.9.
        keep_threshold: Keep the probabilities of similarities in this directory of encode, or in the folder of the
            model: retrieve shows them, and takes --least 0.9p.
    """

    threshold: Annotated[float | None, Flag(metavar="PRECISION")] = None
    keep_threshold: Annotated[Path | None, Flag(metavar="DIR", needs="threshold")] = None

    def check(self, models: Sequence[EvaluatedModel], tasks: Sequence[OwnTask], *, overwrite: bool) -> None:
        """Refuse a precision that is none, data that carry no threshold, and a place that cannot keep it.

        Raises:
            InputError: before anything is encoded; it says what is wrong.
        """
        if self.threshold is None:
            return
        from sentcli.evaluation.observing import check_place, tasks_with_hits

        if not 0 < self.threshold < 1:
            raise InputError(f"--threshold {self.threshold:g}: give a precision between 0 and 1, as 0.9")
        with_hits = tasks_with_hits(tasks)
        if self.keep_threshold is not None:
            check_place(self.keep_threshold, models, with_hits, overwrite=overwrite)
