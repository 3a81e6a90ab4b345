"""``analyze geometry``: alignment, uniformity, spectrum and hubs of models, runs or vectors."""

from __future__ import annotations
