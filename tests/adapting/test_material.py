"""No query chooses, judges and teaches at once."""

import json

import pytest

from sentcli.adapting.material import read_material
from sentcli.adapting.options import AdaptOptions
from sentcli.errors import InputError
from sentcli.search.words import plain
from tests.adapting.test_adapt import documents, judged, write


@pytest.fixture
def corpus(tmp_path):
    return str(write(tmp_path / "articles.jsonl", documents()))


def parts(material):
    dev = {plain(text) for text in material.dev.queries.values()}
    test = {plain(text) for text in material.test.queries.values()}
    return {plain(text) for text in material.queries}, dev, test


def test_made_queries_are_in_one_part(corpus, tmp_path):
    training, dev, test = parts(read_material([corpus], AdaptOptions(), tmp_path))
    assert not training & dev and not training & test and not dev & test
    assert len(dev) == len(test) == 32 and len(training) == 96


def test_documents_that_are_nearly_equal_are_in_one_part(tmp_path):
    rows = documents(120)
    for row in rows[::3]:
        rows.append({**row, "id": row["id"] + "-copy", "title": row["title"] + " again"})
    corpus = str(write(tmp_path / "articles.jsonl", rows))
    material = read_material([corpus], AdaptOptions(), tmp_path)
    relevant = [set().union(*(data.qrels[query] for query in data.queries)) for data in (material.dev, material.test)]
    assert not relevant[0] & relevant[1]


def test_a_dev_set_alone_chooses_with_one_half_and_judges_with_the_other(corpus, tmp_path):
    dev = judged(tmp_path / "dev", documents(), range(60))
    material = read_material([corpus], AdaptOptions(dev=str(dev)), tmp_path)
    assert len(material.dev.queries) == len(material.test.queries) == 30
    assert not set(material.dev.queries) & set(material.test.queries)
    assert material.dev.digest != material.test.digest
    assert len(material.queries) > 150, "all made queries are for training"


def test_queries_of_dev_with_one_text_are_in_one_half(corpus, tmp_path):
    dev = judged(tmp_path / "dev", documents(), range(40))
    queries = [json.loads(line) for line in (dev / "queries.jsonl").read_text().splitlines()]
    for first, second in zip(queries[::2], queries[1::2], strict=True):
        second["text"] = first["text"].upper()
    write(dev / "queries.jsonl", queries)
    _, choosing, judging = parts(read_material([corpus], AdaptOptions(dev=str(dev)), tmp_path))
    assert len(choosing) == len(judging) == 10 and not choosing & judging


def test_sets_are_read_in_the_split_of_their_option(corpus, tmp_path):
    folder = judged(tmp_path / "set", documents(), range(60))
    lines = (folder / "qrels" / "test.tsv").read_text().splitlines(keepends=True)
    for split, of_split in (("train", lines[1:11]), ("dev", lines[11:31]), ("test", lines[31:])):
        (folder / "qrels" / f"{split}.tsv").write_text(lines[0] + "".join(of_split))
    both = read_material([corpus], AdaptOptions(dev=str(folder), test=str(folder)), tmp_path)
    assert (len(both.dev.queries), len(both.test.queries)) == (20, 30)


def test_a_chain_of_documents_that_are_nearly_equal_is_in_one_part(tmp_path):
    """The first and the last of a chain share little, and each is nearly equal to the next one."""
    words = [f"word{number}" for number in range(400)]
    rows = []
    for number in range(100):
        text = " ".join(words[number * 2 : number * 2 + 60])
        rows.append({"id": f"c{number}", "title": f"title of part number {number}", "text": text})
    corpus = str(write(tmp_path / "articles.jsonl", rows + documents(100)))
    material = read_material([corpus], AdaptOptions(), tmp_path)
    held_out = [set(data.queries.values()) for data in (material.dev, material.test)]
    parts_with_chain = [texts for texts in [*held_out, set(material.queries)] if "title of part number 0" in texts]
    assert len(parts_with_chain) == 1
    chain = {text for text in parts_with_chain[0] if text.startswith("title of part")}
    assert len(chain) == 100


def test_queries_of_test_that_are_near_copies_of_training_are_left_out(corpus, tmp_path):
    rows = documents()
    test = judged(tmp_path / "test", rows, range(40))
    queries = [json.loads(line) for line in (test / "queries.jsonl").read_text().splitlines()]
    for query, row in list(zip(queries, rows, strict=False))[:7]:
        query["text"] = row["title"].upper() + " ."
    write(test / "queries.jsonl", queries)
    dev = judged(tmp_path / "dev", rows, range(40, 80))
    material = read_material([corpus], AdaptOptions(dev=str(dev), test=str(test)), tmp_path)
    assert material.left_out == 7 and len(material.test.queries) == 33


def test_shared_queries_are_refused(corpus, tmp_path):
    dev = judged(tmp_path / "dev", documents(), range(30))
    with pytest.raises(InputError):
        read_material([corpus], AdaptOptions(dev=str(dev), test=str(dev)), tmp_path)


def test_the_split_follows_the_seed(corpus, tmp_path):
    def dev(seed, name):
        folder = tmp_path / name
        folder.mkdir()
        return sorted(read_material([corpus], AdaptOptions(seed=seed), folder).dev.queries.values())

    assert dev(0, "a") == dev(0, "b") != dev(1, "c")


@pytest.mark.parametrize(("budget", "seconds"), [("90s", 90), ("15m", 900), ("1h30m", 5400), ("2h", 7200)])
def test_budgets_are_times(budget, seconds):
    assert AdaptOptions(budget=budget).seconds == seconds
