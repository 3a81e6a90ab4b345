"""The card of a trained folder is written whatever its files are called."""

import pytest

from tests.conftest import WORDS

ODD_NAMES = ["b\udcff.csv", "two\nlines.csv", "\x1b[31mred.csv"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_file_may_have_any_name(name, invoke, tiny_bert, tmp_path):
    table = tmp_path / name
    rows = "".join(f"the {word},a {word},{number % 6}\n" for number, word in enumerate(WORDS[:12]))
    table.write_text(f"sentence1,sentence2,score\n{rows}")
    words = ["train", "--method", "sts-regression", "-m", tiny_bert, "--data", table, "--dev", table]
    invoke(*words, "-o", tmp_path / "m", "--max-steps", 1, "--batch-size", 4, check=0)
    card = (tmp_path / "m" / "README.md").read_text("utf-8")
    (listed,) = (line for line in card.splitlines() if line.startswith("* "))
    assert "12 rows, SHA-256" in listed and listed.replace("\N{REPLACEMENT CHARACTER}", "").isprintable()
