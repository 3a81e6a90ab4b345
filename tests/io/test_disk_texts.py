"""Texts that stay on disk are those that the readers read."""

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import DataError
from sentcli.io.disk_texts import texts_on_disk
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import open_source
from tests.examples import examples

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=30), max_size=20)


def collect(*paths, limit=None):
    return texts_on_disk([open_source(str(path)) for path in paths], ReadOptions(), limit)


@examples(60)
@given(lines=LINES, end=st.sampled_from(["\n", "\r\n"]), mark=st.booleans(), last=st.booleans())
def test_every_line_is_found_where_it_lies(tmp_path_factory, lines, end, mark, last):
    path = tmp_path_factory.mktemp("t") / "a.txt"
    content = end.join(lines) + (end if last else "")
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + content.encode())
    expected = [row.text for row in rows(open_source(str(path)), ReadOptions())]
    found, (count,), blank = collect(path)
    assert list(found) == [text for text in expected if text.strip()]
    assert count + blank == len(expected)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.txt.gz", "a.parquet"])
def test_tables_and_compressed_files_are_copied(tmp_path, name):
    wanted = ["one", "zwei\u00e4", "  ", "trois 🙂", "x" * 1000]
    if name == "a.txt.gz":
        (tmp_path / name).write_bytes(gzip.compress("\n".join(wanted).encode()))
    elif name == "a.parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": [*wanted[:2], "with\nbreak", *wanted[2:]]}), tmp_path / name)
        wanted.insert(2, "with\nbreak")
    elif name == "a.csv":
        (tmp_path / name).write_text("text\n" + "\n".join(f'"{text}"' for text in wanted))
    else:
        (tmp_path / name).write_text("\n".join(json.dumps({"text": text}) for text in wanted))
    (tmp_path / "b.txt").write_text("last\n")
    (tmp_path / "empty.txt").write_text("")
    found, counts, blank = collect(tmp_path / "empty.txt", tmp_path / name, tmp_path / "b.txt")
    assert list(found) == [*(text for text in wanted if text.strip()), "last"]
    assert counts == [0, len(wanted) - 1, 1] and blank == 1
    assert found[-1] == "last" and list(found[1:3]) == list(found)[1:3]
    assert list(found.select([2, 0])) == [found[2], found[0]]


def test_the_limit_ends_the_reading(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n\ntwo\nthree\n\xff\n")
    found, counts, blank = collect(tmp_path / "a.txt", limit=2)
    assert (list(found), counts, blank) == (["one", "two"], [2], 1)
    with pytest.raises(DataError, match="line 5"):
        collect(tmp_path / "a.txt")


@pytest.mark.slow
def test_memory_holds_places_and_not_texts(tmp_path):
    (tmp_path / "big.txt").write_text(("a sentence of some words, as long as they are in books " * 4 + "\n") * 50_000)
    size = (tmp_path / "big.txt").stat().st_size
    tracemalloc.start()
    found, _, _ = collect(tmp_path / "big.txt")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 50_000 and found[49_999].startswith("a sentence")
    assert kept < 50_000 * 17 < size / 10
