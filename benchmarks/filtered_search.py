"""Search under ``--where`` against search of all rows, and collections of Milvus Lite and LanceDB against a directory.

    python benchmarks/filtered_search.py [--rows 1000000] [--dimension 384] [--kind flat]
    python benchmarks/filtered_search.py --milvus --rows 100000
    python benchmarks/filtered_search.py --lance --rows 100000

The vectors are random, around 1,000 centres; 20 queries at a time, ten hits. The rows are chosen by the condition
``number < N``; finding them has a figure of its own.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import machine, seconds

from sentcli.io.blocks import Block
from sentcli.search import searcher
from sentcli.search.condition_reader import parse_condition
from sentcli.search.options import DatabaseOptions
from sentcli.stores.lance import filter as lance_filter
from sentcli.stores.lance.store import Lance
from sentcli.stores.milvus import client as milvus_client
from sentcli.stores.milvus import collection as milvus
from sentcli.stores.milvus.rows import filter_of
from sentcli.stores.record import CollectionRecord, fields_of
from sentcli.stores.row_places import Places, hashes_of

QUERIES, K, RUNS, CENTRES = 20, 10, 5, 1000
SCHEMA = {"number": pa.int64()}


def vectors_of(rows, dimension, seed):
    """Return unit vectors around some centres, as those of texts are ``[rows, dimension]``."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(CENTRES, dimension)).astype(np.float32)
    vectors = np.empty((rows, dimension), np.float32)
    for start in range(0, rows, 100_000):
        part = vectors[start : start + 100_000]
        part[:] = centres[random.integers(CENTRES, size=len(part))] + random.normal(size=part.shape)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def timed(work):
    """Return the median seconds of several calls."""
    work()
    return statistics.median(seconds(work) for _ in range(RUNS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--kind", default="flat")
    parser.add_argument("--milvus", action="store_true")
    parser.add_argument("--lance", action="store_true")
    options = parser.parse_args()
    print(machine())
    vectors, queries = vectors_of(options.rows, options.dimension, 1), vectors_of(QUERIES, options.dimension, 2)
    numbers = np.random.default_rng(3).permutation(options.rows)
    if options.milvus:
        against_milvus(vectors, queries, numbers)
        return
    if options.lance:
        against_lance(vectors, queries, numbers)
        return
    table = pa.table({"number": numbers})
    search, exact = searcher.searcher_over(options.kind, vectors), searcher.searcher_over("flat", vectors)
    whole = timed(lambda: search.search(queries, K))
    print(f"{options.kind}, {options.rows:,} x {options.dimension}: all rows {1000 * whole / QUERIES:.2f} ms a query")
    for share in (0.01, 0.1, 0.9):
        condition = parse_condition(f"number < {int(share * options.rows)}", SCHEMA, "rows")
        masking, mask = seconds(lambda: condition.matches(table)), condition.matches(table)  # noqa: B023
        taken = timed(lambda: search.search(queries, K, mask))  # noqa: B023
        found, best = (each.search(queries, K, mask).positions.tolist() for each in (search, exact))
        recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(found, best, strict=True)])
        speed = f"{1000 * taken / QUERIES:.2f} ms a query ({taken / whole:.2f} of all rows)"
        print(f"  {share:.0%} of the rows: condition {1000 * masking:.0f} ms, then {speed}, recall@{K} {recall:.3f}")


def against_milvus(vectors, queries, numbers):
    """Compare a collection in a file with exact search over mapped vectors."""
    rows = len(vectors)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "v.npy", vectors)
        ours = searcher.searcher_over("flat", np.load(Path(folder) / "v.npy", mmap_mode="r"))
        address = f"milvus:{folder}/rows.db"
        record = CollectionRecord(
            settings={"model": "random"}, dimension=vectors.shape[1], similarity="cosine",
            columns=fields_of({"number": "int"}),
        )  # fmt: skip
        with milvus_client.connect(address, to_write=True) as client:
            collection = milvus.MilvusCollection.create(client, address, "rows", record, rows)
            ids = [str(i) for i in range(rows)]
            block = Block(ids, ids, {"number": numbers.tolist()})
            written = seconds(lambda: collection.upsert(block, vectors, ids, np.arange(rows)))
            print(f"Milvus Lite: {rows / written:,.0f} rows/s written, {seconds(collection.flush):.1f} s to load")
            compare("Milvus Lite", ours, collection, filter_of, queries, numbers)


def compare(database, ours, collection, filter_of, queries, numbers):
    """Compare the search in a collection with exact search over mapped vectors, of all rows and of some."""
    rows = len(numbers)
    condition = parse_condition(f"number < {rows // 10}", SCHEMA, "rows")
    chosen, mask = filter_of(condition.tree, collection.record.columns), numbers < rows // 10
    for name, only, where in (("all rows", None, ""), ("10 % of them", mask, chosen)):
        mine = timed(lambda: ours.search(queries, K, only))  # noqa: B023
        theirs = timed(lambda: collection.nearest(queries, K, where))  # noqa: B023
        speed = f"{1000 * mine / QUERIES:.2f} ms a query"
        print(f"{name}: directory {speed}, {database} {theirs / mine:.1f} times it")


def against_lance(vectors, queries, numbers):
    """Compare a table in a folder with exact search over mapped vectors, and update 1 % of its rows."""
    rows = len(vectors)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "v.npy", vectors)
        ours = searcher.searcher_over("flat", np.load(Path(folder) / "v.npy", mmap_mode="r"))
        record = CollectionRecord(
            settings={"model": "random"}, dimension=vectors.shape[1], similarity="cosine",
            columns=fields_of({"number": "int"}),
        )  # fmt: skip
        database = Lance(DatabaseOptions(to=f"lance:{folder}/l"), "flat")
        ids = [str(i) for i in range(rows)]
        order = Places.paired(hashes_of(ids, rows), np.arange(rows))

        def write(hashes):
            """Write the rows whose hashes are new, 8,192 at a time as `index --to` does."""
            with database.open(record, order, overwrite=False) as store:
                for start in range(0, rows, 8192):
                    part = slice(start, start + 8192)
                    lacking = store.lacking(ids[part], hashes[part])
                    keys = [ids[start + i] for i in lacking]
                    block = Block(keys, keys, {"number": [int(numbers[start + i]) for i in lacking]})
                    if lacking:
                        store.write(block, vectors[part][lacking], [hashes[start + i] for i in lacking])
                store.publish()
                return store.collection

        made = seconds(lambda: write(ids))
        changed = [f"{key} changed" if number % 100 == 0 else key for number, key in enumerate(ids)]
        updated = seconds(lambda: write(changed))
        print(f"LanceDB: {rows / made:,.0f} rows/s written, 1 % of the rows changed in {updated:.2f} s")
        collection = write(changed)
        compare("LanceDB", ours, collection, lance_filter.filter_of, queries, numbers)


if __name__ == "__main__":
    main()
