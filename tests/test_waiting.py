"""How threads wait, whose choice that is, and when a machine is called busy."""

import os
import subprocess
import sys

import pytest

from sentcli import waiting


@pytest.mark.parametrize(
    ("chosen", "loaded", "expected"),
    [
        ({}, False, str(waiting.SPINS)),
        ({"OMP_WAIT_POLICY": "active"}, False, None),
        ({"GOMP_SPINCOUNT": "5"}, False, "5"),
        ({"KMP_BLOCKTIME": "0"}, False, None),
        ({}, True, None),
    ],
)
def test_a_users_own_setting_stays_and_torch_is_left_alone(monkeypatch, chosen, loaded, expected):
    for name in waiting.CHOSEN_BY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "to be removed again")  # so that what is set below goes with the test
    del os.environ["GOMP_SPINCOUNT"]
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "modules", {**sys.modules, "torch": sys} if loaded else {"os": os})
    waiting.wait_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_it_is_set_before_anything_heavy_is_imported():
    code = "import os, sys, sentcli; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name not in waiting.CHOSEN_BY}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(waiting.SPINS), "False"]


@pytest.mark.slow
@pytest.mark.parametrize(("others", "threads", "said"), [(1.5, 2, True), (0.3, 2, False), (0.9, 1, False)])
def test_a_busy_machine_is_named_where_it_leaves_too_few_cores(monkeypatch, others, threads, said):
    # of ten seconds, half a core is ours
    looks = iter([waiting._Look(1.0, 100.0, 0.0), waiting._Look(11.0, 100 + 10 * (others + 0.5), 5.0)])
    monkeypatch.setattr(waiting._Look, "now", lambda: next(looks))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    note = waiting.busy_note(threads)
    assert (note is not None) == said
    assert not said or f"{others:.1f} of 2" in note


def test_where_the_system_does_not_tell_nothing_is_said(monkeypatch):
    monkeypatch.setattr(waiting._Look, "now", lambda: None)
    assert waiting.busy_note(64) is None
