"""``analyze`` as a function: kinds by name, results as tables."""

import json
import shutil

import numpy as np
import pytest

import sentcli
from sentcli.analysis import ANALYSES
from sentcli.errors import InputError
from sentcli.verbs.analyze import analysis_kind, analyze


@pytest.mark.slow
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
    assert analysis_kind(kind).verb.name == kind


TEXTS = [f"the {a} {b} the {c}" for a in ("cat", "dog", "man") for b in ("sees", "eats") for c in ("tree", "fish")]


@pytest.mark.slow
def test_a_map_as_a_frame_has_every_row(tiny_bert, tmp_path):
    import pandas as pd

    given = pd.DataFrame({"text": [*TEXTS, "", TEXTS[0]], "id": [f"r{i}" for i in range(14)]})
    found = analyze("map", given, model=tiny_bert, output=tmp_path / "m", clusters=2, quiet=True).frame
    assert list(found["id"]) == list(given["id"]) and list(found["text"]) == list(given["text"])
    assert found.loc[13, ["x", "y", "cluster"]].equals(found.loc[0, ["x", "y", "cluster"]].rename(13))
    assert found["x"].isna().tolist() == [False] * 12 + [True, False]


@pytest.mark.slow
def test_near_duplicates_as_a_frame_are_the_pairs(tiny_bert, tmp_path):
    texts = [*TEXTS, TEXTS[2].upper(), TEXTS[2]]
    found = analyze("duplicates", [texts], model=tiny_bert, output=tmp_path / "d", least=0.999, quiet=True)
    assert len(found.frame) == found.to_dict()["results"]["pairs"] >= 1
    assert ("2", "13") in {*zip(found.frame["id1"], found.frame["id2"], strict=True)}


@pytest.mark.slow
def test_near_duplicates_are_searched_on_the_device_whose_rows_are_opened_once(tiny_bert, tmp_path, monkeypatch):
    """The device is torch's CPU, which searches here as a GPU does."""
    from sentcli.model.options import LoadOptions
    from sentcli.search import exact
    from sentcli.search.on_device import DeviceRows

    file, opened, true_open = tmp_path / "v.parquet", [], DeviceRows.open

    def counted(*given, **options):
        opened.append(true_open(*given, **options))
        return opened[-1]

    sentcli.encode([[*TEXTS, TEXTS[2]]], output=file, model=tiny_bert, quiet=True)
    expected = analyze("duplicates", file, output=tmp_path / "one", least=0.9, quiet=True)
    monkeypatch.setattr(LoadOptions, "on_cpu", False)
    monkeypatch.setattr(exact, "on_host", lambda device: False)
    monkeypatch.setattr(DeviceRows, "open", counted)
    found = analyze("duplicates", file, output=tmp_path / "two", least=0.9, quiet=True)
    pairs = [sorted(zip(one.frame["id1"], one.frame["id2"], strict=True)) for one in (found, expected)]
    assert pairs[0] == pairs[1] and len(pairs[0]) and len(opened) == 1


@pytest.mark.slow
def test_rows_of_a_frame_keep_their_index_and_ids(tiny_bert, tmp_path):
    """Also those without text; a join would else put clusters and vectors with other rows."""
    import pandas as pd

    import sentcli

    given = pd.DataFrame({"id": range(len(TEXTS), 0, -1), "text": TEXTS}, index=[f"k{i}" for i in range(len(TEXTS))])
    given.loc["k3", "text"] = None
    models = [str(tiny_bert), str(shutil.copytree(tiny_bert, tmp_path / "other"))]
    found = analyze("map", given, model=models, output=tmp_path / "m", clusters=2, quiet=True).frame
    assert list(found.index) == [*given.index] * 2 and list(found["id"]) == [*map(str, given["id"])] * 2
    assert found["x"].isna().tolist() == [key == "k3" for key in found.index]
    kept = {"empty": list(given.index), "skip": [key for key in given.index if key != "k3"]}
    for on_null, index in kept.items():
        rows = sentcli.encode(given, model=tiny_bert, on_null=on_null, quiet=True).frame
        assert list(rows.index) == index and list(rows["id"]) == [str(given.loc[key, "id"]) for key in index]


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["map", "geometry", "duplicates"])
@pytest.mark.parametrize("name", ["v", "v.parquet"])
def test_vectors_that_the_model_made_are_not_made_again(tiny_bert, tmp_path, monkeypatch, kind, name):
    from sentcli import SentenceEncoder, encode

    file, encoded = tmp_path / name, []
    encode([TEXTS], output=file, model=tiny_bert, quiet=True)
    whole = SentenceEncoder.encode_distinct

    def counted(self, texts, *more, **options):
        encoded.extend(texts)
        return whole(self, texts, *more, **options)

    monkeypatch.setattr(SentenceEncoder, "encode_distinct", counted)
    monkeypatch.setenv("SENTCLI_VECTOR_CACHE_MB", "0")
    given = {"texts": str(file)} if kind == "geometry" else {"paths": str(file)}
    options = {**given, "model": tiny_bert, "quiet": True, **({"clusters": 2} if kind == "map" else {})}
    one = analyze(kind, output=tmp_path / "one", **options).to_dict()
    assert encoded == [] and one["model"] == str(tiny_bert)
    analyze(kind, output=tmp_path / "two", **options, max_length=16)
    assert sorted(encoded) == sorted(TEXTS)
