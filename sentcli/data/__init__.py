"""Evaluation and training data: what there is, where it is kept, how it gets there."""

from sentcli.data.registry import data_folder, locate, located

__all__ = ["data_folder", "locate", "located"]
