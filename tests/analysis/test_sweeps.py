"""Curves of sweeps: which runs are one system, what is varied, means over seeds."""

import copy
import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from sentcli.analysis.runs import read_runs
from sentcli.analysis.sweeps import points as sweeps
from sentcli.analysis.sweeps.scores import best_points
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
    own = points[points["series"] == system]
    if score is not None:
        own = own[own["panel"] == score]
    return list(dict.fromkeys(own["x"]))


def systems(points):
    return list(points["series"].unique())


def of(points, score):
    """The rows of a score, in order."""
    return points[points["panel"] == score].reset_index(drop=True)


def test_rates_of_two_sweeps_are_one_curve_with_the_default_of_the_method():
    found = sweeps.over(read_runs([STUDY, RATES]), "learning_rate")
    rates = values(found, "infocse", "sts_average")
    assert rates == [7e-06, 3e-05, 1e-04], "the first is the method's default, which no point of the sweep says"
    assert "micse" not in systems(found) and "micse, warmup_steps 0" in systems(found), (
        "another setting makes another system"
    )
    lines = [json.loads(line) for line in STUDY.read_text("utf-8").splitlines()]
    scores = [line["results"]["sts_average"] for line in lines if line["method"] == "infocse"]
    averages = of(found, "sts_average")
    first = averages[averages["series"] == "infocse"].iloc[0]
    expected = statistics.fmean(scores), statistics.stdev(scores)
    assert (first["y"], first["sd"]) == pytest.approx(expected)
    assert first["runs"] == 2


def test_low_shot_groups_by_system_and_size(write):
    path = write(
        {"method": "simcse", "fraction": 0.1, "seed": 1, "sentences": 100, "sts": 60.0},
        {"method": "simcse", "fraction": 0.1, "seed": 2, "subset_seed": 2, "sentences": 100, "sts": 62.0},
        {"method": "simcse", "limit": 1000, "sentences": 1000, "sts": 70.0},
        {"method": "simcse", "fraction": 0.1, "sentences": 100, "positives_only": True, "sts": 40.0},
        {"method": "simcse", "fraction": 1.0, "sentences": 1000, "positives_only": True, "sts": 41.0},
    )
    found = sweeps.low_shot_points(read_runs([path]))
    assert systems(found) == ["simcse", "simcse, positives_only True"]
    assert values(found, "simcse", "sts_average") == [100, 1000]
    several, single = (of(found, "sts_average").iloc[i] for i in (0, 1))
    shown = several["y"], several["sd"], several["runs"]
    assert shown == (61.0, pytest.approx(2**0.5), 2)
    assert (several["low"], several["high"]) == pytest.approx((61 - 2**0.5, 61 + 2**0.5))
    assert single["y"] == 70 and np.isnan(single["sd"])


def test_the_recipes_of_all_sizes_are_one_system(write):
    runs = [
        {"method": "micse", "recipe": f"micse-{size}", "contrastive.queue_size": queue, "sentences": size, "sts": size}
        for size in (10, 100)
        for queue in (0, 384)
    ]
    found = sweeps.low_shot_points(read_runs([write(*runs)]))
    names = ["micse, contrastive.queue_size 0", "micse, contrastive.queue_size 384"]
    assert systems(found) == names
    assert [values(found, name) for name in names] == [[10, 100]] * 2
    same_sizes = [{**run, "recipe": "other"} for run in runs]
    found = sweeps.low_shot_points(read_runs([write(*runs, *same_sizes)]))
    assert "micse, recipe other, contrastive.queue_size 0" in systems(found)


def test_a_setting_that_all_runs_of_a_method_share_names_no_system(write):
    path = write(
        {"method": "micse", "limit": 10, "sentences": 10, "warmup_steps": 0, "sts": 1.0},
        {"method": "micse", "limit": 20, "sentences": 20, "warmup_steps": 0, "sts": 2.0},
        {"method": "simcse", "limit": 10, "sentences": 10, "sts": 3.0},
        {"method": "simcse", "limit": 20, "sentences": 20, "warmup_steps": 7, "sts": 4.0},
    )
    found = sweeps.low_shot_points(read_runs([path]))
    assert systems(found) == ["micse", "simcse", "simcse, warmup_steps 7"]
    path = write(
        {"limit": 10, "sentences": 10, "sts": 1.0}, {"method": "simcse", "limit": 20, "sentences": 20, "sts": 2.0}
    )
    assert systems(sweeps.low_shot_points(read_runs([path]))) == ["simcse"], (
        "whether a sweep names its method makes no difference"
    )


def test_a_score_that_a_run_lacks_is_left_out(write):
    path = write({"limit": 10, "sentences": 10, "sts": 50.0}, {"limit": 20, "sentences": 20, "sts": None})
    found = sweeps.low_shot_points(read_runs([path]))
    assert values(found, "simcse", "sts_average") == [10]
    assert values(found, "simcse", "best_dev_spearman") == [10, 20]


def test_what_is_varied_is_found(write):
    assert sweeps.varied(read_runs([RATES])) == ["learning_rate"]
    assert "warmup_steps" in sweeps.varied(read_runs([STUDY, RATES]))
    path = write({"views.count": 3}, {"views.count": 2}, {"contrastive.temperature": 0.1})
    runs = read_runs([path])
    assert sweeps.varied(runs) == ["views.count", "contrastive.temperature"]
    found = sweeps.over(runs, "views.count")
    assert len(systems(found)) == 1 and values(found, systems(found)[0]) == [2, 3], "the default of the method counts"


def test_runs_of_two_trainings_are_no_seeds_of_one_point(write):
    path = write({"seed": 1, "sts": 1.0}, {"seed": 1, "sts": 5.0}, {"seed": 2, "sts": 2.0})
    lines = list(map(json.loads, path.read_text("utf-8").splitlines()))
    lines[1]["identity"]["settings"]["learning_rate"] = 0.5
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    found = sweeps.over(read_runs([path]), "seed")
    averages = of(found, "sts_average")
    assert averages["runs"].tolist() == [1, 1], "two runs of seed 1 had one mean; that of the other rate is alone"
    assert averages["y"].tolist() == [1.0, 2.0]


def test_the_highest_test_score_is_no_choice(write):
    """A test average names the setting that is best on the test; the dev set's sentence has no such caution."""
    path = write({"rate": 1.0, "sts": 50.0, "dev": 81.0}, {"rate": 2.0, "sts": 51.0, "dev": 80.0})
    runs = read_runs([path])
    of_test, of_dev = best_points(sweeps.over(runs, "rate"), "rate", sweeps.score_titles(runs))
    assert "51.00" in of_test and "not tested" in of_test
    assert "81.00" in of_dev and "not tested" not in of_dev


def test_settings_are_ordered_as_numbers_and_words(write):
    path = write({"whitening": "zca"}, {"whitening": "pca"}, {"whitening": None}, {"rate": 10.0}, {"rate": 2.0})
    runs = read_runs([path])
    assert values(sweeps.over(runs, "rate"), "simcse") == [2.0, 10.0]
    assert values(sweeps.over(runs, "whitening"), "simcse") == ["pca", "zca"]


def test_published_curves_are_whole():
    found = sweeps.published_low_shot()
    assert list(found[found["name"] == "micse"]["y"]) == [73.68, 76.40, 76.38, 78.13]
    assert found[["x", "y"]].notna().all(axis=None)


def test_bad_input_is_one_message(write, tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path}/none.jsonl"):
        read_runs([tmp_path / "none.jsonl"])
    with pytest.raises(InputError, match=rf"{tmp_path} .*results\.jsonl.*--sweep"):
        read_runs([tmp_path])
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match=f"{tmp_path}/empty.jsonl "):
        read_runs([tmp_path / "empty.jsonl"])
    (tmp_path / "other.jsonl").write_text('{"digest": "a"}\n')
    with pytest.raises(DataError, match=f"{tmp_path}/other.jsonl: .*'point'"):
        read_runs([tmp_path / "other.jsonl"])
    with pytest.raises(InputError, match=r"fraction .*limit"):
        sweeps.low_shot_points(read_runs([STUDY]))
    with pytest.raises(InputError, match=r"--x learning_rat: .*'learning_rate'"):
        sweeps.over(read_runs([STUDY]), "learning_rat")


def test_published_low_shot_scores_have_the_deviations_that_the_paper_prints():
    """miCSE's table 4 prints them for the systems without negatives, too; at 100 % no table does."""
    found = sweeps.published_low_shot()
    others = found["name"].isin(["ct+ami", "mirror-bert+ami", "simcse, table 4"])  # their means alone are known
    assert found.loc[others, "sd"].isna().all()
    assert sorted(found.loc[found["sd"].isna() & ~others, "x"].unique()) == [1.0]
    alone = found[found["name"] == "simcse, positives only"].sort_values("x")
    assert alone["sd"].tolist()[:3] == [4.48, 1.63, 6.87]
    alone = found[found["name"] == "simcse+ami, positives only"].sort_values("x")
    assert alone["sd"].tolist()[:3] == [1.32, 3.38, 4.70]
