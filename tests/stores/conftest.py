import pytest


@pytest.fixture
def encode(invoke, tiny_bert):
    """Run `encode` with the tiny BERT, which reads 32 tokens."""

    def call(*arguments, check=0, model=tiny_bert):
        return invoke("encode", *arguments, "-m", model, check=check)

    return call


@pytest.fixture(scope="session")
def encoder(tiny_bert):
    """The encoder that the command line runs."""
    from sentcli import SentenceEncoder

    return SentenceEncoder.load(tiny_bert)


@pytest.fixture
def write(tmp_path):
    """Write a text file, one text a line."""

    def file(name, texts):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
        return path

    return file
