"""Small artefacts of each released version, one folder a kind, which every later version of the same number opens."""
