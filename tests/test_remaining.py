"""The time left is said only when it means something."""

import pytest

from sentcli.remaining import Remaining


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def promises(costs, start=0):
    """What is said after each item of a work, beside the truth, in seconds."""
    clock, said, left = Clock(), [], sum(costs[start:])
    remaining = Remaining(len(costs), clock)
    remaining.add(start)
    for cost in costs[start:]:
        clock.now += cost
        left -= cost
        remaining.add(1)
        said.append((remaining.seconds(), left))
    return said


def test_an_even_work_is_told_within_a_twentieth_of_it():
    said = promises([1.0] * 200)
    known = [seconds is not None for seconds, _ in said]
    assert all(known[12:-1]) and not any(known[:9]) and not known[-1]
    assert all(seconds == pytest.approx(left, abs=0.2) for seconds, left in said if seconds is not None)


@pytest.mark.parametrize("slow", [1, 5, 20])
def test_a_slow_beginning_promises_no_hours(slow):
    """14 hours were left after 2:47 of a work that took 6:35."""
    said = promises([50.0] * slow + [1.0] * 1000)
    told = [(seconds, left) for seconds, left in said if seconds is not None]
    assert len(told) > {1: 400, 5: 250, 20: -1}[slow]
    assert all(seconds < 2 * left for seconds, left in told)


def test_what_an_earlier_run_has_done_says_nothing_of_the_speed():
    said = promises([2.0] * 400, start=300)[:-1]
    assert all(seconds == pytest.approx(left, abs=0.5) for seconds, left in said if seconds is not None)
    assert sum(seconds is not None for seconds, _ in said) > 80
