"""Checks of settings that several objectives and heads share; each failure is one message that names the setting."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sentcli.errors import InputError, nearest


def positive(**values: float) -> None:
    """Refuse numbers that are not above 0 and finite."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be above 0, not {value}")


def share(**values: float) -> None:
    """Refuse numbers outside 0..1 (1 excluded)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise InputError(f"{name} must be at least 0 and below 1, not {value}")


def mask_rate(rate: float) -> None:
    """Refuse a share of masked words outside 0..1, both excluded."""
    positive(rate=rate)
    share(rate=rate)


def at_least(limit: float, **values: float) -> None:
    """Refuse numbers below a limit, and those that are not finite."""
    for name, value in values.items():
        if not limit <= value < math.inf:
            raise InputError(f"{name} must be at least {limit}, not {value}")


def at_most(limit: float, **values: float) -> None:
    """Refuse numbers above a limit."""
    for name, value in values.items():
        if not value <= limit:
            raise InputError(f"{name} must be at most {limit}, not {value}")


def finite(**values: float) -> None:
    """Refuse infinities and what is not a number."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise InputError(f"{name} must be a finite number, not {value}")


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """Refuse words that are not known."""
    if value not in known:
        raise InputError(f"{name} {value!r} is unknown{nearest(value, list(known))}; one of: {', '.join(known)}")
