"""`adapt` takes a model that is shown to find more, keeps the start otherwise, and says which."""

import json
import random

import numpy as np
import pytest

import sentcli
from sentcli import SentenceEncoder
from sentcli.adapting import adapt as adapting
from sentcli.adapting import candidates
from sentcli.adapting.folder import ADAPT_RESULTS_FILE
from sentcli.adapting.plan import SAMPLE_DOCUMENTS, Costs, spread_documents
from tests.conftest import save_cross_encoder
from tests.tolerance import VECTORS

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

NOUNS = "cat dog bird fish man woman child river house tree mat".split()
OTHERS = dict(zip(NOUNS, NOUNS[1:] + NOUNS[:1], strict=True))
"""The word of the text that goes with each word of a title."""
VERBS = "ran flew swam sat plays eats sees finds".split()


def documents(count=160):
    """Documents whose titles ask for other words than their texts have: who learns which go together finds more."""
    generator = random.Random(0)
    rows = []
    for number in range(count):
        first, second = generator.sample(NOUNS, 2)
        verb = generator.choice(VERBS)
        noise = " ".join(generator.choices([*NOUNS, "the", "and", "old", "green"], k=8))
        title = f"the {first} {verb} near the {second} {number}"
        text = f"a {OTHERS[first]} {OTHERS[second]} {verb} on the {noise} {number * 7}"
        rows.append({"id": f"d{number}", "title": title, "text": text})
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write(tmp_path_factory.mktemp("corpus") / "articles.jsonl", documents())


@pytest.fixture(scope="module")
def learnable(tmp_path_factory):
    """A corpus of which a tiny model learns something in a minute."""
    return write(tmp_path_factory.mktemp("corpus") / "more.jsonl", documents(400))


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SENTCLI_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def adapted(invoke, corpus, model, output, *options, check):
    words = ("adapt", corpus, "-m", model, "-o", output, "--budget", "30m", "--device", "cpu", "--json", "-", "-q")
    done = invoke(*words, *options, check=check)
    return json.loads(done.stdout)["results"]


@pytest.fixture
def fast_learning(monkeypatch):
    """Rates at which a tiny model with random weights learns in some steps."""
    settings = [*candidates.CANDIDATE_SETTINGS, ("settings.learning_rate", 5e-3)]
    monkeypatch.setattr("sentcli.adapting.work.CANDIDATE_SETTINGS", settings)
    monkeypatch.setattr("sentcli.adapting.plan.MOST_EPOCHS", 15)


def prefer(monkeypatch, preferred):
    """Let the start, or what was trained, be the best on the queries that choose."""
    monkeypatch.setattr(
        adapting.Work, "dev_score", lambda work, name, dev: float((name == work.start) == (preferred == "start"))
    )


@pytest.mark.slow
def test_the_start_is_kept_where_nothing_is_gained(invoke, corpus, tiny_bert, tmp_path, monkeypatch):
    prefer(monkeypatch, "start")
    results = adapted(invoke, corpus, tiny_bert, tmp_path / "model", check=3)
    assert results["adopted"] is False
    assert results["chosen"] == "start" and results["smallest"] >= 0
    low, high = results["interval"]
    assert low <= results["difference"] <= high
    assert results["value"] == pytest.approx(results["start"] + results["difference"])
    assert {entry["name"] for entry in results["candidates"]} >= {"start", "contrast", "contrast and margins"}
    texts = ["the cat sat", "a dog ran near the river"]
    kept = SentenceEncoder.load(tmp_path / "model", backend="torch").encode(texts)
    start = SentenceEncoder.load(tiny_bert, backend="torch", pooling="mean").encode(texts)
    np.testing.assert_allclose(kept, start, atol=VECTORS)
    assert json.loads((tmp_path / "model" / ADAPT_RESULTS_FILE).read_text())["adopted"] is False
    assert not (tmp_path / "model.adapting").exists()
    words = ("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model")
    assert invoke(*words).exit_code == 2, "an output that exists is not replaced"
    finished = invoke(*words, "--resume")
    assert finished.exit_code == 2 and ADAPT_RESULTS_FILE in finished.stderr


@pytest.mark.deep
def test_a_gain_is_taken(invoke, learnable, tiny_bert, tmp_path, fast_learning):
    results = adapted(invoke, learnable, tiny_bert, tmp_path / "model", check=0)
    assert results["adopted"] is True and results["interval"][0] > 0
    assert results["chosen"] != "start" and results["value"] > results["start"]
    texts = ["the cat sat", "a dog ran near the river"]
    taken = SentenceEncoder.load(tmp_path / "model", backend="torch").encode(texts)
    start = SentenceEncoder.load(tiny_bert, backend="torch", pooling="mean").encode(texts)
    assert np.abs(taken - start).max() > 1e-3


@pytest.mark.deep
def test_a_gain_that_costs_similarity_is_refused(invoke, learnable, tiny_bert, tmp_path, fast_learning):
    generator = random.Random(1)
    rows = []
    for _ in range(60):
        words = generator.sample(NOUNS, 3)
        same = generator.randrange(4)
        others = [word if place < same else OTHERS[word] for place, word in enumerate(words)]
        rows.append({"sentence1": " ".join(words), "sentence2": " ".join(others), "score": same})
    keep = write(tmp_path / "similar.jsonl", rows)
    results = adapted(invoke, learnable, tiny_bert, tmp_path / "model", "--keep", keep, "--allow", "0", check=3)
    assert results["adopted"] is False and results["keep"]["passed"] is False


@pytest.mark.slow
def test_an_interrupted_adaptation_goes_on_to_the_same_end(invoke, corpus, tiny_bert, tmp_path, monkeypatch):
    trained = []
    train = adapting.Work.train

    def interrupted(self, request, label):
        folder = train(self, request, label)
        trained.append(label)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return folder

    monkeypatch.setattr(adapting.Work, "train", interrupted)
    words = ("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--budget", "30m", "--device", "cpu", "-q")
    stopped = invoke(*words[:-1])
    assert stopped.exit_code == 130 and "--resume" in stopped.stderr
    assert not (tmp_path / "model").exists()
    assert invoke(*words).exit_code == 2, "--resume or --overwrite says what to do with the unfinished one"
    assert invoke(*words, "--resume", "--seed", "5").exit_code == 2, "another adaptation"
    monkeypatch.setattr(adapting.Work, "train", train)
    resumed = adapted(invoke, corpus, tiny_bert, tmp_path / "model", "--resume", check=3)
    whole = adapted(invoke, corpus, tiny_bert, tmp_path / "other", check=3)
    assert {**resumed, "output": None} == {**whole, "output": None}


def judged(folder, rows, numbers):
    """Write a retrieval set whose queries are those titles, changed a little."""
    (folder / "qrels").mkdir(parents=True)
    write(folder / "corpus.jsonl", [{"_id": row["id"], "title": "", "text": row["text"]} for row in rows])
    queries = [{"_id": f"q{number}", "text": f"who {rows[number]['title']} was seen ?"} for number in numbers]
    write(folder / "queries.jsonl", queries)
    lines = ["query-id\tcorpus-id\tscore", *(f"q{number}\td{number}\t1" for number in numbers)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
def test_the_folder_holds_what_was_judged(corpus, tiny_bert, tmp_path, monkeypatch):
    prefer(monkeypatch, "trained")
    monkeypatch.setattr("sentcli.evaluation.differences.Difference.is_gain", True)
    rows = documents()
    dev = judged(tmp_path / "dev", rows, range(0, 40))
    test = judged(tmp_path / "test", rows, range(40, 80))
    result = sentcli.adapt(
        corpus=str(corpus),
        model=str(tiny_bert),
        output=tmp_path / "model",
        dev=str(dev),
        test=str(test),
        budget="30m",
        device="cpu",
    )
    results = result.to_dict()["results"]
    assert results["adopted"] is True and results["queries"] == 40
    assert results["smallest"] >= 0
    assert results["sets"] == {"dev": "dev", "test": "test"}
    models = {}
    for name in (tmp_path / "model", tiny_bert):
        scored = sentcli.evaluate(files=str(test), model=str(name), backend="torch", device="cpu").to_dict()
        models[name] = scored["results"]["test"]["value"]
    assert list(models.values()) == pytest.approx([results["value"], results["start"]], abs=1e-4)


@pytest.fixture(scope="module")
def broken(tmp_path_factory, corpus):
    """What cannot be adapted, by its name."""
    folder = tmp_path_factory.mktemp("broken")
    rows = documents()
    return {
        "corpus": corpus,
        "bare": write(folder / "bare.jsonl", [{"text": "the cat sat"}] * 30),
        "few": write(folder / "few.jsonl", rows[:12]),
        "alike": write(folder / "alike.jsonl", [{**row, "text": rows[int(row["id"][1:]) % 2]["text"]} for row in rows]),
        "set": judged(folder / "set", rows, range(30)),
        "same": judged(folder / "same", rows, range(20, 50)),
        "pairs": write(folder / "pairs.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1}] * 9),
        "cross_encoder": save_cross_encoder(folder / "cross-encoder"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "{corpus} -m https://host.example/v1#name",
        "{corpus} -m {corpus}",
        "{corpus} -m nowhere",
        "{corpus} -m {cross_encoder}",
        "{bare} -m MODEL",
        "{few} -m MODEL",
        "{few} -m MODEL --dev {set}",
        "{alike} -m MODEL",
        "nowhere.jsonl -m MODEL",
        "{corpus} -m MODEL --dev {set} --test {same}",
        "{corpus} -m MODEL --dev {pairs}",
        "{corpus} -m MODEL --keep nowhere.csv",
        "{corpus} -m MODEL --teacher nowhere",
        "{corpus} -m MODEL --budget soon",
        "{corpus} -m MODEL --budget 1s",
        "{corpus} -m MODEL --allow -1",
        "{corpus} -m MODEL --text-field body",
        "{corpus} -m MODEL --seed -1",
        "{corpus} -m MODEL -o -",
    ],
)
def test_bad_input_is_refused_before_training(words, broken, tiny_bert, tmp_path, invoke, monkeypatch):
    def no_training(*arguments, **options):
        raise AssertionError("it trains")

    monkeypatch.setattr("sentcli.adapting.work.train_run", no_training)
    arguments = words.replace("MODEL", str(tiny_bert)).format(**broken).split()
    if "-o" not in arguments:
        arguments += ["-o", tmp_path / "model"]
    done = invoke("adapt", *arguments, "--device", "cpu")
    assert done.exit_code == 2, (done.stdout, done.stderr, done.exception)
    assert not (tmp_path / "model").exists()


def test_a_budget_that_is_too_small_is_said_before_training(corpus, tiny_bert, tmp_path, invoke, monkeypatch):
    monkeypatch.setattr("sentcli.adapting.plan.Costs.of", lambda self, count, steps, *others: 1e4 + steps)
    done = invoke("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--device", "cpu")
    assert done.exit_code == 2 and "--budget" in done.stderr


@pytest.mark.slow
def test_a_budget_without_time_for_a_training_lets_weights_of_tokens_compete(
    corpus, tiny_bert, tmp_path, invoke, monkeypatch
):
    def training_takes_long(self, tried, steps, *others):
        return 1e4 + steps if tried else 1.0

    monkeypatch.setattr("sentcli.adapting.plan.Costs.of", training_takes_long)
    done = invoke("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--device", "cpu")
    assert done.exit_code in (0, 3), done.stderr
    assert "--budget" in done.stderr
    results = json.loads((tmp_path / "model" / ADAPT_RESULTS_FILE).read_text())
    assert {candidate["stage"] for candidate in results["candidates"]} == {"start", "weighting"}
    assert results["steps"] == 0


def test_what_fits_into_a_budget_is_tried_and_what_was_made_stays(corpus, tiny_bert, tmp_path, invoke, monkeypatch):
    """Each evaluation takes a minute of a clock of its own: there is time for one weighting, and for no training."""
    now = [0.0]
    monkeypatch.setattr("sentcli.adapting.plan.TimeBudget.left", property(lambda clock: 150 - now[0]))
    monkeypatch.setattr("sentcli.adapting.plan.Costs.of_encoding", lambda work: Costs(0.1, 0.1))
    dev_score = adapting.Work.dev_score

    def takes_a_minute(work, name, dev):
        now[0] += 60
        return dev_score(work, name, dev)

    monkeypatch.setattr(adapting.Work, "dev_score", takes_a_minute)
    words = ("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--device", "cpu", "--budget")
    done = invoke(*words, "150s")
    assert done.exit_code in (0, 3), done.stderr
    assert done.stderr.count("--budget") == 2
    results = json.loads((tmp_path / "model" / ADAPT_RESULTS_FILE).read_text())
    assert [each["stage"] for each in results["candidates"]] == ["start", "weighting"]
    assert results["steps"] == 0 and not (tmp_path / "model.adapting").exists()


@pytest.mark.slow
def test_a_budget_that_ends_before_anything_competes_names_what_was_made(
    corpus, tiny_bert, tmp_path, invoke, monkeypatch
):
    monkeypatch.setattr(adapting, "powers_for", lambda start: ())
    with monkeypatch.context() as small:
        small.setattr("sentcli.adapting.plan.Costs.of", lambda self, tried, *others: 1e5 * len(tried))
        words = ("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--device", "cpu")
        done = invoke(*words, check=2)
    assert "--resume" in done.stderr and f"{tmp_path / 'model'}.adapting" in done.stderr
    assert (tmp_path / "model.adapting").is_dir()
    assert invoke(*words, "--resume", "--seed", "5").exit_code == 2, "another adaptation"
    assert invoke(*words, "--resume", "--budget", "30m").exit_code in (0, 3)


def test_the_time_of_a_document_is_measured_all_over_the_corpus():
    """CACM begins with titles alone and has abstracts later: measured on its first documents, 15 minutes became 18."""
    documents = ["title"] * 1500 + ["abstract"] * 1500
    assert 0.4 < spread_documents(documents).count("abstract") / SAMPLE_DOCUMENTS < 0.6
    assert spread_documents(documents[:3]) == documents[:3]
