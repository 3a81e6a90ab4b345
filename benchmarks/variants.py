"""What `evaluate --variants` adds to an encoding: every way of keeping vectors, scored on the vectors of one encoding.

    SENTCLI_DATA=... python benchmarks/variants.py [--set scifact] [--model minilm]

Prints the seconds of the encoding without the cache, those of all ways together, and their share.
"""

import argparse
import time

from common import data_folder, machine

from sentcli import SentenceEncoder
from sentcli.evaluation.readings import ReadDocuments
from sentcli.evaluation.retrieval import load_set
from sentcli.evaluation.set_search import SetSearch
from sentcli.evaluation.variant_grid import Encoding, VariantGrid, storages
from sentcli.evaluation.variants import HITS, EncodedSet, score_variant
from sentcli.search.options import SearchOptions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--model", default="minilm")
    arguments = parser.parse_args()
    print(machine())
    data = load_set(data_folder() / "retrieval" / arguments.set)
    encoder, texts = SentenceEncoder.load(arguments.model), [*data.queries.values(), *data.texts()]
    encoder.encode(texts[:64])
    began = time.perf_counter()
    vectors = encoder.encode(texts)
    encoding = time.perf_counter() - began
    count = len(data.queries)
    documents = ReadDocuments(vectors[count:], None, 0)
    encoded = EncodedSet(Encoding(), vectors[:count], documents, True, 0.0, len(texts) / encoding)
    search = SetSearch(data, SearchOptions(top_k=HITS))
    ways = storages(VariantGrid(indexes=["hnsw", "ivf"]), *documents.vectors.shape)
    began = time.perf_counter()
    for way in ways:
        score_variant(search, encoded, way)
    seconds = time.perf_counter() - began
    print(f"{arguments.set}: {len(data.ids):,} documents, {count} queries: encoding {encoding:.1f} s")
    print(f"{len(ways)} ways: {seconds:.1f} s, {100 * seconds / encoding:.1f} % of the encoding")


if __name__ == "__main__":
    main()
