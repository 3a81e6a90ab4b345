"""Directories of shards: what is in them, and what happens when they are interrupted, damaged, shared or added to."""

import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentcli.errors import InputError, SentcliError
from sentcli.io.blocks import Block, Counts, ShardShare
from sentcli.io.dataset import InputGroup
from sentcli.io.dataset import read_manifest as manifest_of
from sentcli.io.dataset_check import check_dataset, require_whole
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.folder import open_folder
from sentcli.io.writers import OutputPlan

PLAN = OutputPlan(10, 3, {"n": pa.int64()}, {"model": "m"})
DATA = np.arange(30, dtype=np.float32).reshape(10, 3)
INPUT = [{"name": "a", "sha256": "1"}]


def writer_of(folder, plan=PLAN, shard_rows=4, inputs=INPUT, **options):
    return DatasetWriter(open_folder(folder), plan, shard_rows, InputGroup(inputs, plan.rows, plan.rows), **options)


def write(folder, plan=PLAN, shard_rows=4, stop_after=None, data=DATA, **options):
    """Write data in shards of blocks of 2; `stop_after` blocks the run is interrupted."""
    blocks = 0
    try:
        with writer_of(folder, plan, shard_rows, **options) as writer:
            for shard in writer.missing:
                for start in range(shard * shard_rows, min((shard + 1) * shard_rows, plan.rows), 2):
                    rows = range(start, min(start + 2, (shard + 1) * shard_rows, plan.rows))
                    if blocks == stop_after:
                        raise KeyboardInterrupt
                    blocks += 1
                    ids = [f"id{writer.first_row + i}" for i in rows]
                    block = Block(ids, [f"text {i}" for i in rows], {"n": list(rows)}, shard, start)
                    writer.write(block, data[rows.start : rows.stop], Counts(rows=len(rows), tokens=7 * len(rows)))
    except KeyboardInterrupt:
        pass
    return folder


def read_manifest(folder):
    return asdict(manifest_of(folder))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def vectors(folder):
    return np.concatenate([np.load(folder / shard["vectors"]) for shard in read_manifest(folder)["shards"]])


def test_a_directory_holds_shards_of_the_given_size_and_a_manifest(tmp_path):
    folder = write(tmp_path / "deep" / "out")
    shards = [(f"vectors-{i:05d}.npy", f"rows-{i:05d}.parquet") for i in range(3)]
    assert names(folder) == sorted(["manifest.json", *(name for pair in shards for name in pair)])
    parts = [np.load(folder / name, allow_pickle=False) for name, _ in shards]
    assert [len(part) for part in parts] == [4, 4, 2]
    assert np.array_equal(np.concatenate(parts), DATA)
    tables = [pq.read_table(folder / name) for _, name in shards]
    assert tables[0].column_names == ["id", "text", "n"]
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(10))
    manifest = read_manifest(folder)
    wanted = {"format": 1, "rows_total": 10, "rows_done": 10, "dimension": 3, "dtype": "float32", "shard_rows": 4}
    assert {key: manifest[key] for key in wanted} == wanted
    assert manifest["settings"] == PLAN.settings
    assert manifest["counts"]["tokens"] == 70
    assert [(s["vectors"], s["rows"], s["count"], s["first_row"]) for s in manifest["shards"]] == [
        (*pair, count, first) for pair, count, first in zip(shards, (4, 4, 2), (0, 4, 8), strict=True)
    ]


def test_rows_that_fill_the_last_shard_leave_no_empty_one(tmp_path):
    folder = write(tmp_path / "out", shard_rows=5)
    assert [shard["count"] for shard in read_manifest(folder)["shards"]] == [5, 5]
    assert len(names(folder)) == 5


@pytest.mark.parametrize(("stop_after", "rows_done"), [(0, 0), (1, 0), (2, 4), (3, 4), (4, 8)])
def test_an_interrupted_directory_continues_to_the_same_bytes(tmp_path, stop_after, rows_done):
    whole = contents(write(tmp_path / "whole"))
    folder = write(tmp_path / "out", stop_after=stop_after)
    assert read_manifest(folder)["rows_done"] == rows_done
    assert len(names(folder)) == 1 + rows_done // 4 * 2, "a shard that is not full was published"
    assert contents(write(folder, resume=True)) == whole


def test_what_a_killed_run_left_is_cleared_on_resume(tmp_path):
    whole = contents(write(tmp_path / "whole"))
    folder = write(tmp_path / "out", stop_after=2)
    (folder / ".vectors-00001.npy.123.partial").write_bytes(b"half")
    (folder / "vectors-00001.npy").write_bytes(b"published before the manifest was")
    assert contents(write(folder, resume=True)) == whole


def test_a_complete_directory_is_left_as_it_is_on_resume(tmp_path):
    folder = write(tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    write(folder, resume=True)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_without_resume_old_shards_go_and_other_files_stay(tmp_path):
    folder = write(tmp_path / "out", shard_rows=2)
    (folder / "notes.txt").write_text("mine")
    write(folder, shard_rows=8)
    assert sorted(p.name for p in folder.glob("vectors-*")) == ["vectors-00000.npy", "vectors-00001.npy"]
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("plan", "shard_rows", "inputs", "words"),
    [
        (
            OutputPlan(10, 3, PLAN.column_types, {"model": "other"}),
            4,
            INPUT,
            "model 'm' .*'other'",
        ),
        (OutputPlan(10, 3, PLAN.column_types, {"model": "m", "prompt": "q"}), 4, INPUT, "prompt None .*'q'"),
        (OutputPlan(10, 3, {}, PLAN.settings), 4, INPUT, "n 'int64' .*None"),
        (PLAN, 5, INPUT, "shard_rows .*4 .*5 "),
        (PLAN, 4, [{"name": "b"}], "inputs .*name 'a' .*'b' .*sha256 '1' .*None"),
    ],
)
def test_a_directory_made_otherwise_is_not_continued(tmp_path, plan, shard_rows, inputs, words):
    folder = write(tmp_path / "out", stop_after=2)
    before = contents(folder)
    with pytest.raises(InputError, match=f"^{folder} .*{words}") as caught:
        writer_of(folder, plan, shard_rows, inputs, resume=True)
    assert str(caught.value).count("--overwrite") == 1
    assert contents(folder) == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2, "shards": []}', '{"format": 1, "shards": 5}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"manifest\.json .*--overwrite"):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_was_not_written_by_encode(tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json"):
        read_manifest(tmp_path)


# Damage


def truncated(path):
    path.write_bytes(path.read_bytes()[:-5])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["vectors-00001.npy", "rows-00000.parquet"])
@pytest.mark.parametrize("damage", [truncated, flipped, lambda path: path.unlink()])
def test_a_damaged_shard_is_found_and_made_again_alone(tmp_path, name, damage):
    folder = write(tmp_path / "out")
    whole = contents(folder)
    stamps = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    damage(folder / name)
    checked = check_dataset(open_folder(folder))
    assert len(checked.problems) == 1
    assert name in checked.problems[0]
    with pytest.raises(SentcliError, match=f"{name}.*--resume"):
        require_whole(checked, folder)
    writer = writer_of(folder, resume=True)
    assert writer.missing == [int(name.split("-")[1].split(".")[0])]
    assert len(writer.damaged) == 1
    write(folder, resume=True)
    assert contents(folder) == whole
    redone = {f"vectors-{writer.missing[0]:05d}.npy", f"rows-{writer.missing[0]:05d}.parquet", "manifest.json"}
    assert {p.name for p in folder.iterdir() if p.stat().st_mtime_ns != stamps[p.name]} == redone


def test_a_whole_directory_is_in_order(tmp_path):
    checked = check_dataset(open_folder(write(tmp_path / "out")))
    assert checked.problems == []
    assert (checked.rows, checked.rows_total, checked.shards, checked.dimension) == (10, 10, 3, 3)


def test_an_unfinished_directory_lacks_shards(tmp_path):
    checked = check_dataset(open_folder(write(tmp_path / "out", stop_after=2)))
    assert checked.problems == ["shard 1 (rows 4 to 7) is not there", "shard 2 (rows 8 to 9) is not there"]


def test_a_shard_of_another_place_is_found(tmp_path):
    folder = write(tmp_path / "out")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][1]["first_row"] = 0
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "vectors-00009.npy").touch()
    assert check_dataset(open_folder(folder)).problems == [
        "shard 1 says rows 0 and 4, expected (4, 4)",
        "vectors-00009.npy belongs to no shard of the manifest",
    ]


# Parts


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", "1/2/3"])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(InputError, match=f"{text}.* I/N"):
        ShardShare.parse(text)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_parts_share_out_every_shard_once(count):
    shards = [n for i in range(1, count + 1) for n in ShardShare(i, count).shards(7)]
    assert shards == list(range(7))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_made_apart_are_one_dataset_when_gathered(tmp_path, count):
    whole = write(tmp_path / "whole")
    gathered = tmp_path / "gathered"
    gathered.mkdir()
    for i in range(1, count + 1):
        part = write(tmp_path / f"machine{i}", part=ShardShare(i, count))
        for path in part.iterdir():
            path.rename(gathered / path.name)
    assert check_dataset(open_folder(gathered)).problems == []
    assert np.array_equal(vectors(gathered), DATA)
    shards = {name: data for name, data in contents(gathered).items() if not name.startswith("manifest")}
    assert shards == {name: data for name, data in contents(whole).items() if name != "manifest.json"}


def test_parts_in_one_folder_leave_each_other_alone(tmp_path):
    folder = tmp_path / "out"
    write(folder, part=ShardShare(2, 2), stop_after=1)
    (folder / ".vectors-00002.npy.99.partial").touch()  # the other machine is writing it
    write(folder, part=ShardShare(1, 2))
    assert ".vectors-00002.npy.99.partial" in names(folder)
    write(folder, part=ShardShare(2, 2), resume=True)
    assert check_dataset(open_folder(folder)).problems == []
    assert [n for n in names(folder) if n.startswith(".")] == []


def test_a_missing_part_and_one_of_another_dataset_are_named(tmp_path):
    folder = write(tmp_path / "out", part=ShardShare(1, 2))
    with pytest.raises(InputError, match=r"2.*manifest-00002-of-00002\.json"):
        read_manifest(folder)
    write(folder, OutputPlan(10, 3, PLAN.column_types, {"model": "other"}), part=ShardShare(2, 2))
    with pytest.raises(InputError, match=r"'m'.*'other'"):
        read_manifest(folder)


# Appending

MORE = [{"name": "b", "sha256": "2"}]


def test_rows_are_added_after_those_that_are_there(tmp_path):
    folder = write(tmp_path / "out")
    before = contents(folder)
    plan = OutputPlan(5, 3, PLAN.column_types, PLAN.settings)
    write(folder, plan, inputs=MORE, append=True, data=DATA + 100)
    assert check_dataset(open_folder(folder)).problems == []
    assert np.array_equal(vectors(folder), np.concatenate([DATA, DATA[:5] + 100]))
    manifest = read_manifest(folder)
    assert (manifest["rows_total"], manifest["rows_done"]) == (15, 15)
    assert [shard["first_row"] for shard in manifest["shards"]] == [0, 4, 8, 10, 14]
    assert {name: data for name, data in contents(folder).items() if name in before and name != "manifest.json"} == {
        name: data for name, data in before.items() if name != "manifest.json"
    }
    ids = pq.read_table(folder / "rows-00003.parquet")["id"].to_pylist()
    assert ids == ["id10", "id11", "id12", "id13"]


def test_appending_the_same_rows_again_adds_nothing_and_an_interrupted_one_goes_on(tmp_path):
    plan = OutputPlan(5, 3, PLAN.column_types, PLAN.settings)
    whole = write(write(tmp_path / "whole"), plan, inputs=MORE, append=True)
    folder = write(write(tmp_path / "out"), plan, inputs=MORE, append=True, stop_after=2)
    assert read_manifest(folder)["rows_done"] == 14
    write(folder, plan, inputs=MORE, append=True)
    assert contents(folder) == contents(whole)
    write(folder, plan, inputs=MORE, append=True)
    assert contents(folder) == contents(whole)


def test_an_unfinished_directory_is_not_added_to(tmp_path):
    folder = write(tmp_path / "out", stop_after=2)
    with pytest.raises(InputError, match=r"4.*10"):
        writer_of(folder, inputs=MORE, append=True)
    with pytest.raises(InputError, match=f"{tmp_path}/new .*--append"):
        writer_of(tmp_path / "new", inputs=MORE, append=True)
