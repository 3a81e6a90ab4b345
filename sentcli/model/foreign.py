"""Graphs that other programs wrote, in folders that hold no weights: those of optimum, transformers.js and fastembed.

Such a graph gives token vectors, which are pooled as the folder says.
"""

from __future__ import annotations

from pathlib import Path

from sentcli.errors import InputError
from sentcli.io.digests import known_digest
from sentcli.io.forms import read_json
from sentcli.io.graph_files import NamedGraph, named_graphs, rank
from sentcli.io.weights import has_weights
from sentcli.model.exported import FOREIGN, Export, exports_in, graph_files
from sentcli.model.identity import model_digest
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import NO_LIMIT, read_tokenizer


def foreign_graphs(folder: Path) -> list[NamedGraph]:
    """Return the graphs of a folder that holds neither weights nor exports of sentcli; see `named_graphs`."""
    if has_weights(folder) or exports_in(folder):
        return []
    return named_graphs(folder)


def digests(folder: Path) -> list[str]:
    """Return the SHA-256 of the files of all `foreign_graphs` of a folder."""
    checksums = []
    for graph in foreign_graphs(folder):
        checksums += [known_digest(path) for path in graph_files(folder, graph.file)]
    return checksums


def describe(spec: EncoderSpec, precision: str, runtimes: tuple[str, ...]) -> Export | None:
    """Return the facts of a graph that another program wrote, or None where the folder has none of use.

    Args:
        spec: the description of the encoder, whose folder has no weights.
        precision: ``auto`` takes fp32 if it is there, else the next.
        runtimes: the runtimes that are of use, the preferred one first.

    Raises:
        InputError: if the folder does not say how its token vectors are pooled.
    """
    graphs = [graph for graph in foreign_graphs(spec.folder) if graph.runtime in runtimes]
    graphs = [graph for graph in graphs if precision in ("auto", graph.precision)]
    if not graphs:
        return None
    if spec.assumed_pooling:
        raise InputError(
            f"{spec.folder} holds {graphs[0].file}, which gives a vector of each token, and does not say how to pool "
            "them: give --pooling (mean, cls, ...), as the card of the model says"
        )
    chosen = min(graphs, key=lambda each: rank(each.precision, each.runtime, runtimes))
    files = graph_files(spec.folder, chosen.file)
    by_name = {str(path.relative_to(spec.folder)): known_digest(path) for path in files}
    return Export(
        precision=chosen.precision,
        dimension=spec.modules[-1].output_width(spec.widths[-1]),
        pad_id=_pad_id(spec),
        model=str(spec.folder),
        model_digest=model_digest(spec),
        source_sha256=list(by_name.values()),
        pooling=spec.pooling,
        normalize=spec.normalizes,
        max_length=spec.max_length or NO_LIMIT,
        graph=FOREIGN,
        sha256=by_name,
        runtime=chosen.runtime,
        file=chosen.file,
    )


def _pad_id(spec: EncoderSpec) -> int:
    """Return the id of the padding token, by config.json or by the tokenizer's files; 0 if none says it."""
    stated = spec.config.get("pad_token_id")
    if isinstance(stated, int) and stated >= 0:
        return stated
    tokenizer = read_tokenizer(spec.tokenizer_folder)
    if tokenizer.padding is not None:
        return int(tokenizer.padding["pad_id"])
    settings = read_json(spec.tokenizer_folder / "tokenizer_config.json", default={})
    token = settings.get("pad_token") if isinstance(settings, dict) else None
    name = token.get("content") if isinstance(token, dict) else token
    if not isinstance(name, str):
        return 0
    return tokenizer.token_to_id(name) or 0
