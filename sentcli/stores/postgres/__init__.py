"""Tables of PostgreSQL, whose vectors pgvector holds, as places of corpora."""
