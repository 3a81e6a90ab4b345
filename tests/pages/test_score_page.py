"""Pages of scores: rows, columns, digits, averages and differences as papers print them."""

import json
import math
import statistics

import numpy as np
import pytest

from sentcli.errors import DataError, InputError
from sentcli.evaluation.published import with_titles
from sentcli.evaluation.score_files import read_object, read_scores
from sentcli.evaluation.score_json import model_json, pack_values
from sentcli.evaluation.score_kinds import IN_DOMAIN, SIMILARITY, TRAINED_HEAD, TRANSFER
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.evaluation.systems import Pattern
from sentcli.pages import style
from sentcli.pages.figures import inline
from sentcli.pages.page import Style
from sentcli.pages.score_page import Choices, score_page
from sentcli.pages.score_report import ScoreReport

from .conftest import make


def page_of(*objects, groups=(), names=(), title=None):
    runs = with_titles([read_object(one, f"{number}.json") for number, one in enumerate(objects)])
    parsed = [
        tuple(Pattern.parse(option, value) for value in values)
        for option, values in (("--group", groups), ("--name", names))
    ]
    return score_page(runs, Choices(title, *parsed))


def grid(section):
    table = section.table
    return [[table.shown(i, j) for j in range(len(table.columns))] for i in range(len(table.rows))]


def heads(section):
    return list(section.table.columns)


def ranks(section):
    table = section.table
    return [[table.rank(i, j) for j in range(len(table.columns))] for i in range(len(table.rows))]


def scores(page):
    """The sections with a table of scores."""
    return [section for section in page.sections if section.level == 2 and section.table]


def titled(page, words):
    (found,) = [section for section in page.sections if section.title.startswith(words)]
    return found


def test_long_names_of_models_are_short_in_tables_and_whole_in_commands():
    models = [f"runs/all-MiniLM-L6-v2-simcse-lr{rate}-seed1" for rate in ("1e-5", "3e-5")]
    measured = [make(model, command_line=f"sentcli sts-eval -m {model}") for model in models]
    page = page_of(*measured, make("minilm"))
    assert [row[0] for row in grid(scores(page)[0])] == ["lr1e-5", "lr3e-5", "minilm"]
    assert sum("runs/all-MiniLM-L6-v2-simcse-…-seed1" in line for line in page.text) == 1
    assert all(any(model in line for line in titled(page, "Commands").code) for model in models)
    named = page_of(*map(make, models), names=[f"ours={models[0]}"])
    assert [row[0] for row in grid(scores(named)[0])] == ["ours", "all-MiniLM-L6-v2-simcse-lr3e-5-seed1"]


def test_rows_are_models_and_columns_tasks_in_the_order_of_the_papers():
    page = page_of(
        make("a", scores={"SICKRelatedness": 70.004, "STS12": 61.0}, average=65.5),
        make("b", scores={"STS12": 60.996, "SICKRelatedness": 71.0}),
    )
    (section,) = scores(page)
    assert heads(section) == ["model", "STS12", "SICK-R", "Avg."]
    assert grid(section) == [["a", "61.000", "70.00", "65.50"], ["b", "60.996", "71.00", "66.00"]]
    assert ranks(section) == [
        ["", "best", "second", "second"],
        ["", "second", "best", "best"],
    ]
    assert page.title == "Evaluation of 2 models"


def test_numbers_are_rounded_and_averaged_as_papers_print_them():
    page = page_of(make(scores={"STS12": 70.004, "STS13": 70.004, "STS14": 70.005000001}))
    assert grid(scores(page)[0]) == [["minilm", "70.00", "70.00", "70.01", "70.00"]]


@pytest.mark.parametrize(
    ("second", "shown"),
    [(61.12, "61.12"), (61.114, "61.114"), (61.1101, "61.1101"), (61.11001, "61.11"), (61.11, "61.11")],
)
def test_scores_have_the_digits_that_tell_models_apart_on_the_page_and_in_the_terminal(second, shown):
    by_print = {**against(), "tasks": {"STS16": against()["tasks"]["STS16"]}}
    objects = [make("a", scores={"STS16": 61.11}, against=by_print), make("b", scores={"STS16": second})]
    models = [read_object(one, f"{number}.json") for number, one in enumerate(objects)]
    (section,) = scores(score_page(models))
    first = f"61.{'11':0<{len(shown) - 3}}"
    assert [row[1] for row in grid(section)] == [first, shown, "79.10"]
    (printed, *_) = ScoreReport.of(models).console_tables()
    assert [printed.shown(i, 1) for i in range(3)] == [first, shown, "79.10"]
    assert list(section.figure.data["shown"]) == [first, shown, "79.10"]
    verb = "have" if first == shown else "has"
    assert f" {verb} {max(first, shown)} (" in score_page(models).text[0]
    measured = titled(score_page(models), "Further measures").table
    assert [measured.shown(i, 3) for i in range(2)] == [first, shown]


def test_one_model_has_no_best_and_one_task_no_average():
    page = page_of(make(scores={"STS16": 78.99}, average=78.99))
    (section,) = scores(page)
    assert heads(section) == ["model", "STS16"]
    assert not any(map(any, ranks(section)))
    assert page.title == "Evaluation of minilm"
    assert section.figure.data[["low", "high"]].to_numpy().tolist() == [pytest.approx((76.99, 80.99))]


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_what_is_not_known_is_a_gap(missing, write):
    (path,) = write([make("a", scores={"STS12": missing, "STS13": 1.0}), make("b", scores={"STS12": 1.0})])
    page = score_page(read_scores([path]))
    assert grid(scores(page)[0]) == [["a", "–", "1.00", "–"], ["b", "1.00", "–", "–"]]
    assert any(note.startswith("–:") for note in scores(page)[0].table.notes)
    assert list(scores(page)[0].figure.data["task"].unique()) == ["STS12", "STS13"]


def test_nothing_known_has_no_figure():
    assert page_of(make(scores={"STS12": None})).sections[0].figure is None


def test_protocols_do_not_share_a_table():
    page = page_of(
        make("a"), make("b", protocol={"split": "dev"}), make("c"), make("d", "senteval", {"MR": 80.0}),
        make("e", protocol={"aggregation": "mean of the subsets"}),
    )  # fmt: skip
    assert [[row[0] for row in section.table.rows] for section in scores(page)] == [
        ["a", "c"], ["b"], ["e"], ["d"],
    ]  # fmt: skip
    first, second, third, _ = scores(page)
    assert "split test" in first.title and "split dev" in second.title and "mean of the subsets" in third.title
    assert "dev split" in second.table.notes[0]
    assert grid(third)[0][1] == "2.00"  # the mean of the subsets, not the concatenation


def test_data_of_other_sizes_do_not_share_a_table():
    other = make("b")
    other["results"]["STS16"]["pairs"] = 10
    first, second = scores(page_of(make("a"), other))
    assert (first.title, second.title) == (
        "Semantic textual similarity (data 1 of 2)", "Semantic textual similarity (data 2 of 2)",
    )  # fmt: skip


def test_counts_and_samples_move_no_number():
    page = page_of(make("a"), make("b", protocol={"interval_draws": 0, "truncated_texts": 3}))
    assert len(scores(page)) == 1


def test_models_of_one_name_are_told_apart():
    page = page_of(make(), make(protocol={"pooling": "cls"}), make(protocol={"pooling": "cls"}))
    assert [row[0] for row in grid(scores(page)[0])] == [
        "minilm (pooling mean)", "minilm (pooling cls) [1.json]", "minilm (pooling cls) [2.json]",
    ]  # fmt: skip
    page = page_of(make(), make(protocol={"backend": "onnx"}))
    assert [row[0] for row in grid(scores(page)[0])] == ["minilm (backend torch)", "minilm (backend onnx)"]
    runs = [read_object(make()), read_object(make())]  # without files
    assert [row[0] for row in score_page(runs).sections[0].table.rows] == ["minilm [1]", "minilm [2]"]


def test_files_of_one_model_make_one_row():
    page = page_of(make(scores={"STS13": 60.0}), make(scores={"STS12": 61.0}), make("b", scores={"STS12": 1.0}))
    assert grid(scores(page)[0]) == [["minilm", "61.00", "60.00", "60.50"], ["b", "1.00", "–", "–"]]


def test_names():
    page = page_of(make("runs/a"), make("runs/b"), names=["Ours, final=a", "theirs=1.json"])
    assert [row[0] for row in grid(scores(page)[0])] == ["Ours, final", "theirs"]
    assert page_of(make(), title="Mine").title == "Mine"


def test_seeds_are_a_mean_and_a_sample_deviation():
    values = [70.114, 71.53, 69.25]
    objects = [make(f"runs/seed-{i}", scores={"STS12": v, "STS13": v + 1}) for i, v in enumerate(values)]
    page = page_of(*objects, make("other"), groups=["SimCSE=seed-*"])
    (section,) = scores(page)
    assert heads(section)[:2] == ["model", "n"]
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    averages = [round((round(v, 2) + round(v + 1, 2)) / 2, 2) for v in values]
    average, spread = statistics.fmean(averages), statistics.stdev(averages)
    assert grid(section)[0] == [
        "SimCSE", "3", f"{mean:.2f} ± {sd:.2f}", f"{mean + 1:.2f} ± {sd:.2f}", "–", "–", "–",
    ]  # fmt: skip
    page = page_of(*objects, groups=["SimCSE=*.json"])
    assert grid(scores(page)[0])[0][-1] == f"{average:.2f} ± {spread:.2f}"
    point = scores(page)[0].figure.data.iloc[0]
    assert (point["low"], point["high"]) == pytest.approx((mean - sd, mean + sd))
    assert page.title == "Evaluation of SimCSE"


def test_seeds_of_two_trainings_are_no_group():
    runs = [
        make(f"run-{i}", environment={"trained_run": True, "training": training}) for i, training in enumerate("aab")
    ]
    assert heads(scores(page_of(*runs[:2], groups=["A=run-*"]))[0])[1] == "n"
    with pytest.raises(InputError, match=r"--group A: .*run-0 and run-2"):
        page_of(*runs, groups=["A=run-*"])


def sampled(model, score, noise=0.0, **more):
    """A model on one task, whose samples lie around its score."""
    one = make(model, scores={"STS16": score}, **more)
    samples = score + np.random.default_rng(3).normal(0, 0.5, 1000) + np.random.default_rng(4).normal(0, noise, 1000)
    one["results"]["STS16"]["draws"] = {"spearman": pack_values(samples)}
    return one


def test_groups_are_compared_as_systems():
    """Before, each seed was compared with the first model of its file, by its own name and uncorrected."""
    uncorrected = {"with": "ct-1", "tasks": {"STS16": {"difference": 2.0, "low": 1.0, "high": 3.0, "p": 0.001}}}
    seeds = [sampled(f"ct-{i}", 70.0 + i) for i in (1, 2)]
    seeds += [sampled(f"simcse-{i}", 71.5 + i, noise=0.2, compared=uncorrected) for i in (1, 2)]
    fixed = {"environment": {"trained_run": False}}
    page = page_of(*seeds, sampled("other", 71.6, **fixed), groups=["CT=ct-*", "SimCSE=simcse-*"])
    section = titled(page, "Differences")
    assert heads(section)[:8] == ["system", "seeds", "task", "difference", "95 % from", "to", "p", "p (Holm)"]
    assert heads(section)[8:] == ["smallest", "seeds needed"]
    assert section.table.title.endswith("from CT")
    first, second = section.table.rows
    assert first[8] > 0 and (first[9] is None or first[9] > 2)
    assert first[:3] == ["SimCSE", "2, 2", "STS16"] and second[:3] == ["other", "1, 2", "STS16"]
    assert first[3] == pytest.approx(1.5) and first[4] < 1.5 < first[5]
    assert second[3] == pytest.approx(0.1)
    p = [first[6], second[6]]
    assert [first[7], second[7]] == pytest.approx([min(1, 2 * p[0]) if p[0] < p[1] else p[0], max(p)], abs=1e-9)
    assert not section.text and any("corrected for the 2 comparisons" in note for note in section.table.notes)


@pytest.mark.parametrize("environment", [{"trained_run": True}, {}])
def test_a_single_trained_run_is_not_tested_against_seeds(environment):
    """Whoever wrote the file did not tell whether other seeds of the model exist, or said that they do."""
    seeds = [sampled(f"ct-{i}", 70.0 + i) for i in (1, 2)]
    single, alone = sampled("single", 75.0, environment=environment), sampled("alone", 76.0)
    fixed = sampled("fixed", 74.0, environment={"trained_run": False})
    page = page_of(*seeds, single, alone, fixed, groups=["CT=ct-*", "Alone=alone"])
    rows = {row[0]: row for row in titled(page, "Differences").table.rows}
    assert rows["single"][4:] == rows["Alone"][4:] == [None] * 5
    assert rows["fixed"][6] > 0, "one comparison has a p, and needs no correction"
    notes = titled(page, "Differences").table.notes
    assert sum("one trained run" in note for note in notes) == 2
    assert not any("a trained run is one of many" in note for note in notes), "seeds are compared, and tell of others"


def test_a_page_tests_a_difference_as_the_command_does():
    """The command took samples with replacement and the page Student's t, and they disagreed in one case of five."""
    random = np.random.default_rng(0)
    models = []
    for name, value in (("a", 70.0), ("b", 72.0)):
        score = TaskScore("STS16", SIMILARITY.name, {"spearman": value}, ("spearman",), {"pairs": 20})
        score = score.with_replicates(value + random.normal(0, 1, 1000))
        models.append(ModelScores("sts-eval", name, {}, (score,), {"trained_run": False}))
    _, compared = ScoreReport.of(models).with_differences(models)
    entry = compared.compared["tasks"]["STS16"]
    assert entry.keys() == {"difference", "low", "high", "p", "p_holm", "smallest"}
    (row,) = titled(score_page(models), "Differences").table.rows
    assert row[3:7] == [entry["difference"], entry["low"], entry["high"], entry["p"]]


def test_files_of_several_commands_are_compared_by_their_samples():
    """There was no table of differences, although both files hold samples."""
    page = page_of(sampled("a", 70.0), sampled("b", 74.0, noise=0.2))
    (row,) = titled(page, "Differences").table.rows
    assert row[:3] == ["b", "a", "STS16"] and row[3] == pytest.approx(4.0) and row[4] > 0


def test_a_summary_says_not_told_apart_only_of_what_was_tested():
    seeds = [sampled(f"ct-{i}", 70.0 + i) for i in (1, 2)]
    run = sampled("run", 75.0, environment={"trained_run": True})
    assert "told apart" not in page_of(*seeds, run, groups=["CT=ct-*"]).text[0]
    assert "one trained run" in page_of(*seeds, run, groups=["CT=ct-*"]).text[0]
    near = [sampled(f"other-{i}", 70.9 + i, noise=0.2) for i in (1, 2)]
    assert "not told apart from CT" in page_of(*seeds, *near, groups=["CT=ct-*", "Other=other-*"]).text[0]


@pytest.mark.parametrize(("trained", "count"), [(True, 1), (False, 0)])
def test_trained_runs_that_were_compared_have_the_caution_of_single_runs(trained, count):
    line = {"difference": 1.0, "low": 0.5, "high": 1.5, "p": 0.01}
    first, second = (make(name, environment={"trained_run": trained}) for name in "ab")
    second["compared"] = {"with": "a", "tasks": {"STS16": line}}
    notes = " ".join(titled(page_of(first, second), "Differences").table.notes)
    assert notes.count("other seeds") == count


def test_a_p_of_0_is_below_the_smallest_that_is_printed():
    line = {"difference": 40.0, "only_first": 4000, "only_second": 0, "p": 0.0}
    first, second = (make(name, "senteval", {"MR": 80.0}) for name in "ab")
    second["compared"] = {"with": "a", "tasks": {"MR": line}}
    section = titled(page_of(first, second), "Differences")
    assert section.table.shown(0, "p") == "< 0.001"


def test_accuracies_keep_samples_of_their_answers():
    answers = np.random.default_rng(0).random(400) < 0.7
    task = TaskScore("MR", TRANSFER.name, {"accuracy": 100 * float(answers.mean())}, ("accuracy",), correct=answers)
    written = model_json(ModelScores("senteval", "m", {}, [task]))
    (read,) = read_object(json.loads(json.dumps(written))).tasks
    samples = read.replicates_of("accuracy")
    np.testing.assert_allclose(samples, task.replicates_of("accuracy"), rtol=1e-6)
    assert (samples.mean(), samples.std()) == pytest.approx((task.value, 100 * (0.7 * 0.3 / 400) ** 0.5), rel=0.1)


def test_seeds_without_samples_are_not_compared():
    objects = [make("ct-1"), make("ct-2"), make("other", compared={"with": "ct-1", "tasks": {}})]
    section = titled(page_of(*objects, groups=["CT=ct-*"]), "Differences")
    assert section.table is None
    assert section.text == ["Not compared: CT, other. The files hold no samples (draws), because an earlier version "
                            "wrote them or intervals were left out; score again."]  # fmt: skip
    broken = sampled("a", 70.0)
    broken["results"]["STS16"]["draws"] = {"spearman": "?"}
    with pytest.raises(DataError, match=r"0\.json.*results\.STS16\.draws"):
        page_of(broken)


def test_one_seed_has_no_deviation_and_a_lacking_one_no_mean():
    page = page_of(make("a"), groups=["x=a"])
    assert grid(scores(page)[0])[0][:3] == ["x", "1", "78.99"]
    page = page_of(make("a", scores={"STS12": 1.0}), make("b", scores={"STS12": None}), groups=["x=*"])
    assert grid(scores(page)[0]) == [["x", "2", "–"]]


def test_groups_are_checked():
    with pytest.raises(InputError, match="--group"):
        page_of(make("a"), groups=["x=z"])
    with pytest.raises(InputError, match="--group"):
        page_of(make("a"), groups=["x=a", "y=*"])
    with pytest.raises(InputError, match=r"--group x.*pooling"):
        page_of(make("a"), make("b", protocol={"pooling": "cls"}), groups=["x=*"])
    page_of(make("a"), make("b", protocol={"backend": "onnx"}), groups=["x=*"])
    for wrong in ("x", "=x", "x=", " =a"):
        with pytest.raises(InputError, match=r"--group.*LABEL=NAME"):
            Pattern.parse("--group", wrong)
    assert Pattern.parse("--name", "a=b=c") == Pattern("--name", "a", "b=c")


def against(runs=1, **more):
    one = {"measured": 78.99, "published": 79.1, "difference": -0.11, "range": [76.0, 81.0], "within": True}
    average = {"measured": 1.0, "published": 3.0, "difference": -2.0, "range": None, "within": None}
    tasks = {"STS16": one, "average": average}
    return {"name": "x", "tasks": {task: {**each, "runs": runs} for task, each in tasks.items()}, **more}


def test_printed_scores_have_a_row_and_a_comparison():
    page = page_of(make(against=against(title="System X", source="its paper")))
    (section,) = scores(page)
    assert grid(section)[1] == ["published: System X (its paper)", "79.10", "–", "3.00"]
    assert section.table.published == 1 and not any(map(any, ranks(section)))
    assert grid(titled(page, "Against print")) == [
        ["minilm", "STS16", "78.99", "79.10", "−0.11", "76.00", "81.00", "yes"],
        ["minilm", "Avg.", "1.00", "3.00", "−2.00", "–", "–", "–"],
    ]
    assert "published: System X (its paper)" in set(section.figure.data["series"])


def test_the_comparison_of_several_models_stands_once():
    objects = [make(name, against=against(3)) for name in "abc"]
    page = page_of(*objects, make("d", against=against()))
    rows = grid(titled(page, "Against print"))
    assert [row[0] for row in rows] == ["mean of a and 2 more"] * 2 + ["d"] * 2
    assert scores(page)[0].table.published == 1


def test_a_report_without_a_source_takes_that_of_the_name():
    page = page_of(make(against={**against(), "name": "simcse-bert-base"}))
    assert "SimCSE, BERT-base (SimCSE paper, table 5; SimCSE paper, table E.1)" in grid(scores(page)[0])[1][0]
    page = page_of(make(against={**against(), "name": "of another version"}))
    assert grid(scores(page)[0])[1][0] == "published: of another version"


def test_comparisons():
    compared = {"with": "a", "tasks": {"STS16": {"difference": -1.5, "low": -2.0, "high": -1.0, "p": 0.0004}}}
    page = page_of([make("a"), make("b", compared=compared)][0], make("b", compared=compared))
    assert grid(titled(page, "Differences")) == [["b", "a", "STS16", "−1.50", "−2.00", "−1.00", "< 0.001"]]
    counts = {"with": "a", "tasks": {"MR": {"difference": 1.0, "only_first": 12, "only_second": 2, "p": 0.0129}}}
    page = page_of(make("b", "senteval", {"MR": 80.0}, compared=counts), names=["B=b"])
    assert grid(titled(page, "Differences")) == [["B", "a", "MR", "+1.00", "12", "2", "0.013"]]
    assert "McNemar" in titled(page, "Differences").table.notes[0]


def test_subsets_and_further_measures_are_details():
    one = make(scores={"STS16": 78.99})
    one["results"]["STS16"]["subsets"] = {"headlines": 80.0, "postediting": None}
    page = page_of(one)
    subsets = titled(page, "Subsets")
    assert subsets.folded and grid(subsets) == [["STS16", "headlines", "80.00"], ["STS16", "postediting", "–"]]
    assert grid(titled(page, "Further measures")) == [["minilm", "STS16", "9", "78.99", "1.00", "2.00"]]


def test_retrieval_is_shown_on_the_scale_of_the_json():
    page = page_of(make("a", "retrieve", {"scifact": 0.64508}), make("a", "retrieve", {"nfcorpus": 0.3}))
    (section,) = scores(page)
    assert heads(section) == ["model", "NFCorpus", "SciFact", "Avg."], "in the order of the papers"
    assert grid(section) == [["a", "0.3000", "0.6451", "0.4725"]]
    assert "nDCG@10" in section.table.title
    assert grid(titled(page, "Further measures"))[0] == ["a", "SciFact", "3", "0.6451", "0.9000"]


def searched(model, way, scores, **more):
    """An object of retrieve for one way of searching, as the command writes it."""
    found = make(model, "retrieve", scores, **more)
    if way == "bm25":
        found["protocol"] = {"bm25": {"k1": 1.2, "b": 0.75}, "top_k": 1000, "split": "test", "own_document": "kept"}
    found["protocol"] |= {
        "search": way,
        "sets": {"fever": {"own_document": "left out"}},
        **({"rank_constant": 60} if way == "rrf" else {}),
    }
    for result in found["results"].values():
        result["interval"] = [result["ndcg@10"] - 0.1, result["ndcg@10"] + 0.1]
    return found


def test_ways_of_searching_share_a_table():
    sets = {"fever": 0.5, "trec-covid": 0.25, "own": 0.6}
    difference = {"difference": 0.02, "low": -0.01, "high": 0.05, "p": 0.3}
    against = {"measured": 0.25, "published": 0.3, "difference": -0.05, "range": [0.2, 0.4], "within": True, "runs": 1}
    page = page_of(
        searched("m", "dense", sets, average=0.45, average_interval=[0.4, 0.5],
                 against={"name": "x", "title": "X", "source": "t", "tasks": {"trec-covid": against}}),
        searched("bm25", "bm25", sets, average=0.45),
        searched("m + bm25", "rrf", {**sets, "own": 0.7}, compared={"with": "m", "tasks": {"own": difference}}),
        searched("m + bm25", "weighted", sets),
    )  # fmt: skip
    (section,) = scores(page)
    assert heads(section) == ["model", "T-COVID", "FEVER", "own", "Avg."]
    rows = grid(section)
    assert rows[0] == ["m", "0.2500", "0.5000", "0.6000", "0.4500"]
    assert [row[0] for row in rows[1:4]] == [
        "bm25",
        "m + bm25 (search rrf)",
        "m + bm25 (search weighted)",
    ]
    assert rows[4] == ["published: X (t)", "0.3000", "–", "–", "–"]
    assert section.table.interval(0, 1) == pytest.approx((0.15, 0.35))
    assert section.table.interval(0, 4) == pytest.approx((0.4, 0.5))
    assert "samples of the queries" in section.table.interval_note
    assert any("fever own document left out" in note for note in section.table.notes)
    assert grid(titled(page, "Differences"))[0][2:] == ["own", "+0.0200", "−0.0100", "+0.0500", "0.300"]
    assert grid(titled(page, "Against"))[0][1:7] == ["T-COVID", "0.2500", "0.3000", "−0.0500", "0.2000", "0.4000"]


def test_sets_that_are_scored_otherwise_are_not_the_same():
    """Self hits of ArguAna are no other protocol for SciFact, but a set's own split is another set."""
    one, other = make("a", "retrieve", {"scifact": 0.5}), make("a", "retrieve", {"arguana": 0.4})
    other["protocol"]["own_document"] = "left out"
    (section,) = scores(page_of(one, other))
    assert grid(section) == [["a", "0.4000", "0.5000", "0.4500"]]
    dev = make("b", "retrieve", {"scifact": 0.5}, protocol={"split": "dev"})
    assert len(scores(page_of(one, dev))) == 2


def test_forums_are_subsets():
    one = make("a", "retrieve", {"cqadupstack": 0.5})
    one["results"]["cqadupstack"]["forums"] = {"gis": {"ndcg@10": 0.4}, "tex": {"ndcg@10": 0.6}}
    page = page_of(one)
    assert grid(titled(page, "Subsets")) == [["CQADup", "gis", "0.4000"], ["CQADup", "tex", "0.6000"]]
    assert heads(scores(page)[0]) == ["model", "CQADup"]


def test_a_search_that_is_not_deep_has_its_own_table():
    shallow = make("b", "retrieve", {"scifact": 0.5}, protocol={"top_k": 5})
    shallow["results"] = {"scifact": {"ndcg@1": 0.1, "ndcg@5": 0.25}}
    first, second = scores(page_of(make("a", "retrieve", {"scifact": 0.5}), shallow))
    assert "nDCG@5" in second.table.title and grid(second)[0][1] == "0.2500"
    assert "nDCG@10" in first.table.title


def test_in_domain_retrieval_shows_its_measures():
    one = make("a", "retrieve", {"x": 1})
    one["results"] = {"in-domain": {"recall@1": 58.6, "recall@5": 85.25, "recall@10": 91.0}}
    (section,) = scores(page_of(one))
    assert heads(section) == ["model", "recall@1", "recall@5", "recall@10"]
    assert grid(section) == [["a", "58.60", "85.25", "91.00"]]


def test_a_page_has_the_commands_that_ran_each_once_and_invents_none():
    line = "sentcli sts-eval -m a -m b --data <b>"
    page = page_of(make("a", command_line=line), make("b", command_line=line), make("c"))
    assert titled(page, "Commands").code == (line,)
    assert not [section for section in page_of(make("c")).sections if section.title == "Commands"]


def test_settings_say_whose_they_are():
    page = page_of(make("a"), make("b", protocol={"pooling": "cls"}))
    rows = grid(titled(page, "Protocol"))
    assert ["pooling", "mean", "a"] in rows and ["pooling", "cls", "b"] in rows and ["split", "test", "all"] in rows
    assert ["torch", "2.6", "all"] in grid(titled(page, "Environment"))
    assert any(note == "b: pooling cls." for note in scores(page)[0].table.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"command": "sts-eval", "mod', r", line 1"),
        ("[]", ""),
        ("3", "command, model"),
        ('[{"model": "x"}]', "command, model"),
        ('{"command": "train", "model": "x", "results": {}}', "train.*sts-eval"),
        ('{"command": "retrieve", "model": "x", "results": [{"query": "q", "hits": []}]}', "retrieve --query"),
        ('{"command": "sts-eval", "model": "x", "results": {}}', " x "),
        ('{"command": "sts-eval", "model": "x", "results": {"STS12": 3}}', r"results\.STS12: "),
        ('{"command": "sts-eval", "model": "x", "results": {"a": {"spearman": "1"}}}', 'a spearman: .*"1"'),
        ('{"command": "sts-eval", "model": "x", "results": {"a": {"interval": [1]}}}', r"results\.a\.interval"),
        (
            '{"command": "sts-eval", "model": "x", "protocol": 1, "results": {"a": {}}}',
            "protocol: .*1",
        ),
        ("\x00\ufffd", "JSON"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_torn_and_foreign_files_are_named(content, message, tmp_path):
    (tmp_path / "0.json").write_text(content, "utf-8")
    with pytest.raises(DataError, match=f"{tmp_path / '0.json'}.*{message}"):
        read_scores([tmp_path / "0.json"])


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match=str(tmp_path / "x.json")):
        read_scores([tmp_path / "x.json"])
    with pytest.raises(InputError, match=str(tmp_path)):
        read_scores([tmp_path])
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"b\.json: .*JSON"):
        read_scores([tmp_path / "b.json"])


@pytest.mark.parametrize("key", ["compared", "against"])
def test_a_broken_comparison_is_named(key):
    with pytest.raises(DataError, match=rf"0\.json.*{key}"):
        page_of(make(**{key: {"tasks": {"STS16": 3}}}))
    with pytest.raises(DataError, match=rf"0\.json.*{key}.*STS16"):
        page_of(make(**{key: {"tasks": {"STS16": {"difference": "x", "p": "y"}}}}))


def test_a_huge_number_is_a_gap():
    value = make(scores={"STS12": None})
    value["results"]["STS12"]["spearman"] = 10**400
    (task,) = read_object(value).tasks
    assert "spearman" not in task.metrics


def test_correlations_of_senteval_have_a_table_of_their_own():
    value = make(command="senteval", scores={"MR": 80.0, "CR": 70.0}, average=75.0, average_interval=[74.0, 76.0])
    value["results"]["STSBenchmark"] = {"spearman": 81.0, "pearson": 82.0, "pairs": 9, "interval": [80.0, 82.0]}
    value["protocol"]["regression"] = {"optimizer": "adam", "epochs": 50}
    read = read_object(value)
    assert read.values(TRANSFER) == {"MR": 80.0, "CR": 70.0, "average": 75.0}
    assert read.values(TRAINED_HEAD) == {"STSBenchmark": 81.0}
    page = score_page([read])
    accuracy, correlation = [section.table for section in scores(page)][:2]
    assert accuracy.interval(0, len(accuracy.columns) - 1) == (74.0, 76.0)
    assert "optimizer adam" in " ".join(correlation.notes) and "protocol full" in " ".join(accuracy.notes)


def test_kind_and_metrics_are_written_and_files_without_them_are_read_as_before():
    tasks = [
        TaskScore("STS12", SIMILARITY.name, {"spearman": 70.0, "spearman_wmean": 71.0}, ("spearman_wmean",)),
        TaskScore("mine", IN_DOMAIN.name, {"recall@1": 70.0, "recall@3": 71.0}, ("recall@1", "recall@3")),
    ]
    value = json.loads(json.dumps(model_json(ModelScores("sts-eval", "m", {}, tasks))))
    assert [(t.kind, t.shown_metrics) for t in read_object(value).tasks] == [(t.kind, t.shown_metrics) for t in tasks]
    value["protocol"]["aggregation"] = "mean of the subsets, weighted by size"
    older = {key: entry for key, entry in value.items() if key != "scores"}
    del older["results"]["mine"]
    assert [(t.kind, t.shown_metrics) for t in read_object(older).tasks] == [(tasks[0].kind, tasks[0].shown_metrics)]
    for wrong in ({"kind": "x", "metrics": ["a"]}, {"kind": "similarity", "metrics": []}, 3):
        with pytest.raises(DataError, match="scores"):
            read_object({**value, "scores": {"STS12": wrong}})


def test_figures_of_scores_hold_their_numbers_and_differ_by_colour_or_shape():
    made = score_page([read_object(make(f"m{i}", scores={"STS16": 50.0 + i}), f"{i}.json") for i in range(30)])
    figure = made.sections[0].figure
    assert list(figure.data["x"]) == [50.0 + i for i in range(30)]
    assert list(figure.data["low"]) == [48.0 + i for i in range(30)]
    ((svg, places),) = inline(figure)
    assert len(places) == 30 and [x for x, *_ in places] == sorted(x for x, *_ in places)
    assert places[3][2:] == ("STS16, m3: 53.00 (51.00 to 55.00)", "m3")
    assert svg.count("var(--c0)")
    assert len({(style.colour(i), style.marker(i)) for i in range(30)}) == 30


def test_figures_say_their_numbers_in_words_and_intervals_can_be_left_out():
    objects = [read_object(make("minilm"), "0.json")]
    for shown, end in ((None, " (76.99 to 80.99)"), (True, " (76.99 to 80.99)"), (False, "")):
        made = score_page(objects, Choices(style=Style(intervals=shown)))
        assert f"STS16, minilm: 78.99{end};" in made.sections[0].figure.alt
    assert score_page(objects, figures=False).sections[0].figure is None
    assert made.text == ("Semantic textual similarity: minilm has 80.51 (average Spearman correlation × 100).",)


def with_weights(model, score, weights, **environment):
    one = make(model, scores={"STS12": score, "STS13": score}, environment=environment)
    one["protocol"]["weights"] = weights
    return one


def test_equal_models_have_no_best_one_and_equal_weights_are_said():
    """Nine runs that had kept their start were told as a victory of the first of them."""
    kept = [with_weights(f"{name}-{i}", 49.77, "a" * 64, kept_start=True) for name in ("x", "y", "z") for i in (1, 2)]
    page = page_of(*kept, groups=["X=x-*", "Y=y-*", "Z=z-*"])
    (section,) = scores(page)
    assert not any(rank for row in ranks(section) for rank in row)
    assert "best" not in " ".join(page.text) and "weights" in " ".join(page.text) and "start" in " ".join(page.text)
    assert any("weights" in note for note in section.table.notes)


def test_models_that_share_the_first_place_are_both_named():
    page = page_of(
        with_weights("a", 50.001, "a" * 64), with_weights("b", 50.0, "b" * 64), with_weights("c", 49.0, "c" * 64)
    )
    (sentence,) = page.text
    assert "a and b" in sentence and "weights" not in sentence
    assert not any("weights" in note for note in scores(page)[0].table.notes)


def test_the_same_weights_used_otherwise_are_no_equal_models():
    one, other = with_weights("a", 50.0, "a" * 64), with_weights("b", 50.0, "a" * 64)
    other["protocol"]["pooling"] = "max"
    assert "weights" not in " ".join(page_of(one, other).text)
