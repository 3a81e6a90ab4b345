"""``data mine``: hard negatives for training, that are none of the positives."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.bounds import Holds, IdField, Overwrite, PairFields, TextField
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result, failed
from sentcli.mining.options import MiningOptions
from sentcli.model.options import DocPrompt, LoadOptions, Model, QueryPrompt
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.arrays import Vectors
    from sentcli.mining.copies import MiningCorpus
    from sentcli.mining.mined import Mined
    from sentcli.mining.reading import MiningTexts
    from sentcli.stores.cached_encoder import CachedEncoder


@verb("mine", common="source model output corpus split pair_fields search ranks below negatives judge overwrite json")
def mine(
    source: Annotated[str, Holds.TEXT_FILE, Flag(metavar="PAIRS|SET", positional=True)],
    model: Model,
    output: Annotated[Path, Flag("-o", metavar="FILE.jsonl")],
    corpus: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE|DIR")] = None,
    split: str | None = None,
    pair_fields: PairFields = None,
    text_field: TextField = "text",
    title_field: Annotated[str | None, Holds.WORDS, Flag()] = None,
    id_field: IdField = None,
    mining: Annotated[MiningOptions, Group("Negatives")] = MiningOptions(),
    judge: Annotated[str | None, Flag(metavar="CROSS-ENCODER", panel="Negatives")] = None,
    query_prompt: QueryPrompt = None,
    doc_prompt: DocPrompt = None,
    options: Annotated[LoadOptions, Group("Model", without=["normalize"])] = LoadOptions(),
    rerun: bool = False,
    overwrite: Overwrite = False,
) -> Result:
    """Mine hard negatives for training: documents near a query that are none of its positives.

    Documents are ranked by a search, without the known positives and texts equal to
    them, and those with a rank in --ranks are candidates. Out fall near copies of a
    positive, what scores nearly as well as the positive (--below), and what a
    cross-encoder takes for relevant (--judge). The first --negatives that are left
    make a row with the query and each of its positives; a row with fewer is left
    out. Scores and ids stand beside the texts, and the result counts what fell and
    why. Vectors are kept, so that the same command goes on after an interruption.

    Args:
        source: A table of anchor and positive, as train reads it, or a retrieval set: a folder in BEIR layout, or a
            name of sentcli data list.
        output: The rows: anchor, positive, negative_1 and so on, as JSON Lines or .parquet.
        corpus: The documents: a file of texts, a folder in BEIR layout, or a directory of encode, whose vectors are
            taken if the model made them; default: the corpus of the set.
        split: Split of the set's qrels; default: test.
        title_field: Column of a corpus whose text stands in front of the document's.
        judge: A cross-encoder whose score for a negative has to be below the same share of the positive's; where its
            scores are no probabilities, their sigmoid is compared.
        rerun: Encode and score again instead of reading what is kept.

    \b
    Examples:
      sentcli data mine docs-set -m minilm -o triplets.jsonl
      sentcli data mine faq.csv --corpus answers.jsonl -m minilm -o triplets.jsonl --negatives 1
      sentcli data mine scifact --split train -m minilm -o hard.jsonl --search rrf --judge cross-encoder
    """  # noqa: D301
    from sentcli.evaluation.reranking import EvaluatedReranker
    from sentcli.io.atomic import check_kept, check_output
    from sentcli.mining.candidates import check_ranks
    from sentcli.mining.copies import MiningCorpus
    from sentcli.mining.judging import Judge
    from sentcli.mining.mined import mine_negatives as mine_texts
    from sentcli.mining.reading import CorpusFields, read_mining
    from sentcli.mining.writing import check_mined_suffix, write_mined
    from sentcli.search.bm25 import check_language
    from sentcli.search.options import SearchOptions
    from sentcli.stores.cached_encoder import CachedEncoder

    clock = Clock()
    check_mined_suffix(output)
    check_output(output, overwrite=overwrite)
    check_kept(output, [source, corpus, model, judge])
    if mining.by_words and mining.language is not None:
        check_language(mining.language)
    evaluated = CachedEncoder(model, options, rerun=rerun, reused=[corpus] if corpus else [])
    judging: Judge | None = None
    if judge is not None:
        reranker = EvaluatedReranker(judge, options, mining.rank_bounds[1], rerun)
        judging = Judge.of(reranker)
    fields = CorpusFields(text_field, title_field, id_field)
    texts = read_mining(source, corpus, split=split, pair_fields=pair_fields, fields=fields)
    documents = MiningCorpus(texts.documents, texts.corpus, language=mining.language)
    check_ranks(documents, mining)
    search = SearchOptions(similarity=mining.similarity, query_prompt=query_prompt, doc_prompt=doc_prompt)
    similarity = search.similarity_of(evaluated.spec)
    prompts = search.prompts(evaluated.spec)
    query_vectors, document_vectors = _vectors(evaluated, texts, prompts)
    mined = mine_texts(
        texts.mining,
        query_vectors,
        documents,
        document_vectors,
        mining,
        similarity=similarity,
        judge=judging,
        device=evaluated.load().backend.device,
    )
    if mined.rows:
        write_mined(output, mined, texts)
    if mined.short:
        console.warn(
            f"{mined.short:,} rows have fewer than {mining.negatives} negatives left and were left out: more "
            "--ranks or fewer --negatives keep more of them"
        )
    protocol = {
        **texts.protocol,
        **asdict(mining),
        "similarity": similarity,
        "query_prompt": prompts[0],
        "document_prompt": prompts[1],
        "judge": judge,
    }
    results = _counts(mined, texts, documents)
    record = Record(
        "data mine",
        model,
        protocol=protocol,
        results={"output": str(output), **results},
        environment=evaluated.load().environment(),
        seconds=clock.seconds,
        more={"commands": [f"sentcli train --method simcse -m {quote(model)} --data {quote(str(output))} -o MODEL"]},
    )
    result = Result.of(record, [_table(output, results)])
    if not mined.rows:
        result.show()
        raise failed(result, f"no row has {mining.negatives} negatives left, so {output} is not written")
    return result


def _vectors(model: CachedEncoder, texts: MiningTexts, prompts: tuple[str, str]) -> tuple[Vectors, Vectors]:
    """Return the vectors of queries and of documents, each kind with its prompt and its maximum length."""
    vectors = []
    kinds = {"queries": texts.queries, "documents": texts.documents}
    encoder = model.load()  # before there is a bar
    for (kind, kind_texts), prompt, length in zip(kinds.items(), prompts, texts.lengths, strict=True):
        with console.encoding(f"encoding {kind}", len(set(kind_texts))) as progress:
            encoded = model.encode(kind_texts, progress, prompt=prompt, length=length)
        cut = encoded.truncated(kind_texts)
        if cut:
            console.note(f"{cut:,} {kind} are longer than the maximum length of {encoder.model} and were cut")
        vectors.append(encoded.vectors_of(kind_texts))
    return vectors[0], vectors[1]


def _counts(mined: Mined, texts: MiningTexts, corpus: MiningCorpus) -> dict[str, Any]:
    """Return what was mined, and what was left out and why, as JSON."""
    shares = []
    negatives = 0
    for row in mined.rows:
        positive, *others = row.scores
        negatives += len(others)
        if positive > 0:
            shares += [score / positive for score in others]
    return {
        "rows": len(mined.rows),
        "negatives": negatives,
        "mean_share": sum(shares) / len(shares) if shares else None,
        "queries": len(texts.queries),
        "queries_with_rows": mined.queries,
        "queries_without_positive": mined.without_positive,
        "rows_left_out": mined.short,
        "fell": mined.fell,
        "documents": texts.corpus,
        "documents_of_equal_text": corpus.repeated,
        "empty_documents": corpus.empty,
        "positives_beside_the_corpus": len(texts.documents) - texts.corpus,
        "unknown_positives": texts.unknown,
        "empty_positives": texts.empty_positives,
        "empty_rows": texts.empty_rows,
    }


def _table(output: Path, results: dict[str, Any]) -> Table:
    rows = []
    for name, value in results.items():
        if isinstance(value, int):
            rows.append([name.replace("_", " "), f"{value:,}"])
    share = results["mean_share"]
    if share is not None:
        rows.insert(2, ["mean share of the positive's score", f"{share:.3f}"])
    for reason, count in results["fell"].items():
        rows.append([f"fell: {reason}", f"{count:,}"])
    return Table(str(output), ["what", "value"], rows)
