"""Corpora in LanceDB: a table, how it is searched, and how it is written."""
