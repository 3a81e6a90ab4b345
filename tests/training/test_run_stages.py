"""Training on tasks without labels, on pairs of which some are held out, and on one method after another."""

import json
import re

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation import sts
from sentcli.training.data import Subset
from sentcli.training.inputs import read_task_text
from sentcli.training.pairs import every_hold_out, read_training_pairs


@pytest.fixture
def topics(tmp_path):
    """Three tables of pairs, with the columns of the AFS corpus."""
    words = ["cat", "dog", "bird", "fish", "river", "tree", "house", "man", "woman", "child", "mat", "grass"]
    folder = tmp_path / "AFS"
    folder.mkdir()
    for number, name in enumerate(("DP", "GC", "GM")):
        rows = [f"{(i * 7 % 11) / 2},a,the {words[i]} sat {number},the {words[-i - 1]} ran" for i in range(12)]
        head = "regression_label,datasetId_1,sentence_1,sentence_2\n"
        (folder / f"ArgPairs_{name}.csv").write_text(head + "\n".join(rows) + "\n")
    (folder / "README").write_text("not a table")
    return folder


def test_a_topic_is_held_out(topics):
    corpus, held = read_training_pairs([str(topics)], hold_out="ArgPairs_GC")
    assert len(corpus.sentences) == 24 and len(held) == 12
    assert all(text.endswith("1") for text in held.first)
    assert not any(text.endswith("1") for text in corpus.sentences)
    assert [entry["sentences"] for entry in corpus.files] == [12, 0, 12]
    assert (
        read_training_pairs([str(topics)], hold_out="ArgPairs_GC", subset=Subset(5))[0].sentences
        == corpus.sentences[:5]
    )


def test_folds_are_those_of_scikit_learn(topics):
    from sklearn.model_selection import KFold

    whole, _ = read_training_pairs([str(topics)])
    folds = list(KFold(10, shuffle=True, random_state=42).split(np.arange(36)))
    seen = []
    for number, name in enumerate(every_hold_out("10-fold", [])):
        corpus, held = read_training_pairs([str(topics)], hold_out=name)
        train, test = folds[number]
        assert corpus.sentences == [whole.sentences[row] for row in train]
        assert held.second == [whole.texts[1][row] for row in test]
        np.testing.assert_allclose(held.gold, [whole.scores[row] for row in test])
        seen += test.tolist()
    assert sorted(seen) == list(range(36))


@pytest.mark.parametrize(
    ("hold_out", "words"),
    [
        ("ArgPairs_XX", "'ArgPairs_GM'"),
        ("11/10", "1/10"),
        ("0/10", "1/10"),
        ("1/99", r"ArgPairs_\w+\.\w+ has 36"),
    ],
)
def test_what_cannot_be_held_out(topics, hold_out, words):
    with pytest.raises(InputError, match=f"--hold-out {hold_out}: .*{words}"):
        read_training_pairs([str(topics)], hold_out=hold_out)


def test_topics_are_the_files(topics):
    assert every_hold_out("topics", [str(topics)]) == ["ArgPairs_DP", "ArgPairs_GC", "ArgPairs_GM"]
    with pytest.raises(InputError, match="--hold-out topics: "):
        every_hold_out("topics", [str(topics / "ArgPairs_DP.csv")])
    with pytest.raises(InputError, match="--hold-out 1-fold: "):
        every_hold_out("1-fold", [])
    assert every_hold_out("ArgPairs_DP", []) == ["ArgPairs_DP"]
    (topics.parent / "empty").mkdir()
    with pytest.raises(InputError, match=f"{topics.parent}/empty .*csv"):
        read_training_pairs([str(topics.parent / "empty")])


@pytest.mark.slow
def test_every_topic_held_out_in_turn(topics, tiny_bert, tmp_path, invoke):
    call = ["train", "--method", "sts-regression", "-m", tiny_bert, "--data", topics, "--hold-out", "topics"]
    done = invoke(*call, "-o", tmp_path / "runs", "--max-steps", 3, "--json", tmp_path / "r.json", check=0)
    points = json.loads((tmp_path / "r.json").read_text())["results"]["points"]
    assert [point["point"]["hold_out"] for point in points] == ["ArgPairs_DP", "ArgPairs_GC", "ArgPairs_GM"]
    mean = np.mean([point["mean"]["held_out_spearman"] for point in points])
    assert f"{mean:.2f}" in done.stdout and "held-out Pearson" in " ".join(done.stdout.split())
    # the score is that of the model that was written, on the pairs that were left out
    _, held = read_training_pairs([str(topics)], hold_out="ArgPairs_GC")
    encoder = SentenceEncoder.load(tmp_path / "runs" / "hold_out=ArgPairs_GC", backend="torch")
    task = sts.SimilarityTask("x", [held])
    assert sts.evaluate_similarity(encoder, [task])["x"].value == pytest.approx(points[1]["mean"]["held_out_spearman"])
    again = invoke(*call, "-o", tmp_path / "runs", "--max-steps", 3, "--resume", check=0)
    assert again.stderr.count("finished before") == 3


def test_sentences_of_tasks_without_labels(tmp_path):
    folder = tmp_path / "downstream"
    (folder / "MR").mkdir(parents=True)
    (folder / "TREC").mkdir()
    (folder / "MR" / "rt-polarity.pos").write_text("good one\nfine\n\n", "latin-1")
    (folder / "MR" / "rt-polarity.neg").write_text("bad one\nfine\n", "latin-1")
    questions = "".join(
        f"{label}:x what {i}\n" for i, label in enumerate(("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"))
    )
    (folder / "TREC" / "train_5500.label").write_text(questions, "latin-1")
    (folder / "TREC" / "TREC_10.label").write_text("ABBR:x a test question\n", "latin-1")
    corpus = read_task_text("MR, TREC", [str(folder)])
    assert sorted(corpus.sentences) == ["bad one", "fine", "good one", *(f"what {i}" for i in range(6))]
    assert corpus.scores is None and corpus.files[0]["sentences"] == 9
    assert corpus.sentences != sorted(corpus.sentences, key=len), "a subset is not the shortest ones"
    assert read_task_text("MR,TREC", [str(folder)], subset=Subset(4)).sentences == corpus.sentences[:4]
    with pytest.raises(InputError, match="SentEval"):
        read_task_text("MR", [str(folder), str(folder)])
    with pytest.raises(InputError, match=r"'MRR'.*'MR'"):
        read_task_text("MRR", [str(folder)])


def test_sentences_of_pairs(topics):
    assert len(read_task_text("pairs", [str(topics)], subset=Subset(3)).sentences) == 6, "of three pairs"
    corpus = read_task_text("pairs", [str(topics)])
    assert len(corpus.sentences) == len(set(corpus.sentences)) == 36 + 12
    held = read_task_text("pairs", [str(topics)], hold_out="ArgPairs_GC").sentences
    assert not any("sat 1" in text for text in held)


@pytest.mark.slow
def test_one_method_after_another(topics, tiny_bert, tmp_path, invoke):
    call = ["train", "--method", "sts-regression", "--after", "is-bert", "-m", tiny_bert, "--data", topics]
    budget = ["--max-steps", 2, "--set", "before.max_steps=3", "--set", "before.batch_size=4", "--seed", 7]
    invoke(*call, *budget, "-o", tmp_path / "ft", check=0)
    first, second = (tmp_path / "ft-is-bert", tmp_path / "ft")
    runs = [json.loads((folder / "run.json").read_text()) for folder in (first, second)]
    settings = (
        [run["identity"]["settings"] for run in runs] if "identity" in runs[0] else [run["settings"] for run in runs]
    )
    assert [found["max_steps"] for found in settings] == [3, 2]
    assert [found["seed"] for found in settings] == [7, 7]
    assert SentenceEncoder.load(second, backend="torch").spec.pooling == SentenceEncoder.load(first).spec.pooling
    # both stages by hand give the same weights
    one = ["train", "--method", "is-bert", "-m", tiny_bert, "--data", topics, "--text-of", "pairs", "--seed", 7]
    invoke(*one, "--max-steps", 3, "--batch-size", 4, "-o", tmp_path / "a", check=0)
    two = ["train", "--method", "sts-regression", "-m", tmp_path / "a", "--pooling", "own", "--data", topics]
    invoke(*two, "--max-steps", 2, "--seed", 7, "-o", tmp_path / "b", check=0)
    for found, wanted in ((first, tmp_path / "a"), (second, tmp_path / "b")):
        assert (found / "model.safetensors").read_bytes() == (wanted / "model.safetensors").read_bytes()


def test_the_sentences_of_triplets_are_one_text(tiny_bert, tmp_path, invoke):
    triplets, text = tmp_path / "nli.csv", tmp_path / "text.txt"
    rows = [(f"premise {i // 2}", f"it follows {i}", f"it does not {i}") for i in range(4)]
    triplets.write_text("".join(f"{','.join(row)}\n" for row in [("sent0", "sent1", "hard_neg"), *rows]))
    text.write_text("".join(f"{line}\n" for line in dict.fromkeys(row[i] for i in range(3) for row in rows)))
    call = ["train", "--method", "is-bert", "-m", tiny_bert, "--batch-size", 4, "--max-steps", 2]
    invoke(*call, "--data", triplets, "--text-of", "pairs", "-o", tmp_path / "a", check=0)
    invoke(*call, "--data", text, "-o", tmp_path / "b", check=0)
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert a == b


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "simcse", "--after", "is-bert"], "--after .*--method .*simcse"),
        (["--method", "sts-regression", "--set", "before.max_steps=2"], "before.max_steps .*--after"),
        (["--method", "sts-regression", "--after", "nothing"], "nothing"),
        (["--method", "simcse", "--hold-out", "1/3"], "--hold-out .*--method"),
        (["--method", "sts-regression", "--text-of", "pairs"], "--text-of .*sts-regression"),
    ],
)
def test_what_does_not_go_together(topics, tiny_bert, tmp_path, invoke, options, words):
    failed = invoke("train", "-m", tiny_bert, "--data", topics, "-o", tmp_path / "o", *options, check=2)
    assert re.search(words, " ".join(failed.stderr.split()))
    assert not (tmp_path / "o").exists() and not (tmp_path / "o-is-bert").exists()


def test_a_folder_of_pairs_is_scored_by_topic(topics, tiny_bert, invoke):
    found = json.loads(invoke("sts-eval", "-m", tiny_bert, "--pairs", topics, "--json", "-", check=0).stdout)
    assert list(found["results"]) == ["ArgPairs_DP", "ArgPairs_GC", "ArgPairs_GM"]
    pearson = [round(task["pearson"], 2) for task in found["results"].values()]
    assert found["average_pearson"] == round(float(np.mean(pearson)), 2)


@pytest.mark.slow
def test_seeds_reach_the_first_stage(topics, tiny_bert, tmp_path, invoke):
    call = ["train", "--method", "sts-regression", "--after", "simcse", "-m", tiny_bert, "--data", topics]
    budget = ["--max-steps", 1, "--set", "before.max_steps=2", "--set", "before.batch_size=4", "--batch-size", 4]
    report = tmp_path / "r.json"
    invoke(*call, *budget, "--seeds", "1,2", "-o", tmp_path / "runs", "--json", report, check=0)
    first = [tmp_path / "runs" / f"seed={seed}-simcse" for seed in (1, 2)]
    assert [json.loads((folder / "run.json").read_text())["settings"]["seed"] for folder in first] == [1, 2]
    weights = [(folder / "model.safetensors").read_bytes() for folder in first]
    assert weights[0] != weights[1]
    config = json.loads((tmp_path / "runs" / "seed=2" / "sentcli.json").read_text())
    assert config["first_stage"] == {
        "method": "simcse",
        "model": tiny_bert.name,
        "settings": {"settings.seed": 2, "max_steps": "2", "batch_size": "4"},
    }


def test_a_first_stage_of_something_else_is_refused(topics, tiny_bert, tmp_path, invoke):
    call = ["train", "--method", "sts-regression", "--after", "simcse", "-m", tiny_bert, "--data", topics]
    budget = ["--max-steps", 1, "--set", "before.batch_size=4", "--batch-size", 4, "-o", tmp_path / "ft"]
    invoke(*call, *budget, "--set", "before.max_steps=2", "--hold-out", "ArgPairs_DP", check=0)
    weights = (tmp_path / "ft" / "model.safetensors").read_bytes()
    invoke(*call, *budget, "--set", "before.max_steps=2", "--hold-out", "ArgPairs_DP", "--resume", check=0)
    assert (tmp_path / "ft" / "model.safetensors").read_bytes() == weights
    for change in (["--set", "before.max_steps=3", "--hold-out", "ArgPairs_DP"], ["--set", "before.max_steps=2"]):
        failed = invoke(*call, *budget, *change, "--resume", check=2)
        assert "ft-simcse" in " ".join(failed.stderr.split())


def test_mistakes_are_found_before_the_first_stage(topics, tiny_bert, tmp_path, invoke):
    call = ["train", "--method", "sts-regression", "--after", "simcse", "-m", tiny_bert, "--data", topics]
    (tmp_path / "ex").mkdir()
    (tmp_path / "ex" / "mine.txt").write_text("mine")
    for more in (["-o", tmp_path / "ex"], ["-o", tmp_path / "a", "--sts"], ["-o", tmp_path / "a", "--hold-out", "no"]):
        invoke(*call, *more, check=2)
    assert not list(tmp_path.glob("*-simcse"))


def test_files_of_one_name_are_not_mixed_up(topics, tiny_bert, tmp_path, invoke):
    twin = tmp_path / "other"
    twin.mkdir()
    (twin / "ArgPairs_DP.csv").write_text((topics / "ArgPairs_GM.csv").read_text())
    for hold_out in ("ArgPairs_DP", "topics"):
        with pytest.raises(InputError, match=r"ArgPairs_DP.*--hold-out"):
            if hold_out == "topics":
                every_hold_out(hold_out, [str(topics), str(twin)])
            else:
                read_training_pairs([str(topics), str(twin)], hold_out=hold_out)
    (topics / "ArgPairs_DP.jsonl").write_text('{"sentence1": "a", "sentence2": "b", "score": 1}\n')
    failed = invoke("sts-eval", "-m", tiny_bert, "--pairs", topics, check=2)
    assert re.search(r"/ArgPairs_DP\.jsonl: .*ArgPairs_DP", " ".join(failed.stderr.split()))


def test_a_sweep_goes_on_where_a_first_stage_fails(topics, tiny_bert, tmp_path, invoke):
    (tmp_path / "sweep.toml").write_text("[[grid]]\nafter = 'simcse'\n'before.learning_rate' = [1e30, 1e-5]\n")
    call = [
        "train",
        "--method",
        "sts-regression",
        "-m",
        tiny_bert,
        "--data",
        topics,
        "--sweep",
        tmp_path / "sweep.toml",
    ]
    call += ["--max-steps", 1, "--set", "before.max_steps=3", "--set", "before.batch_size=4", "--batch-size", 4]
    failed = invoke(*call, "-o", tmp_path / "runs", check=1)
    assert re.search(r"\b1 of 2 ", " ".join(failed.stderr.split()))
    folders = [path.parent.name for path in tmp_path.glob("runs/*/model.safetensors")]
    assert [name for name in folders if not name.endswith("-simcse")] == ["after=simcse,before.learning_rate=1e-05"]


@pytest.mark.slow
def test_points_with_and_without_something_held_out(topics, tiny_bert, tmp_path, invoke):
    (tmp_path / "sweep.toml").write_text(
        "[[grid]]\nhold_out = ['ArgPairs_DP', 'ArgPairs_GC']\nbatch_size = [4, 5]\n[[grid]]\nbatch_size = 6\n"
    )
    call = [
        "train",
        "--method",
        "sts-regression",
        "-m",
        tiny_bert,
        "--data",
        topics,
        "--sweep",
        tmp_path / "sweep.toml",
    ]
    invoke(*call, "--max-steps", 1, "-o", tmp_path / "runs", "--json", tmp_path / "r.json", check=0)
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert [mean["point"] for mean in results["held_out"]] == [{"batch_size": 4}, {"batch_size": 5}]
    scores = [p["mean"]["held_out_pearson"] for p in results["points"] if p["point"].get("batch_size") == 5]
    assert results["held_out"][1]["pearson"] == pytest.approx(np.mean(scores))
    assert results["held_out"][1]["held_out"] == ["ArgPairs_DP", "ArgPairs_GC"]
