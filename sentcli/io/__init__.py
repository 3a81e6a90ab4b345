"""Files in and out: readers, writers, the manifest of a sharded dataset, and atomic replacement."""
