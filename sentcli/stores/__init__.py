"""Where the rows of a corpus lie with their vectors: a folder for each database.

What a database offers to `corpora/collections.py`, which writes a corpus into any of them, is a `Database` with a
`RowStore` (`store.py`), by the entry points `sentcli.databases`; what it offers to `retrieve` is a
`search.corpus.Corpus`, by the entry points `sentcli.corpora`. What all of them say about themselves is a `Record`
(`record.py`), which rows they have are `KnownRows` (`known_rows.py`), in the order of `row_places.py`, and their words
are `CollectionWords` (`collection_corpus.py`). In each folder `client.py` connects, `store.py` writes, and `corpus.py`
searches.
"""
