"""Analyses of encoders and training runs: arrays in, numbers and data frames out."""

from sentcli.evaluation.pair_geometry import alignment, uniformity

__all__ = ["alignment", "uniformity"]
