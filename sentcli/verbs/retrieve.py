"""``retrieve``: search a corpus, or score retrieval."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.search.options import SearchOptions
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.hits import CorpusSearch
from sentcli.verbs.options import MODEL_HELP, CorpusOptions, Overwrite, PairOptions, SetOptions
from sentcli.verbs.result import Result
from sentcli.verbs.retrieve_corpus import search_corpus
from sentcli.verbs.scoring import ScoringOptions


@verb(
    "retrieve",
    pages=True,
    common=(
        "model corpus query like queries where count_by hits collection beir split run from_run in_domain "
        "search index top_k similarity pooling max_length overwrite json report"
    ),
)
def retrieve(
    model: Annotated[
        list[str] | None,
        Flag("-m"),
        Doc(f"{MODEL_HELP}; --beir and --in-domain compare several. Default: the model that made a corpus of vectors."),
    ] = None,
    corpus: Annotated[CorpusOptions, Group("Search")] = CorpusOptions(),
    sets: Annotated[SetOptions, Group("Score sets")] = SetOptions(),
    pairs: Annotated[PairOptions, Group("Score pairs")] = PairOptions(),
    search: Annotated[SearchOptions, Group("Model")] = SearchOptions(),
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    scoring: Annotated[ScoringOptions, Group("Output")] = ScoringOptions(),
    overwrite: Overwrite = False,
    json: str | None = None,
) -> Result:
    """Search a corpus, or score retrieval: BEIR's sets with BEIR's metrics, or pairs of one domain.

    Search is exact unless an index is asked for.

    \b
    Examples:
      sentcli retrieve -m minilm --corpus documents.jsonl --query "how do I resume" --top-k 5
      sentcli index documents.jsonl -o documents -m minilm --type hnsw
      sentcli retrieve -m minilm --corpus documents --queries questions.txt --hits hits.jsonl
      sentcli retrieve -m minilm --beir data/scifact --search dense,bm25,rrf --run runs
      sentcli retrieve --beir data/scifact --from-run a.trec --from-run b.trec
      sentcli retrieve -m minilm --in-domain downstream/STS/STSBenchmark/sts-test.csv
    """  # noqa: D301
    inputs = {"--beir": sets.beir, "--corpus": corpus.corpus, "--in-domain": pairs.in_domain}
    chosen = [name for name, value in inputs.items() if value]
    if len(chosen) != 1:
        several = f", not {' and '.join(chosen)}" if chosen else ""
        raise InputError(
            "give --beir DIR to score a set, --in-domain FILE to score pairs, or --corpus FILE with --query TEXT to "
            f"search{several}"
        )
    if search.language is not None and not search.by_words:
        raise InputError("--language goes with --search bm25, rrf or weighted")
    if search.dense_weight is not None and "weighted" not in search.ways:
        raise InputError("--dense-weight goes with --search weighted")
    of_model: dict[str, object] = {"-m": model or None, "--index": search.index, "--similarity": search.similarity}
    of_model |= {"--query-prompt": search.query_prompt, "--doc-prompt": search.doc_prompt}
    of_model |= {"--query-length": search.query_length, "--max-length": options.max_length}
    of_model["--pooling"] = options.pooling
    if not search.by_vectors and (wrong := [flag for flag, value in of_model.items() if value is not None]):
        raise InputError(f"--search bm25 needs no model; {wrong[0]} does not go with it")
    if sets.beir:
        from sentcli.verbs.retrieve_sets import score_sets

        return score_sets(model or [], sets, search, options, scoring, overwrite=overwrite, json_file=json)
    if pairs.in_domain is not None:
        from sentcli.verbs.retrieve_sets import score_pairs

        return score_pairs(model or [], pairs, search, options, scoring)
    if scoring.against:
        raise InputError("--against goes with --beir or --in-domain: hits have no scores")
    keep_all = corpus.hits is None or json is not None
    return search_corpus(CorpusSearch(model or [], corpus, search, options), overwrite=overwrite, keep_all=keep_all)
