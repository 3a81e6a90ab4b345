"""Looking inside encoders."""

from sentcli.analysis.geometry import alignment, uniformity

__all__ = ["alignment", "uniformity"]
