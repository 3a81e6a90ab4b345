"""Looks inside encoders and training runs: each kind of ``analyze`` has its options, numbers and figures here."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentcli.evaluation.pair_geometry import alignment, uniformity

ANALYSES = {
    "geometry": "geometry.verb:geometry",
    "map": "map.verb:map_",
    "similarity": "similarity.verb:similarity",
    "attention": "attention.verb:attention",
    "objectives": "objectives.verb:objectives",
    "low-shot": "sweeps.low_shot:low_shot",
    "sweep": "sweeps.sweep:sweep",
    "compare": "compare.verb:compare",
    "duplicates": "duplicates:duplicates",
}
"""The ``module:function`` of each kind of analysis."""

MEASURES = ("alignment", "uniformity")
__all__ = ["ANALYSES", "alignment", "uniformity"]


def __getattr__(name: str) -> Any:
    """Import the two measures on first use (PEP 562); a kind of ``analyze`` that needs neither starts without numpy."""
    if name in MEASURES:
        from sentcli.evaluation import pair_geometry

        return getattr(pair_geometry, name)
    raise AttributeError(f"module 'sentcli.analysis' has no attribute {name!r}")
