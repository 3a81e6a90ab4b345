"""Dependency trees of texts, each written as a line, so that equal trees are equal lines (miCSE, fig. 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import DataError, InputError, import_problem, one_line, required
from sentcli.io.sampling import DistinctTexts

if TYPE_CHECKING:
    Word = tuple[str, int, str]

SPACY = "spacy"
SPACY_MODEL = "en_core_web_sm"


def linearised(words: Iterable[Word]) -> str:
    """Return a tree as one line, with part of speech, head and relation of each word in the order of the sentence.

    >>> linearised([("DET", 2, "det"), ("NOUN", 3, "nsubj"), ("VERB", 0, "root")])
    'DET<2:det NOUN<3:nsubj VERB<0:root'
    """
    return " ".join(f"{part}<{head}:{relation}" for part, head, relation in words)


def read_conllu(path: Path, limit: int | None = None, seed: int = 0) -> DistinctTexts[str]:
    """Read the sentences of a CoNLL-U file with their trees, by universal part of speech and relation.

    A tree has the words of multi-word tokens, but neither these tokens nor empty nodes.

    Args:
        path: of a file in which each sentence has a line ``# text = ...``.
        limit: the greatest number of distinct sentences; of more a sample is drawn.
        seed: of the sample.

    Returns:
        The distinct texts, each with its tree.

    Raises:
        DataError: for a sentence without text or tree.
        InputError: if the file cannot be read, or is empty.
        MissingExtraError: if conllu is not installed.
    """
    conllu = required("conllu", "conllu", "trees", "reading CoNLL-U")
    distinct = DistinctTexts[str](limit, seed)
    try:
        with path.open(encoding="utf-8-sig") as handle:
            for number, sentence in _sentences(conllu, handle, path):
                text = sentence.metadata.get("text")
                if not text:
                    raise DataError(path, "it has no line '# text = ...'", line=number, unit="sentence")
                distinct.add(text, linearised(_words(sentence, path, number)))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(path, "not UTF-8 text") from error
    if not distinct.texts:
        raise InputError(f"{path} holds no sentence")
    return distinct


def _sentences(conllu: Any, handle: Any, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the sentences with their numbers, from 1."""
    number = 1
    try:
        for sentence in conllu.parse_incr(handle):
            yield number, sentence
            number += 1
    except conllu.exceptions.ParseException as error:
        raise DataError(path, f"not CoNLL-U: {one_line(error)}", line=number, unit="sentence") from error


def _words(sentence: Any, path: Path, number: int) -> Iterator[Word]:
    words = [token for token in sentence if isinstance(token.get("id"), int)]
    if not words:
        raise DataError(path, "it has no words", line=number, unit="sentence")
    for token in words:
        part = token.get("upos")
        head = token.get("head")
        relation = token.get("deprel")
        if part in (None, "_") or relation in (None, "_") or not isinstance(head, int):
            problem = f"word {token['id']} lacks part of speech, head or relation (columns 4, 7 and 8)"
            raise DataError(path, problem, line=number, unit="sentence")
        yield str(part), head, str(relation)


def is_spacy(trees: str) -> bool:
    """Tell whether the value of ``--trees`` names spaCy and not a file."""
    return trees == SPACY or trees.startswith(f"{SPACY}:")


def parse_with_spacy(trees: str, texts: Sequence[str]) -> list[str]:
    """Parse texts with spaCy and return their trees.

    Args:
        trees: ``spacy``, or ``spacy:MODEL``.
        texts: to parse.

    Raises:
        InputError: if spaCy or its model is not installed, or the model does not parse.
    """
    name = trees.partition(":")[2] or SPACY_MODEL
    try:
        import spacy
    except ImportError as error:
        raise InputError(
            f"--trees {trees} needs spaCy, {import_problem('spacy', error)}: pip install spacy, then python -m spacy "
            f"download {name}; or give a CoNLL-U file"
        ) from error
    try:
        parser = spacy.load(name)
    except OSError as error:
        raise InputError(f"--trees {trees}: spaCy has no model {name}: python -m spacy download {name}") from error
    parsed = []
    for document in parser.pipe(texts):
        words = []
        for word in document:
            if not (word.pos_ and word.dep_):
                raise InputError(f"--trees {trees}: {name} gives no parts of speech or no dependencies")
            head = 0 if word.head.i == word.i else word.head.i + 1  # the root is its own head
            words.append((word.pos_, head, word.dep_))
        parsed.append(linearised(words))
    return parsed
