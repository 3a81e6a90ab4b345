"""Evaluation and training data: the registry of data sets, their folder, and their download."""

from sentcli.data.registry import data_folder, dataset_path, locate, located_name

__all__ = ["data_folder", "dataset_path", "locate", "located_name"]
