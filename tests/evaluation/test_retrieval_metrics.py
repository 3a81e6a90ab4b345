"""Scores that equal trec_eval's and BEIR's, their values by query, and runs that are written and read."""

import copy
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError
from sentcli.evaluation import retrieval, retrieval_metrics, retrieval_tasks, significance
from sentcli.evaluation.retrieval_metrics import read_run, write_run
from sentcli.evaluation.score_json import score_of, score_record, task_json
from sentcli.evaluation.score_kinds import RETRIEVAL
from sentcli.evaluation.scores import ModelScores, average, average_replicates
from sentcli.pages.score_report import ScoreReport
from tests.examples import examples

CUTOFFS = (1, 3, 5, 10, 100, 1000)


def random_run(seed, queries=12, documents=60, retrieved=40, ties=False):
    rng = random.Random(seed)
    names = [f"d{i}" for i in range(documents)]
    qrels = {f"q{q}": {d: rng.choice([0, 1, 1, 2, 3]) for d in rng.sample(names, 8)} for q in range(queries)}
    draw = (lambda: rng.randint(0, 9) / 8) if ties else (lambda: rng.uniform(-1, 1))
    run = {query: {d: draw() for d in rng.sample(names, retrieved)} for query in qrels}
    return run, qrels


def reciprocal_rank(hits, judgements, k):
    ranked = sorted(hits, key=hits.get, reverse=True)[:k]
    return next((1 / rank for rank, document in enumerate(ranked, 1) if judgements.get(document, 0) > 0), 0.0)


def capped_recall(hits, judgements, k):
    ranked = sorted(hits, key=hits.get, reverse=True)[:k]
    relevant = [document for document, score in judgements.items() if score > 0]
    return len(set(ranked) & set(relevant)) / min(len(relevant), k)


@pytest.mark.parametrize("seed", range(3))
def test_metrics_equal_trec_eval(seed):
    import pytrec_eval

    run, qrels = random_run(seed)
    run["q0"]["q0"], qrels["q0"]["q0"] = 2.0, 3  # a hit that is the query itself counts
    ours = retrieval_metrics.run_metrics(run, qrels, 1000)
    names = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P"}
    wanted = {f"{name}.{','.join(map(str, CUTOFFS))}" for name in names.values()}
    each = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run).values()
    expected = {
        f"{ours_name}@{k}": sum(scores[f"{name}_{k}"] for scores in each) / len(qrels)
        for ours_name, name in names.items()
        for k in CUTOFFS
    }
    for name, function in (("mrr", reciprocal_rank), ("r_cap", capped_recall)):
        expected |= {f"{name}@{k}": np.mean([function(run[q], qrels[q], k) for q in qrels]) for k in CUTOFFS}
    assert ours == pytest.approx(expected, abs=1e-5)


@examples(25)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([7, 10, 1000]))
def test_the_values_of_queries_have_the_scores_as_their_mean(seed, ties, top_k):
    run, qrels = random_run(seed, ties=ties)
    qrels["q1"] = dict.fromkeys(qrels["q1"], 0)
    del run["q2"]
    run = retrieval_metrics.ranked(run, qrels)
    scores, values = (
        function(run, qrels, top_k) for function in (retrieval_metrics.run_metrics, retrieval_metrics.each_query)
    )
    assert {name: found.mean() for name, found in values.items()} == pytest.approx(scores, abs=1.01e-5)
    for name, found in values.items():
        assert found.shape == (12,) and found[1] == found[2] == 0, name
        assert (found >= 0).all() and (found <= 1 + 1e-12).all()


def test_all_metrics_break_ties_as_trec_eval_does():
    qrels = {"q": {"d1": 1, "d2": 0}, "p": {"d2": 1}, "r": {"d1": 1}}
    run = {"q": {"d1": 0.5, "d2": 0.5}, "p": {"d1": 0.5, "d2": 0.5}, "r": {"d1": 1 + 1e-12, "d2": 1.0}}
    found = scored("a", run, qrels).item_values
    for metric in ("ndcg", "recall", "precision", "r_cap", "mrr"):
        assert found[f"{metric}@1"].tolist() == [0, 1, 0], f"{metric}: the last id is first, in float32"
    assert scored("a", run, qrels).metrics["mrr@3"] == pytest.approx(2 / 3, abs=1e-5)


def test_scoring_does_not_change_the_run():
    run, qrels = random_run(0)
    run["q0"]["q0"] = 2.0
    before = copy.deepcopy((run, qrels))
    retrieval_metrics.run_metrics(run, qrels, 1000)
    retrieval_metrics.each_query(run, qrels, 1000)
    assert (run, qrels) == before


@pytest.mark.parametrize(("top_k", "cutoffs", "main"), [(10, "1 3 5 10", 10), (2, "1", 1), (99, "1 3 5 10", 10)])
def test_cutoffs_do_not_go_beyond_top_k(top_k, cutoffs, main):
    run, qrels = random_run(0)
    found = retrieval_metrics.run_metrics(run, qrels, top_k)
    assert {name.split("@")[1] for name in found} == set(cutoffs.split())
    assert retrieval_metrics.main_metric(top_k) == f"ndcg@{main}" in found


# Intervals and differences


def test_a_draw_is_the_mean_of_the_values_that_were_drawn():
    values = np.random.default_rng(0).random(30)
    found = significance.mean_replicates(values, 20)
    counts = np.concatenate(list(significance.resampled_counts(30, 20, 0))).astype(int)
    assert found == pytest.approx([np.repeat(values, count).mean() for count in counts])
    assert np.array_equal(found, significance.spearman_replicates(values, values, 20) * 0 + found), "as many draws"
    low, high = significance.interval(significance.mean_replicates(values))
    error = values.std(ddof=1) / math.sqrt(30)
    assert (low, high) == pytest.approx((values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.02)


def scored(name, run, qrels, top_k=1000):
    data = retrieval.RetrievalSet(name, "test", None, None, "", [], {}, qrels, 0, 0, 0, 0)
    return retrieval_tasks.score_run(data, run, top_k)


def test_searches_are_compared_query_by_query():
    run, qrels = random_run(1, queries=40)
    best = {query: {**hits, **{d: 5.0 + s for d, s in qrels[query].items()}} for query, hits in run.items()}
    models = [ModelScores("retrieve", "m", {}, (scored("a", each, qrels),)) for each in (run, best, run)]
    first, better, same = ScoreReport.of(models).with_differences(models)
    assert not first.compared
    found = better.compared["tasks"]["a"]
    assert found["difference"] == pytest.approx(1 - first.tasks[0].value, abs=1e-5)
    assert 0 < found["low"] < found["difference"] < found["high"] and found["p"] < 0.01
    assert same.compared["tasks"]["a"] == {"difference": 0, "low": 0, "high": 0, "p": 1, "p_holm": 1}


def test_an_average_is_of_sets_and_one_of_forums_counts_once():
    parts = [scored(name, *random_run(seed, queries=10 + seed)) for seed, name in enumerate("abc")]
    mean = retrieval_tasks.mean_of("forums", parts[:2])
    for metric, value in mean.metrics.items():
        assert value == pytest.approx((parts[0].metrics[metric] + parts[1].metrics[metric]) / 2)
    both = [mean, parts[2]]
    main = [part.metrics["ndcg@10"] for part in parts]
    assert average(both, RETRIEVAL) == pytest.approx(((main[0] + main[1]) / 2 + main[2]) / 2)
    low, high = significance.interval(average_replicates(both))
    assert low < average(both, RETRIEVAL) < high
    assert task_json(mean)["queries"] == 21 and set(task_json(mean)["forums"]) == {"a", "b"}


def test_scores_are_restored_as_they_were():
    import json

    found = scored("a", *random_run(3))
    again = score_of(json.loads(json.dumps(score_record(found))))
    assert task_json(again) == task_json(found)
    assert all(np.array_equal(again.item_values[name], values) for name, values in found.item_values.items())


# Runs


@examples(20)
@given(st.integers(0, 2**32), st.booleans())
def test_a_run_that_is_written_and_read_has_the_same_scores(tmp_path_factory, seed, ties):
    run, qrels = random_run(seed, ties=ties)
    run = {
        query: dict(sorted(((d, float(np.float32(s))) for d, s in hits.items()), key=lambda hit: -hit[1]))
        for query, hits in run.items()
    }
    near = np.float32(0.9)
    run["q0"] = {f"d{i}": float(near := np.nextafter(near, np.float32(0))) for i in range(20)}  # equal to 6 digits
    path = tmp_path_factory.mktemp("run") / "r.trec"
    write_run(run, path)
    again = read_run(path)
    assert [list(hits) for hits in again.values()] == [list(hits) for hits in run.values()], "in rank order"
    for function in (retrieval_metrics.run_metrics, retrieval_metrics.each_query):
        ours, theirs = function(run, qrels, 1000), function(again, qrels, 1000)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q Q0 d 1 0.5 x\nq Q0 e 2\n", ", line 2: .* Q0 .* 4 "),
        ("q Q0 d 1 0.5 my run\n", ", line 1: .* Q0 .* 7 "),
        ("q Q0 d 1 0,5 x\n", ", line 1: .*'0,5'"),
        ("q Q0 d 1 nan x\n", ", line 1: .*'nan'"),
        ("q Q0 d 1 -inf x\n", ", line 1: .*'-inf'"),
        ("q Q0 d 1 2 x\np Q0 d 1 2 x\nq Q0 d 2 1 x\n", ", line 3: .*'d'.*'q'"),
        ("\n\n", ": "),
    ],
)
def test_a_torn_run_is_refused(tmp_path, text, words):
    path = tmp_path / "r.trec"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{path}{words}"):
        read_run(path)


def test_runs_are_read_as_other_tools_write_them(tmp_path):
    path = tmp_path / "r.trec"
    path.write_bytes(b"q\tQ0\td2\t7\t1e-3\tname\r\n\r\nq  Q0  d1  1  .5  name\r\n")
    assert read_run(path) == {"q": {"d2": 0.001, "d1": 0.5}}


# TREC runs


def test_a_trec_run_has_six_columns_best_first(tmp_path):
    write_run({"q1": {"a": 0.25, "b": 0.5, "c": -0.125}, "q2": {"ü": 1.0}}, tmp_path / "r.trec")
    assert (tmp_path / "r.trec").read_text("utf-8") == (
        "q1 Q0 b 1 0.5 sentcli\nq1 Q0 a 2 0.25 sentcli\nq1 Q0 c 3 -0.125 sentcli\nq2 Q0 ü 1 1 sentcli\n"
    )


@pytest.mark.parametrize(("query", "document"), [("q 1", "a"), ("q", "a\tb"), ("q", ""), ("q", "a\u00a0b")])
def test_a_trec_run_refuses_ids_that_it_cannot_hold_and_keeps_the_old_file(tmp_path, query, document):
    path = tmp_path / "r.trec"
    path.write_text("old")
    with pytest.raises(InputError) as caught:
        write_run({"good": {"d": 1.0}, query: {document: 0.5}}, path)
    odd = query if " " in query else document
    assert repr(odd) in str(caught.value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
