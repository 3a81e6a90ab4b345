"""``data make-set``: sets out of a corpus, what is left out, and judgements that go out and come back."""

import csv
import gzip
import json
import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sentcli.evaluation.set_manifest import corpus_arguments
from sentcli.testset.documents import Documents, QueryCandidate
from sentcli.testset.judging import PooledQuery, _graded_rows, write_table
from sentcli.testset.queries import JudgedQuery, near_equal, structural_queries, texts_without, words
from tests.examples import examples

NOUNS = "cat dog bird fish man woman child river house tree mat stone".split()


def sentence(generator, count=12):
    return " ".join(
        generator.choices([*NOUNS, "the", "on", "sat", "ran", "near", "old", "small", "red", "blue"], k=count)
    )


def article(number, generator):
    return {
        "_id": f"d{number}",
        "title": f"About the {NOUNS[number % 12]} number {number}",
        "body": sentence(generator),
    }


@pytest.fixture
def articles(tmp_path):
    """A table of forty articles, with what a real one has: a copy, short and repeated titles, an empty text."""
    generator = random.Random(0)
    rows = [article(number, generator) for number in range(40)]
    rows[3]["body"] = f"{rows[3]['title'].upper()}: {rows[3]['body']}"
    rows[5]["body"] = rows[4]["body"] + "."
    rows[6]["title"], rows[7]["title"], rows[8]["title"] = "Two words", "1 2 3 4", rows[9]["title"]
    rows[10]["body"] = rows[10]["title"]
    path = tmp_path / "articles.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_set(folder):
    corpus = {r["_id"]: r for r in map(json.loads, (folder / "corpus.jsonl").read_text().splitlines())}
    queries = {r["_id"]: r["text"] for r in map(json.loads, (folder / "queries.jsonl").read_text().splitlines())}
    with (folder / "qrels" / "test.tsv").open() as handle:
        rows = list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    relevant = {}
    for row in rows:
        relevant.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    return corpus, queries, relevant


def test_titles_become_queries_and_leave_the_documents(articles, tmp_path, invoke):
    folder = tmp_path / "set"
    printed = json.loads(invoke("data", "make-set", articles, "-o", folder, "--json", "-", check=0).stdout)["results"]
    corpus, queries, relevant = read_set(folder)
    texts = {text: query for query, text in queries.items()}
    assert len(corpus) == 40 and not any(row["title"] for row in corpus.values())
    assert "number 3" not in corpus["d3"]["text"].lower() and len(words(corpus["d3"]["text"])) == 12
    assert relevant[texts["About the man number 4"]] == {"d4": 1, "d5": 1}  # copies are relevant together
    assert set(texts).isdisjoint({"Two words", "1 2 3 4", "About the tree number 9", "About the mat number 10"})
    assert corpus["d10"]["text"] == "About the mat number 10"  # it is found by other queries
    assert printed["left_out"] == {
        "of one or two words": 1,
        "numbers alone": 1,
        "of several documents": 2,
        "of documents without other text": 1,
    }
    manifest = json.loads((folder / "set.json").read_text())
    assert manifest["queries"] == len(queries) == 35 and manifest["queries_from"] == {"title": 35}
    assert manifest["made_from"][0]["bytes"] == articles.stat().st_size and manifest["settings"]["seed"] == 0
    assert corpus_arguments(folder / "corpus.jsonl") == [str(articles), "--text-field", "body"]
    articles.unlink()
    assert corpus_arguments(folder / "corpus.jsonl") == [str(folder / "corpus.jsonl")]


def test_the_same_command_makes_the_same_bytes_and_a_limit_draws(articles, tmp_path, invoke):
    def made(name, *options):
        invoke("data", "make-set", articles, "-o", tmp_path / name, *options, check=0)
        return {path.name: path.read_bytes() for path in sorted((tmp_path / name).rglob("*.*"))}

    assert made("a", "--limit", 12) == made("b", "--limit", 12) != made("c", "--limit", 12, "--seed", 1)
    assert len(read_set(tmp_path / "c")[1]) == 12


def test_beir_and_evaluate_read_the_set(articles, tmp_path, tiny_bert, invoke):
    from beir.datasets.data_loader import GenericDataLoader

    invoke("data", "make-set", articles, "-o", tmp_path / "set", check=0)
    corpus, queries, qrels = GenericDataLoader(str(tmp_path / "set")).load(split="test")
    assert (len(corpus), len(queries), len(qrels)) == (40, 35, 35)
    shown = invoke("evaluate", tmp_path / "set", "-m", tiny_bert, "--json", tmp_path / "s.json", check=0)
    trust = json.loads((tmp_path / "set" / "set.json").read_text())["trust"]
    assert json.loads((tmp_path / "s.json").read_text())["results"]["set"]["trust"] == trust
    assert trust.split(":")[0] in " ".join(shown.output.split())
    (tmp_path / "set" / "queries.jsonl").write_text((tmp_path / "set" / "queries.jsonl").read_text() + "\n")
    assert "queries.jsonl" in invoke("evaluate", tmp_path / "set", "-m", tiny_bert, check=0).stderr


@pytest.mark.slow
def test_markdown_is_split_at_headings_and_links_ask_for_sections(tmp_path, invoke):
    generator = random.Random(1)
    for page in range(4):
        sections = [f"## How to reach house {page} {n}\n\n{sentence(generator)}\n" for n in range(4)]
        fence = "```\n# no heading but a comment\n```\n"
        link = f"See [the way to every old tree](sub/page{(page + 1) % 4}.md#how-to-reach-house-{(page + 1) % 4}-2).\n"
        path = tmp_path / "docs" / "sub" / f"page{page}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"---\ntitle: Page {page} of the manual\n---\n{sentence(generator)}\n\n{fence}{''.join(sections)}"
        )
        (tmp_path / "docs" / f"index{page}.md").write_text(f"# Where {page}\n\n{link}")
    (tmp_path / "docs" / "nested.md").write_text(f"---\n{'[' * 5000}\n---\n\nno front matter\n")
    (tmp_path / "docs" / ".hidden.md").write_text("# Not a document at all\n\nhidden\n")
    invoke("data", "make-set", tmp_path / "docs", "-o", tmp_path / "set", check=0)
    corpus, queries, relevant = read_set(tmp_path / "set")
    assert "sub/page0.md" in corpus and "no heading but a comment" in corpus["sub/page0.md"]["text"]
    assert "sub/page1.md#how-to-reach-house-1-2" in corpus and not any("hidden" in key for key in corpus)
    by_text = {text: relevant[query] for query, text in queries.items()}
    assert by_text["How to reach house 1 2"] == {"sub/page1.md#how-to-reach-house-1-2": 1}
    assert by_text["Page 2 of the manual"] == {"sub/page2.md": 1}
    assert "the way to every old tree" not in by_text  # it leads to four sections
    assert json.loads((tmp_path / "set" / "set.json").read_text())["left_out"]["of several documents"] == 4


def test_questions_ask_for_their_answers(tmp_path, invoke):
    generator = random.Random(2)
    with (tmp_path / "faq.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows(
            [["Question", "Answer"], *([f"How do I feed animal {n}?", sentence(generator)] for n in range(15))]
        )
    invoke("data", "make-set", tmp_path / "faq.csv", "-o", tmp_path / "set", check=0)
    assert json.loads((tmp_path / "set" / "set.json").read_text())["queries_from"] == {"question": 15}


def test_first_sentences_are_weaker_than_titles(tmp_path, invoke):
    generator = random.Random(3)
    (tmp_path / "long.txt").write_text("".join(f"{sentence(generator)}. {sentence(generator)}.\n" for _ in range(15)))
    invoke("data", "make-set", tmp_path / "long.txt", "-o", tmp_path / "weak", check=0)
    manifest = json.loads((tmp_path / "weak" / "set.json").read_text())
    assert manifest["queries_from"] == {"first sentence": 15} and "may choose a bad model" in manifest["trust"]


def test_what_is_left_of_documents_and_says_nothing_is_no_answer(tmp_path, invoke):
    """Abstracts that end alike, of which nothing else is left when the first sentence is the query."""
    generator = random.Random(3)
    firsts = [sentence(generator) for _ in range(30)]
    rests = [sentence(generator) if number % 2 else "report not available" for number in range(30)]
    (tmp_path / "t.txt").write_text("".join(f"{a}. {b}.\n" for a, b in zip(firsts, rests, strict=True)))
    invoke("data", "make-set", tmp_path / "t.txt", "-o", tmp_path / "set", check=0)
    _, queries, relevant = read_set(tmp_path / "set")
    assert len(queries) == 15 and all(len(documents) == 1 for documents in relevant.values())


def test_ids_of_sections_are_unique_and_several_folders_are_told_apart(tmp_path, invoke):
    generator = random.Random(6)
    for name in ("one", "two"):
        headings = [f"The way to house {name} {n}" for n in range(10)] + [
            "Old tree",
            "Old tree",
            "Old tree 1",
            "???",
            "!!!",
        ]
        sections = "".join(f"# {heading}\n\n{sentence(generator)}\n\n" for heading in headings)
        (tmp_path / name).mkdir()
        broken = "---\ndate: 2024-13-45\n---\n\n[a broken link here](//[x)\n\n"
        (tmp_path / name / "README.md").write_text(f"{broken}{sections}")
    folders = tmp_path / "one", tmp_path / "two"
    invoke("data", "make-set", *folders, "-o", tmp_path / "set", check=0)
    corpus = read_set(tmp_path / "set")[0]
    ids = [json.loads(line)["_id"] for line in (tmp_path / "set" / "corpus.jsonl").read_text().splitlines()]
    assert len(corpus) == len(ids) == 32 and "two/README.md#old-tree-1-1" in corpus and "one/README.md" in corpus
    assert "one/README.md#-1" in corpus and "one/README.md#-2" in corpus  # headings without a letter
    again = invoke("data", "make-set", folders[0], folders[0], "-o", tmp_path / "set", "--overwrite", check=2)
    assert "README.md" in again.stderr and "twice" in again.stderr
    (tmp_path / "one" / "a\tb.txt").write_text(sentence(generator))
    tab = invoke("data", "make-set", folders[0], "-o", tmp_path / "set", "--overwrite", check=2)
    assert "has a tab" in tab.stderr


def test_a_folder_that_cannot_be_read_is_named(tmp_path, invoke, monkeypatch):
    (tmp_path / "docs" / "shut").mkdir(parents=True)
    (tmp_path / "docs" / "a.md").write_text("".join(f"# The way to house {n}\n\n{n} trees\n" for n in range(12)))
    scan = os.scandir

    def shut(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", shut)
    result = invoke("data", "make-set", tmp_path / "docs", "-o", tmp_path / "set")
    assert result.exit_code and "shut" in result.stderr and not (tmp_path / "set").exists()


def test_other_scripts_are_read_as_their_readers_do(tmp_path, invoke):
    names = ["हिन्दी भाषा का परिचय", "re\u0301sume\u0301 of my life", "हिन्दी परिचय"]
    names += [f"Die große Straße {noun}" for noun in NOUNS]
    (tmp_path / "texts").mkdir()
    for number, name in enumerate(names):
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{name}: {number} {sentence(random.Random(number))}")
    invoke("data", "make-set", tmp_path / "texts", "-o", tmp_path / "set", check=0)
    corpus, queries, _ = read_set(tmp_path / "set")
    assert {*names} - {*queries.values()} == {"हिन्दी परिचय"}  # two words
    assert not any("Straße" in row["text"] for row in corpus.values())
    (tmp_path / "zh.txt").write_text(
        "".join(f"本文讨论{c}问题的研究。我们提出方法{c}。\n" for c in "东南西北春夏秋冬一二三四")
    )
    invoke("data", "make-set", tmp_path / "zh.txt", "-o", tmp_path / "zh", check=0)
    assert "本文讨论东问题的研究。" in read_set(tmp_path / "zh")[1].values()


def test_a_document_of_signs_alone_has_no_query(tmp_path, invoke):
    generator = random.Random(7)
    rows = [{"_id": f"d{n}", "title": f"The old house {n}", "text": sentence(generator)} for n in range(12)]
    rows[0]["text"] = "\u201cThe old house 0\u201d"
    rows[1]["text"] = "<b>The old house 1</b> " + rows[1]["text"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    invoke("data", "make-set", tmp_path / "a.jsonl", "-o", tmp_path / "set", check=0)
    corpus, queries, _ = read_set(tmp_path / "set")
    assert "The old house 0" not in queries.values() and corpus["d0"]["text"] == "The old house 0"
    assert corpus["d1"]["text"].startswith("<b> </b> ")
    lines = [f"{sentence(generator)}. {sentence(generator)}." for _ in range(12)] + [
        "Once more and on. Once more and on."
    ]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    invoke("data", "make-set", tmp_path / "a.txt", "-o", tmp_path / "weak", check=0)
    assert all(row["text"] for row in read_set(tmp_path / "weak")[0].values())


@pytest.mark.parametrize(
    ("name", "content", "options", "parts"),
    [
        ("lines.txt", "one line of text\n" * 20, [], ["--title-field", "--write-with", "--judge", "--judgements"]),
        ("two.csv", "text,body\na,b\n", [], ["two.csv", "--text-field", "text", "body"]),
        ("none.csv", "x,y\na,b\n", [], ["none.csv", "--text-field", "x, y"]),
        ("t.csv", "title,text\na,b\n", ["--title-field", "titel"], ["t.csv", "titel", "--title-field"]),
        ("twice.csv", "id,title,text\n1,a,b\n1,c,d\n", [], ["twice.csv", "line 3", "'1'"]),
        (
            "null.jsonl",
            '{"title": "a", "text": "b"}\n{"title": "c", "text": null}\n',
            [],
            ["null.jsonl", "line 2", "'text'"],
        ),
        ("number.jsonl", '{"title": 1, "text": "b"}\n', [], ["number.jsonl", "line 1", "'title'"]),
        ("bytes.csv", b"title,text\n\xff,b\n", [], ["bytes.csv", "line 2"]),
        ("blank.csv", "id,title,text\n1,a,b\n,c,d\n", [], ["blank.csv", "line 3", "''"]),
        ("few.csv", "title,text\nthree words here,some text\n", [], ["few.csv"]),
        ("empty.txt", "", [], ["empty.txt"]),
    ],
)
def test_bad_input_is_named(name, content, options, parts, tmp_path, invoke):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    result = invoke("data", "make-set", tmp_path / name, "-o", tmp_path / "set", *options, check=2)
    assert all(part in result.stderr for part in parts), result.stderr
    assert not (tmp_path / "set").exists()


def test_what_is_read_is_not_replaced(to_judge, tmp_path, invoke):
    docs = tmp_path / "docs"
    docs.mkdir()
    for number, noun in enumerate(NOUNS):
        (docs / f"{number}.md").write_text(f"# The old {noun} is here\n\nIt ran near the {noun}.\n")
    assert "would replace" in invoke("data", "make-set", docs, "-o", docs, "--overwrite", check=2).stderr
    assert len(list(docs.iterdir())) == len(NOUNS)
    judgements = ["--judgements", to_judge / "judge.tsv"]
    invoke("data", "make-set", tmp_path / "articles.jsonl", "-o", to_judge, *judgements, "--overwrite", check=2)
    assert (to_judge / "judge.tsv").is_file()


@pytest.mark.skipif(os.name == "nt" or os.uname().sysname == "Darwin", reason="names of files are Unicode there")
def test_a_file_whose_name_is_no_text_is_refused(tmp_path, invoke):
    (tmp_path / "docs").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "docs") + b"/\xff.md")).write_text("# The old house here\n\nIt is old.\n")
    result = invoke("data", "make-set", tmp_path / "docs", "-o", tmp_path / "set", check=2)
    assert "UTF-8" in result.stderr and ".md" in result.stderr


@pytest.mark.parametrize("key", ["a\tb", "a\nb", "", ["a"], None])
def test_the_id_of_a_query_fits_into_the_tables(key, articles, tmp_path, tiny_bert, invoke):
    rows = [{"id": "q", "text": "where is the old house"}, {"id": key, "text": "where is the old tree"}]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--queries", tmp_path / "asked.jsonl", "--judge", 2, "-m", tiny_bert]
    result = invoke("data", "make-set", articles, "-o", tmp_path / "set", *options, check=2)
    assert "asked.jsonl, line 2" in result.stderr


def test_an_old_set_stays_until_the_new_one_is_whole(articles, tmp_path, invoke):
    folder = tmp_path / "set"
    invoke("data", "make-set", articles, "-o", folder, check=0)
    before = {path.name: path.read_bytes() for path in folder.rglob("*.*")}
    invoke("data", "make-set", articles, "-o", folder, check=2)
    (tmp_path / "bad.csv").write_text("x\n1\n")
    invoke("data", "make-set", tmp_path / "bad.csv", "-o", folder, "--overwrite", check=2)
    assert {path.name: path.read_bytes() for path in folder.rglob("*.*")} == before
    invoke("data", "make-set", articles, "-o", folder, "--overwrite", "--limit", 11, check=0)
    assert len(read_set(folder)[1]) == 11


# Judgements


@pytest.fixture
def to_judge(articles, tmp_path, tiny_bert, invoke):
    (tmp_path / "asked.txt").write_text("".join(f"where is the {noun} that sat near\n" for noun in NOUNS))
    options = ["--queries", tmp_path / "asked.txt", "--judge", 11, "-m", tiny_bert]
    invoke("data", "make-set", articles, "-o", tmp_path / "to-judge", *options, check=0)
    return tmp_path / "to-judge"


def test_the_queries_of_a_folder_are_judged_also_gzipped(articles, tmp_path, tiny_bert, invoke):
    (tmp_path / "beir").mkdir()
    articles.rename(tmp_path / "beir" / "corpus.jsonl")
    rows = [{"_id": f"own{n}", "text": f"where is the {noun}"} for n, noun in enumerate(NOUNS)]
    with gzip.open(tmp_path / "beir" / "queries.jsonl.gz", "wt") as handle:
        handle.writelines(json.dumps(row) + "\n" for row in rows)
    invoke("data", "make-set", tmp_path / "beir", "-o", tmp_path / "set", "--judge", 11, "-m", tiny_bert, check=0)
    assert json.loads((tmp_path / "set" / "set.json").read_text())["queries_from"] == {"given": 11}


def table(path):
    with path.open(newline="") as handle:
        return list(csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))


def fill(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_judgements_go_out_without_the_models_and_come_back_graded(to_judge, tmp_path, tiny_bert, invoke):
    header, *rows = table(to_judge / "judge.tsv")
    assert len({row[0] for row in rows}) == 11 and len(rows) == 55 and not any(row[4] for row in rows)
    page = (to_judge / "judge.html").read_text()
    assert tiny_bert.name not in page and page.count("<fieldset") == 55 and "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"?https?:", page)
    assert (
        page.index("</header>") < page.index('class="bar"') and page.count('tabindex="-1"') == 55
    )  # it stays in sight
    assert "About the" in rows[0][3]  # documents as they are, with their titles
    invoke("evaluate", to_judge, "-m", tiny_bert, check=2)  # nobody has judged it yet
    for number, row in enumerate(rows):
        row[4] = ["2", "0", "", "1", "0"][number % 5]
    filled = fill(tmp_path / "filled.tsv", [header, *rows])
    invoke("data", "make-set", to_judge, "-o", tmp_path / "judged", "--judgements", filled, check=0)
    _, queries, relevant = read_set(tmp_path / "judged")
    assert len(queries) == 11 and json.loads((tmp_path / "judged" / "set.json").read_text())["left_out"] == {
        "documents without a grade": 11
    }
    for query, *_, grade in (row for row in rows if row[4]):
        assert query in relevant and grade in "012"
    assert all(relevant[row[0]][row[2]] >= int(row[4]) for row in rows if row[4])
    invoke("evaluate", tmp_path / "judged", "-m", tiny_bert, check=0)


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE])
def test_quotation_marks_survive_the_table_and_a_spreadsheet(quoting, articles, tmp_path, tiny_bert, invoke):
    rows = [json.loads(line) for line in articles.read_text().splitlines()]
    for row in rows:
        row |= {"_id": f'"{row["_id"]}"', "title": f'The "{row["title"]}"', "body": f'{row["body"]} "'}
    articles.write_text("".join(json.dumps(row) + "\n" for row in rows))
    invoke("data", "make-set", articles, "-o", tmp_path / "set", check=0)
    invoke("data", "make-set", tmp_path / "set", "-o", tmp_path / "judge", "--judge", 12, "-m", tiny_bert, check=0)
    header, *rows = table(tmp_path / "judge" / "judge.tsv")
    rows = [header, *([*row[:4], "1"] for row in rows), [""] * 5]
    with (tmp_path / "filled.tsv").open("w", newline="") as handle:
        csv.writer(
            handle, "excel-tab", quoting=quoting, quotechar=None if quoting == csv.QUOTE_NONE else '"'
        ).writerows(rows)
    invoke("data", "make-set", articles, "-o", tmp_path / "made", "--judgements", tmp_path / "filled.tsv", check=0)
    asked = {row[0]: row[1] for row in rows[1:-1]}
    assert read_set(tmp_path / "made")[1] == asked and all('"' in text for text in asked.values())
    invoke("evaluate", tmp_path / "made", "-m", tiny_bert, check=0)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda rows: rows[3].__setitem__(2, "unknown"), ["line 4", "'unknown'"]),
        (lambda rows: rows[2].__setitem__(4, "good"), ["line 3", "'good'"]),
        (lambda rows: rows[2].__setitem__(4, "-1"), ["line 3", "'-1'"]),
        (lambda rows: rows.append([*rows[1][:4], "2"]), ["line 57"]),
        (lambda rows: [row.pop() for row in rows], ["relevance"]),
        (lambda rows: [row.__setitem__(4, "0") for row in rows[1:]], ["filled.tsv", "10"]),
    ],
)
def test_judgements_that_do_not_fit_are_refused_with_line_and_name(change, parts, to_judge, tmp_path, invoke):
    header, *rows = table(to_judge / "judge.tsv")
    rows = [header, *([*row[:4], "1"] for row in rows)]
    change(rows)
    filled = fill(tmp_path / "filled.tsv", rows)
    result = invoke("data", "make-set", to_judge, "-o", tmp_path / "judged", "--judgements", filled, check=2)
    assert all(part in result.stderr for part in parts), result.stderr


# Properties

WORD = st.text(st.characters(categories=("Ll", "Lu", "Nd")), min_size=1, max_size=6)
TEXT = st.lists(WORD, min_size=3, max_size=8).map(" ".join)


@examples(100)
@given(TEXT, TEXT, TEXT, st.sampled_from([" ", ", ", "\n", ": "]))
@example("0 0 0", "0 0 İﬀ", "0 0 0", " ")
def test_no_document_holds_its_query(before, query, after, separator):
    documents = Documents(["a"], [""], [separator.join([before, query.upper(), after])])
    remaining = texts_without(documents, [QueryCandidate(query, 0, "link")])[0]
    left, gone = words(remaining), words(query)
    if words(query.upper()) == gone:  # letters whose upper case is another letter stay
        assert gone not in [left[i : i + len(gone)] for i in range(len(left))] or gone in _overlaps(
            before, query, after
        )


def test_a_query_is_taken_out_of_a_text_without_blanks():
    documents = Documents(["a"], [""], ["これは東京タワーの案内です。東京（タワー）"])
    assert texts_without(documents, [QueryCandidate("東京タワー", 0, "title")]) == ["これは の案内です。"]


def _overlaps(before, query, after):
    """Runs of words that appear only when the query between its neighbours is gone."""
    joined, size = words(f"{before} {after}"), len(words(query))
    return [joined[i : i + size] for i in range(len(joined))]


def test_near_equal_agrees_with_jaccard_over_all_pairs():
    generator = random.Random(4)
    texts = [sentence(generator, 40) for _ in range(150)]
    for number in range(0, 140, 7):
        changed = texts[number].split()
        changed[generator.randrange(40)] = "other"
        texts.append(" ".join(changed))

    def shingles(text):
        found = words(text)
        return {found[i : i + 3] for i in range(len(found) - 2)}

    sets = [shingles(text) for text in texts]
    expected = {
        (i, j) for i in range(len(texts)) for j in range(i) if len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= 0.8
    }
    found = near_equal(texts)
    assert {(i, j) for i, near in found.items() for j in near if j < i} == expected and len(expected) == 20


def test_queries_do_not_depend_on_the_order_of_the_limit():
    generator = random.Random(5)
    documents = Documents()
    for number in range(30):
        documents.add(f"d{number}", f"The old house number {number}", sentence(generator), "title")
    texts = [{query.text for query in structural_queries(documents, "x", limit, 0).queries} for limit in (10, 20, 30)]
    assert texts[0] < texts[1] < texts[2]


FORMULAS = ['=HYPERLINK("https://x")', "+1 is one", "-2", "@name", "'=1", "''", "-", "a =1", "'quoted'"]


def test_no_cell_of_the_table_is_a_formula_and_all_come_back(tmp_path):
    documents = Documents()
    for number, text in enumerate(FORMULAS):
        documents.add(f"={number}", "", f"{text} text {number}", "title")
    pool = [
        PooledQuery(JudgedQuery(f"-q{number}", text, {}, "given"), [(f"={number}", documents.texts[number])])
        for number, text in enumerate(FORMULAS)
    ]
    write_table(tmp_path / "judge.tsv", pool)
    header, *rows = table(tmp_path / "judge.tsv")
    assert not any(len(cell) > 1 and cell[0] in "=+-@" for row in rows for cell in row)
    filled = fill(tmp_path / "filled.tsv", [header, *([*row[:-1], "1"] for row in rows)])
    back = list(_graded_rows(str(filled), documents.places))
    assert back == [(f"-q{number}", text, f"={number}", 1) for number, text in enumerate(FORMULAS)]


def test_all_files_and_rows_that_cannot_be_read_are_named_at_once(tmp_path, articles, invoke):
    folder = tmp_path / "pages"
    folder.mkdir()
    for number in range(13):
        (folder / f"b{number}.md").write_bytes(b"# caf\xe9\n\ntext\n")
    (folder / "lfs.md").write_text("version https://git-lfs.github.com/spec/v1\n")
    failed = invoke("data", "make-set", folder, "-o", tmp_path / "set", check=2)
    assert all(f"b{number}.md, line 1: byte 0xe9" in failed.stderr for number in range(13))
    assert "lfs.md is a pointer" in failed.stderr and "14 problems" in failed.stderr
    rows = articles.read_text().splitlines()
    rows[3], rows[6] = json.dumps({"_id": "n", "title": "A title", "body": None}), rows[7]
    articles.write_text("\n".join(rows) + "\n")
    failed = invoke("data", "make-set", articles, "-o", tmp_path / "set", check=2)
    assert re.search(r"line 4: 'body' is missing or null\n.*line 8: the id 'd7' stands twice", failed.stderr)
    assert not (tmp_path / "set").exists()


def test_one_markdown_file_is_read_by_sections_and_its_markup_is_counted(tmp_path, invoke):
    generator = random.Random(2)
    parts = [f"## How to paint house {n}\n\n{sentence(generator)} <br> now\n\n" for n in range(12)]
    (tmp_path / "manual.md").write_text("".join(parts))
    done = invoke("data", "make-set", tmp_path / "manual.md", "-o", tmp_path / "set", "--json", "-", check=0)
    found = json.loads(done.stdout)["results"]
    assert (found["documents"], found["queries_from"]) == (12, {"heading": 12})
    assert found["checks"]["html"]["count"] == 12 and found["checks"]["mojibake"]["count"] == 0
    assert "12 documents have markup of HTML" in done.stderr


def test_a_set_is_made_of_what_encode_wrote(tmp_path, articles, tiny_bert, invoke):
    call = ("encode", articles, "-o", tmp_path / "vectors", "-m", tiny_bert, "--text-field", "body", "-q")
    invoke(*call, check=0)
    invoke("data", "make-set", tmp_path / "vectors", "-o", tmp_path / "set", check=0)
    assert read_set(tmp_path / "set")[0].keys() == {f"d{number}" for number in range(40)}


def test_a_directory_of_passages_gives_the_set_of_its_documents(tiny_bert, tmp_path, invoke):
    rows = []
    for number in range(20):
        sentences = " ".join(f"the {noun} sat on the mat number {number} ." for noun in ("cat", "dog", "bird", "fish"))
        rows.append({"id": f"d{number}", "title": f"about the thing {number}", "text": sentences})
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cut = ("--passages", "--passage-tokens", 12, "--overlap", 3)
    invoke("encode", corpus, "-m", tiny_bert, "--backend", "torch", *cut, "-o", tmp_path / "vectors", check=0)
    for source, name in ((corpus, "whole"), (tmp_path / "vectors", "joined")):
        invoke("data", "make-set", source, "-o", tmp_path / name, check=0)
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        assert (tmp_path / "joined" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
