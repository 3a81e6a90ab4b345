"""One file for each method, named like the value of ``--method`` with underscores; it defines `METHOD`."""
