"""The kinds of ``analyze``: a file for each, with its options, its tables and its figures."""
