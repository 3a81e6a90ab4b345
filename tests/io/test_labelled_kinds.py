"""What a table holds is told from the names of its columns and from all of its values, never from one cell."""

import json
import os
from pathlib import Path

import pytest

from sentcli.errors import DataError, InputError
from sentcli.io.labelled import read_table
from tests.io.test_labelled import write

TEXTS = [f"how do I {verb} the {noun}" for verb in ("find", "sell", "open", "close") for noun in "cat dog mat".split()]
NAMED = "question1,question2,is_duplicate"


def table(folder, values, columns=("a", "b", "c"), name="t.csv"):
    """A table of two texts and a value a row."""
    rows = [[TEXTS[i % 12], TEXTS[(5 * i + 1) % 12], value] for i, value in enumerate(values)]
    return write(folder, name, list(columns), *rows)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [("a", "b", "c"), tuple(NAMED.split(",")), ("sentence1", "sentence2", "label")])
@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ("1", "0"), ("1.0", "0.0"), ("yes", "no"), ("TRUE", "FALSE"), ("true", "0"), ("y", "n"),
        ("duplicate", "not"), ("duplicate", "not duplicate"), ("Duplicate", "not_duplicate"), ("match", "no match"),
        ("equivalent", "not_equivalent"),
    ],
)  # fmt: skip
def test_words_for_yes_and_no_are_labels(tmp_path, columns, yes, no):
    file = table(tmp_path, [yes, no, no, yes, no, yes], columns)
    read = read_table(file, fields=",".join(columns))
    assert (read.kind, read.values) == ("binary", [1, 0, 0, 1, 0, 1])
    if columns[0] != "a":
        assert read_table(file).values == read.values
    assert read_table(file, kind="binary", fields=",".join(columns)).values == read.values


def test_booleans_of_json_are_labels(tmp_path):
    assert read_table(table(tmp_path, [True, False, False], name="t.jsonl"), fields="a,b,c").values == [1, 0, 0]


@pytest.mark.parametrize("place", [0, 7, 11])
@pytest.mark.parametrize("named", [True, False])
def test_a_value_that_is_no_label_is_named_with_its_line(tmp_path, place, named):
    values = [str(i % 2) for i in range(12)]
    values[place] = "n/a"
    file = table(tmp_path, values, NAMED.split(",") if named else ("a", "b", "c"))
    with pytest.raises(DataError, match=rf"line {place + 2}: .*'n/a'"):
        read_table(file, fields=None if named else "a,b,c")


@pytest.mark.parametrize(
    "values",
    [
        ["entailment", "neutral", "contradiction"] * 4,
        ["entailment", "neutral", "contradiction", "neutral", "entailment"],
        ["good", "bad"] * 6,
        ["duplicate", "not duplicate", "n/a"] * 4,
        ["not sure", "the same", "not sure", "the same", "something else"],
        ["this pair is one and the same question", "these are two questions that differ"] * 6,
        ["only"] * 12,
    ],
)
def test_few_values_are_neither_texts_nor_labels_for_sure(tmp_path, values):
    file = table(tmp_path, values)
    with pytest.raises(DataError) as caught:
        read_table(file, fields="a,b,c")
    assert repr(values[0]) in str(caught.value)
    assert "--kind triplets --pair-fields a,b,c" in str(caught.value)
    assert read_table(file, fields="a,b,c", kind="triplets").kind == "triplets"


@pytest.mark.parametrize(
    "values",
    [
        ["the cat sat on the mat", "a dog ran off", "the river is big today"],
        [f"an answer of {i} words" for i in range(40)] * 3,
    ],
)
def test_different_texts_are_negatives(tmp_path, values):
    assert read_table(table(tmp_path, values), fields="a,b,c").kind == "triplets"


@pytest.mark.parametrize("kind", [None, "triplets"])
def test_words_for_yes_and_no_are_never_texts(tmp_path, kind):
    for columns in (("anchor", "positive", "negative"), ("anchor", "negative", "positive")):
        with pytest.raises(DataError, match=rf"'{columns[2]}'.*'no'.*--kind binary"):
            read_table(table(tmp_path, ["yes", "no", "no"], columns), kind=kind)
    with pytest.raises(DataError, match=r"--kind.*--pair-fields"):
        read_table(table(tmp_path, ["0", "1", "1"]), fields="a,c")


def test_classes_are_no_positives(tmp_path):
    with pytest.raises(DataError, match="--kind labels --pair-fields a,c"):
        read_table(table(tmp_path, ["news", "sport", "the arts"] * 10), fields="a,c")


@pytest.mark.parametrize(
    ("columns", "values", "words"),
    [
        (("premise", "hypothesis", "gold"), ["entailment", "neutral", "contradiction"] * 3, "'entailment' (3)"),
        (("sentence1", "sentence2", "label"), ["1", "3", "2"], "line 3: .*'3'.* --kind scored"),
        (("sentence1", "sentence2", "score"), ["yes", "no"], "line 2: .*'yes'.* --kind binary"),
        (("sentence1", "sentence2", "score"), ["1", "high"], "line 3: .*'high'"),
    ],
)
def test_values_are_checked_under_the_usual_names_too(tmp_path, columns, values, words):
    with pytest.raises(DataError, match=words.replace("(3)", r"\(3\)")):
        read_table(table(tmp_path, values, columns))


@pytest.mark.parametrize(
    ("columns", "values", "kind"),
    [
        ("question1,question2,is_duplicate", "10", "binary"),
        ("text1,text2,score", ["0.5", "2"], "scored"),
        ("text_a,text_b,similarity", ["0.5", "2"], "scored"),
        ("premise,hypothesis,gold", ["yes", "no"], "binary"),
        ("Sentence1, SENTENCE2 ,Label", "10", "binary"),
        ("premise,hypothesis,label", ["entailment", "neutral", "contradiction"] * 3, "classed-pairs"),
        ("premise,hypothesis,label", ["yes", "no"], "binary"),
        ("query,passage,label", "10", "binary"),
        ("query,passage,negative", TEXTS[:2], "triplets"),
        ("query,answer,id", "78", "pairs"),
        ("question,answer,id", "78", "pairs"),
        ("\ufeffanchor,positive,id", "78", "pairs"),
    ],
)
def test_common_names_are_known_whatever_case_and_spaces(tmp_path, columns, values, kind):
    assert read_table(table(tmp_path, values, columns.split(","))).kind == kind


def test_names_of_columns_are_compared_without_case(tmp_path):
    assert read_table(table(tmp_path, "1001", ["Q", " A ", "V"]), fields="q,a,v").values == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["qestion1", "question2", "is_duplicate"], "qestion1 .*'question1'.*--pair-fields"),
        (["query", "passage", "answer"], r"\(query, passage\).*\(query, answer\).*--pair-fields"),
        (["How do I find the cat?", "Where is it?", "1"], r"t\.csv: line 1 .*'How do I find"),
    ],
)
def test_names_that_fit_nothing_say_what_to_do(tmp_path, columns, words):
    with pytest.raises(InputError, match=words):
        read_table(table(tmp_path, TEXTS[:3], columns))


def test_a_short_first_row_is_named_as_one(tmp_path):
    file = write(tmp_path, "t.csv", ["sentence1", "sentence2", "score"], ["a"], ["a", "b", "1"])
    with pytest.raises(DataError, match=r"line 2.*1.*3"):
        read_table(file)


def test_what_was_taken_is_said_with_a_row(tmp_path):
    taken = read_table(table(tmp_path, ["duplicate", "not", "not"], NAMED.split(","))).reading
    assert taken.startswith("0/1 pairs: question1, question2, is_duplicate; 1 of 3 are duplicates; line 2: ")
    assert TEXTS[0] in taken
    assert "; 2 of 3 are yes; " in read_table(table(tmp_path, ["yes", "yes", "no"]), fields="a,b,c").reading
    assert "; 3 pairs, scores from 1 to 4; " in read_table(table(tmp_path, "142"), fields="a,b,c").reading


@pytest.mark.parametrize("name", ["negative", "negatives", "hard_neg", "wrong"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_list_of_negatives_is_several(tmp_path, name, suffix):
    rows = [["a", "b", ["c", "d"]], ["e", "f", ["g", "h"]]]
    file = write(tmp_path, f"t.{suffix}", ["anchor", "positive", name], *rows)
    read = read_table(file, fields=f"anchor,positive,{name}" if name == "wrong" else None)
    assert (read.kind, read.texts) == ("triplets", (["a", "e"], ["b", "f"], ["c", "g"], ["d", "h"]))


@pytest.mark.parametrize("numbers", [[2, 1], [1, 2], [2, 0], [0, 2], [0, 1, 0, 3], [0] * 150 + [2]])
@pytest.mark.parametrize("null", [False, True])
def test_rows_may_have_different_numbers_of_negatives(tmp_path, numbers, null):
    """They are empty where a row has fewer; where all texts are needed, the first row that lacks one is named."""
    file = tmp_path / "t.jsonl"
    rows = []
    for number, count in enumerate(numbers):
        negatives = [f"n{number} {i}" for i in range(count)]
        rows.append({"anchor": f"a{number}", "positive": "b", "negative": None if null and not count else negatives})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = read_table(str(file))
    assert table.columns[2:] == tuple(f"negative_{i + 1}" for i in range(max(numbers)))
    assert [sum(map(bool, texts)) - 2 for texts in zip(*table.texts, strict=True)] == numbers
    first = next(line for line, count in enumerate(numbers, 1) if count < max(numbers))
    with pytest.raises(DataError, match=f"line {first}: negative_"):
        read_table(str(file), on_empty="error")
    assert len(read_table(str(file), on_empty="skip")) == numbers.count(max(numbers))


def test_contradictions_are_rows_of_equal_texts(tmp_path):
    rows = [["a", "b", 1], ["c", "d", 0], ["b", "a", 0], ["a", "b", 1]]
    assert read_table(write(tmp_path, "t.csv", NAMED.split(","), *rows)).contradictions() == [[0, 2, 3]]
    rows = [["a a", "b b", "c c"], ["a a", "c c", "b b"], ["a a", "b b", "d d"]]
    assert read_table(write(tmp_path, "t.csv", ["anchor", "positive", "negative"], *rows)).contradictions() == [[0, 1]]


def test_a_file_that_changes_behind_its_old_size_and_time_is_looked_at_again(tmp_path):
    file = table(tmp_path, ["1", "0", "0", "1"])
    path = Path(file)
    assert read_table(file, fields="a,b,c").kind == "binary"
    before = path.stat()
    changed = path.read_text().replace(",0", ",5")
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # both writes may fall between two ticks of the clock
        path.write_text(changed)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert read_table(file, fields="a,b,c").kind == "scored"
