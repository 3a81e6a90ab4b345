"""`SentenceEncoder`, what users load: the choice of folder and backend, and the exports that are kept in the cache."""
