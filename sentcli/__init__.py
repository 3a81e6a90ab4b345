"""sentcli: train, measure, ship and search with sentence embeddings.

The Python surface is small: ``SentenceEncoder`` here, the losses in ``sentcli.objectives``. Everything heavy
(torch, transformers, faiss, scipy) is imported where it is used, so that ``import sentcli`` is instant.
"""

from typing import TYPE_CHECKING, Any

from sentcli.version import __version__

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

__all__ = ["SentenceEncoder", "__version__"]


def __getattr__(name: str) -> Any:
    """Import ``SentenceEncoder`` on first use (PEP 562)."""
    if name == "SentenceEncoder":
        from sentcli.encoder.sentence_encoder import SentenceEncoder

        return SentenceEncoder
    raise AttributeError(f"module 'sentcli' has no attribute {name!r}")
