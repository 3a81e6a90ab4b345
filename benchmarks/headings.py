"""Whether passages that begin at headings find more: pages of Markdown, asked by sentences that were taken out of them.

    python benchmarks/headings.py docs [FOLDER ...] [-m minilm] [--contexts none headings] [-o FILE.json]

A sentence in a random section of a page is taken out and becomes a query, of which its page is relevant (the inverse
cloze task of Lee et al., 2019). So no query is a heading: one that is names exactly what stands under it, and finds a
passage of that alone whatever is better for other questions. Each page is cut in three ways: as before, when a heading
was one of the places where a passage could end; at headings, each section alone; and at headings, sections joined with
all below them that fit. What is right is the page, which is found by its best passage, or the passage in which the
sentence stood. The differences are those of nDCG@10 over the same queries, with 95 % intervals.
"""

import argparse
import json
import math
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import machine

from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.significance import compare_means
from sentcli.io.pages import (
    LOWEST,
    PageLayout,
    TextSection,
    front_matter,
    headings,
    markdown_tokens,
    page_layout,
    plain_words,
)  # fmt: skip
from sentcli.model.cutting import SENTENCE_END, Cutter, Span, _Headers, _Places, _RowBlocks
from sentcli.model.passages import BETWEEN_HEADINGS, Context, context_of
from sentcli.search.options import SearchOptions
from sentcli.search.searcher import searcher_over

Floats = npt.NDArray[np.float64]
LEAST_WORDS = 8
"""The words that a query has at least."""
LEAST_REST = 20
"""The words that its section keeps at least."""
MOST_WORDS = 8000
"""A longer page is left out: one of references would take most of the time."""
QUERIES = 400


@dataclass(frozen=True)
class Found:
    """What passages that were cut in one way find."""

    passages: int
    of_pages: Floats
    """nDCG@10 of each query, whose page is right."""
    of_places: Floats
    """The same where the passage is right in which its sentence stood."""


def as_before(cutter: Cutter, text: str) -> list[Span]:
    """Cut a page as versions did that took a heading for the best place where a passage may end."""
    tokens = cutter._token_starts(text)
    if len(tokens) <= cutter.tokens:
        return [Span(0, len(text))]
    starts = np.array([heading.start for heading in headings(text)], np.int64)
    headers = _Headers((), ())
    places = _Places(text, tokens, _RowBlocks(()), headers, cutter.tokens, cutter.overlap)
    places.kinds.insert(0, places._numbers(starts))
    spans = []
    for span in places.spans(TextSection(0, len(text), 0, LOWEST), 0, len(tokens)):
        spans += cutter._fitting(text, span, cutter.tokens, 0, headers)
    return spans


def alone(cutter: Cutter, text: str) -> list[Span]:
    """Cut a page at its headings; one without text of its own goes with the first below it."""
    parts: list[TextSection] = []
    bare: TextSection | None = None
    for section in page_layout(text).sections:
        begin = section.start
        if bare is not None and section.level > bare.level:
            begin = parts.pop().start
        parts.append(replace(section, start=begin, level=LOWEST))
        bare = section if section.body == section.end else None
    return cutter.cut(text, PageLayout(parts))


def joined(cutter: Cutter, text: str) -> list[Span]:
    """Cut a page as `encode --passages` does."""
    return cutter.cut(text, page_layout(text))


WAYS: dict[str, Callable[[Cutter, str], list[Span]]] = {"as before": as_before, "alone": alone, "joined": joined}


def pages_of(folder: Path) -> dict[str, str]:
    """Return the pages of a folder by their paths, without front matter."""
    pages = {}
    for path in sorted(folder.rglob("*.md")):
        text = front_matter(path.read_text("utf-8"))[1]
        if 0 < len(text.split()) <= MOST_WORDS:
            pages[path.relative_to(folder).as_posix()] = text
    return pages


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of running text of a page."""
    for token in markdown_tokens(text):
        if token.type == "inline" and token.level == 1:
            begin = 0
            for end in [*(match.end() for match in SENTENCE_END.finditer(token.content)), len(token.content)]:
                sentence = token.content[begin:end].strip()
                begin = end
                if sentence in text:
                    yield sentence


@dataclass(frozen=True)
class Asked:
    """A sentence that was taken out of a page."""

    query: str
    page: str
    place: int
    """The character of the page at which it stood, without all that was taken out."""


def taken_out(pages: dict[str, str]) -> tuple[dict[str, str], list[Asked]]:
    """Return pages without some sentences, and these."""
    candidates: dict[tuple[str, int], list[str]] = {}
    corpus = "\n\n".join(pages.values())
    for page, text in pages.items():
        parts = page_layout(text).sections
        for sentence in sentences(text):
            place = text.index(sentence)
            number = max(number for number, part in enumerate(parts) if part.start <= place)
            rest = text[parts[number].body : parts[number].end].replace(sentence, "")
            is_heading = place < parts[number].body
            if is_heading or len(rest.split()) < LEAST_REST or corpus.count(sentence) > 1:
                continue
            if len(words_of(sentence).split()) >= LEAST_WORDS:
                candidates.setdefault((page, number), []).append(sentence)
    draw = random.Random(0)
    chosen = {}
    for key in draw.sample(sorted(candidates), min(QUERIES, len(candidates))):
        chosen[key] = draw.choice(candidates[key])
    remaining = dict(pages)
    asked = []
    removed: defaultdict[str, int] = defaultdict(int)
    for (page, _), sentence in sorted(chosen.items()):
        place = pages[page].index(sentence) - removed[page]  # sections come in order
        remaining[page] = remaining[page][:place] + remaining[page][place + len(sentence) :]
        removed[page] += len(sentence)
        asked.append(Asked(words_of(sentence), page, place))
    return remaining, asked


def words_of(sentence: str) -> str:
    """Return a sentence of Markdown without its markup."""
    found = []
    for token in markdown_tokens(sentence):
        found.append(plain_words(token.children or []))
    return " ".join(found).strip()


def passages_of(
    cut: Callable[[Cutter, str], list[Span]], cutter: Cutter, text: str, context: Context
) -> Iterator[tuple[Span, str]]:
    """Yield the passages of a page, each also as it is encoded: behind the headings above it, or alone."""
    parts = page_layout(text).sections
    above = []
    for part in parts:
        above.append(context_of("", BETWEEN_HEADINGS.join([heading.words for heading in part.path]), context))
    room = replace(cutter, tokens=cutter.tokens - max(map(cutter.length, above)))
    starts = [part.start for part in parts]
    for span in cut(room, text):
        yield span, above[bisect_right(starts, span.start) - 1] + span.text_in(text)


def found_by(way: str, pages: dict[str, str], asked: list[Asked], model: EvaluatedModel, context: Context) -> Found:
    """Return what passages that are cut in one of the ways find."""
    tokenizer = model.load().local.tokenizer
    cutter = Cutter(tokenizer, tokenizer.max_length - tokenizer.special_tokens)
    query_prompt, document_prompt = SearchOptions().prompts(model.spec)
    texts, spans, owners = [], [], []
    for page, text in pages.items():
        for span, passage in passages_of(WAYS[way], cutter, text, context):
            texts.append(passage)
            spans.append(span)
            owners.append(page)
    queries = [one.query for one in asked]
    vectors = model.encode(texts, prompt=document_prompt).vectors_of(texts)
    hits = searcher_over("flat", vectors).search(
        model.encode(queries, prompt=query_prompt).vectors_of(queries), len(texts)
    )
    of_pages, of_places = [], []
    for one, positions in zip(asked, hits.positions.tolist(), strict=True):
        ranked = list(dict.fromkeys(owners[row] for row in positions))  # each page where its best passage stands
        of_pages.append(gain(ranked.index(one.page)))
        holds = [owners[row] == one.page and spans[row].start <= one.place <= spans[row].end for row in positions]
        of_places.append(gain(holds.index(True)))
    return Found(len(texts), np.array(of_pages), np.array(of_places))


def gain(rank: int) -> float:
    """Return nDCG@10 of a query with one right hit, given its rank from 0."""
    return 1 / math.log2(rank + 2) if rank < 10 else 0.0


def compared(values: Floats, others: Floats) -> dict[str, float]:
    """Return the difference of two means over the same queries with its interval."""
    found = compare_means(values, others)
    low, high = found.interval
    return {"difference": round(found.difference, 4), "low": round(low, 4), "high": round(high, 4)}


def measured(folder: Path, model: EvaluatedModel, context: Context) -> dict[str, object]:
    """Return what each way of cutting the pages of a folder finds."""
    pages, asked = taken_out(pages_of(folder))
    found = {way: found_by(way, pages, asked, model, context) for way in WAYS}
    result: dict[str, object] = {"set": "/".join(folder.parts[-2:]), "context": context}
    result |= {"pages": len(pages), "queries": len(asked)}
    result["passages"] = {way: one.passages for way, one in found.items()}
    for measure in ("of_pages", "of_places"):
        values = {way: getattr(one, measure) for way, one in found.items()}
        result[measure] = {
            "ndcg@10": {way: round(float(one.mean()), 4) for way, one in values.items()},
            "alone - as before": compared(values["alone"], values["as before"]),
            "joined - as before": compared(values["joined"], values["as before"]),
            "joined - alone": compared(values["joined"], values["alone"]),
        }
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    """Measure all folders and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-m", dest="model", default="minilm")
    parser.add_argument("--contexts", nargs="+", choices=["none", "headings"], default=["none"])
    parser.add_argument("-o", dest="output", type=Path)
    options = parser.parse_args()
    print(machine())
    model = EvaluatedModel(options.model)
    found = []
    for context in options.contexts:
        for folder in options.folders:
            found.append(measured(folder, model, context))
    if options.output is not None:
        options.output.write_text(json.dumps({"model": options.model, "sets": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
