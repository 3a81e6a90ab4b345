"""A document that was cut into passages is whole again, also where passages overlap and repeat header rows."""

import pytest

from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.vector_directory import VectorDirectory

ROWS = "".join(f"| the cat {number}. sat | {number} |\n" for number in range(20))
TABLE = f"| cat | the |\n|-|-|\n{ROWS}"
CODE = "```py\n" + "    the cat. sat\n\n" * 8 + "```\n"
PAGE = f"the mat.\n\n# Prices\n\n{TABLE}\nthe dog ran on the mat near the river.\n\n## Code\n\n{CODE}"


@pytest.mark.parametrize("overlap", [0, 4])
def test_a_page_of_a_table_and_code_is_whole_again(overlap, tiny_bert, tmp_path, invoke):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.md").write_text(PAGE, "utf-8")
    out = tmp_path / "out"
    cut = ("--passages", "--passage-tokens", 30, "--overlap", overlap, "--backend", "torch", "--max-length", 32)
    invoke("encode", tmp_path / "pages", "-m", tiny_bert, *cut, "-o", out, check=0)
    rows = VectorDirectory.open(out, to_search=False).rows
    passages = [row for table in rows.tables(["text", "start", "end"]) for row in table.to_pylist()]
    assert sum(len(row["text"]) > row["end"] - row["start"] for row in passages) > 1  # some repeat the header row
    (document,) = CorpusDocuments("out", rows)
    assert document.text == PAGE.removesuffix("\n")
