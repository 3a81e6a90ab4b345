"""Evaluation and training data: the registry of data sets, their folder, and their download."""

from sentcli.data.registry import data_folder, locate, located

__all__ = ["data_folder", "locate", "located"]
