"""Whatever a tokenizer is read from decides whether an export in the cache is still that of the model."""

import pytest

from sentcli.model.identity import tokenizer_digest

FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json",
    "special_tokens_map.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_another_tokenizer_file_is_another_tokenizer(tmp_path, name):
    for file in FILES:
        (tmp_path / file).write_text("a")
    before = tokenizer_digest(tmp_path)
    (tmp_path / name).write_text("b")
    assert tokenizer_digest(tmp_path) != before
