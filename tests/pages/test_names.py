"""Names on pages: of long ones that differ in one part only this is shown, and what they share stands once."""

import pytest

from sentcli.pages.names import short_names

RUN = "runs/all-MiniLM-L6-v2-simcse-lr{}-seed1"


@pytest.mark.parametrize(
    ("names", "shown", "note"),
    [
        ([RUN.format(rate) for rate in ("1e-5", "3e-5")], ["lr1e-5", "lr3e-5"], "runs/all-MiniLM-L6-v2-simcse-…-seed1"),
        ([RUN.format("1"), RUN.format("2"), "minilm"], ["lr1", "lr2", "minilm"], "all-MiniLM-L6-v2-simcse-…-seed1"),
        (["a-model-with-a-long-name-1", "a-model-with-a-long-name-2"], ["name-1", "name-2"], "a-model-with-a-long-…"),
        (["runs/1/the-best-checkpoint-of", "runs/b/the-best-checkpoint-of"], ["runs/1", "runs/b"], None),
        (["my/experiments/runs/one", "my/experiments/runs/two"], ["one", "two"], None),
        (["runs/one", "other/one"], ["runs/one", "other/one"], None),
        ([RUN.format("1"), "lr1", RUN.format("2")], ["all-MiniLM-L6-v2-simcse-lr1-seed1", "lr1", None], None),
        ([RUN.format("1"), f"{RUN.format('2')} + bm25", "bm25"], ["lr1", "lr2 + bm25", "bm25"], "simcse-…-seed1"),
        (["one-model-with-a-long-name", "another-thing-that-is-long"], ["one-model-with-a-long-name", None], None),
    ],
    ids=["rates", "beside-a-short-one", "numbers", "folders", "paths", "twins", "taken", "fused", "nothing-shared"],
)
def test_long_names_are_shown_by_what_differs(names, shown, note):
    short = short_names(names)
    assert len(set(short.shown.values())) == len(names)
    for name, expected in zip(names, shown, strict=True):
        assert expected is None or short.shown[name] == expected
    assert note is None or note in short.notes[0]


def test_no_names_are_no_error():
    assert not short_names([]).shown
