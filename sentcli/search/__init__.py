"""Search: exact and approximate nearest neighbours, BM25, fusion of both, indexes on disk, and TREC runs.

Every search returns `Neighbours`: positions and scores, `[queries, k]`, best first, position -1 where there is none.
What is found in several places (blocks of a corpus, files of an index, an index and the rows that it lacks) becomes one
by `neighbours.merge`. `exact.Blocks` is the vectors where they are, arrays or mapped shards; `exact.TopK` compares
queries with blocks as they come, which is how a retrieval set is scored without holding it: `products.BestRows`
multiplies groups of queries by tiles of rows in threads, and looks only at what is above the k-th best so far, or above
a bound that a sample of the rows gives. On a device, `device_products.Nearest` multiplies all rows with some queries
and takes the largest products by the maxima of groups, `device_memory.StagedCopies` copies a block while another one is
compared, and `on_device.DeviceRows` holds the rows that a searcher opens once, in float32 or in bf16 with a bound on
its error; `exact.on_host` is where the processor and a device part. `FaissIndex` wraps one index of faiss, which `blas`
lets multiply with kernels that fit the processor; `searcher.Searcher` puts indexes, the exact rest and the rescoring of
codes together.

A directory of `encode` is a `VectorDirectory` (`search/vector_directory.py`): rows, vectors, the words index and the
indexes over the vectors. A single file of vectors is a `VectorFile` (`search/vector_file.py`), and `open_stored` takes
either. Both have a `Provenance` (`search/provenance.py`): `VectorFacts` (`encoder/vector_facts.py`, how vectors were
made; also in manifests, indexes and collections), and what fits the vectors: which encoder, prompt and similarity, and
how queries are made as small as they are; `searcher.CompressedSearch` rescores by the full ones. `index.build` makes an
index in it, file by file under a lock, and `recall.tune` measures any index, of a directory or of a collection, against
exact search and leaves it at the least effort that reaches a recall. A condition (`search/conditions.py`), which
`search/condition_reader.py` reads, is a tree in which only tests are negated, and becomes a mask of the rows that may
be found, which exact search, faiss and BM25 all take. Ids and texts come in only at the end: `rows.RowsOnDisk` reads
the row groups of the hits.

What `retrieve --corpus` searches is a `Corpus` (`search/corpus.py`): a protocol of its rows (columns, conditions,
counts, documents), of how its vectors were made, and of the nearest rows by vectors and by words. Fusion, hits and the
loop over queries stand once above it. `LocalCorpus` is a file, a directory or a retrieval set; the collections of
databases have theirs in `stores/`; `tests/search/frame_corpus.py` is one more in 80 lines, and
`tests/search/test_corpus.py` what all of them have to do. `open_corpus` in `stores/opening.py` tells from a name
which one it is; a backend outside of the package is an entry point `sentcli.corpora`. `SearchOptions`
(`search/options.py`) is the same value on the command line and in a corpus.

A **cross-encoder** is an encoder whose texts are pairs (`pair_text` in `model/tokenizing.py`) and whose vectors are
their scores, by the module `Classifier`: packing, exports and the cache are those of encoders. `Reranker`
(`encoder/reranker.py`) wraps it, and `EvaluatedReranker` (`evaluation/reranking.py`) orders the hits of a
`RetrievalTask` with it.
"""
