"""``analyze map``: maps of the same texts by several models, with clusters and shared neighbours."""

from __future__ import annotations
