"""Moving a corpus, a directory or a collection of a database, to another model that is shown to be as good."""
