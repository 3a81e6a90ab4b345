"""Text to vectors: what a model folder says (spec), its weights, tokenising, batching, and the torch backend."""
