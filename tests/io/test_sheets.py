"""Tables as spreadsheets write them: other separators, UTF-16, workbooks, and headers that are missing."""

import gzip
import zipfile
from xml.sax.saxutils import escape

import pytest

from sentcli.errors import DataError, MissingExtraError
from sentcli.io.disk_texts import texts_on_disk
from sentcli.io.formats import records
from sentcli.io.labelled import read_table
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import open_source

ROWS = [["question1", "question2", "is_duplicate"], ["an apple; or two", "ein Äpfel", 1], ["a, b", "c", 0]]


def csv_text(separator, rows=ROWS):
    return "".join(separator.join(f'"{cell}"' for cell in row) + "\r\n" for row in rows)


def xlsx(path, rows=ROWS, sheets=("Data",)):
    """Write a workbook with the parts that Excel needs."""
    cells = "".join(
        f"<row>{''.join(_xlsx_cell(cell) for cell in row)}</row>" for row in rows
    )  # fmt: skip
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    listed = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
    targets = "".join(
        f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{package}/content-types"/>')
        start = f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
        archive.writestr("_rels/.rels", f'<Relationships xmlns="{package}/relationships">{start}</Relationships>')
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{listed}</sheets></workbook>'
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}/relationships">{targets}</Relationships>'
        )
        for i in range(1, len(sheets) + 1):
            body = cells if i == 1 else ""
            archive.writestr(
                f"xl/worksheets/sheet{i}.xml", f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>'
            )
    return str(path)


def _xlsx_cell(cell):
    if isinstance(cell, str):
        return f'<c t="inlineStr"><is><t>{escape(cell)}</t></is></c>' if cell else "<c/>"
    return f"<c><v>{cell}</v></c>"


def ods(path, rows=ROWS):
    """Write a spreadsheet of LibreOffice with the parts that readers need."""
    names = {name: f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("office", "table", "text")}
    spaces = " ".join(f'xmlns:{name}="{uri}"' for name, uri in names.items())
    body = ""
    for row in rows:
        body += "<table:table-row>"
        for cell in row:
            value = (
                f'office:value-type="float" office:value="{cell}"'
                if isinstance(cell, int)
                else 'office:value-type="string"'
            )
            body += f"<table:table-cell {value}><text:p>{escape(str(cell))}</text:p></table:table-cell>"
        body += "</table:table-row>"
    content = f'<office:document-content {spaces}><office:body><office:spreadsheet><table:table table:name="A">{body}'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr(
            "content.xml", content + "</table:table></office:spreadsheet></office:body></office:document-content>"
        )
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
    return str(path)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("gz", ["", ".gz"])
def test_separators_and_encodings_are_told_from_the_file(tmp_path, separator, encoding, gz, capsys):
    data = csv_text(separator).encode(encoding)
    path = tmp_path / f"t.csv{gz}"
    path.write_bytes(gzip.compress(data) if gz else data)
    table = read_table(str(path))
    assert (table.kind, table.values) == ("binary", [1, 0])
    assert table.texts == (["an apple; or two", "a, b"], ["ein Äpfel", "c"])
    said = " ".join(capsys.readouterr().err.split())
    assert ("t.csv" in said) == (separator != ",")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_every_text_format_may_be_utf_16_with_a_mark(tmp_path, encoding):
    mark = "\ufeff"
    (tmp_path / "a.txt").write_bytes(f"{mark}Straße\nzwei\n".encode(encoding))
    (tmp_path / "a.jsonl").write_bytes(f'{mark}{{"text": "Straße"}}\n{{"text": "zwei"}}\n'.encode(encoding))
    (tmp_path / "a.tsv").write_bytes(f"{mark}text\nStraße\nzwei\n".encode(encoding))
    for name in ("a.txt", "a.jsonl", "a.tsv"):
        source = open_source(str(tmp_path / name))
        assert [row.text for row in rows(source, ReadOptions())] == ["Straße", "zwei"]
        assert list(texts_on_disk([source], ReadOptions())[0]) == ["Straße", "zwei"]


def test_broken_utf_16_names_the_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfea")
    with pytest.raises(DataError, match=r"a\.txt: .*UTF-16"):
        list(records(open_source(str(tmp_path / "a.txt"))))


@pytest.mark.slow
@pytest.mark.parametrize("write", [xlsx, ods])
def test_workbooks_are_read(tmp_path, write):
    table = read_table(write(tmp_path / f"t.{write.__name__}"))
    assert (table.kind, table.values, table.lines, table.unit) == ("binary", [1, 0], [2, 3], "row")
    assert table.texts == (["an apple; or two", "a, b"], ["ein Äpfel", "c"])


@pytest.mark.slow
def test_cells_keep_their_types_and_places(tmp_path):
    file = xlsx(
        tmp_path / "t.xlsx", [["id", "text", "year", ""], [7, "a", 1999, ""], ["", "", "", ""], ["x", "b", 0.5, ""]]
    )
    found = list(records(open_source(file)))
    assert found == [(2, {"id": 7, "text": "a", "year": 1999}), (4, {"id": "x", "text": "b", "year": 0.5})]
    empty = xlsx(tmp_path / "e.xlsx", [["anchor", "positive"], ["a b", "c d"], ["a c", ""]])
    with pytest.raises(DataError, match="row 3"):
        read_table(empty, on_empty="error")
    assert read_table(empty).texts[1] == ["c d", ""]


def test_the_first_of_several_sheets_is_read_and_said(tmp_path, capsys):
    assert read_table(xlsx(tmp_path / "t.xlsx", sheets=("Data", "Notes"))).values == [1, 0]
    assert "'Data'" in capsys.readouterr().err


def test_what_is_no_workbook_is_told(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_text("question1,question2\n")
    with pytest.raises(DataError, match=r"t\.xlsx: "):
        read_table(str(tmp_path / "t.xlsx"))
    broken = ods(tmp_path / "broken.ods")
    with zipfile.ZipFile(tmp_path / "cut.ods", "w") as cut, zipfile.ZipFile(broken) as whole:
        cut.writestr("mimetype", whole.read("mimetype"))
        cut.writestr("content.xml", whole.read("content.xml").replace(b"</table:table>", b"<table:table"))
        cut.writestr("META-INF/manifest.xml", "<manifest/>")
    with pytest.raises(DataError, match=r"cut\.ods: "):  # the library alone never ends
        read_table(str(tmp_path / "cut.ods"))
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    with pytest.raises(MissingExtraError, match=r"t\.xlsx: .*sentcli\[sheets\]"):
        read_table(str(tmp_path / "t.xlsx"))


def rewritten(path, name, change):
    """Change one member of a workbook."""
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, change(content) if member == name else content)
    return path


def far_cell(cell):
    return lambda sheet: sheet.replace(b"</sheetData>", f'<row><c r="{cell}"><v>1</v></c></row></sheetData>'.encode())


def shared_strings(path):
    """Let a workbook state four billion texts."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(
            "xl/sharedStrings.xml", f'<sst xmlns="{main}" uniqueCount="4294967295"><si><t>a</t></si></sst>'
        )
    entry = f'<Relationship Id="r9" Type="{office}/sharedStrings" Target="sharedStrings.xml"/></Relationships>'.encode()
    return rewritten(path, "xl/_rels/workbook.xml.rels", lambda text: text.replace(b"</Relationships>", entry))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: rewritten(xlsx(folder / "t.xlsx"), "xl/worksheets/sheet1.xml", far_cell("XFD1048576")),
        lambda folder: shared_strings(xlsx(folder / "t.xlsx")),
    ],
    ids=["a far cell", "a count of texts"],
)
def test_sizes_that_a_workbook_states_are_bounded(make, tmp_path, monkeypatch):
    monkeypatch.setattr("sentcli.io.sheets.BASE", 2**28)  # so that the process fills less before it ends
    with pytest.raises(DataError, match=r"t\.xlsx: .*more cells or texts than there is memory for"):
        read_table(make(tmp_path))


@pytest.mark.slow
def test_a_cell_at_the_end_of_a_column_is_read(tmp_path):
    file = rewritten(xlsx(tmp_path / "t.xlsx"), "xl/worksheets/sheet1.xml", far_cell("A100000"))
    assert [number for number, _ in records(open_source(file))] == [2, 3, 100_000]


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("sentcli.io.text_lines.LONGEST_LINE", 2**20)
    with gzip.open(tmp_path / "t.txt.gz", "wb") as handle:
        handle.write(b"a\n" + b"b" * 2**21)
    with pytest.raises(DataError, match=r"t\.txt\.gz, line 2: .*longer than 1 MB"):
        list(records(open_source(str(tmp_path / "t.txt.gz"))))


def test_a_packed_file_is_not_read_at_once_beyond_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("sentcli.io.sources.memory_left", lambda: 2**22)
    (tmp_path / "t.xlsx.gz").write_bytes(gzip.compress(b"PK" * 2**21))
    with pytest.raises(DataError, match=r"t\.xlsx\.gz: .*too much to be read at once"):
        list(records(open_source(str(tmp_path / "t.xlsx.gz"))))


def test_a_text_file_of_tabs_is_no_other_table(tmp_path):
    (tmp_path / "t.tsv").write_text('sentence1\tsentence2\tscore\n"Hi" he said; then\tb\t1\n')
    assert read_table(str(tmp_path / "t.tsv")).texts[0] == ['"Hi" he said; then']


def test_a_missing_header_is_said_where_texts_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("How do I find the cat?,17\nx,3\n")
    with pytest.raises(DataError, match=r"t\.csv, line 2: .*'text'.*How do I find the cat.*--text-field"):
        list(rows(open_source(str(tmp_path / "t.csv")), ReadOptions()))


def test_a_column_without_a_name_and_one_called_0_are_read_as_in_csv(tmp_path):
    table = [["", "text", 0, "", 1.5], ["k1", "a", 5, "", 7], ["k2", "b", 6, "", 8]]
    found = list(records(open_source(xlsx(tmp_path / "t.xlsx", table))))
    assert found == [(2, {"": "k1", "text": "a", "0": 5, "1.5": 7}), (3, {"": "k2", "text": "b", "0": 6, "1.5": 8})]


BEYOND = {
    "behind the header": [["id", "text"], ["1", "a"], ["2", "b", "a note"]],
    "a second column without a name": [["", "text", "", "n"], ["k", "a", "", "1"], ["", "b", "a note", "2"]],
    "no header": [["", ""], ["id", "text"]],
}


@pytest.mark.parametrize("table", BEYOND.values(), ids=BEYOND)
def test_a_cell_that_the_header_does_not_name_is_refused_with_its_place(tmp_path, table):
    width = max(map(len, table))
    file = xlsx(tmp_path / "t.xlsx", [row + [""] * (width - len(row)) for row in table])
    last = len(table)
    cell = "a note" if last == 3 else "id"
    with pytest.raises(DataError, match=rf"t\.xlsx, row {last}: '{cell}'"):
        list(records(open_source(file)))
