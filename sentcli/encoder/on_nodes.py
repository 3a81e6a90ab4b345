"""Compare a model on the nodes of a cluster, before anything is computed with it."""

from __future__ import annotations

from pathlib import Path

from sentcli.cluster_nodes import Node, ask_nodes
from sentcli.errors import SentcliError


def require_same_weights(found: list[Node], model: str) -> str:
    """Compare the weights that the nodes have under the name of a model, which may be downloaded for that.

    Args:
        found: the nodes.
        model: the name or path that the user gave.

    Returns:
        The name for other processes, whose working folder is another one: an absolute path if it is a folder.

    Raises:
        SentcliError: naming a node that lacks the model, or has other weights than the first node.
    """
    path = str(Path(model).resolve()) if Path(model).exists() else model

    def weights(path: str) -> str:
        from sentcli.encoder.loading import read_model
        from sentcli.errors import SentcliError
        from sentcli.model.exported import source_digests
        from sentcli.model.options import ModelOptions

        try:
            return " ".join(source_digests(read_model(path, ModelOptions())))
        except SentcliError as error:
            raise SentcliError(str(error)) from None

    digests = ask_nodes(found, weights, path)
    for node, digest in zip(found, digests, strict=True):
        if digest != digests[0]:
            other = f"other weights of {model} than {found[0].name}"
            raise SentcliError(f"node {node.name} has {other}: copy the same to every node")
    return path
