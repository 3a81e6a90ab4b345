"""One file for each method; its name is that of ``--method``, with underscores, and its `METHOD` is the method."""
