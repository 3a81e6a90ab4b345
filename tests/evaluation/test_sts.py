"""The STS tasks: protocol, published scores, and the same numbers as sentence-transformers' evaluator."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from sentcli import SentenceEncoder
from sentcli.errors import DataError, DegenerateVectorsError, InputError, SentcliError
from sentcli.evaluation import sts, sts_pairs
from sentcli.evaluation.score_json import task_json
from sentcli.stores.text_vectors import TextVectors
from tests.examples import examples


@pytest.fixture
def folder(tmp_path, sentences):
    """A SentEval folder with every task's files, seven or eight pairs each."""
    words = [s for s in sentences if s.strip() and "\t" not in s]
    scores = ["5.0", "1.5", "0.0", "3.2", "4.1", "0.6", "2.4", "3.8"]
    for task, subsets in sts_pairs.SUBSETS.items():
        place = tmp_path / "STS" / f"{task}-en-test"
        place.mkdir(parents=True)
        for i, name in enumerate(subsets):
            pairs = [f"{words[i + j]}\t{words[2 * i + 3 * j]}" for j in range(8)]
            (place / f"STS.input.{name}.txt").write_text("\n".join(pairs) + "\n")
            gold = list(scores)
            if task == "STS16":
                gold[1] = ""  # not judged
            (place / f"STS.gs.{name}.txt").write_text("\n".join(gold) + "\n")
    bench = tmp_path / "STS" / "STSBenchmark"
    bench.mkdir()
    for name in sts_pairs.SPLITS["STSBenchmark"].values():
        rows = [f"g\tf\t2012\t{j}\t{scores[j]}\t{words[j]}\t{words[j + 5]}\n" for j in range(8)]
        (bench / name).write_text("".join(rows))
    (tmp_path / "SICK").mkdir()
    for name in sts_pairs.SPLITS["SICKRelatedness"].values():
        rows = [f"{j}\t{words[j]}\t{words[j + 7]}\t{scores[j]}\tNEUTRAL\n" for j in range(8)]
        (tmp_path / "SICK" / name).write_text("pair_ID\tsentence_A\tsentence_B\trelatedness_score\tx\n" + "".join(rows))
    return tmp_path


def test_all_tasks_and_json(folder, tiny_bert, invoke, tmp_path):
    invoke("sts-eval", "-m", tiny_bert, "--data", folder, "--json", tmp_path / "r.json", check=0)
    report = json.loads((tmp_path / "r.json").read_text())
    assert set(report) == {
        "command", "model", "protocol", "results", "average", "average_pearson", "average_interval", "environment",
        "elapsed_seconds", "command_line",
        "scores",
    }  # fmt: skip
    assert list(report["results"]) == list(sts_pairs.TASKS)
    assert report["results"]["STS16"]["pairs"] == 7 * 5
    assert report["average"] == round(np.mean([round(r["spearman"], 2) for r in report["results"].values()]), 2)
    assert report["protocol"]["aggregation"].startswith("all")
    assert report["protocol"]["pooling"] == "mean"


def test_json_on_stdout_is_pure(folder, tiny_bert, run):
    done = run("sts-eval", "-m", tiny_bert, "--data", folder, "--json", "-", "--tasks", "STS12,STSBenchmark", check=0)
    assert list(json.loads(done.stdout)["results"]) == ["STS12", "STSBenchmark"]
    assert "STS12" in done.stderr  # the table


@pytest.mark.parametrize("split", ["dev", "train"])
def test_other_splits(folder, tiny_bert, invoke, split, tmp_path):
    invoke("sts-eval", "-m", tiny_bert, "--data", folder, "--split", split, "--json", tmp_path / "r.json", check=0)
    assert list(json.loads((tmp_path / "r.json").read_text())["results"]) == ["STSBenchmark", "SICKRelatedness"]
    refused = invoke("sts-eval", "-m", tiny_bert, "--data", folder, "--split", split, "--tasks", "STS12", check=2)
    assert re.search("STS12 .*STSBenchmark, SICKRelatedness", refused.stderr)


def test_each_distinct_sentence_is_encoded_once(folder, tiny_bert):
    encoder = SentenceEncoder.load(tiny_bert)
    tasks = sts.load_similarity_tasks(folder)
    seen = []
    real = encoder.tokenizer
    spy = {"pad_id": 0, "max_length": 32, "__call__": lambda self, t, p, **kinds: seen.extend(t) or real(t, p, **kinds)}
    encoder = SentenceEncoder(replace(encoder.loaded, tokenizer=type("Spy", (), spy)()))
    sts.evaluate_similarity(encoder, tasks)
    distinct = {text for task in tasks for text in task.all_texts}
    assert len(seen) == len(set(seen)) == len(distinct)


def spoil(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


BENCH = "STS/STSBenchmark/sts-test.csv"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda f: spoil(f / "STS/STS12-en-test/STS.gs.MSRpar.txt", "5.0\n", ""),
            r"input\.MSRpar\.txt: 8 .*7 .*gs\.MSRpar\.txt",
        ),
        (lambda f: (f / "STS/STS13-en-test/STS.gs.FNWN.txt").unlink(), r"STS\.gs\.FNWN\.txt "),
        (lambda f: spoil(f / BENCH, "\t5.0\t", "\tfive\t"), r"sts-test\.csv, line 1: .*'five'"),
        (lambda f: spoil(f / BENCH, "g\tf\t2012\t1", "g f 2012 1"), r"sts-test\.csv, line 2: .*\b4 "),
        (
            lambda f: spoil(f / "STS/STS14-en-test/STS.input.images.txt", "\t", " "),
            r"images\.txt, line 1: .*\b1 ",
        ),
        (lambda f: (f / BENCH).write_bytes(b"a\nb\xff\n"), r"sts-test\.csv, line 2: .*UTF-8"),
    ],
)
def test_damaged_files(folder, tiny_bert, invoke, damage, message):
    damage(folder)
    result = invoke("sts-eval", "-m", tiny_bert, "--data", folder, check=2)
    assert re.search(message, " ".join(result.stderr.split())), result.stderr


def test_unknown_names(folder, tiny_bert, tmp_path):
    with pytest.raises(InputError, match=r"'STS121'.*'STS12'"):
        sts_pairs.load_pairs(folder, ["STS121"], "test")
    with pytest.raises(InputError, match=r"/nowhere .*STS/.*SICK/"):
        sts_pairs.load_pairs(tmp_path / "nowhere", None, "test")
    with pytest.raises(InputError, match=r"'tests'.*'test'"):
        sts_pairs.load_pairs(folder, None, "tests")


def test_undefined_correlation_is_said():
    values = np.array([1.0, 2.0, 3.0])
    with pytest.raises(SentcliError, match=r"^X a: .*gold"):
        sts.correlations("X", [("a", values, np.ones(3))])
    with pytest.raises(SentcliError, match=r"^X: .*similarities"):
        sts.correlations("X", [("a", np.array([1.0, np.nan, 2.0]), values)])


def test_a_subset_without_a_correlation_takes_no_other_with_it():
    """All pairs have one, which lost it to the subset; the means over subsets have none."""
    gold, flat = np.array([1.0, 2.0, 3.0]), np.full(3, 0.5)
    subsets = [("a", np.array([0.1, 0.2, 0.3]), gold), ("b", flat, gold)]
    score = sts.correlations("X", subsets, 10)
    assert score.details["subsets"] == {"a": 100.0, "b": None} and score.intervals
    assert set(score.metrics) == {"spearman", "pearson"}
    with pytest.raises(DegenerateVectorsError, match=r"^X: .* of b "):
        sts.correlations("X", subsets, aggregation="mean")


@pytest.mark.parametrize("aggregation", ["all", "mean"])
def test_few_pairs_that_differ_have_no_interval(aggregation):
    """Samples of equal pairs counted as correlations of 0, which drew the interval of equal orders down to 0."""
    gold = np.array([1.0, 1.0, 1.0, 5.0, 5.0])
    score = sts.correlations("X", [("a", gold + np.arange(5) / 100, gold)], 1000, aggregation)
    assert task_json(score)["interval"] is None and not score.intervals and not score.replicates
    gold = np.arange(12.0)
    score = sts.correlations("X", [("a", gold, gold)], 1000, aggregation)
    assert task_json(score)["interval"] == pytest.approx((100, 100))


@examples(200)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.floats(0, 10), st.integers(0, 2**32 - 1))
def test_ranks_do_not_depend_on_rounding(values, scale, seed):
    values = scale * np.array(values)
    width = sts.SIMILARITY_ROUNDING * scale
    found = sts.resolved(values, scale)
    assert np.abs(found - values).max() <= width
    order = np.argsort(values)
    assert (np.diff(found[order]) >= 0).all()
    assert np.all((np.diff(values[order]) <= width) | (np.diff(found[order]) > 0)), "others stay apart"
    apart = values[np.append(True, np.diff(values[order]) > 2 * width)[np.argsort(order)]]
    repeated = np.repeat(apart, 3)
    noise = np.random.default_rng(seed).uniform(-width / 4, width / 4, len(repeated))
    assert rankdata(sts.resolved(repeated + noise, scale)).tolist() == rankdata(repeated).tolist()


def test_pairs_of_equal_texts_tie_across_subsets():
    random = np.random.default_rng(0)
    texts = [f"text {number}" for number in range(60)]
    vectors = TextVectors({text: i for i, text in enumerate(texts)}, random.normal(size=(60, 8)), np.zeros(60, int))
    subsets = []
    for name in "ab":
        mixed = random.permutation(texts).tolist()
        seconds = [*mixed[:30], *reversed(mixed[30:])]
        subsets.append(sts_pairs.Pairs(name, mixed, seconds, random.integers(0, 5, 60).astype(float)))
    first, second, gold = (
        np.concatenate([getattr(one, key) for one in subsets]) for key in ("first", "second", "gold")
    )
    cosines = sts.cosine(vectors.vectors_of(list(first)), vectors.vectors_of(list(second)))
    assert len(set(cosines[first == second])) > 1, "rounding tells them apart"
    score = sts.SimilarityTask("X", subsets).score(None, vectors)
    assert score.metrics["spearman"] == pytest.approx(100 * spearmanr(cosines.round(6), gold).statistic)


def test_many_near_values_are_no_single_one():
    values = np.linspace(0, 1, 10**6)
    found = sts.resolved(values, 10.0)
    assert len(np.unique(found)) == pytest.approx(10**5, rel=0.1)


def test_zero_vectors_have_cosine_zero():
    assert sts.cosine(np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32)).tolist() == [0.0]


def test_line_separators_inside_a_sentence_do_not_split_it(folder):
    path = folder / BENCH
    path.write_text(path.read_text().replace("\t5.0\t", "\t5.0\tone\u2028\x85two ", 1), "utf-8")
    (pairs,) = sts_pairs.load_task(folder, "STSBenchmark")
    assert len(pairs) == 8
    assert pairs.first[0].startswith("one two")  # white space becomes one blank, as SentEval feeds it


@pytest.mark.slow
def test_published_scores_of_minilm(minilm, data):
    tasks = sts.load_similarity_tasks(data / "senteval")
    assert {task.name: sum(map(len, task.subsets)) for task in tasks} == {
        "STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186,
        "STSBenchmark": 1379, "SICKRelatedness": 4927,
    }  # fmt: skip
    published = {"STS12": 72.37, "STSBenchmark": 82.03}
    scored = [task for task in tasks if task.name in published]
    result = sts.evaluate_similarity(SentenceEncoder.load(minilm), scored)
    assert {task: score.value for task, score in result.items()} == pytest.approx(published, abs=0.03)


@pytest.mark.slow
def test_sts_benchmark_equals_sentence_transformers_evaluator(minilm, data):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    (every,) = sts_pairs.load_task(data / "senteval", "STSBenchmark", "dev")
    pairs = sts_pairs.Pairs("dev", every.first[::4], every.second[::4], every.gold[::4])
    encoder = SentenceEncoder.load(minilm)
    ours = sts.evaluate_similarity(encoder, [sts.SimilarityTask("STSBenchmark", [pairs])])["STSBenchmark"].metrics
    evaluator = EmbeddingSimilarityEvaluator(pairs.first, pairs.second, pairs.gold.tolist(), main_similarity="cosine")
    theirs = evaluator(SentenceTransformer(str(encoder.spec.folder), device="cpu"))
    assert ours["spearman"] / 100 == pytest.approx(theirs["spearman_cosine"], abs=1e-4)
    assert ours["pearson"] / 100 == pytest.approx(theirs["pearson_cosine"], abs=1e-4)


def test_repeated_lines_of_the_real_folder(data, tmp_path):
    """A gold file cut short is found on the real data too."""
    copy = tmp_path / "senteval"
    shutil.copytree(data / "senteval" / "STS" / "STS15-en-test", copy / "STS" / "STS15-en-test")
    gold = copy / "STS" / "STS15-en-test" / "STS.gs.belief.txt"
    gold.chmod(0o644)
    gold.write_text("".join(gold.read_text().splitlines(keepends=True)[:-3]))
    with pytest.raises(DataError, match=r"2000.*1997"):
        sts_pairs.load_task(copy, "STS15")


# Tasks of one's own, several models, intervals


@pytest.fixture
def own(tmp_path, sentences):
    words = [s for s in sentences if s.strip() and "\t" not in s and "\n" not in s]
    path = tmp_path / "mine.tsv"
    rows = [f"{words[i]}\t{words[(3 * i + 1) % len(words)]}\t{i % 5}\n" for i in range(12)]
    path.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    return path


def test_pairs_of_ones_own(own, tiny_bert, invoke, folder):
    (task,) = json.loads(invoke("sts-eval", "-m", tiny_bert, "--pairs", own, "--json", "-", check=0).stdout)["results"]
    assert task == "mine"
    call = ["sts-eval", "-m", tiny_bert, "--data", folder, "--tasks", "STS12", "--pairs", own, "--json", "-"]
    assert list(json.loads(invoke(*call, check=0).stdout)["results"]) == ["STS12", "mine"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sentence1\tsentence2\tscore\na\tb\tgood\n", "line 2: .*'good'"),
        ("sentence1\tsentence2\tscore\na\tb\tnan\n", "line 2: .*'nan'"),
        ("sentence1\tsentence2\tscore\na\tb\t\n", "line 2: .*''"),
        (
            "sentence1\tsentence2\na\tb\n",
            "line 2: .*'score'.*--pair-fields",
        ),
        ("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t1\n", ": 2 .*scores"),
    ],
)
def test_damaged_pairs(own, tiny_bert, invoke, text, words):
    own.write_text(text)
    failed = invoke("sts-eval", "-m", tiny_bert, "--pairs", own, check=2)
    assert re.search(rf"mine\.tsv.*{words}", " ".join(failed.stderr.split()))


def test_there_must_be_something_to_score(tiny_bert, own, invoke):
    assert "--data" in invoke("sts-eval", "-m", tiny_bert, check=2).stderr
    call = ["sts-eval", "-m", tiny_bert, "--pairs", own, "--split", "dev"]
    assert re.search("--split.*--data", invoke(*call, check=2).stderr)


def test_names_of_tasks_of_ones_own(own, tiny_bert, tmp_path, invoke):
    for name in ("average.tsv", "mine.csv"):
        text = own.read_text()
        (tmp_path / name).write_text(text if name.endswith("tsv") else text.replace("\t", ","))
        failed = invoke("sts-eval", "-m", tiny_bert, "--pairs", own, "--pairs", tmp_path / name, check=2)
        assert f"{tmp_path / name}: " in " ".join(failed.stderr.split())
    folder = tmp_path / "topics"
    folder.mkdir()
    for name in ("a.tsv", "mine.tsv"):
        (folder / name).write_text(own.read_text())
    failed = invoke("sts-eval", "-m", tiny_bert, "--pairs", own, "--pairs", folder, check=2)
    assert re.search(rf"{folder}: .*\bmine\b", " ".join(failed.stderr.split()))
    assert list(sts_pairs.read_pairs(str(own.rename(tmp_path / "sts.dev.tsv")))) == ["sts.dev"]


def test_every_model_is_found_before_one_is_scored(folder, tiny_bert, invoke):
    failed = invoke("sts-eval", "-m", tiny_bert, "-m", "no-such-model", "--data", folder, check=2)
    assert "no-such-model" in failed.stderr and failed.stdout == ""


def test_several_models_are_a_list_and_compared(folder, tiny_bert, tmp_path, invoke):
    other = SentenceEncoder.load(tiny_bert, backend="torch", pooling="max")
    other.save(tmp_path / "other")
    same = shutil.copytree(tiny_bert, tmp_path / "same")
    call = ["sts-eval", "-m", tiny_bert, "-m", tmp_path / "other", "-m", same, "--data", folder, "--json", "-"]
    done = invoke(*call, check=0)
    first, second, third = json.loads(done.stdout)
    assert "compared" not in first
    assert second["compared"]["with"] == str(tiny_bert)
    for task, found in second["results"].items():
        difference = second["compared"]["tasks"][task]
        assert difference["difference"] == pytest.approx(found["spearman"] - first["results"][task]["spearman"])
        assert difference["low"] <= difference["high"] and 0 < difference["p"] <= 1
    assert all(one["difference"] == 0 and one["p"] == 1 for one in third["compared"]["tasks"].values())
    assert done.stderr.count("STS12") == 3 and "paired" not in first


def test_many_models_have_a_row_each(folder, tiny_bert, tmp_path, invoke):
    copies = []
    for number in range(5):
        copies += ["-m", shutil.copytree(tiny_bert, tmp_path / f"copy-{number}")]
    done = invoke("sts-eval", *copies, "--data", folder, "--tasks", "STS12", check=0)
    scores, _, differences = done.stdout.partition("difference of scores")
    best = [line for line in scores.splitlines() if line.startswith("│") and "*" in line]
    assert differences.count("STS12") == 4
    assert not best, "of equal models none is the best one"


def test_intervals_hold_the_score_and_can_be_left_out(folder, tiny_bert, invoke):
    call = ["sts-eval", "-m", tiny_bert, "--data", folder, "--tasks", "STS14", "--json", "-"]
    found = json.loads(invoke(*call, check=0).stdout)["results"]["STS14"]
    assert found["interval"][0] < found["spearman"] < found["interval"][1]
    assert "interval" not in json.loads(invoke(*call, "--no-intervals", check=0).stdout)["results"]["STS14"]


def test_the_average_is_of_the_aggregation_that_is_asked_for(folder, tiny_bert, invoke):
    for aggregation, key in sts.AGGREGATIONS.items():
        call = ["sts-eval", "-m", tiny_bert, "--data", folder, "--aggregation", aggregation, "--json", "-"]
        report = json.loads(invoke(*call, check=0).stdout)
        assert report["average"] == round(np.mean([round(r[key.metric], 2) for r in report["results"].values()]), 2)
        low, high = report["average_interval"]
        assert low < report["average"] < high, "samples are of what is averaged"
        for result in report["results"].values():
            assert result["interval"][0] < result[key.metric] < result["interval"][1]
    refused = invoke(
        "sts-eval", "-m", tiny_bert, "--data", folder, "--aggregation", "mean", "--against", "glove", check=2
    )
    assert re.search("--against: .*test", refused.stderr)


def test_zero_vectors_are_counted(folder, tiny_bert, monkeypatch):
    encoder = SentenceEncoder.load(tiny_bert, backend="torch")
    (task,) = sts.load_similarity_tasks(folder, ["STS12"])
    whole = encoder.encode_distinct
    first = task.pairs.first[0]

    def with_zeros(texts, prompt="", **options):
        found = whole(texts, prompt, **options)
        found.vectors[[text == first for text in texts]] = 0
        return found

    monkeypatch.setattr(encoder, "encode_distinct", with_zeros)
    times = task.all_texts.count(first)
    assert sts.evaluate_similarity(encoder, [task])["STS12"].details["zero_vectors"] == times > 0
