"""What comes out of archives: the files that are chosen, and no path, link or device that leads out."""

import gzip
import io
import stat
import tarfile
import zipfile
import zlib

import pytest

from sentcli.data import unpack as module
from sentcli.data.unpack import ArchiveError, gunzip, unpack
from tests.data.conftest import tree, zipped


def everything(names):
    return {name: name for name in names}


@pytest.fixture
def into(tmp_path):
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def tarred(members, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def entry(name, mode, content=b"x"):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, content)
    return buffer.getvalue()


FILES = {"a.txt": b"first", "b/c.txt": b"second " * 10_000}


@pytest.mark.parametrize(
    "content",
    [
        zipped(FILES),
        tarred([(member(name), text) for name, text in FILES.items()]),
        tarred([(member(f"./{name}"), text) for name, text in FILES.items()], "w"),
        tarred([(member("b", tarfile.DIRTYPE), b""), *((member(name), text) for name, text in FILES.items())]),
    ],
    ids=["zip", "tar.gz", "tar with ./", "tar with a folder"],
)
def test_files_come_out_whole(tmp_path, into, content):
    (tmp_path / "archive").write_bytes(content)
    assert sorted(unpack(tmp_path / "archive", into, everything)) == sorted(FILES)
    assert tree(into) == FILES


def test_only_what_is_chosen_comes_out_under_its_new_name(tmp_path, into):
    (tmp_path / "a.zip").write_bytes(zipped(FILES))
    assert unpack(tmp_path / "a.zip", into, lambda names: {"b/c.txt": "new/name"}) == ["new/name"]
    assert tree(into) == {"new/name": FILES["b/c.txt"]}


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "C:/evil", "C:evil", "..\\evil", "a\\b"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_path_that_leads_out_is_refused(tmp_path, into, name, kind):
    content = (
        zipped({"good": b"1", name: b"2"}) if kind == "zip" else tarred([(member("good"), b"1"), (member(name), b"")])
    )
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ArchiveError, match=r"'.*(evil|a.*b)'"):
        unpack(tmp_path / "archive", into, everything)
    assert tree(tmp_path) == {"archive": content}, "something came out"


@pytest.mark.parametrize(
    "content",
    [
        entry("link", stat.S_IFLNK | 0o777, b"/etc/passwd"),
        entry("pipe", stat.S_IFIFO | 0o600),
        entry("device", stat.S_IFBLK | 0o600),
        tarred([(member("link", tarfile.SYMTYPE, "/etc/passwd"), b"")]),
        tarred([(member("a"), b"1"), (member("link", tarfile.LNKTYPE, "a"), b"")]),
        tarred([(member("device", tarfile.CHRTYPE), b"")]),
        tarred([(member("pipe", tarfile.FIFOTYPE), b"")]),
    ],
    ids=["zip symlink", "zip pipe", "zip device", "tar symlink", "tar hard link", "tar device", "tar pipe"],
)
def test_links_and_devices_are_refused(tmp_path, into, content):
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ArchiveError, match="link or device"):
        unpack(tmp_path / "archive", into, everything)
    assert not list(into.iterdir())


@pytest.mark.parametrize(
    "names", [["a", "A"], ["x/caf\u00e9", "x/cafe\u0301"], ["a", "a/b"], ["a/b", "a"], ["a", "./a"]], ids=str
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_two_names_that_are_one_place_are_refused(tmp_path, into, names, kind):
    content = zipped(dict.fromkeys(names, b"1")) if kind == "zip" else tarred([(member(name), b"1") for name in names])
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ArchiveError, match="same name"):
        unpack(tmp_path / "archive", into, everything)


def bombs():
    zeros = bytes(module.SMALL_LIMIT + 2**22)
    yield pytest.param(zipped({"bomb": zeros}), id="zip")
    yield pytest.param(tarred([(member("bomb"), zeros)]), id="tar.gz")
    yield pytest.param(tarred([(member("skipped"), zeros), (member("a"), b"1")]), id="tar.gz, not even wanted")


@pytest.mark.parametrize("content", bombs())
def test_a_bomb_ends_early(tmp_path, into, content):
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ArchiveError, match="16,777,216"):
        unpack(tmp_path / "archive", into, everything)
    assert tree(into) == {}, "seen from its table, before anything came out"


def test_a_gzip_bomb_ends_early(tmp_path, into):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(2**20)
    content = b"".join(packer.compress(block) for _ in range(64)) + packer.flush()
    (tmp_path / "bomb.gz").write_bytes(content)
    with pytest.raises(ArchiveError, match="16,777,216"):
        gunzip(tmp_path / "bomb.gz", into / "bomb")
    assert (into / "bomb").stat().st_size <= module.SMALL_LIMIT


def test_a_tar_header_of_many_megabytes_is_refused(tmp_path, into):
    info = member("a")
    info.pax_headers = {"comment": "x" * (module.SMALL_LIMIT + 1)}
    content = tarred([(info, b"1")], "w")
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(ArchiveError):
        unpack(tmp_path / "a.tar", into, everything)


def test_what_is_wanted_counts_together(tmp_path, into, monkeypatch):
    """A zip may claim less than it holds; the limit holds for what comes out."""
    monkeypatch.setattr(module, "SMALL_LIMIT", 1000)
    monkeypatch.setattr(module, "UNPACKED_RATIO", 1)
    (tmp_path / "a.zip").write_bytes(zipped({f"{i}": bytes(400) for i in range(5)}))
    with pytest.raises(ArchiveError, match="1,000"):
        unpack(tmp_path / "a.zip", into, everything)


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar", "gz", "nothing"])
def test_a_damaged_archive_is_one_message(tmp_path, into, kind):
    noise = bytes(range(256)) * 400
    content = {
        "zip": lambda: zipped({"a": noise})[:-30],
        "tar.gz": lambda: tarred([(member("a"), noise)])[:-30],
        "tar": lambda: tarred([(member("a"), noise)], "w")[:50_000],
        "gz": lambda: gzip.compress(noise)[:-30],
        "nothing": lambda: b"<html>not here</html>",
    }[kind]()
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(ArchiveError, match="archive is damaged"):
        if kind == "gz":
            gunzip(tmp_path / "archive", into / "a")
        else:
            unpack(tmp_path / "archive", into, everything)


def test_changed_bytes_inside_a_zip_are_seen(tmp_path, into):
    content = bytearray(zipped({"a": b"the cat sat on the mat"}, zipfile.ZIP_STORED))
    content[content.index(b"cat")] ^= 1
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ArchiveError, match="CRC"):
        unpack(tmp_path / "a.zip", into, everything)


def test_an_encrypted_zip_is_refused(tmp_path, into):
    content = bytearray(zipped({"a": b"1"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ArchiveError, match="encrypted"):
        unpack(tmp_path / "a.zip", into, everything)
