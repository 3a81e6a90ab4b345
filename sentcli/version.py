"""The version of sentcli, for modules that may not import the whole package."""

__version__ = "0.1.0"
