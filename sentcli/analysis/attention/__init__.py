"""``analyze attention``: the attention of two dropout views of a text, after miCSE (Klein and Nabi, ACL 2023)."""

from __future__ import annotations
