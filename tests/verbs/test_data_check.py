"""``sentcli data check``: what a table of one's own holds, and the commands that would use it."""

import json
import shlex

import pytest
from typer.main import get_command

from sentcli.cli.app import app
from tests.io.test_labelled import write

NAMES = ["question1", "question2", "is_duplicate"]
ROWS = [[f"how do I open door {i}", f"where is the key {i}", "yes" if i % 3 else "no"] for i in range(24)]


@pytest.fixture
def file(tmp_path):
    rows = [list(row) for row in ROWS]
    rows[3][1], rows[5][2], rows[6][0] = "", "", " "
    return write(tmp_path, "t.tsv", NAMES, *rows, [ROWS[0][1], ROWS[0][0], "yes"])


def test_everything_is_counted_and_named(invoke, file, tiny_bert):
    report = json.loads(invoke("data", "check", file, "-m", tiny_bert, "--json", "-", check=0).stdout)
    found = report["results"]
    assert (report["command"], found["kind"], found["columns"], found["rows"]) == ("data check", "binary", NAMES, 25)
    assert found["empty_cells"] == {"count": 3, "rows": 3, "first": [[5, NAMES[1]], [7, NAMES[2]], [8, NAMES[0]]]}
    assert found["contradictions"] == {"count": 1, "first": [[2, 26]]}
    assert found["labels"] == {"1": 16, "0": 6}
    lengths = found["lengths"]
    assert lengths["unit"] == "tokens" and 0 < lengths["median"] <= lengths["longest"] and lengths["limit"] == 32
    printed = invoke("data", "check", file, check=0).stdout
    for words in ("16 of 22 are duplicates", "line 5 (question2)", "lines 2, 26", "unit words"):
        assert words in " ".join(printed.replace("│", " ").split())


def test_long_texts_are_counted_against_the_models_length(invoke, tmp_path, tiny_bert):
    rows = [["the cat sat " * (30 if i < 2 else 1), f"a dog {i}"] for i in range(12)]
    file = write(tmp_path, "t.csv", ["anchor", "positive"], *rows)
    report = json.loads(invoke("data", "check", file, "-m", tiny_bert, "--json", "-", check=0).stdout)
    assert report["results"]["lengths"]["longer"] == 2 and report["results"]["lengths"]["longest"] >= 90


@pytest.mark.parametrize(
    ("columns", "value", "options", "method"),
    [
        (["anchor", "positive"], None, (), "simcse"),
        (["sentence1", "sentence2", "score"], lambda i: i % 5, (), "cosent"),
        (["a", "b", "c"], lambda i: i % 2, ("--pair-fields", "a,b,c"), "online-contrastive"),
        (
            ["a", "b", "c"],
            lambda i: "good" if i % 2 else "bad",
            ("--pair-fields", "a,b,c", "--kind", "triplets"),
            "simcse",
        ),
    ],
)
def test_the_commands_that_are_named_run(invoke, tmp_path, tiny_bert, columns, value, options, method):
    rows = [[*row[:2], *([value(i)] if value else [])] for i, row in enumerate(ROWS)]
    file = write(tmp_path, "my table.csv", columns, *rows)
    report = json.loads(invoke("data", "check", file, "-m", tiny_bert, *options, "--json", "-", check=0).stdout)
    evaluate, train = map(shlex.split, report["results"]["commands"])
    assert train[train.index("--method") + 1] == method
    if method != "simcse" or value is None:
        invoke(*evaluate[1:], check=0)
    train[train.index("DIR")] = str(tmp_path / "m")
    invoke(*train[1:], "--batch-size", 6, "--max-steps", 1, check=0)
    assert (tmp_path / "m" / "model.safetensors").exists()


def test_a_table_of_no_kind_and_a_wrong_value_are_errors(invoke, tmp_path):
    words = [[*row[:2], ["entailment", "neutral"][i % 2]] for i, row in enumerate(ROWS)]
    failed = invoke("data", "check", write(tmp_path, "t.csv", NAMES, *words), check=2)
    assert "t.csv" in failed.stderr and "'entailment' (12)" in failed.stderr
    odd = [[*row[:2], i % 2 if i else "n/a"] for i, row in enumerate(ROWS)]
    failed = invoke("data", "check", write(tmp_path, "u.csv", NAMES, *odd), check=2)
    assert "u.csv, line 2" in " ".join(failed.stderr.split())


def test_the_options_are_those_of_the_contract():
    command = get_command(app).get_command(None, "data").get_command(None, "check")
    assert {"--pair-fields", "--kind", "--json"} <= {name for p in command.params for name in p.opts}


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_broken_lines_do_not_hide_each_other(invoke, tmp_path, suffix):
    """A row with too many fields, one that is no row, and what comes after them."""
    rows = [[f"a cat {i}", "xy"[i % 2]] for i in range(9)]
    if suffix == "csv":
        lines = ["text,label", *(",".join(row) for row in rows)]
        lines[3] += ",of,more"
        lines[5] = '"a cat 4" or not,x'
    else:
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        lines[2], lines[4] = lines[2][:-1], "[1]"
    (tmp_path / f"t.{suffix}").write_text("\n".join([*lines, lines[-1]]) + "\n")
    failed = invoke("data", "check", tmp_path / f"t.{suffix}", "--json", tmp_path / "t.json", check=2)
    found = json.loads((tmp_path / "t.json").read_text())["results"]
    assert (found["rows"], found["broken_lines"], found["equal_rows"]["count"]) == (8, 2, 1)
    first = 4 if suffix == "csv" else 3
    assert all(f"line {number}:" in " ".join(failed.stderr.split()) for number in (first, first + 2))


def test_everything_that_is_wrong_is_named_at_once(invoke, tmp_path):
    """Encoding, labels, markup, characters, repeated rows and ids: of one file, in one run, which then is refused."""
    rows = [[str(i), f"how is door {i}", f"where is key {i}", "yes" if i % 3 else "no"] for i in range(40)]
    rows[3][1] = "caf\xe9 \u201cquoted\u201d"
    rows[7][3] = rows[8][3] = "perhaps"
    rows[11][2], rows[12][2] = "<p>where &amp; when</p>", "it\xe2\u20ac\u2122s here"
    rows[15][0] = "14"
    rows.append(["40", *rows[20][1:]])
    text = "".join(",".join(row) + "\n" for row in [["id", *NAMES], *rows])
    lines = text.splitlines(keepends=True)
    broken = [line.encode("cp1252" if number == 4 else "utf-8") for number, line in enumerate(lines)]
    (tmp_path / "t.csv").write_bytes(b"".join(broken))
    report = tmp_path / "t.json"
    failed = invoke("data", "check", tmp_path / "t.csv", "--json", report, check=2)
    said = " ".join(failed.stderr.split())
    for words in ("t.csv, line 5: byte 0xe9", "line 9: the label 'perhaps'", "line 10: the label"):
        assert words in said
    assert "iconv -f cp1252" in said and "3 problems" in said
    found = json.loads(report.read_text())["results"]
    assert (found["rows"], found["broken_lines"], found["wrong_values"]) == (41, 1, 2)
    assert found["html"] == {"count": 1, "first": [[13, "question2"]]}
    assert found["mojibake"] == {"count": 1, "first": [[14, "question2"]]}
    assert found["repeated_ids"] == {"count": 1, "first": [[16, 17]]}
    assert found["equal_rows"] == {"count": 1, "first": [[22, 42]]}
    assert found["control_characters"]["count"] == found["replacement_characters"]["count"] == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("caf\x85", "control_characters"),
        ("caf\ufffd", "replacement_characters"),
        *(
            (text.encode().decode("cp1252"), "mojibake")
            for text in ("café", "it’s", "10 €", "Straße", "naïve", "привет")
        ),
        *((text.encode().decode("latin1"), "mojibake") for text in ("il était", "你好", "\N{GRINNING FACE} so")),
        ("a<br/>b", "html"),
        ("Tom &amp; Jerry", "html"),
        ("CAFÉ», à l’école — “NÃO”, São Paulo, ÂGE, Ñandú, Straße, «É»", ""),
        ("tab\tand\nline, 3 < 4 > 2, a<b and AT&T; привет, 你好, café…", ""),
    ],
)
def test_what_is_found_in_a_text(text, found):
    from sentcli.io.text_checks import TextChecks

    checks = TextChecks()
    checks.look(text, 1)
    kinds = {what for what, each in checks.occurrences.items() if each.count}
    assert kinds - ({"control_characters"} if found == "mojibake" else set()) == ({found} if found else set())


def test_the_column_of_ids_is_named_or_said_to_be_missing(invoke, tmp_path):
    rows = [f"r{i // 2},a cat {i},{'n/a' if i % 3 else i % 4 + 1}" for i in range(0, 12, 1)]
    rows += [f"s{i},a dog {i},{i % 4 + 1}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["review,text,label", *rows]) + "\n")
    call = ["data", "check", tmp_path / "t.csv", "--json", "-"]
    without = json.loads(invoke(*call, check=0).stdout)["results"]
    named = json.loads(invoke(*call, "--id-field", "review", check=0).stdout)["results"]
    assert (without["id_column"], named["id_column"]) == (None, "review")
    assert (without["repeated_ids"]["count"], named["repeated_ids"]["count"]) == (0, 6)
    assert "'n/a'" in invoke(*call[:-2], check=0).stdout
    assert "review" in invoke(*call, "--id-field", "reviev", check=2).stderr
