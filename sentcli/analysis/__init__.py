"""Looks inside encoders and training runs: the kinds of ``analyze``, each with its options, numbers and figures."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentcli.evaluation.pair_geometry import alignment, uniformity

__all__ = ["alignment", "uniformity"]


def __getattr__(name: str) -> Any:
    """Import the two measures on first use (PEP 562); a kind of ``analyze`` that needs neither starts without numpy."""
    if name in __all__:
        from sentcli.evaluation import pair_geometry

        return getattr(pair_geometry, name)
    raise AttributeError(f"module 'sentcli.analysis' has no attribute {name!r}")
