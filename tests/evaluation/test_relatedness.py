"""SentEval's regression head: the toolkit's training, with its gradient written out."""

import copy
import json
import re

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from sentcli.errors import InputError, SentcliError
from sentcli.evaluation import relatedness, sts_pairs
from sentcli.stores.text_vectors import TextVectors


def examples(count, seed=0, width=8):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (count, width)).astype(np.float32)
    gold = np.clip(2.5 + x[:, 0] + 0.5 * x[:, 1] + rng.normal(0, 0.7, count), 0, 5)
    return x, np.round(gold, 2)


def plain(train, dev, test):
    """The same training with a module, automatic differentiation and a list of batches."""
    random = np.random.RandomState(1111)
    torch.manual_seed(1111)
    model = torch.nn.Sequential(torch.nn.Linear(train[0].shape[1], 5), torch.nn.Softmax(dim=-1))
    optimizer = torch.optim.Adam(model.parameters())
    wanted = np.zeros((len(train[1]), 5), np.float32)
    for row, score in zip(wanted, train[1], strict=True):
        for place in range(5):
            if place + 1 == np.floor(score) + 1:
                row[place] = score - np.floor(score)
            if place + 1 == np.floor(score):
                row[place] = np.floor(score) - score + 1
    x, y = torch.from_numpy(train[0]), torch.from_numpy(wanted)
    best, kept, worse, epochs, stop = -1, None, 0, 0, False
    while not stop and epochs <= 1000:
        for _ in range(50):
            order = random.permutation(len(x))
            for start in range(0, len(x), 64):
                rows = torch.from_numpy(order[start : start + 64])
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
        epochs += 50
        score = pearsonr(model(torch.from_numpy(dev[0])).detach().numpy() @ np.arange(1, 6), dev[1])[0]
        if score > best:
            best, kept = score, copy.deepcopy(model)
        else:
            stop = worse >= 3
            worse += 1
    return kept(torch.from_numpy(test[0])).detach().numpy() @ np.arange(1, 6), 100 * best, epochs


@pytest.mark.slow
def test_the_head_is_the_toolkits():
    train, dev, test = examples(300), examples(80, 1), examples(90, 2)
    counted = []
    found, best = relatedness.train_head(*train, *dev, test[0], counted.append)
    wanted, wanted_best, epochs = plain(train, dev, test)
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    assert best == pytest.approx(wanted_best, abs=0.01)
    assert sum(counted) == epochs < 1000, "stopped at the same round"


def test_scores_as_distributions():
    found = relatedness.grades(np.array([1.0, 2.5, 4.25, 5.0, 0.0, 0.4]))
    assert found[0].tolist() == [1, 0, 0, 0, 0]
    assert found[1].tolist() == [0, 0.5, 0.5, 0, 0]
    np.testing.assert_allclose(found[2], [0, 0, 0, 0.75, 0.25])
    assert found[3].tolist() == [0, 0, 0, 0, 1]
    assert found[4].tolist() == [0] * 5, "below 1 the toolkit leaves a rest out"
    np.testing.assert_allclose(found[5], [0.4, 0, 0, 0, 0])


def test_vectors_that_are_all_equal_are_said():
    gold = np.linspace(0, 5, 40)
    pairs = sts_pairs.Pairs("same", ["cat"] * 40, ["dog"] * 40, gold)
    task = relatedness.GradedTask("same", dict.fromkeys(("train", "dev", "test"), pairs))
    found = TextVectors({"cat": 0, "dog": 1}, np.ones((2, 4), np.float32), np.zeros(2, int))
    with pytest.raises(SentcliError, match=r"^same: .*similarities"):
        task.score(None, found)


def test_zero_vectors_of_the_test_pairs_are_counted():
    words = ["cat", "dog", "bird"]
    vectors = TextVectors({word: i for i, word in enumerate(words)}, np.eye(3, dtype=np.float32), np.zeros(3, int))
    vectors.vectors[2] = 0
    pairs = sts_pairs.Pairs("zeros", words * 14, ["bird", *["cat"] * 41], np.linspace(0, 5, 42))
    scores = relatedness.GradedTask("zeros", dict.fromkeys(("train", "dev", "test"), pairs)).score(None, vectors)
    assert scores.details["zero_vectors"] == 14 + 1


@pytest.fixture
def folder(tmp_path, sentences):
    words = [s for s in sentences if s.strip() and "\t" not in s]
    rows = [f"{j}\t{words[j]}\t{words[(3 * j) % 40]}\t{1 + (j * 7 % 40) / 10}\tNEUTRAL\n" for j in range(40)]
    (tmp_path / "SICK").mkdir()
    for name in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
        (tmp_path / "SICK" / name).write_text("pair_ID\ta\tb\tscore\tx\n" + "".join(rows))
    return tmp_path


def test_both_commands_give_the_same(folder, tiny_bert, invoke):
    call = ["-m", tiny_bert, "--data", folder, "--tasks", "SICKRelatedness", "--json", "-"]
    one = json.loads(invoke("senteval", *call, check=0).stdout)
    two = json.loads(invoke("sts-eval", "--regression", *call, check=0).stdout)
    found = one["results"]["SICKRelatedness"]
    assert found == two["results"]["SICKRelatedness"]
    assert set(found) >= {"pearson", "spearman", "mse", "dev_pearson", "pairs", "interval"}
    assert "average" not in one, "it is of accuracies"
    assert one["protocol"]["regression"]["optimizer"] == two["protocol"]["regression"]["optimizer"] == "adam"
    assert one["protocol"]["normalize"] is two["protocol"]["normalize"] is False
    cosine = json.loads(invoke("sts-eval", *call, check=0).stdout)
    assert cosine["results"]["SICKRelatedness"]["spearman"] != found["spearman"]


def test_tasks_without_a_training_split_are_refused(folder, tiny_bert, invoke):
    (folder / "STS").mkdir()
    failed = invoke("sts-eval", "--regression", "-m", tiny_bert, "--data", folder, "--tasks", "STS12", check=2)
    assert re.search("STS12 .*STSBenchmark, SICKRelatedness", " ".join(failed.stderr.split()))
    failed = invoke("sts-eval", "--regression", "-m", tiny_bert, "--data", folder, "--split", "dev", check=2)
    assert re.search("--split.*--regression", " ".join(failed.stderr.split()))
    with pytest.raises(InputError, match=r"STS16 .*SICKRelatedness"):
        relatedness.load_relatedness_tasks(folder, ["STS16"])
