"""`SentenceEncoder`, what users load: from a name to a folder, a backend and, where it helps, an export in the cache."""
