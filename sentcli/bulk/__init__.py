"""Encode files to vectors on disk, for `sentcli encode`.

Rows are read in blocks. Texts that the shard had before are left out, and the others go to an engine, which tokenises,
packs and runs them in one or several processes. The results are written in the order of the input. The number of blocks
in memory is bounded, so memory does not depend on the number of rows.

io/blocks.blocks -> distinct texts of the shard -> engine -> Compression.apply -> io/writers

`bulk/encode.py` is that line. A block of rows never crosses a shard. Texts that the shard has had are found by a hash,
and their vectors are taken from a temporary file, the spool, so memory holds a hash and a number for each distinct text
of one shard. The rest goes to an engine (`bulk/engine.py`): a thread with the encoder, or a process for each device.
The engine is some blocks ahead of the writer, never more, and results are taken in the order of the input.

On Ray a worker gets the number of its shard and the `InputPosition` before its first row, reads the rows itself and
runs the same line with an `io/dataset_writer.ShardWriter` (`bulk/on_ray.py`); this process enters the shard that it
returns into the manifest. Who dies costs a shard and no more: all state is the manifest. The worker puts the files of
its shard into the directory itself, through `io/folder.py`, which is a folder on a disk or in a store. `ask_nodes` in
`cluster/nodes.py` sends functions that need no sentcli on the node, so that versions can be compared.

Nothing good is deleted before the new is whole. What is made in one go has a temporary name (`replacing` in
`io/atomic.py`); what takes hours is made in the `staging_folder` of its folder, where a later command goes on, and
`exchange` swaps both names in one step. Training, `encode`, `index` and exports go through these three functions;
`Folder.promote` does it for directories of shards, and in a store, which has no such step, by a copy that brings the
manifest last. A collection of Milvus is made beside the old one and renamed, and rows of LanceDB wait in a table beside
until one commit brings them. `tests/faults/test_overwrite.py` lets each call that changes a file fail, or kills there:
a command that writes something new is a line in its `CASES`.

`io/dataset.py` knows shards and manifests, `io/blocks.py` which shards a machine makes (`ShardShare`) and what is
counted of them (`Counts`). A shard's bytes may depend on its own rows and the settings only: that is what `--resume`,
`--shard` and the repair of torn shards rest on. Whatever decides the bytes of a vector belongs into `settings` of the
manifest; `settings_of` in `bulk/vector_settings.py` collects it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentcli.bulk.encode import EncodeSummary, encode_files, open_encoder, store_files
    from sentcli.bulk.engine import EncodeSettings, EncodeTexts, parse_devices
    from sentcli.bulk.files import (
        Inputs,
        check_target,
        manifest_of,
        read_checked,
        read_inputs,
        say_types,
        shard_rows_of,
        single_model,
    )
    from sentcli.bulk.passages import facts_of, passage_rows, rows_into
    from sentcli.bulk.stored_texts import open_stored_texts
    from sentcli.bulk.update import Changes, dry_run

FILES = {
    "encode": ("EncodeSummary", "encode_files", "open_encoder", "store_files"),
    "engine": ("EncodeSettings", "EncodeTexts", "parse_devices"),
    "files": (
        "Inputs",
        "check_target",
        "manifest_of",
        "read_checked",
        "read_inputs",
        "say_types",
        "shard_rows_of",
        "single_model",
    ),
    "passages": ("facts_of", "passage_rows", "rows_into"),
    "stored_texts": ("open_stored_texts",),
    "update": ("Changes", "dry_run"),
}
"""The files of this package with what others use of them; a file is imported when something of it is asked for."""
__all__ = [
    "Changes",
    "EncodeSettings",
    "EncodeSummary",
    "EncodeTexts",
    "Inputs",
    "check_target",
    "dry_run",
    "encode_files",
    "facts_of",
    "manifest_of",
    "open_encoder",
    "open_stored_texts",
    "parse_devices",
    "passage_rows",
    "read_checked",
    "read_inputs",
    "rows_into",
    "say_types",
    "shard_rows_of",
    "single_model",
    "store_files",
]


def __getattr__(name: str) -> Any:
    """Import what others use on first use (PEP 562)."""
    for file, names in FILES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{file}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
