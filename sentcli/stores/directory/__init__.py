"""A directory of shards with its manifest: how it is written, what it has, and its indexes.

Nothing good is deleted before the new is whole. What is made in one go has a temporary name (`replacing` in
`io/atomic.py`); what takes hours is made in the `staging_folder` of its folder, where a later command goes on, and
`exchange` swaps both names in one step. Training, `encode`, `index` and exports go through these three functions;
`Folder.promote` does it for directories of shards, and in an object store, which has no such step, by a copy that
brings the manifest last. `tests/faults/test_overwrite.py` lets each call that changes a file fail, or kills there: a
command that writes something new is a line in its `CASES`.

`io/dataset.py` knows shards and manifests, `io/blocks.py` which shards a machine makes (`ShardShare`) and what is
counted of them (`Counts`). A shard's bytes may depend on its own rows and the settings only: that is what `--resume`,
`--shard` and the repair of torn shards rest on. Whatever decides the bytes of a vector belongs into `settings` of the
manifest; `EncodedVectors.kept_settings` collects it.
"""
