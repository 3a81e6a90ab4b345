"""Numbers in foreign text."""

import pytest

from sentcli.bounds import whole_number
from sentcli.methods import METHODS
from sentcli.methods.configuring import configure


@pytest.mark.parametrize("text", ["²", "٣", "1_000", " 1", "1 ", "+1", "-", "", "1.0", "9" * 101, "9" * 5000, "१२"])
def test_what_only_looks_like_a_whole_number_is_none(text):
    assert whole_number(text) is None and whole_number(text, signed=True) is None


def test_whole_numbers_are_read():
    assert [whole_number(text) for text in ("0", "007", "9" * 19)] == [0, 7, int("9" * 19)]
    assert whole_number("-3", signed=True) == -3 and whole_number("-3") is None


def test_numbers_in_variables_and_settings_are_read_so(monkeypatch, tmp_path):
    from sentcli.analysis.map.whitening import Whitening
    from sentcli.errors import InputError
    from sentcli.machine import usable_cores
    from sentcli.stores.vector_cache import SIZE_VARIABLE, size_limit
    from sentcli.training.checkpoints import Checkpoints

    monkeypatch.setenv("OMP_NUM_THREADS", "²")
    assert usable_cores() >= 1
    monkeypatch.setenv(SIZE_VARIABLE, "²")
    with pytest.raises(InputError, match=SIZE_VARIABLE):
        size_limit()
    with pytest.raises(InputError, match="groups"):
        Whitening.parse("groups:²")
    with pytest.raises(InputError, match="views"):
        configure(METHODS["simcse"], [("views", "²")])
    (tmp_path / "checkpoint-²-x.json").touch()
    (tmp_path / "checkpoint-00000002.json").touch()
    assert Checkpoints(tmp_path, {}).steps() == [2]
