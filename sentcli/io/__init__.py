"""Reading and writing files: readers, writers, the manifest of a sharded dataset, and atomic replacement."""
