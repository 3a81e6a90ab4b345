"""Looks inside encoders and training runs: the kinds of ``analyze``, each with its options, numbers and figures.

A kind of `analyze` is one file or one folder of `analysis/`. Its `verb.py` has its options (a function under `@verb`)
and the path from them to the folder that is written; other files have its numbers (arrays in, arrays, data frames or
small dataclasses out, no model and no file), its tables (`sentcli.table.Table`, mostly of a data frame) and its
figures. What kinds share lies beside them: `options.py`, the options; `texts.py` and `models.py`, the texts, vectors
and pairs that they name; `folder.py`, whose `write_folder` writes the folder and returns the `Result`; `directions.py`,
`neighbours.py`, `runs.py` and `curves.py`, numbers and curves that several need.

**A new kind** is one file or folder in `analysis/`, a line in `ANALYSES` here and one in
`docs/screenshots.py`. It imports what it computes with inside its function, so that its `--help` is instant. Numbers
that another kind needs, too, move up beside the kinds.
"""

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

_MEASURES = ("alignment", "uniformity")
__all__ = ["ANALYSES", "alignment", "uniformity"]


def __getattr__(name: str) -> Any:
    """Import the two measures on first use (PEP 562); a kind of ``analyze`` that needs neither starts without numpy."""
    if name in _MEASURES:
        from sentcli.evaluation import pair_geometry

        return getattr(pair_geometry, name)
    raise AttributeError(f"module 'sentcli.analysis' has no attribute {name!r}")
