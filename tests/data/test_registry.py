"""The registry that is shipped: whole, honest, and equal to the files where they are here."""

import hashlib
import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import pytest

from sentcli.data.registry import find_data_set, registry
from sentcli.errors import InputError

SETS = list(registry().values())
PUBLISHED_MD5 = 15
"""BEIR prints the MD5 of each of its public sets."""


def parts(dataset):
    return [*dataset.files, *dataset.archives]


def test_the_sets():
    names = {"senteval", "sts", "wiki1m", "nli", "scifact", "fever", "cqadupstack", "trec-covid", "webis-touche2020"}
    assert names <= set(registry())
    assert sum(dataset.kind == "beir" for dataset in SETS) >= 15
    with pytest.raises(InputError, match=r"'sentevall'.*'senteval'"):
        find_data_set("sentevall")


@pytest.mark.parametrize("dataset", SETS, ids=lambda dataset: dataset.name)
def test_a_set_is_whole(dataset):
    assert dataset.title and dataset.licence and dataset.note
    assert dataset.kind in ("senteval", "beir", "text", "pairs")
    assert dataset.folder.split("/")[0] in ("senteval", "retrieval", "corpus", "pairs")
    assert dataset.files and any(part.sources for part in parts(dataset))
    assert dataset.archives or all(file.sources for file in dataset.files), "a file cannot be had"
    paths = [file.path for file in dataset.files]
    assert len({path.casefold() for path in paths}) == len(paths)
    for path in [*paths, dataset.folder]:
        assert not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
    if dataset.kind == "beir":
        assert all(any(path.endswith(name) for path in paths) for name in ("corpus.jsonl", "queries.jsonl"))
        assert any(re.search(r"qrels/(test|dev)\.tsv$", path) for path in paths)


@pytest.mark.parametrize("dataset", SETS, ids=lambda dataset: dataset.name)
def test_addresses_and_checksums_are_well_formed(dataset):
    for part in parts(dataset):
        for source in part.sources:
            found = urlsplit(source)
            assert found.scheme == "https" and "." in found.netloc and found.path and not found.username
            assert re.fullmatch(r"[!-~]+", source), f"not escaped: {source}"
            if found.netloc in ("raw.githubusercontent.com", "cdn.jsdelivr.net"):
                assert re.search(r"[/@][0-9a-f]{40}/", source), f"not of one commit: {source}"
        assert part.unpack in ("none", "gz", "zip", "tar", "tar.gz")
        assert part.pin.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", part.pin.sha256)
        assert part.pin.md5 is None or re.fullmatch(r"[0-9a-f]{32}", part.pin.md5)
        assert part.pin.size is None or part.pin.size > 0
        assert part.unpack != "gz" or not part.pin.checks, "a pin is of the unpacked file"


def test_no_checksum_stands_for_two_files():
    sums = [part.pin.sha256 for dataset in SETS if dataset.name != "sts" for part in parts(dataset) if part.pin.sha256]
    assert len(set(sums)) == len(sums)


def test_every_public_set_of_beir_is_checked_by_what_it_publishes():
    archives = [a for dataset in SETS if dataset.kind == "beir" for a in dataset.archives]
    assert sum(archive.pin.md5 is not None and archive.pin.size is not None for archive in archives) == PUBLISHED_MD5
    assert all(dataset.archive_first for dataset in SETS if dataset.kind == "beir" and dataset.archives)


def test_the_similarity_tasks_are_a_part_of_senteval():
    whole, part = find_data_set("senteval"), find_data_set("sts")
    assert set(part.files) < set(whole.files) and part.folder == whole.folder
    assert {file.path.split("/")[0] for file in part.files} == {"STS", "SICK"}


def test_the_checksums_of_senteval_are_those_of_the_files(data):
    rezipped = "STS/STS15-en-test/STS.answers-forums.zip"  # the copy at hand holds only its licence and tables
    known = {file.path: file.pin for file in find_data_set("senteval").files}
    there = {
        path.relative_to(data / "senteval").as_posix() for path in (data / "senteval").rglob("*") if path.is_file()
    }
    assert there <= set(known)
    assert set(known) - there <= {f"SST/fine/sentiment-{split}" for split in ("dev", "test", "train")}
    for name in sorted(there - {rezipped}):
        content = (data / "senteval" / name).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (known[name].sha256, known[name].size), name


@pytest.mark.slow
def test_the_evaluations_find_all_their_files(data, tmp_path):
    """Exactly the registered files are enough for every task that can be read from the copy at hand."""
    from sentcli.evaluation import sts_pairs, transfer_data

    for file in find_data_set("senteval").files:
        if (data / "senteval" / file.path).exists():
            (tmp_path / file.path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file.path).symlink_to(data / "senteval" / file.path)
    assert len(sts_pairs.load_pairs(tmp_path, None, "test")) == 7
    assert len(transfer_data.load_examples(tmp_path, None)) == 7
