"""Directories as `encode` writes them, from vectors at hand."""

import numpy as np
import pytest

from sentcli.io.blocks import Block, Counts
from sentcli.io.dataset import InputGroup
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.folder import open_folder
from sentcli.io.writers import OutputPlan


def clustered(rows, dimension, seed=0, clusters=40):
    """Rows around some centres, as those of real texts are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(clusters, dimension))
    return (centres[random.integers(0, clusters, rows)] + 0.4 * random.normal(size=(rows, dimension))).astype(
        np.float32
    )


def write_directory(folder, vectors, *, shard_rows=1000, append=False, settings=None):
    """Write vectors with ids r0, r1, ... and texts, as `sentcli encode` would."""
    settings = {"model": "tiny", "model_fingerprint": "f", "prompt": "", **(settings or {})}
    plan = OutputPlan(len(vectors), vectors.shape[1], {}, settings)
    name = "more" if append else "first"
    group = InputGroup(
        [{"name": name, "format": "txt", "bytes": 1, "sha256": str(hash(vectors.tobytes()))}],
        len(vectors),
        len(vectors),
    )
    with DatasetWriter(open_folder(folder), plan, shard_rows, group, append=append) as writer:
        for number, start in enumerate(range(0, len(vectors), shard_rows)):
            part = vectors[start : start + shard_rows]
            ids = [f"{name}{start + i}" for i in range(len(part))]
            writer.write(Block(ids, [f"text {key}" for key in ids], {}, number, start), part, Counts(rows=len(part)))


@pytest.fixture
def directory(tmp_path):
    """3,000 clustered rows of 16 dimensions in shards of 1,000."""
    write_directory(tmp_path / "d", clustered(3000, 16))
    return tmp_path / "d"
