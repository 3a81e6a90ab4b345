"""Queries that a model writes for documents: one behind an address, or a seq2seq model such as doc2query."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli import console
from sentcli.errors import DataError, InputError, SentcliError, library_errors
from sentcli.io.digests import cache_folder
from sentcli.io.formats import records
from sentcli.io.served import Served
from sentcli.io.sources import open_source
from sentcli.search.bm25 import BM25
from sentcli.testset.documents import Documents
from sentcli.testset.queries import (
    LEAST_SET_QUERIES,
    JudgedQuery,
    QuerySet,
    near_equal,
    query_problem,
    random_sample,
    with_near_equal,
    words,
)

ANSWERS = "written.jsonl"
"""The answers in the folder of a set, from which it can be made again without the model."""
PROMPT = (
    "A person needs what the following text says and has not seen it. Write what this person would type into a search "
    "box: one question or a few words, without copying phrases of the text. Answer with that alone.\n\n"
)
SHOWN_CHARACTERS = 4000
"""The characters of a document that a model is shown."""
ROUND_TRIP = 20
"""A query has to find its document among the first 20 by BM25."""


@dataclass(frozen=True)
class Answer:
    """What a model wrote for a document."""

    document: str
    sha256: str
    """The checksum of the document's text."""
    query: str


def ask_for_queries(writer: Served | str, documents: Documents, limit: int, seed: int) -> list[Answer]:
    """Let a model write a query for each of some documents, or read what one has written.

    Answers are kept in the cache, so that the same command goes on where it was cut off.

    Args:
        writer: a model behind an address, the folder or hub id of a seq2seq model, or a file of answers (.jsonl).
        documents: all documents.
        limit: the most queries; documents are drawn at random.
        seed: of the draw, and of the model.

    Raises:
        InputError: if there is no such model.
        DataError: if a file of answers is damaged, or names a document that is not there or has changed.
        SentcliError: if the model does not answer.
    """
    texts = _texts(documents)
    if isinstance(writer, str) and writer.endswith(".jsonl"):
        return list(_read(writer, texts))
    name = str(writer)
    key_of_cache = _digest(json.dumps([name, PROMPT, seed]))
    cache = cache_folder("answers") / f"{key_of_cache[:32]}.jsonl"
    queries = _cached(cache)  # by the digest of the text
    digests = {}
    missing = []
    keys_with_text = [key for key, text in texts.items() if text]
    for key in random_sample(keys_with_text, limit, seed):
        digest = _digest(texts[key])
        digests[key] = digest
        if digest not in queries:
            missing.append(key)
    cache.parent.mkdir(parents=True, exist_ok=True)
    write = _by_address(writer, seed) if isinstance(writer, Served) else _by_seq2seq(writer, seed)
    count = len(digests) - len(missing)
    answers = write([texts[key] for key in missing])
    try:
        with cache.open("a", encoding="utf-8") as handle, console.counting(f"{name} writes", len(missing)) as progress:
            for key, answer in zip(missing, answers, strict=True):
                digest = digests[key]
                query = _query(answer)
                queries[digest] = query
                line = json.dumps([digest, query])
                handle.write("\n" + line)  # what was cut off ends here
                handle.flush()
                count += 1
                progress(1)
    except SentcliError as error:
        kept = f"{count:,} of {len(digests):,} answers are kept"
        raise SentcliError(f"{error}; {kept}: the same command goes on") from error
    return [Answer(key, digest, queries[digest]) for key, digest in digests.items()]


def written_queries(answers: Sequence[Answer], documents: Documents, name: str) -> QuerySet:
    """Return the queries of answers that find their document by words; documents stay as they are.

    Raises:
        InputError: if fewer than `LEAST_SET_QUERIES` are left.
    """
    left_out: Counter[str] = Counter()
    usable = []
    sought = []
    times = Counter(words(answer.query) for answer in answers)
    for answer in answers:
        query = answer.query
        problem = query_problem(query)
        if problem is None and times[words(query)] > 1:
            problem = "of several documents"
        if problem is None:
            usable.append(answer)
            sought.append(query)
        else:
            left_out[problem] += 1
    bm25 = BM25.build(_texts(documents).values())
    hits = bm25.search(sought, ROUND_TRIP).positions
    neighbours = near_equal(documents.texts)
    queries: list[JudgedQuery] = []
    for answer, positions in zip(usable, hits.tolist(), strict=True):
        position = documents.places[answer.document]
        relevant = with_near_equal(position, neighbours)
        if relevant.isdisjoint(positions):
            left_out[f"not among the first {ROUND_TRIP} by BM25"] += 1
            continue
        number = len(queries) + 1
        grades = documents.graded(relevant)
        queries.append(JudgedQuery(f"q{number}", answer.query, grades, "written"))
    if len(queries) < LEAST_SET_QUERIES:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise InputError(f"{name}: {len(queries)} of {len(answers)} answers are queries ({reasons})")
    return QuerySet(queries, documents, dict(left_out), neighbours)


def _texts(documents: Documents) -> dict[str, str]:
    return {key: documents.title_and_text(position) for position, key in enumerate(documents.ids)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _query(answer: str) -> str:
    """Return the first query of an answer, without what a model thinks or says before it, and quotation marks."""
    query = ""
    for text in _without_thoughts(answer).splitlines():
        line = " ".join(text.split())
        if line and not line.endswith(":"):
            query = line
            break
    query = re.sub(r"^(?:\d+[.)]|[-*\u2022])\s+", "", query)
    return query.strip("\"'\u201c\u201d\u201e\u00ab\u00bb* ")


def _without_thoughts(answer: str) -> str:
    """Return an answer without what stands between ``<think>`` and ``</think>``."""
    parts: list[str] = []
    place = 0
    while True:
        start = answer.find("<think>", place)
        end = answer.find("</think>", start)
        if start < 0 or end < 0:
            return "".join([*parts, answer[place:]])
        parts.append(answer[place:start])
        place = end + len("</think>")


def _cached(path: Path) -> dict[str, str]:
    """Return the answers of a file of the cache by the checksum of the text; a line that was cut off is left out."""
    answers = {}
    if path.exists():
        for line in path.read_text("utf-8", errors="replace").splitlines():
            with suppress(ValueError):
                digest, query = json.loads(line)
                answers[digest] = query
    return answers


def _read(file: str, texts: Mapping[str, str]) -> Iterator[Answer]:
    source = open_source(file)
    for line, record in records(source):
        answer = _answer_of(record)
        if answer is None:
            raise DataError(source.name, "an answer has document, sha256 and query", line=line)
        document = answer.document
        if document not in texts:
            raise DataError(source.name, f"there is no document {document!r} in the corpus", line=line)
        if _digest(texts[document]) != answer.sha256:
            raise DataError(source.name, f"the document {document!r} has changed since", line=line)
        yield answer


def _answer_of(record: Mapping[str, Any]) -> Answer | None:
    """Return the answer of a row; None if it has other columns, or a value is no text."""
    if set(record) != {"document", "sha256", "query"}:
        return None
    if not all(isinstance(value, str) for value in record.values()):
        return None
    return Answer(**record)


def _by_address(served: Served, seed: int) -> Any:
    def write(texts: Sequence[str]) -> Iterator[str]:
        requests: list[dict[str, Any]] = []
        for text in texts:
            message = {"role": "user", "content": PROMPT + text[:SHOWN_CHARACTERS]}
            requests.append({"messages": [message], "temperature": 0, "seed": seed})
        for answer in served.answers("chat/completions", requests):
            try:
                content = answer["choices"][0]["message"]["content"]
            except (KeyError, IndexError, TypeError):
                content = None
            if not isinstance(content, str):
                raise SentcliError(f"{served}: its answer has no choices[0].message.content")
            yield content

    return write


def _by_seq2seq(name: str, seed: int) -> Any:
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from sentcli.model.torch_backend import quiet_transformers

    refused = f"--write-with {name} is no address, file of answers or seq2seq model"
    quiet_transformers()
    with library_errors(lambda why: InputError(f"{refused} ({why})")):
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForSeq2SeqLM.from_pretrained(name).eval()

    def write(texts: Sequence[str]) -> Iterator[str]:
        for start in range(0, len(texts), 8):
            batch = list(texts[start : start + 8])
            with library_errors(lambda why: SentcliError(f"--write-with {name} writes nothing ({why})")):
                tokens = tokenizer(batch, truncation=True, max_length=512, padding=True, return_tensors="pt")
                torch.manual_seed(seed)
                with torch.inference_mode():
                    output = model.generate(**tokens, max_new_tokens=64, do_sample=True, top_k=10)
                queries = tokenizer.batch_decode(output, skip_special_tokens=True)
            yield from queries

    return write
