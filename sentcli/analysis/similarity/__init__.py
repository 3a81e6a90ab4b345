"""``analyze similarity``: cosine against gold score of sentence pairs, and where they disagree most."""

from __future__ import annotations
