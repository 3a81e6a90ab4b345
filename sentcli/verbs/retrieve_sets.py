"""``retrieve --beir`` and ``--in-domain``: scoring retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.command.result import Result
from sentcli.command.scoring import score_study, scores_if_interrupted, scores_result
from sentcli.errors import InputError
from sentcli.evaluation import positives, searched_sets
from sentcli.evaluation.files import is_stsb, read_pair_table
from sentcli.evaluation.score_kinds import IN_DOMAIN, RETRIEVAL
from sentcli.evaluation.searched_sets import SearchedSets
from sentcli.evaluation.set_search import SCORED_HITS
from sentcli.evaluation.studies import study_of
from sentcli.io.atomic import check_output
from sentcli.io.sources import open_source
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.evaluation.options import PairOptions, RerankOptions, ScoringOptions, SetOptions
    from sentcli.evaluation.retrieval import Collection
    from sentcli.search.options import SearchMode, SearchOptions
    from sentcli.stores.options import PassageOptions


def score_sets(
    models: Sequence[str],
    sets: SetOptions,
    search: SearchOptions,
    passages: PassageOptions,
    options: LoadOptions,
    reranking: RerankOptions,
    scoring: ScoringOptions,
    *,
    overwrite: bool,
    json_file: str | None,
) -> Result:
    """Score models, BM25 and their fusions on sets, or runs on one set."""
    _check_usage(models, sets, search.modes, overwrite=overwrite)
    study = study_of(models, once=True, groups=scoring.group)
    top_k = search.top_k or SCORED_HITS
    collections = searched_sets.load_sets(sets.beir or [], sets.split)
    if passages.passages and (sets.from_run or search.modes == ["bm25"]):
        raise InputError("--passages cuts documents by a model's tokenizer: runs and BM25 have none")
    published = scoring.published(RETRIEVAL, [collection.name for collection in collections])
    if published is not None:
        _check_as_published(collections, search)
    if sets.from_run:
        scores = searched_sets.score_runs(sets.from_run, collections, top_k)
    else:
        reranker = reranking.load(options, rerun=scoring.rerun)
        if reranker is not None and published is not None:
            raise InputError("--against takes several models as seeds of one, and --rerank makes two of each")
        if reranker is not None and reranker.depth > top_k:
            reranker.depth = top_k
            console.note(f"{reranker.name} reads the {top_k} hits of each query that are found (--top-k)")
        searched = SearchedSets(collections, search, passages if passages.passages else None)
        searched.check(options)
        retrievers = searched_sets.retrievers(scoring.models(study.models, options), search.modes, reranker)
        files = {}
        if sets.run is not None:
            others = [Path(file) for file in (sets.per_query, json_file) if file not in (None, "-")]
            files = searched_sets.run_files(sets.run, searched, retrievers, others, overwrite=overwrite)
        with scores_if_interrupted() as scores:
            for retriever in retrievers:
                runs = files.get(retriever, {})
                scores.append(searched.score(retriever, runs, rerun=scoring.rerun, read_cache=sets.run is None))
    if sets.per_query is not None:
        searched_sets.write_queries(sets.per_query, scores)
    return scores_result(scores, published, RETRIEVAL, study)


def _check_as_published(collections: Sequence[Collection], search: SearchOptions) -> None:
    """Refuse a comparison with published scores that are of other choices."""
    if len(search.modes) > 1:
        raise InputError("--against takes several models as seeds of one: give one way of --search")
    unusual = any(collection.split != collection.facts.split for collection in collections)
    if unusual or (search.top_k or SCORED_HITS) < 10:
        raise InputError(
            "--against: papers print nDCG@10 on the usual splits, so leave --split and --top-k as they are"
        )


def _check_usage(models: Sequence[str], sets: SetOptions, modes: Sequence[SearchMode], *, overwrite: bool) -> None:
    beir, from_run = sets.beir or [], sets.from_run or []
    if from_run and len(beir) != 1:
        raise InputError(f"--from-run scores runs of one set, not of {len(beir)} (--beir)")
    with_model = [mode for mode in modes if mode != "bm25"]
    if with_model and not models and not from_run:
        raise InputError(f"--search {with_model[0]} needs a model (-m); bm25 needs none")
    if sets.per_query is not None:
        run_files = list(from_run)
        if sets.run is not None:
            run_files.append(sets.run)
        if sets.per_query.resolve() in [path.resolve() for path in run_files]:
            raise InputError(f"--per-query {sets.per_query} would replace the run; choose another file")
        check_output(sets.per_query, overwrite=overwrite)


def score_pairs(
    models: Sequence[str], pairs: PairOptions, search: SearchOptions, options: LoadOptions, scoring: ScoringOptions
) -> Result:
    """Score models on finding the second sentence of a pair by the first."""
    if not models:
        raise InputError("--in-domain needs a model (-m); several are compared")
    role_options = {
        "--query-prompt": search.query_prompt,
        "--doc-prompt": search.doc_prompt,
        "--query-length": search.query_length,
    }
    for flag, value in role_options.items():
        if value is not None:
            raise InputError(f"{flag}: with --in-domain queries and corpus are the same sentences, encoded alike")
    cutoffs = list(positives.RECALL_CUTOFFS)
    if search.top_k and search.top_k not in cutoffs:
        cutoffs = sorted([*cutoffs, search.top_k])
    table = read_pair_table(str(pairs.in_domain), pairs.pair_fields)
    query_columns = positives.positive_choice(table)
    if scoring.against is not None and (pairs.pair_fields or not is_stsb(open_source(str(pairs.in_domain)))):
        raise InputError("--against: papers print in-domain retrieval in STS-B's test pairs, not in other tables")
    published = scoring.published(IN_DOMAIN, [f"recall@{k}" for k in cutoffs])
    console.note(f"{pairs.in_domain}: the queries are the first sentences of {query_columns}")
    console.note(f"not counted as answers: {positives.EXCLUDED[pairs.exclude]} (--exclude {pairs.exclude})")
    study = study_of(models, groups=scoring.group)
    evaluated = scoring.models(study.models, options)
    options_of_pairs = {"pairs": pairs.in_domain, "pair_fields": pairs.pair_fields, "top_k": search.top_k}
    runs = []
    for model in evaluated:
        task = positives.InDomainTask(table, pairs.exclude, cutoffs, search.similarity_of(model.spec))
        runs.append((model, [task], options_of_pairs | task.protocol))
    return score_study(study, runs, IN_DOMAIN, published)
