"""``analyze`` as a function: kinds by name, results as tables."""

import json

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.verbs.analyze import analyze, kind_of
from sentcli.verbs.kinds import ANALYSES


def test_a_kind_from_python(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sentcli.console.state.data_on_stdout", False)  # an earlier command may have written data there
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
    analysis = analyze("geometry", tmp_path / "v.npy", output=tmp_path / "out", neighbours=3, positives_above=4)
    assert analysis.to_dict() == json.loads((tmp_path / "out" / "analysis.json").read_text())
    frame = analysis.to_frame()
    assert list(frame["model"]) == ["v.npy"] and frame["uniformity"][0] == analysis.to_dict()["results"]["uniformity"]
    assert "<table>" in analysis._repr_html_() and "data:image/png" in analysis._repr_html_()
    assert capsys.readouterr().out == "", "only the command prints"
    analysis.show()
    assert "Geometry of the vectors" in capsys.readouterr().out


def test_what_a_kind_does_not_know(tmp_path):
    with pytest.raises(InputError, match=r"'geometri'.*'geometry'"):
        analyze("geometri", output=tmp_path / "out")
    with pytest.raises(InputError, match=r"similarity .*paths"):
        analyze("similarity", "x", output=tmp_path / "out")
    with pytest.raises(TypeError, match="colour"):
        analyze("geometry", output=tmp_path / "out", colour=1)


@pytest.mark.parametrize("kind", ANALYSES)
def test_kinds_are_named_as_they_are_found(kind):
    assert kind_of(kind).verb.name == kind
