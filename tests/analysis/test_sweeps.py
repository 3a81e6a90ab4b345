"""Curves of sweeps: which runs are one system, what is varied, means over seeds."""

import copy
import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from sentcli.analysis.sweeps import points as sweeps
from sentcli.errors import DataError, InputError

RESULTS = Path(__file__).parents[2] / "docs" / "results"
STUDY, RATES = RESULTS / "first-study.jsonl", RESULTS / "first-sweep.jsonl"


@pytest.fixture
def write(tmp_path):
    """Write runs as results.jsonl; each is what differs from a run of the first study."""
    like = json.loads(STUDY.read_text("utf-8").splitlines()[0])

    def made(*runs, name="results.jsonl"):
        lines = []
        for i, changes in enumerate(runs):
            record = copy.deepcopy(like)
            record |= {"digest": str(i), "method": changes.get("method", "simcse"), "seed": changes.get("seed", 42)}
            record["point"] = {key: value for key, value in changes.items() if key not in ("sts", "dev", "sentences")}
            record["identity"]["data"][0]["sentences"] = changes.get("sentences", 1000)
            record["results"] |= {"sts_average": changes.get("sts"), "best_dev_spearman": changes.get("dev", 80.0)}
            lines.append(json.dumps(record))
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    return made


def values(points, system, score=None):
    """The values of a system, those that have a score."""
    own = points[points["system"] == system]
    return list(own["value"] if score is None else own["value"][own[score].notna()])


def systems(points):
    return list(points["system"].unique())


def test_rates_of_two_sweeps_are_one_curve_with_the_default_of_the_method():
    found = sweeps.over(sweeps.read_runs([STUDY, RATES]), "learning_rate")
    rates = values(found, "infocse", "sts_average")
    assert rates == [7e-06, 3e-05, 1e-04], "the first is the method's default, which no point of the sweep says"
    assert "micse" not in systems(found) and "micse, warmup_steps 0" in systems(found), (
        "another setting makes another system"
    )
    lines = [json.loads(line) for line in STUDY.read_text("utf-8").splitlines()]
    scores = [line["results"]["sts_average"] for line in lines if line["method"] == "infocse"]
    first = found[found["system"] == "infocse"].iloc[0]
    expected = statistics.fmean(scores), statistics.stdev(scores)
    assert (first["sts_average"], first["sts_average_sd"]) == pytest.approx(expected)
    assert first["runs"] == 2


def test_low_shot_groups_by_system_and_size(write):
    path = write(
        {"method": "simcse", "fraction": 0.1, "seed": 1, "sentences": 100, "sts": 60.0},
        {"method": "simcse", "fraction": 0.1, "seed": 2, "subset_seed": 2, "sentences": 100, "sts": 62.0},
        {"method": "simcse", "limit": 1000, "sentences": 1000, "sts": 70.0},
        {"method": "simcse", "fraction": 0.1, "sentences": 100, "positives_only": True, "sts": 40.0},
        {"method": "simcse", "fraction": 1.0, "sentences": 1000, "positives_only": True, "sts": 41.0},
    )
    found = sweeps.low_shot(sweeps.read_runs([path]))
    assert systems(found) == ["simcse", "simcse, positives_only True"]
    assert values(found, "simcse", "sts_average") == [100, 1000]
    several, single = (found.iloc[i] for i in (0, 1))
    shown = several["sts_average"], several["sts_average_sd"], several["runs"]
    assert shown == (61.0, pytest.approx(2**0.5), 2)
    assert single["sts_average"] == 70 and np.isnan(single["sts_average_sd"])


def test_the_recipes_of_all_sizes_are_one_system(write):
    runs = [
        {"method": "micse", "recipe": f"micse-{size}", "contrastive.queue_size": queue, "sentences": size, "sts": size}
        for size in (10, 100)
        for queue in (0, 384)
    ]
    found = sweeps.low_shot(sweeps.read_runs([write(*runs)]))
    names = ["micse, contrastive.queue_size 0", "micse, contrastive.queue_size 384"]
    assert systems(found) == names
    assert [values(found, name) for name in names] == [[10, 100]] * 2
    same_sizes = [{**run, "recipe": "other"} for run in runs]
    found = sweeps.low_shot(sweeps.read_runs([write(*runs, *same_sizes)]))
    assert "micse, recipe other, contrastive.queue_size 0" in systems(found)


def test_a_setting_that_all_runs_of_a_method_share_names_no_system(write):
    path = write(
        {"method": "micse", "limit": 10, "sentences": 10, "warmup_steps": 0, "sts": 1.0},
        {"method": "micse", "limit": 20, "sentences": 20, "warmup_steps": 0, "sts": 2.0},
        {"method": "simcse", "limit": 10, "sentences": 10, "sts": 3.0},
        {"method": "simcse", "limit": 20, "sentences": 20, "warmup_steps": 7, "sts": 4.0},
    )
    found = sweeps.low_shot(sweeps.read_runs([path]))
    assert systems(found) == ["micse", "simcse", "simcse, warmup_steps 7"]
    path = write(
        {"limit": 10, "sentences": 10, "sts": 1.0}, {"method": "simcse", "limit": 20, "sentences": 20, "sts": 2.0}
    )
    assert systems(sweeps.low_shot(sweeps.read_runs([path]))) == ["simcse"], (
        "whether a sweep names its method makes no difference"
    )


def test_a_score_that_a_run_lacks_is_left_out(write):
    path = write({"limit": 10, "sentences": 10, "sts": 50.0}, {"limit": 20, "sentences": 20, "sts": None})
    found = sweeps.low_shot(sweeps.read_runs([path]))
    assert values(found, "simcse", "sts_average") == [10]
    assert values(found, "simcse", "best_dev_spearman") == [10, 20]


def test_what_is_varied_is_found(write):
    assert sweeps.varied(sweeps.read_runs([RATES])) == ["learning_rate"]
    assert "warmup_steps" in sweeps.varied(sweeps.read_runs([STUDY, RATES]))
    path = write({"views.count": 3}, {"views.count": 2}, {"contrastive.temperature": 0.1})
    runs = sweeps.read_runs([path])
    assert sweeps.varied(runs) == ["views.count", "contrastive.temperature"]
    found = sweeps.over(runs, "views.count")
    assert len(systems(found)) == 1 and list(found["value"]) == [2, 3], "the default of the method counts"


def test_runs_of_two_trainings_are_no_seeds_of_one_point(write):
    path = write({"seed": 1, "sts": 1.0}, {"seed": 1, "sts": 5.0}, {"seed": 2, "sts": 2.0})
    lines = list(map(json.loads, path.read_text("utf-8").splitlines()))
    lines[1]["identity"]["settings"]["learning_rate"] = 0.5
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    found = sweeps.over(sweeps.read_runs([path]), "seed")
    assert found["runs"].tolist() == [1, 1], "two runs of seed 1 had one mean; that of the other rate is alone"
    assert found["sts_average"].tolist() == [1.0, 2.0]


def test_settings_are_ordered_as_numbers_and_words(write):
    path = write({"whitening": "zca"}, {"whitening": "pca"}, {"whitening": None}, {"rate": 10.0}, {"rate": 2.0})
    runs = sweeps.read_runs([path])
    assert list(sweeps.over(runs, "rate")["value"]) == [2.0, 10.0]
    assert list(sweeps.over(runs, "whitening")["value"]) == ["pca", "zca"]


def test_published_curves_are_whole():
    found = sweeps.published_low_shot()
    assert list(found[found["name"] == "micse"]["mean"]) == [73.68, 76.40, 76.38, 78.13]
    assert found[["share", "mean"]].notna().all(axis=None)


def test_bad_input_is_one_message(write, tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path}/none.jsonl"):
        sweeps.read_runs([tmp_path / "none.jsonl"])
    with pytest.raises(InputError, match=rf"{tmp_path} .*results\.jsonl.*--sweep"):
        sweeps.read_runs([tmp_path])
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match=f"{tmp_path}/empty.jsonl "):
        sweeps.read_runs([tmp_path / "empty.jsonl"])
    (tmp_path / "other.jsonl").write_text('{"digest": "a"}\n')
    with pytest.raises(DataError, match=f"{tmp_path}/other.jsonl: .*'point'"):
        sweeps.read_runs([tmp_path / "other.jsonl"])
    with pytest.raises(InputError, match=r"fraction .*limit"):
        sweeps.low_shot(sweeps.read_runs([STUDY]))
    with pytest.raises(InputError, match=r"--x learning_rat: .*'learning_rate'"):
        sweeps.over(sweeps.read_runs([STUDY]), "learning_rat")


def test_published_low_shot_scores_have_the_deviations_that_the_paper_prints():
    """miCSE's table 4 prints them for the systems without negatives, too; at 100 % no table does."""
    found = sweeps.published_low_shot()
    others = found["name"].isin(["ct+ami", "mirror-bert+ami", "simcse, table 4"])  # their means alone are known
    assert found.loc[others, "sd"].isna().all()
    assert sorted(found.loc[found["sd"].isna() & ~others, "share"].unique()) == [1.0]
    alone = found[found["name"] == "simcse, positives only"].sort_values("share")
    assert alone["sd"].tolist()[:3] == [4.48, 1.63, 6.87]
    alone = found[found["name"] == "simcse+ami, positives only"].sort_values("share")
    assert alone["sd"].tolist()[:3] == [1.32, 3.38, 4.70]
