"""How slowly bytes may come: a host that sends a byte a second would be waited for without end."""

from __future__ import annotations

import time

SECONDS = 60.0
"""How long a host may send slowly."""
LEAST = 1000
"""The bytes a second that it has to send on average in that time."""


class TooSlowError(Exception):
    """A host sends fewer bytes than it has to; the message says how many."""


def no_answer() -> TooSlowError:
    """Return the error of a host whose answer has not begun, with all its headers, after `SECONDS`."""
    return TooSlowError(f"sent no whole headers in {SECONDS:,.0f} seconds, which is too slow")


class Pace:
    """Watches the bytes of one file as they come."""

    def __init__(self) -> None:
        self.since, self.then = time.monotonic(), 0

    def check(self, size: int) -> None:
        """Look at the number of bytes that have come so far, whenever some have.

        Raises:
            TooSlowError: if in the last `SECONDS` fewer came than `LEAST` a second.
        """
        passed = time.monotonic() - self.since
        if passed >= SECONDS:
            if size - self.then < LEAST * passed:
                raise TooSlowError(f"sent {size - self.then:,} bytes in {passed:,.0f} seconds, which is too slow")
            self.since, self.then = time.monotonic(), size
