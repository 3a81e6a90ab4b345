"""Models beside each other and beside print: which of them are seeds of one system."""

import numpy as np

from sentcli.command.result import Result
from sentcli.command.scoring import with_published
from sentcli.evaluation import significance
from sentcli.evaluation.published import Published
from sentcli.evaluation.score_kinds import SIMILARITY, TRANSFER
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.pages.score_page import Choices
from sentcli.pages.score_report import ScoreReport
from tests.evaluation.conftest import scored_model

PRINTED = Published("x", "X", "a table", {"STS16": 80.0})


def scored(model, value, **environment):
    interval = {"STS16": (value - 2, value + 2)}
    return scored_model(SIMILARITY, {"STS16": value}, interval, environment, model)


def test_only_runs_of_one_training_are_seeds_of_a_system_that_is_set_beside_print():
    """Any models were taken for seeds: 82 and 50 gave a mean of 66 from -289 to 421, with 77 within."""
    models = [
        scored("encoder", 82.0, trained_run=False),
        scored("seed-1", 70.0, trained_run=True, training="a"),
        scored("unknown", 71.0, trained_run=True),
        scored("seed-2", 71.0, trained_run=True, training="a"),
        scored("other rate", 60.0, trained_run=True, training="b"),
    ]
    compared = with_published(models, PRINTED, SIMILARITY)
    lines = [of_model.against["tasks"]["STS16"] for of_model in compared]
    assert [(line["measured"], line["runs"]) for line in lines] == [
        (82.0, 1), (70.5, 2), (71.0, 1), (70.5, 2), (60.0, 1),
    ]  # fmt: skip
    assert lines[0]["range"] == (80.0, 84.0) and lines[0]["within"]
    assert lines[1]["range"] == lines[3]["range"] and not lines[4]["within"]
    (table,) = [table for table in ScoreReport.of(compared).console_tables() if "published" in table.columns]
    assert len(table.rows) == 4, "seeds share a row"
    assert with_published(models, None, SIMILARITY) == models


def test_answers_are_sampled_once_for_the_console_the_json_and_the_page(monkeypatch, tmp_path):
    """They were sampled 348 times for three models and six tasks."""
    sampled = []
    real = significance.mean_replicates

    def counted(values, *more, **options):
        sampled.append(len(values))
        return real(values, *more, **options)

    monkeypatch.setattr(significance, "mean_replicates", counted)
    generator = np.random.default_rng(0)
    models = []
    for name in "abc":
        tasks = []
        for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC"):
            right = generator.random(300) < 0.8
            accuracy = {"accuracy": 100 * float(right.mean())}
            tasks.append(TaskScore(task, TRANSFER.name, accuracy, ("accuracy",), {"test": 300}, correct=right))
        models.append(ModelScores("senteval", name, {}, tuple(tasks), {"trained_run": False}))
    result = Result.of_scores(models, Choices())
    result.write_pages([tmp_path / "page.html"])
    assert len(sampled) == 3 * 6
    compared = result.objects[1]["compared"]["tasks"]
    assert compared["MR"].keys() >= {"only_first", "only_second", "p"} and "low" in compared["average"]
