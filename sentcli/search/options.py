"""The options of a search, declared once for flags, keywords and the functions that search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

from annotated_types import Ge, Le

from sentcli.bounds import Flag
from sentcli.errors import InputError, nearest
from sentcli.model.spec import ModelSpec, Similarity

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

Way = Literal["dense", "bm25", "rrf", "weighted"]
WAYS: tuple[Way, ...] = get_args(Way)


@dataclass(frozen=True)
class SearchOptions:
    """How queries and documents are compared.

    Attributes:
        search: dense, bm25, or both fused: rrf (by rank) or weighted (by score). Several ways are set side by side.
        dense_weight: Share of the dense score in --search weighted: 0.5.
        language: Language of bm25: english, or another that Snowball stems, or none.
        index: flat or on a GPU flat-bf16 (exact), hnsw, ivf, ivfpq, sq8, a faiss factory; or one that a directory has.
        top_k: Hits for each query; default: 10 for --corpus, 1,000 for --beir.
        similarity: Similarity of query and document: that of the index, or what the model's folder says, else cosine.
        query_prompt: Text in front of each query; default: the model's own.
        doc_prompt: Text in front of each document; default: the model's own.
        query_length: Maximum length of a query in tokens; default: --max-length.
    """

    search: Annotated[
        str,
        Flag(
            metavar="WAY,...",
            excludes="bm25:model bm25:index bm25:similarity bm25:query_prompt bm25:doc_prompt bm25:query_length "
            "bm25:max_length bm25:pooling bm25:rescore",
        ),
    ] = "dense"
    dense_weight: Annotated[float | None, Ge(0), Le(1), Flag(needs="search=weighted")] = None
    language: Annotated[str | None, Flag(needs="search=bm25 search=rrf search=weighted")] = None
    index: Annotated[str | None, Flag(metavar="KIND")] = None
    top_k: Annotated[int | None, Ge(1)] = None
    similarity: Similarity | None = None
    query_prompt: Annotated[str | None, Flag(panel="Model")] = None
    doc_prompt: Annotated[str | None, Flag(panel="Model")] = None
    query_length: Annotated[int | None, Ge(3)] = None

    @property
    def ways(self) -> list[Way]:
        """The ways of searching that ``--search`` names."""
        return parse_ways(self.search)

    @property
    def by_vectors(self) -> bool:
        """Whether one of the ways compares vectors."""
        return self.ways != ["bm25"]

    @property
    def by_words(self) -> bool:
        """Whether one of the ways compares words."""
        return self.ways != ["dense"]

    @property
    def weight(self) -> float:
        """The share of the dense score in ``--search weighted``."""
        return 0.5 if self.dense_weight is None else self.dense_weight

    def prompts(self, model: SentenceEncoder | ModelSpec) -> tuple[str, str]:
        """Return the texts in front of queries and documents, by default the model's own."""
        query = model.role_prompt("query") if self.query_prompt is None else self.query_prompt
        document = model.role_prompt("document") if self.doc_prompt is None else self.doc_prompt
        return query, document

    def similarity_of(self, model: ModelSpec) -> Similarity:
        """Return the similarity that was chosen, else the one that the model's folder names.

        Raises:
            InputError: if that is not supported.
        """
        return model.similarity if self.similarity is None else self.similarity

    @property
    def exact(self) -> bool:
        """Whether vectors are compared without an index."""
        return self.index in (None, "flat")

    @property
    def needs_faiss(self) -> bool:
        """Whether an index of faiss is searched."""
        from sentcli.search import ann

        return self.by_vectors and not self.exact and self.index != ann.SCANNED


def parse_ways(text: str) -> list[Way]:
    """Read a list of ways such as ``dense,bm25``.

    Raises:
        InputError: for an unknown way, a repeated one, or an empty list.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in WAYS:
            raise InputError(f"--search: no way {name!r}{nearest(name, list(WAYS))}; one of: {', '.join(WAYS)}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"--search {text!r}: name some of {', '.join(WAYS)}, each once")
    return cast(list[Way], names)
