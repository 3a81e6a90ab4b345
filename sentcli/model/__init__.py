"""What a loaded model is made of: its description, weights, tokenizer, torch module, and the backends that run it."""
