"""Corpora as the commands make and search them: directories and collections that are filled, indexed and asked."""
