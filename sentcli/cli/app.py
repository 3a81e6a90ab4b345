"""The application with all its commands."""

# isort: off
from sentcli.cli.base import app

# In the order in which --help lists them.
from sentcli.cli import train, encode, index, export, sts_eval, senteval, retrieve, report, doctor, analyze, data
# isort: on

__all__ = [
    "analyze",
    "app",
    "data",
    "doctor",
    "encode",
    "export",
    "index",
    "report",
    "retrieve",
    "senteval",
    "sts_eval",
    "train",
]
