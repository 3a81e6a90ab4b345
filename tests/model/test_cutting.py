"""Documents are cut into passages that a model reads whole, and no character is lost."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from sentcli.errors import InputError
from sentcli.io.pages import PageContent, PageLayout, headings, page_layout
from sentcli.model.cutting import Cutter
from sentcli.model.passages import context_of
from sentcli.model.tokenizing import TextTokenizer
from tests.conftest import byte_bpe_tokenizer, wordpiece_tokenizer
from tests.examples import examples

MAX_LENGTH = 48


def unigram_tokenizer():
    """A SentencePiece tokenizer of single letters and some words, with a sign in front of words."""
    pieces = [("<unk>", 0.0), ("▁", -2.0), ("▁the", -1.0), ("▁cat", -1.0), (".", -2.0)]
    pieces += [(letter, -4.0) for letter in "abcdefghijklmnopqrstuvwxyz# \n"]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


BACKENDS = {
    "wordpiece": lambda: wordpiece_tokenizer().backend_tokenizer,
    "byte-level": lambda: byte_bpe_tokenizer().backend_tokenizer,
    "unigram": unigram_tokenizer,
}
WORDS = [
    "the cat",
    "sat.",
    "unknown",
    "zanzibar!",
    "猫が座る。",
    "😀",
    "\n",
    "\n\n",
    "\n\n# a heading\n\n",
    " ",
    "\t",
    "x" * 30,
]
texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=60).map(" ".join)
many = examples(60)


@pytest.fixture(params=BACKENDS)
def tokenizer(request):
    return TextTokenizer(BACKENDS[request.param](), MAX_LENGTH, 0)


@pytest.mark.slow
@many
@given(text=texts, tokens=st.integers(8, 40), part=st.floats(0, 0.5), with_headings=st.booleans())
def test_every_character_is_in_a_passage_that_the_model_reads_whole(tokenizer, text, tokens, part, with_headings):
    cutter = Cutter(tokenizer, tokens, int(tokens * part))
    spans = cutter.cut(text, page_layout(text) if with_headings else PageLayout())
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    for one, other in itertools.pairwise(spans):
        assert one.start < other.start <= one.end < other.end
    for span in spans:
        assert cutter.length(span.text_in(text)) <= tokens or span.end - span.start == 1
    if not cutter.overlap:
        assert "".join(text[span.start : span.end] for span in spans) == text


def test_passages_begin_at_headings_paragraphs_and_sentences(tokenizer):
    sentence = "the cat sat. "
    text = f"{sentence * 3}\n\n{sentence * 3}\n\n# two\n\n{sentence * 3}\n\n{sentence * 3}"
    length = Cutter(tokenizer, 8).length
    paragraph = f"{sentence * 3}\n\n"
    first = text.index("# two")
    two_paragraphs = Cutter(tokenizer, length(text[:first]) + length("# two\n\n the cat"))
    assert first in [span.start for span in two_paragraphs.cut(text, page_layout(text))]
    one_paragraph = Cutter(tokenizer, length(paragraph) + length("the cat"))
    assert text.index("the", len(paragraph) - 1) in [span.start for span in one_paragraph.cut(text)]
    spans = Cutter(tokenizer, length(sentence * 2) - 1).cut(sentence * 3)
    assert all(span.start % len(sentence) == 0 for span in spans)


@pytest.mark.slow
def test_passages_without_overlap_cost_few_tokens_more(minilm):
    from sentcli import SentenceEncoder

    tokenizer = SentenceEncoder.load(minilm).tokenizer
    cutter = Cutter(tokenizer, 126)
    text = " ".join(f"Sentence {number} says that the cat sat on the mat near the river." for number in range(2000))
    spans = cutter.cut(text)
    cost = sum(cutter.length(text[span.start : span.end]) + tokenizer.special_tokens for span in spans)
    assert cost <= 1.15 * cutter.length(text)


def test_what_stands_in_front_counts_and_may_not_take_all():
    cutter = Cutter(TextTokenizer(BACKENDS["wordpiece"](), MAX_LENGTH, 0), 10, 2)
    text = "the cat sat on the mat and the dog ran near the river"
    assert all(cutter.length(text[span.start : span.end]) <= 6 for span in cutter.cut(text, reserved=4))
    with pytest.raises(InputError, match="--context"):
        cutter.cut(text, reserved=7)
    with pytest.raises(InputError, match="--overlap"):
        Cutter(cutter.tokenizer, 10, 6)


def test_a_tokenizer_that_cuts_on_the_left_loses_nothing():
    tokenizer = TextTokenizer(BACKENDS["wordpiece"](), MAX_LENGTH, 0, side="left")
    text = "the cat sat on the mat . " * 40
    spans = Cutter(tokenizer, 20).cut(text)
    assert "".join(text[span.start : span.end] for span in spans) == text


def test_headings_of_a_page_and_its_front_matter(tmp_path):
    front_matter = "---\ntitle: Guide\ntags: [a, b]\nid: own\n---\n"
    content = f"{front_matter}# One\n\ntext\n\nTwo\n---\n\n> # quoted\n\n```\n# code\n```\n\n# Three\n"
    page = PageContent.parse(content, tmp_path / "a.md")
    assert page.facts == {"title": "Guide", "tags": "a, b", "id_": "own"}
    found = headings(page.text)
    assert [(heading.level, heading.words) for heading in found] == [(1, "One"), (2, "Two"), (1, "Three")]
    assert page.text[found[1].start :].startswith("Two\n---")
    paths = [[heading.words for heading in section.path] for section in page_layout(page.text).sections]
    assert paths == [["One"], ["One", "Two"], ["Three"]]
    assert PageContent.parse("# First\n\ntext", tmp_path / "b.md").facts == {"title": "First"}
    assert PageContent.parse("--- \ntitle: Guide\n---\t\n# First", tmp_path / "c.md") == PageContent(
        "# First", {"title": "Guide"}
    )
    assert PageContent.parse("text", tmp_path / "my_noteBook.txt").facts == {"title": "my note Book"}


@pytest.mark.parametrize(
    ("title", "path", "context", "expected"),
    [
        ("Guide", "One > Two", "headings", "Guide > One > Two\n"),
        ("One", "One > Two", "headings", "One > Two\n"),
        ("Guide", "", "headings", "Guide\n"),
        ("Guide", "One", "title", "Guide\n"),
        ("", "", "headings", ""),
        ("Guide", "One", "none", ""),
    ],
)
def test_context_is_said_once(title, path, context, expected):
    assert context_of(title, path, context) == expected
