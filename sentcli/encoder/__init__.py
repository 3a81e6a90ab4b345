"""`SentenceEncoder`, which users load: the choice of folder and backend, and the exports in the cache."""
