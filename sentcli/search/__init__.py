"""Search: exact nearest neighbours, hits, and TREC runs."""
