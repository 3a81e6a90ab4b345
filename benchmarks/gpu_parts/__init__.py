"""The parts of `benchmarks/gpu.py`: encoding, files, search and training."""
