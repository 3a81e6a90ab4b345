"""Hard negatives: documents that a search finds for a query and that are none of its positives, nor copies of them.

**Mining.** `reading.py` reads a retrieval set, or a table of pairs with a corpus, as texts; `mined.py` has the function
over texts and vectors that training may call as well, `mine_negatives`: it searches (`candidates.py`), leaves out what
is or may be a positive (`copies.py`, `judging.py`) and says how much fell and why. `writing.py` writes the rows. A new
reason to leave a candidate out is a name in `REASONS` and a test in `mined.py`.
"""
