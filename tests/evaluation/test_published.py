"""Printed scores are consistent, and set beside measured ones."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.evaluation import published
from sentcli.evaluation.score_kinds import SIMILARITY
from sentcli.evaluation.sts_pairs import TASKS

from .conftest import scored_model


@pytest.mark.parametrize("found", published.published().values(), ids=lambda found: found.name)
def test_printed_averages_are_those_of_the_printed_tasks(found):
    """Up to rounding; where a paper slipped, the source of the row says what the mean is."""
    for average, (kind, tasks) in published.AVERAGES.items():
        keys = {published.PREFIXES.get(kind, "") + task for task in tasks}
        if not keys <= found.scores.keys():
            continue
        scores = [found.scores[key] for key in keys]
        printed, mean = found.scores[average], np.mean(scores)
        decimals = 1 if all(score == round(score, 1) for score in scores) else 2
        slip = abs(mean - printed) > 1.01 * 10**-decimals
        assert slip == (f"the mean of these tasks is {mean:.2f}" in found.source), (average, printed, mean)
    assert all(0 < score <= 100 for task, score in found.scores.items() if "BEIR" not in task)
    assert found.title and found.source


def test_an_unknown_system_is_refused():
    with pytest.raises(InputError, match=r"'micse-bert'.*'micse-bert-base'"):
        published.find_published("micse-bert")


def test_one_model_is_compared_by_its_interval_and_several_by_their_spread():
    system = published.Published("x", "X", "a table", {"STS12": 70.0, "STS average": 75.0})
    scores = {"STS12": 71.0, "STS13": 80.0}

    def compare(*scores, intervals=None, interval_of_average=None):
        seeds = [scored_model(SIMILARITY, of_seed, intervals) for of_seed in scores]
        seeds[0] = replace(seeds[0], average_interval=interval_of_average)
        return published.compare_with_published(system, SIMILARITY, seeds)["tasks"]

    assert list(compare(scores)) == ["STS12"], "not the average of two"
    scores = {"STS12": 71.0, **{task: 74.5 for task in TASKS if task != "STS12"}}
    one = compare(scores, intervals={"STS12": (69.0, 73.0)}, interval_of_average=(73.5, 74.5))
    assert "average" not in compare(scores | {"mine": 1.0})
    assert compare(scores)["STS12"]["within"] is None, "nothing is known of its range"
    assert [(task, line["difference"], line["within"]) for task, line in one.items()] == [
        ("STS12", 1.0, True),
        ("average", -1.0, False),
    ]
    seeds = compare({"STS12": 71.0}, {"STS12": 72.0}, {"STS12": 73.0})["STS12"]
    assert (seeds["measured"], seeds["runs"]) == (72.0, 3)
    assert seeds["range"] == pytest.approx((72 - 4.968, 72 + 4.968), abs=1e-3)  # 4.303 sqrt(4/3)
    assert seeds["within"]


def test_the_average_of_argument_similarity_is_that_of_its_topics():
    topics = {"ArgPairs_DP": 40.0, "ArgPairs_GC": 50.0, "ArgPairs_GM": 45.0}
    system = published.find_published("is-bert-afs-bert-base")
    found = published.compare_with_published(system, SIMILARITY, [scored_model(SIMILARITY, topics)])
    assert found["tasks"]["average"]["published"] == 45.25
    two = {key: topics[key] for key in list(topics)[:2]}
    with pytest.raises(InputError, match="ArgPairs_DP"):
        published.require(published.find_published("is-bert-afs-bert-base"), SIMILARITY, two)


def test_the_list_needs_no_model(invoke):
    shown = invoke("sts-eval", "--against", "list", check=0).stdout
    assert "glove" in shown and "61.32" in shown and "86.63" in shown


@pytest.mark.slow
def test_what_cannot_be_compared_is_refused_before_the_work(data, invoke):
    call = ["-m", "no-such-model", "--data", data / "senteval", "--against"]
    for command, options, words in (
        ("senteval", ["consert-bert-base"], "consert-bert-base .*CR, MPQA"),
        ("senteval", ["informin-cl-bert-base", "--tasks", "MR"], "informin-cl-bert-base .*MR"),
        ("senteval", ["simcse-bert-base", "--protocol", "lbfgs"], "--against.*full"),
        ("sts-eval", ["glove", "--split", "dev"], "--against.*test"),
    ):
        assert re.search(words, " ".join(invoke(command, *call, *options, check=2).stderr.split()))


@pytest.mark.slow
def test_a_run_against_print(tiny_bert, data, invoke):
    call = ["sts-eval", "-m", tiny_bert, "--data", data / "senteval", "--tasks", "STS16"]
    done = invoke(*call, "--against", "glove", "--json", "-", check=0)
    report = json.loads(done.stdout)
    (task,) = report["against"]["tasks"]
    found = report["against"]["tasks"][task]
    assert (task, found["published"]) == ("STS16", 63.66)
    assert found["difference"] == pytest.approx(report["results"]["STS16"]["spearman"] - 63.66)
    assert found["within"] is False
    assert found["range"] == report["results"]["STS16"]["interval"]
    assert "GloVe vectors" in " ".join(done.stderr.split())
