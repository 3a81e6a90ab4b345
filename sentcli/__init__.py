"""sentcli: train, measure, ship and search with sentence embeddings.

The verbs of the command line are functions here, with the long names of their options as keywords: ``encode``,
``train``, ``sts_eval`` and so on. ``SentenceEncoder`` turns texts into vectors; the losses are in
``sentcli.objectives``. Everything heavy is imported where it is used, so that ``import sentcli`` is instant.
"""

import warnings
from typing import Any

from sentcli.waiting import wait_briefly

__version__ = "1.0.0"
wait_briefly()
# of tqdm in a notebook without ipywidgets, where its bar is text
warnings.filterwarnings("ignore", message="IProgress not found")
VERBS = (
    "train",
    "encode",
    "export",
    "evaluate",
    "sts_eval",
    "senteval",
    "retrieve",
    "index",
    "adapt",
    "migrate",
    "report",
    "analyze",
    "check",
    "make_set",
    "mine",
)
"""The last three are commands of ``sentcli data``."""
_CLASSES = {"SentenceEncoder": "encoder.sentence_encoder", "Result": "command.result"}
__all__ = ["Result", "SentenceEncoder", "__version__", *VERBS]


def __getattr__(name: str) -> Any:
    """Import the classes and the verbs on first use (PEP 562)."""
    from importlib import import_module

    if name in _CLASSES:
        return getattr(import_module(f"sentcli.{_CLASSES[name]}"), name)
    if name in VERBS:
        return getattr(import_module(f"sentcli.verbs.{name}"), name)
    raise AttributeError(f"module 'sentcli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
