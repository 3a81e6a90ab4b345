"""Scores: the seven STS tasks and retrieval sets. Each evaluation returns a frozen dataclass."""
