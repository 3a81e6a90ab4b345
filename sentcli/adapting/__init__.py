"""A better model for one's own corpus, which is taken only where it is shown to find more."""
