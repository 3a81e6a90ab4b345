"""What ``retrieve --corpus`` searches: a file, a directory or a collection, and the model of its queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.search.options import SearchOptions
from sentcli.verbs.options import CorpusOptions

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.corpus import Corpus
    from sentcli.search.exact import Vectors


@contextmanager
def open_corpus(options: CorpusOptions, search: SearchOptions, load: LoadOptions) -> Iterator[Corpus]:
    """Open a corpus; nothing is encoded yet.

    Raises:
        InputError: if there is none, or an option does not go with its kind.
    """
    from sentcli.io.readers import ReadOptions
    from sentcli.search.local_corpus import LocalCorpus
    from sentcli.search.rows import read_rows
    from sentcli.search.vector_file import open_stored

    name = str(options.corpus)
    if name.startswith("milvus:"):
        with _collection(options, search) as corpus:
            yield corpus
        return
    read_options = ReadOptions(options.text_field, options.id_field)
    stored = open_stored(name, options.texts, read_options)
    if stored is not None:
        yield LocalCorpus(name, stored.rows, stored)
        return
    if options.rescore is not None:
        raise InputError(f"--rescore goes with a --corpus of smaller vectors; {name} holds texts")

    def encode(encoder: SentenceEncoder, prompt: str, texts: Sequence[str]) -> Vectors:
        """Take vectors from the cache, and make the others."""
        from sentcli.encoder.announce import warn_truncated
        from sentcli.evaluation.evaluated import EvaluatedModel

        with console.encoding("encoding", len(set(texts))) as bar:
            encoded = EvaluatedModel.of(encoder, load).encode(texts, bar, prompt=prompt)
        beyond = encoded.beyond[[encoded.rows[text] for text in texts]]
        warn_truncated(encoder.spec.max_length, int((beyond > 0).sum()), int(beyond.sum()))
        return encoded.of(texts)

    yield LocalCorpus(name, read_rows([name], read_options), encode=encode)


@contextmanager
def _collection(options: CorpusOptions, search: SearchOptions) -> Iterator[Corpus]:
    """Open a collection of Milvus."""
    from sentcli.search.milvus import MilvusCollection
    from sentcli.search.milvus_client import connect
    from sentcli.search.milvus_corpus import MilvusCorpus

    if options.collection is None:
        raise InputError("--corpus milvus:URI needs --collection NAME")
    others: dict[str, Any] = {"--texts": options.texts, "--rescore": options.rescore, "--index": search.index}
    others |= {"--language": search.language, "--id-field": options.id_field}
    if wrong := [name for name, value in others.items() if value is not None]:
        raise InputError(f"{wrong[0]} does not go with a collection, which was made with such choices")
    if (search.top_k or 0) > MilvusCorpus.deepest:
        raise InputError(f"--top-k {search.top_k}: Milvus finds at most {MilvusCorpus.deepest:,}")
    with connect(str(options.corpus)) as client:
        yield MilvusCorpus(MilvusCollection.open(client, str(options.corpus), options.collection))


def load_query_encoder(models: Sequence[str], corpus: Corpus, options: LoadOptions) -> SentenceEncoder:
    """Load the model that was given, or the one that made the vectors of the corpus."""
    from sentcli.encoder.announce import load_encoder

    origin = corpus.origin
    if models:
        if origin is not None and not origin.known:
            console.note(f"{corpus.title} does not say which model made its vectors; it has to be {models[0]}")
        return load_encoder(models[0], options)
    if origin is None:
        raise InputError(f"{corpus.title} holds texts, which are encoded first: give the model with -m")
    model = origin.named_model()
    console.detail(f"{corpus.title} was encoded with {model}, which is taken")
    return load_encoder(model, origin.load_options(options))
