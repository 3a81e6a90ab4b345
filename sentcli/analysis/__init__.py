"""Looking inside encoders."""

from sentcli.evaluation.pair_geometry import alignment, uniformity

__all__ = ["alignment", "uniformity"]
