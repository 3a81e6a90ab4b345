"""Where the rows of a corpus lie with their vectors: a folder for each database; and the encoder with a memory.

**The vectors of these texts** are what a `CachedEncoder` (`cached_encoder.py`) is asked for: it takes those that a file
has which its model has made (`reused_vectors.py`), then those of the cache (`vector_cache.py`), and makes the others.
`encode`, `index`, `retrieve` and `mine` are handed one; an `EvaluatedModel` (`evaluation/`) has one of scores, too.

**One way from rows to a store.** Rows are read in blocks (`inputs.py`; of a table or a collection `table_rows.py`), get
their vectors (`row_vectors.py`: from a model in an engine, `engine.py`, or as they are given), and are written:
`writing.py` takes a file or a directory (`directory/`), `updating.py` a collection of a database, and `on_ray.py` makes
the shards of a directory on a cluster. The number of blocks in memory is bounded, so that memory does not depend on the
number of rows.

What a database offers to `stores/updating.py`, which writes a corpus into any of them, is a `Database` with a
`RowStore` (`store.py`), by the entry points `sentcli.databases`; what it offers to `retrieve` is a
`search.corpus.Corpus`, by the entry points `sentcli.corpora`. What all of them say about themselves is a
`CollectionRecord` (`record.py`), which rows they have are `KnownRows` (`known_rows.py`), in the order of
`row_places.py`, and their words are `CollectionWords` (`collection_corpus.py`). In each folder `client.py` connects,
`store.py` writes, and `corpus.py` searches.
"""
