"""``analyze compare``: texts whose nearest neighbours differ most between two models."""

from __future__ import annotations
