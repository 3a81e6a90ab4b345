import pytest


@pytest.fixture
def dev(tmp_path, sentences):
    """A SentEval folder with an STS-B dev set of 30 pairs."""
    folder = tmp_path / "senteval" / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    words = [s for s in sentences if s.strip() and "\t" not in s]
    rows = [f"g\tf\ty\t{i}\t{i % 6}.0\t{words[i]}\t{words[i + 40]}\n" for i in range(30)]
    (folder / "sts-dev.csv").write_text("".join(rows), "utf-8")
    return tmp_path / "senteval"


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(
        'seeds = [1, 2]\n[[grid]]\nmethod = ["simcse", "informin-cl"]\ntemperature = 0.1\n'
        '[[grid]]\nmethod = "simcse"\nlearning_rate = [1e-3, 3e-3]\n'
    )
    return path
