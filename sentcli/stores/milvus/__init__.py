"""Corpora in Milvus: a collection, how it is searched, and how it is written."""
