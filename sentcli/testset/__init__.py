"""Test sets out of a corpus: what in its structure can stand for a query, what people judged, what a model wrote.

**A set out of a corpus.** `testset/reading.py` reads folders, and `testset/tables.py` tables, as documents, with every
text that may become a query as a `QueryCandidate` (`markdown.py` cuts a page into its sections); `queries.py` chooses
among them and takes them out of the documents, `written.py` asks a model (`io/served.py`) and `judging.py` people.
`writing.py` writes the folder, whose `SetManifest` (`evaluation/set_manifest.py`) `load_set` reads. A new structure is
a name in `Structure` and what adds its candidates.
"""
