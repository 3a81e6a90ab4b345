"""Opening a corpus by its name: a file of texts, what `encode` wrote, or a place of a backend, as ``milvus:URI``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import has_magic
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.search.corpus import OpenBackend
from sentcli.search.options import CorpusOptions, SearchOptions, refuse_version

if TYPE_CHECKING:
    from sentcli.arrays import Vectors
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.corpus import Corpus
    from sentcli.search.provenance import Provenance

BACKENDS = "sentcli.corpora"
"""The group of entry points of backends: the name of each is its scheme, its value an `OpenBackend`."""
ADDRESS = re.compile(r"([a-z][a-z0-9]+):(//|\\\\)?")
"""A scheme in front of a place, as in ``milvus:reviews.db``, and what follows it; ``C:`` is a drive."""


def backend_of(name: str) -> OpenBackend | None:
    """Return what opens a corpus of a backend, by the scheme in front of its name; None for a file or a folder.

    Raises:
        InputError: if no installed backend has the scheme, and there is no file of that name.
    """
    scheme = ADDRESS.match(name)
    if scheme is None:
        return None
    for entry in entry_points(group=BACKENDS, name=scheme[1]):
        backend: OpenBackend = entry.load()
        return backend
    is_of_a_store = scheme[2] is not None  # as in s3://
    if is_of_a_store or Path(name).exists() or has_magic(name):
        return None
    installed = sorted(entry_points(group=BACKENDS).names)
    raise InputError(f"{name}: no backend for {scheme[1]}: is installed, only for {', '.join(installed) or 'none'}")


def is_collection(name: str, collection: str | None) -> bool:
    """Tell whether a corpus is a collection of a database, by the scheme in front of its name.

    Raises:
        InputError: if it is none, and the name of a collection is given.
    """
    if backend_of(name) is not None:
        return True
    if collection is not None:
        raise InputError(f"--collection {collection} goes with the address of a database, and {name} is none")
    return False


@contextmanager
def open_corpus(options: CorpusOptions, search: SearchOptions, load: LoadOptions) -> Iterator[Corpus]:
    """Open a corpus; nothing is encoded yet.

    Raises:
        InputError: if there is none, or an option does not go with its kind.
    """
    from sentcli.io.readers import ReadOptions
    from sentcli.search.local_corpus import LocalCorpus
    from sentcli.search.rows import read_documents_of
    from sentcli.search.vector_file import open_stored

    name = str(options.corpus)
    backend = backend_of(name)
    if backend is not None:
        if os.path.exists(name):  # noqa: PTH110 - a Path raises where an address is too long for a name
            console.note(f"{name} is the address of a database; the file of this name is ./{name}")
        with backend(name, options, search) as corpus:
            yield corpus
        return
    refuse_version(name, options)
    read_options = ReadOptions(options.text_field, options.id_field)
    stored = open_stored(name, options.texts, read_options, field=options.vector_field)
    if stored is not None:
        yield LocalCorpus(name, stored.rows, stored)
        return
    if options.rescore is not None:
        raise InputError(f"--rescore goes with a --corpus of smaller vectors; {name} holds texts")

    def encode(encoder: SentenceEncoder, prompt: str, texts: Sequence[str]) -> Vectors:
        """Take vectors from the cache, and make the others."""
        from sentcli.encoder import warn_truncated
        from sentcli.stores.cached_encoder import CachedEncoder

        with console.encoding("encoding", len(set(texts))) as bar:
            encoded = CachedEncoder.of(encoder, load).encode(texts, bar, prompt=prompt)
        excess_tokens = encoded.excess_tokens[[encoded.rows[text] for text in texts]]
        warn_truncated(encoder.spec.max_length, int((excess_tokens > 0).sum()), int(excess_tokens.sum()))
        return encoded.vectors_of(texts)

    yield LocalCorpus(name, read_documents_of([name], read_options), encode=encode)


def load_query_encoder(models: Sequence[str], corpus: Corpus, options: LoadOptions) -> SentenceEncoder:
    """Load the model that was given, or the one that made the vectors of the corpus."""
    from sentcli.encoder import load_encoder

    origin = corpus.origin
    if models:
        if origin is not None and not origin.known:
            console.note(f"{corpus.title} does not say which model made its vectors; it has to be {models[0]}")
        if origin is not None:
            options = origin.in_their_precision(models[0], options)
        return load_encoder(models[0], options)
    if origin is None:
        raise InputError(f"{corpus.title} holds texts, which are encoded first: give the model with -m")
    encoder, _ = load_stored_model(origin, options)
    console.detail(f"{corpus.title} was encoded with {encoder.model}, which is taken")
    return encoder


def load_stored_model(origin: Provenance, options: LoadOptions) -> tuple[SentenceEncoder, LoadOptions]:
    """Load the model that made vectors as it was loaded for them, and return it with how that is.

    Raises:
        InputError: if it is unknown, or not on this machine.
    """
    from sentcli.encoder import load_encoder

    model = origin.named_model()
    options = origin.in_their_precision(model, origin.load_options(options))
    return load_encoder(model, options), options
