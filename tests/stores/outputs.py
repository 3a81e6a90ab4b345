"""Reading what `encode` has written."""

import json

import numpy as np
import pyarrow.parquet as pq
import safetensors.numpy


def vectors_of(path):
    """Vectors in their own type."""
    if path.is_dir():
        return np.concatenate([np.load(path / shard["vectors"]) for shard in manifest_of(path)["shards"]])
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".safetensors":
        return safetensors.numpy.load_file(path)["embeddings"]
    if path.suffix == ".parquet":
        column = pq.read_table(path)["embedding"].combine_chunks()
        return column.values.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return np.array([json.loads(line)["embedding"] for line in path.open(encoding="utf-8")])


def rows_of(folder, *columns):
    """Rows of a directory, in order."""
    names = [shard["rows"] for shard in manifest_of(folder)["shards"]]
    return [row for name in names for row in pq.read_table(folder / name, columns=list(columns) or None).to_pylist()]


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text("utf-8"))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def message_of(result):
    """Standard error as one line."""
    return " ".join(result.stderr.split())
