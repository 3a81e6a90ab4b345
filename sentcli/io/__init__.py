"""Reading and writing files: readers, writers, the manifest of a sharded dataset, and atomic replacement.

A `Place` (`io/places.py`) is where bytes lie: a name that is safe to print, and a path on this machine. A `Source` is a
place with a format, a `Folder` a directory of shards, a `FolderCopy` a folder of a store in the cache; errors name the
place. A web address is an `Address` from the first line of a verb on: as text it is the public part, so a password
cannot reach an output by any way, and only `io/object_stores.py`, which alone knows fsspec, asks for the rest.
`io/copies.py` brings a file to a temporary one, or a folder into the cache, and everything behind it reads a local
file. Copies are called after their address, so that also an error that names the path of a file in a copy tells where
it is from. A `Folder` on a disk does next to nothing, and `RemoteFolder` lists the store, copies finished files there
and deletes them here. Errors of the libraries become one message in `io/places.py`, by the names of their classes, so
that none is imported for it.

`data get` takes files through `io/object_stores.py` as well, checks them against their pins and unpacks archives. pooch
would not do for it: its client waits without end for a host that sends a byte now and then, follows redirections to
addresses that are not encrypted, and reads what is larger than the file should be to its end.

A reader is a generator in `sentcli/io/formats.py` that takes a `Source` and yields pairs of a line number and a dict.
Its values are those of JSON, Arrow or Python as they stand; `id_of`, `is_null` and `decode_bytes` there say what they
are worth as ids and texts, the same for all formats. What is in memory becomes an Arrow file first (`io/in_memory.py`).
Enter the suffix in `FORMATS` and the function in the table of `records`. Ids, null texts, other columns and all
commands then work without further changes, because `rows` in `io/readers.py`, and `survey` and `blocks` in
`io/blocks.py`, stand on top of it. Report every problem as a `DataError` with its line.

A writer is a function in `sentcli/io/writers.py` that yields a `Write`, which takes a block and its vectors. Enter an
`OutputFormat` with its suffix and what it keeps in `FILES` of `io/writers.py`. It must stream: memory may not
grow with the number of rows. Files are written through `replacing` from `io/atomic.py`, which renames them into place
at the end and removes them after an error. Extend the tests in `tests/io/` with a round trip.
"""
