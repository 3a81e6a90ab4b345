"""``retrieve``: search a corpus, or score retrieval."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import CommonOptions, Flag, Group, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.evaluation.options import PairOptions, RerankOptions, ScoringOptions, SetOptions
from sentcli.model.options import SERVED_HELP, LoadOptions
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.stores.options import PassageOptions
from sentcli.verbs.retrieve_corpus import search_corpus


@verb(
    "retrieve",
    pages=True,
    common=(
        "model corpus query like queries where count_by least hits collection beir split run from_run in_domain "
        "search index top_k rerank similarity pooling max_length overwrite json report"
    ),
)
def retrieve(
    model: Annotated[
        list[str] | None,
        Holds.MODEL,
        Flag("-m"),
        Doc(
            f"{SERVED_HELP}; --beir and --in-domain compare several. Default: the model that made a corpus of vectors."
        ),
    ] = None,
    corpus: Annotated[CorpusOptions, Group("Search")] = CorpusOptions(),
    sets: Annotated[SetOptions, Group("Score sets")] = SetOptions(),
    passages: Annotated[PassageOptions, Group("Score sets")] = PassageOptions(),
    pairs: Annotated[PairOptions, Group("Score pairs")] = PairOptions(),
    search: Annotated[SearchOptions, Group("Model")] = SearchOptions(),
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    reranking: Annotated[RerankOptions, Group("Model")] = RerankOptions(),
    scoring: Annotated[ScoringOptions, Group("Output")] = ScoringOptions(),
    overwrite: Overwrite = False,
    common: Annotated[CommonOptions, Group("Output")] = CommonOptions(),
) -> Result:
    """Search a corpus, or score retrieval: BEIR's sets with BEIR's metrics, or pairs of one domain.

    Search is exact unless an index is asked for.

    Args:
        passages: With --beir: cut documents at paragraphs, else sentences; each is found, and reranked, by its best
            passage.

    \b
    Examples:
      sentcli retrieve -m minilm --corpus documents.jsonl --query "how do I resume" --least 0.4
      sentcli index documents.jsonl -o documents -m minilm --type hnsw
      sentcli retrieve -m minilm --corpus documents --queries questions.txt --hits hits.jsonl
      sentcli retrieve -m minilm --beir data/scifact --search dense,bm25,rrf --run runs
      sentcli retrieve --beir data/scifact --from-run a.trec --from-run b.trec
      sentcli retrieve -m minilm --in-domain downstream/STS/STSBenchmark/sts-test.csv
    """  # noqa: D301
    if sets.beir:
        from sentcli.verbs.retrieve_sets import score_sets

        return score_sets(
            model or [], sets, search, passages, options, reranking, scoring, overwrite=overwrite, json_file=common.json
        )
    if passages.passages:
        raise InputError("--passages goes with --beir; a corpus is cut when it is encoded: sentcli encode --passages")
    if pairs.in_domain is not None:
        from sentcli.verbs.retrieve_sets import score_pairs

        return score_pairs(model or [], pairs, search, options, scoring)
    if not corpus.corpus:
        raise InputError(
            "give --beir DIR to score a set, --in-domain FILE to score pairs, or --corpus FILE with --query TEXT to "
            "search"
        )
    keep_all = corpus.hits is None or common.json is not None
    reranker = reranking.load(options, rerun=scoring.rerun)
    return search_corpus(model or [], corpus, search, options, reranker, overwrite=overwrite, keep_all=keep_all)
