"""What reads foreign text takes a time in proportion to its length, whatever the text repeats."""

import re
import time
from collections import Counter
from contextlib import suppress
from unittest.mock import patch

import pytest

from sentcli.errors import InputError
from sentcli.io.formats import headless
from sentcli.io.labelled_kinds import column_name
from sentcli.io.labelled_values import label_words, repeating, value_kind
from sentcli.io.pages import front_matter
from sentcli.io.places import without_address_secrets
from sentcli.io.weights import _first_line
from sentcli.pages.hits import hits_grid
from sentcli.pages.write import latex_text, markdown_text
from sentcli.printable import escaped, safe
from sentcli.search.words import FOLDED, PATTERNS, separated
from sentcli.testset.documents import FIRST_SENTENCE, Documents
from sentcli.testset.judging import _one_line, _unquoted
from sentcli.testset.markdown import markdown_sections
from sentcli.testset.queries import (
    WORD_AND_SIGNS,
    QueryCandidate,
    near_equal,
    query_problem,
    structural_queries,
    texts_without,
    words,
)
from sentcli.testset.written import _query


def repeated(part, before="", after=""):
    return lambda size: before + part * (size // len(part)) + after


def numbered(text):
    return lambda size: "".join(text.format(number) for number in range(size // len(text)))


SHAPES = {
    "blanks": repeated(" "),
    "a sentence and blanks": repeated(" ", before="One."),
    "a sentence, brackets and blanks": repeated(')" ', before="One."),
    "ends of sentences": repeated("."),
    "full stops": repeated("。", after="」"),
    "brackets behind a full stop": repeated("」", before="。"),
    "open thoughts": repeated("<think>"),
    "thoughts": repeated("<think>a</think>"),
    "quotation marks": repeated('"'),
    "question marks": repeated("?"),
    "queries": repeated("?a"),
    "slashes": repeated("/"),
    "a user": repeated("a", before="//"),
    "underscores": repeated("_- "),
    "digits": repeated("1"),
    "backticks": repeated("`"),
    "lines": repeated("\n"),
    "signs": repeated("猫"),
    "marks": repeated("\u0301"),
    "letters": repeated("aB"),
    "escapes": repeated("\x1b["),
    "words": repeated("word "),
    "different words": numbered("w{} "),
}
READERS = {
    "first sentence": FIRST_SENTENCE.match,
    "answer of a model": _query,
    "words of a query": words,
    "words and signs": WORD_AND_SIGNS.findall,
    "problem of a query": query_problem,
    "one line": _one_line,
    "cell of a spreadsheet": lambda text: _unquoted(f'"{text}"', quoted=False),
    "names of a header": lambda text: headless([text]),
    "head of a column": column_name,
    "values": lambda text: (value_kind(Counter([text])), label_words([text]), repeating(Counter(text.split()))),
    "secrets": without_address_secrets,
    "message of a library": lambda text: _first_line(Exception(text)),
    "console": lambda text: (safe(text), escaped(text)),
    "Markdown": markdown_text,
    "LaTeX": latex_text,
    "words of BM25": lambda text: re.findall(PATTERNS[FOLDED], next(separated([text], FOLDED))),
    "hits": lambda text: hits_grid(text, {}),
    "words without a title": lambda text: texts_without(
        Documents(texts=[text]), [QueryCandidate(text[: len(text) // 2] + " end", 0, "title")]
    ),
}
PAGES = {
    "equal headings": repeated("# same\n"),
    "headings like anchors": numbered("# same\n## same-{}\n"),
    "blanks": repeated(" "),
}
MATTER = {
    "seconds": repeated("1:", before="---\nat: ", after="1\n---\n"),
    "digits": repeated("1", before="---\nat: ", after="\n---\n"),
    "quotes": repeated("''", before="---\nat: '", after="'\n---\n"),
    "nothing": repeated("---\n"),
    "keys": lambda size: "---\n" + "".join(f"k{number}: a\n" for number in range(size // 8)) + "---\n",
    "aliases": lambda size: "---\na: &a [x, y]\nb: [" + "*a, " * (size // 4) + "]\n---\n",
}
BOOKS = {
    "equal headings": numbered("# the same words\n\na text of {}\n\n"),
    "equal texts": numbered("# how do I mend {}\n\nthe same words\n\n"),
    "equal sections": repeated("# the same words\n\na text\n\n"),
    "equal lists": repeated("# the same words\n\n- a\n- b\n\n"),
}
"""Files of many sections, where what repeats is not in one text."""


def queries_of(text):
    """Make queries of the sections of a Markdown file, as `data make-set` does.

    Without the search for near-equal documents, which compares all of them with all by one product, as it is meant to.
    """
    documents = Documents()
    for number, (heading, _, body, _) in enumerate(markdown_sections(text, "a.md")):
        documents.add(str(number), heading, body, "heading")
    with suppress(InputError), patch("sentcli.testset.queries.near_equal", return_value={}):
        structural_queries(documents, "a.md", 100, 0)


PAIRS = [(name, reader, shape) for name, reader in READERS.items() for shape in SHAPES.values()]
PAIRS += [("sections", lambda text: list(markdown_sections(text, "a.md")), shape) for shape in PAGES.values()]
PAIRS += [("front matter", lambda text: front_matter(text, "a.md"), shape) for shape in MATTER.values()]
PAIRS += [("near-equal texts", lambda text: near_equal([text, text]), SHAPES["words"])]
PAIRS += [("queries of sections", queries_of, shape) for shape in BOOKS.values()]
NOTICEABLE = 0.005
"""Seconds that 10,000 characters take a reader that is looked at more closely: it is quick with 100,000 otherwise."""
MOST_TIMES = 40
"""As many times as long ten times as many characters may take: 10 would be linear, 100 quadratic."""


def seconds(reader, text):
    begin = time.process_time()
    with suppress(RecursionError):
        reader(text)
    return time.process_time() - begin


@pytest.mark.slow
@pytest.mark.parametrize("name", dict.fromkeys(name for name, _, _ in PAIRS))
def test_time_grows_with_the_length_of_a_foreign_text(name):
    for reader, shape in [(reader, shape) for owner, reader, shape in PAIRS if owner == name]:
        seconds(reader, shape(1_000))
        shorter = seconds(reader, shape(10_000))
        if shorter > NOTICEABLE:
            most = max(MOST_TIMES * shorter, 0.5)
            longer = most
            for _ in range(5):  # what else the machine does may have cost time
                longer = min(longer, seconds(reader, shape(100_000)))
                if longer < most:
                    break
            assert longer < most, (shape(20), shorter, longer)


def test_headings_have_the_anchors_that_they_had():
    text = "# a\n# a\n# a-1\n# a\n## b\n# a-1\n# \n# \n"
    assert [anchor for _, anchor, _, _ in markdown_sections(text, "a.md")] == [
        "",
        "a",
        "a-1",
        "a-1-1",
        "a-2",
        "b",
        "a-1-2",
        "-1",
        "-2",
    ]
