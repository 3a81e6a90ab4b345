"""Where the rows of a corpus lie with their vectors, and the one way of rows into it.

The way is the same for `encode`, `index`, updates, moves to another model and workers on a cluster:

* **rows**: `Inputs` (`inputs.py`) are files that were read once and checked, `StoredRows` (`directory/rows.py`) those
  of a directory, `TableRows` (`table_rows.py`) those of a table or a collection. `Cutting` (`passages.py`) cuts
  documents.
* **what has changed**: `DirectoryComparison` (`directory/changes.py`) and the `RowsThere` of a database (`store.py`)
  tell which rows are there and as they are; one `ChangeCount` counts them, and `Changes` are what an update says.
* **vectors**: `RowVectors` (`row_vectors.py`) gives blocks of rows their vectors. `EncodedVectors` have a model and an
  engine (`engine.py`), which is some blocks ahead of the writer; `GivenVectors` are there already.
* **writing**: `write_blocks` brings both together. `write_rows` (`writing.py`) writes into a file or a directory, which
  `Filling` (`filling.py`) prepares and checks; `CollectionUpdating` (`updating.py`) writes into a database. On Ray a
  worker reads the rows of its shard itself and calls the same function (`on_ray.py`).
* **indexes**: `directory/indexes.py` says which a directory will have, `directory/indexing.py` builds them; a database
  builds its own when rows are published.

**The vectors of these texts** are what a `CachedEncoder` (`cached_encoder.py`) is asked for: it takes those that a file
has which its model has made (`reused_vectors.py`), then those of the cache (`vector_cache.py`), and makes the others.
`encode`, `index`, `retrieve` and `mine` are handed one; an `EvaluatedModel` (`evaluation/`) has one of scores, too.

**A database** is a folder with `client.py`, which connects, `store.py`, which writes, and `corpus.py`, which searches.
It offers a `Database` with a `RowStore` (`store.py`) by the entry points `sentcli.databases`, and a
`search.corpus.Corpus` by the entry points `sentcli.corpora`. What all of them say about themselves is a
`CollectionRecord` (`record.py`), which rows they have are `KnownRows` (`known_rows.py`), in the order of
`row_places.py`. What they share is a `DatabaseCollection` of rows that are read (`database_collection.py`), a
`DatabaseCorpus` that is searched (`collection_corpus.py`), `CollectionVectors` that are measured
(`collection_vectors.py`) and, where rows wait beside a table, `StagedRows` (`staged.py`).
"""
