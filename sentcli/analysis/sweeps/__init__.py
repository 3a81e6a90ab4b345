"""``analyze low-shot`` and ``analyze sweep``: scores over the size of the training set, and over hyper-parameters."""

from __future__ import annotations
