"""The fixtures of pages, which reports are made of."""

from tests.pages.conftest import write  # noqa: F401
