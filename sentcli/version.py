"""The version of sentcli, for modules that may not import the package as a whole."""

__version__ = "0.1.0"
