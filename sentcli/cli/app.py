"""The application with all its commands."""

# isort: off
from sentcli.cli.base import app

# In the order in which --help lists them.
from sentcli.cli import train, encode, index, export, sts_eval, senteval, retrieve, report, doctor, data
from sentcli.cli import analyze_geometry, analyze_map, analyze_similarity, analyze_attention, analyze_objectives
from sentcli.cli import analyze_sweeps, analyze_compare
# isort: on

__all__ = [
    "analyze_attention",
    "analyze_compare",
    "analyze_geometry",
    "analyze_map",
    "analyze_objectives",
    "analyze_similarity",
    "analyze_sweeps",
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
