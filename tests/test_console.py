"""What long work says of its progress: a bar, in notebooks one of tqdm, elsewhere a line now and then."""

import io
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from sentcli import SentenceEncoder, console
from sentcli.model.encoding import EncodeStats
from sentcli.table import Table


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [1000.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def work(clock, seconds, steps, total=1000):
    with console.encoding("encoding", total) as advance:
        for _ in range(steps):
            clock[0] += seconds
            advance(EncodeStats(texts=10, tokens=200))


def test_there_is_a_line_every_half_a_minute_and_later_less_often(capsys, clock):
    work(clock, 10, 60)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 20
    assert lines[0] == "encoding: 30 of 1,000 (3%) after 0:00:30, 1 rows/s, 20 tokens/s"
    assert lines[1] == "encoding: 60 of 1,000 (6%) after 0:01:00, 0:15:40 left, 1 rows/s, 20 tokens/s"
    work(clock, 60, 600, total=6000)  # ten hours
    captured = capsys.readouterr()
    assert 50 < len(captured.err.splitlines()) < 150
    assert captured.out == ""


def test_short_work_and_quiet_work_say_nothing(capsys, clock):
    work(clock, 1, 20)
    with console.speaking(quiet=True, verbose=False):
        work(clock, 100, 20)
    with console.counting("checking", 0):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_long_step_says_that_it_goes_on(capsys, monkeypatch):
    monkeypatch.setattr(console, "EVERY", 0.05)
    with console.working("exporting") as step:
        step("int8")
        time.sleep(0.4)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("exporting: int8 after 0:00:0")]
    assert len(said) >= 2
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_slow_steps_of_a_training_have_lines(invoke, tiny_bert, text, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "EVERY", 0.0)
    call = ["train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", "--max-steps", "5"]
    said = invoke(*call, "--batch-size", "4", check=0).stderr
    assert [f"step {n} of 5" in said for n in range(1, 6)] == [True] * 5


def test_what_an_earlier_run_did_does_not_count_as_speed(capsys, clock):
    with console.encoding("encoding", 1000) as advance:
        advance(EncodeStats(texts=900))
        for _ in range(6):
            clock[0] += 5
            advance(EncodeStats(texts=5, tokens=100))
    assert "930 of 1,000 (93%) after 0:00:30, 0:01:10 left" in capsys.readouterr().err


def test_a_notebook_has_a_bar_of_tqdm(capsys, monkeypatch, tiny_bert):
    monkeypatch.setattr(console, "_in_notebook", lambda: True)
    encoder = SentenceEncoder.load(tiny_bert)
    vectors = encoder.encode(["a cat", "a dog", "a cat"], progress=True)
    shown = capsys.readouterr()
    assert "encoding: 100%" in shown.err and "2/2" in shown.err and shown.out == ""
    np.testing.assert_array_equal(vectors, encoder.encode(["a cat", "a dog", "a cat"], progress=False))


def test_a_terminal_has_a_bar_of_rich(monkeypatch, tiny_bert):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    encoder = SentenceEncoder.load(tiny_bert)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    encoder.encode(["a cat", "a dog"], progress=True)
    assert "encoding" in screen.getvalue() and "2/2" in screen.getvalue()


def test_nothing_is_printed_unless_asked(capsys, tiny_bert):
    SentenceEncoder.load(tiny_bert).encode(["a cat"] * 3)
    time.sleep(0)
    assert capsys.readouterr() == ("", "")


def test_a_narrow_terminal_breaks_headings_but_no_numbers(capsys, monkeypatch):
    names = ["recall@100", "capped recall@100", "precision@10", "MAP@100", "nDCG@10", "queries", "documents", "MRR@10"]
    rows = [["minilm", *(0.1234 + i / 100 for i in range(len(names)))], ["a model of a long name", *[0.5] * len(names)]]
    table = Table("Retrieval", ["model", *names], rows, formats=dict.fromkeys(names, ".4f"))
    screen = Console(file=sys.stdout, width=80)
    monkeypatch.setattr(console, "output", lambda: screen)
    console.show(table)
    shown = capsys.readouterr().out
    assert all(f"0.{1234 + 100 * i}" in shown for i in range(len(names)))
    assert max(map(len, shown.splitlines())) <= 80


def test_the_notes_of_a_table_stand_below_it_on_a_terminal_and_in_a_notebook(capsys):
    notes = ["3 more have <finished> before.", "one in twenty is below 0.05 by chance\x1b[2J"]
    table = Table("Runs", ["run", "score"], [["a", 0.5]], notes=notes, interval_note="Intervals: of samples.")
    console.show(table)
    shown = capsys.readouterr().out
    below = shown.splitlines()[-2:]
    assert below[0] == notes[0]
    assert below[1].startswith("one in twenty is below 0.05 by chance") and "\x1b" not in shown
    assert "of samples" not in shown + table._repr_html_()  # it has no intervals
    assert "<p>3 more have &lt;finished&gt; before.</p>" in table._repr_html_()
    with_interval = replace(table, intervals={(0, "score"): (0.4, 0.6)})
    console.show(with_interval)
    assert capsys.readouterr().out.splitlines()[-3:] == [with_interval.interval_note, *below]
    assert "of samples" in with_interval._repr_html_()
