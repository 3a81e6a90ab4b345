"""Search: exact and approximate nearest neighbours, BM25, fusion of both, indexes on disk, and TREC runs."""
