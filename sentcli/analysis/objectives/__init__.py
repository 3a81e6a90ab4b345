"""``analyze objectives``: loss terms of training runs, their shares of the gradient, and groups of whitening."""

from __future__ import annotations
