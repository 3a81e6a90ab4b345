"""The vectors of fixed texts: what a model is to the one that made them, and where they are kept and compared."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.model.probe_vectors import PROBE_TEXTS, ProbeVectors
from tests.conftest import WORDS, save_backbone
from tests.evaluation.conftest import write_set

QUERY = "query: "


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model, a copy of it, its weights in float16, two trained a little, and one of other weights."""
    folder = tmp_path_factory.mktemp("models")
    first = save_backbone(folder / "first", seed=0)
    generator = np.random.default_rng(0)

    def changed(name, change):
        shutil.copytree(first, folder / name)
        weights = load_file(first / "model.safetensors")
        save_file({key: change(value) for key, value in weights.items()}, folder / name / "model.safetensors")
        return folder / name

    def noisy(share):
        return lambda v: (v + share * np.abs(v).mean() * generator.standard_normal(v.shape)).astype(v.dtype)

    return {
        "first": first,
        "copy": changed("copy", lambda v: v),
        "half": changed("half", lambda v: v.astype(np.float16) if v.dtype == np.float32 else v),
        "trained": changed("trained", noisy(0.02)),
        "trained more": changed("trained more", noisy(0.2)),
        "other": save_backbone(folder / "other", seed=1),
        "minilm": "minilm",
        "mini": "sentcli-bert-mini",
    }


@pytest.fixture(scope="module")
def made(folders):
    """The canaries of a model, by its name, options and prompt, each made once."""
    kept = {}

    def make(name, prompt="", **options):
        key = (name, prompt, tuple(options.items()))
        if key not in kept:
            options = {"backend": "torch", "pooling": None, **options}
            kept[key] = ProbeVectors.of(SentenceEncoder.load(folders[name], **options).loaded, prompt)
        return kept[key]

    return make


REAL = ("minilm", "mini")
ONNX, INT8 = {"backend": "onnx"}, {"backend": "onnx", "precision": "int8"}
PAIRS = [
    *(("equal", (name, {}), (name, {})) for name in ("first", "other", *REAL)),
    ("equal", ("first", {}), ("copy", {})),
    ("equal", ("first", {"pooling": "cls"}), ("copy", {"pooling": "cls"})),
    *(("rounding", (name, {}), (name, ONNX)) for name in ("first", "other", *REAL)),
    *(("rounding", (name, {"pooling": "cls"}), (name, {"pooling": "cls", **ONNX})) for name in ("first", *REAL)),
    *(("another precision", (name, {}), (name, INT8)) for name in REAL),
    *(("another precision", (name, INT8), (name, ONNX)) for name in REAL),
    *(("another precision", (name, {"pooling": "cls", **INT8}), (name, {"pooling": "cls"})) for name in REAL),
    ("another precision", ("first", {}), ("half", {})),
    ("another precision", ("half", ONNX), ("first", {})),
    *(("another pooling or prompt", (name, {}), (name, {"pooling": "cls"})) for name in ("first", "minilm")),
    ("another pooling or prompt", ("mini", {}), ("mini", {"pooling": "mean"})),
    *(("another pooling or prompt", (name, {"pooling": "max"}), (name, {})) for name in ("first", *REAL)),
    *(("another pooling or prompt", (name, {}), (name, {"prompt": QUERY})) for name in ("first", *REAL)),
    *(("another pooling or prompt", (name, INT8), (name, {"prompt": QUERY})) for name in REAL),
    ("another pooling or prompt", ("minilm", {"prompt": QUERY}), ("minilm", {"prompt": "passage: "})),
    ("another pooling or prompt", ("first", {"normalize": True}), ("first", {"normalize": False})),
    *(("another model", ("first", {}), (name, {})) for name in ("trained", "trained more", "other")),
    *(("another model", (name, ONNX), ("first", {})) for name in ("trained", "trained more", "other")),
    ("another model", ("minilm", {}), ("mini", {})),
    ("another model", ("minilm", {}), ("first", {})),
]


@pytest.mark.deep
def test_forty_pairs_are_told_apart_and_both_ways_alike(made):
    wrong = []
    for kinship, (name, options), (other, others) in PAIRS:
        first, second = made(name, **options), made(other, **others)
        told = [first.compare(second)[0], second.compare(first)[0]]
        if told != [kinship, kinship]:
            wrong.append((kinship, name, options, other, others, first.compare(second)))
    assert len(PAIRS) >= 40 and not wrong


@pytest.mark.slow
def test_where_weights_are_unknown_the_vectors_alone_tell(made):
    from dataclasses import replace

    def served(canaries):
        return replace(canaries, weights="", choices={"pooling": "served", "normalize": None, "prompt": ""})

    for name in REAL:
        first = served(made(name))
        assert first.compare(served(made(name, **ONNX)))[0] == "rounding"
        assert first.compare(served(made(name, **INT8)))[0] == "another precision"
        assert first.compare(served(made(name, pooling="max")))[0] == "another model"


@pytest.mark.slow
def test_lengths_and_cosines_of_what_is_kept_are_those_of_the_vectors(folders, made):
    encoder = SentenceEncoder.load("minilm", backend="torch")
    first, second = encoder.encode(list(PROBE_TEXTS)), encoder.encode([QUERY + text for text in PROBE_TEXTS])
    true = float((first * second).sum(axis=1).mean())
    said = made("minilm").compare(made("minilm", prompt=QUERY))[1]
    assert abs(float(said.rsplit("about ", 1)[1].rstrip(")")) - true) < 0.03


def test_damaged_or_missing_ones_are_refused(made):
    from dataclasses import asdict

    whole = asdict(made("first"))
    assert ProbeVectors.read("x", json.loads(json.dumps(whole))) == made("first")
    for value in (None, {**whole, "vectors": "AAAA"}, {**whole, "dimension": "wide"}, {}):
        with pytest.raises(InputError, match="x"):
            ProbeVectors.read("x", value)


@pytest.fixture
def vectors(folders, tmp_path, invoke):
    """A directory of vectors of the first model."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\na dog ran in the park\nthe bird sings\n")
    invoke("encode", text, "-o", tmp_path / "vectors", "-m", folders["first"], "--pooling", "mean", check=0)
    return tmp_path / "vectors"


@pytest.mark.slow
def test_a_directory_is_checked_with_a_model(vectors, folders, invoke, tmp_path):
    def check(name, *options, code):
        command = ["encode", "--check", vectors, "-m", folders[name], "--json", tmp_path / "out.json", *options]
        invoke(*command, check=code)
        return json.loads((tmp_path / "out.json").read_text())["results"]["model_is"]

    assert check("first", code=0) == "equal" and check("copy", code=0) == "equal"
    assert check("first", "--backend", "torch", code=0) == "rounding"
    assert check("half", code=0) == "another precision"
    assert check("first", "--pooling", "cls", code=1) == "another pooling or prompt"
    assert check("other", code=1) == "another model"
    manifest = json.loads((vectors / "manifest.json").read_text())
    del manifest["settings"]["canaries"]
    (vectors / "manifest.json").write_text(json.dumps(manifest))
    invoke("encode", "--check", vectors, check=0)
    invoke("encode", "--check", vectors, "-m", folders["first"], check=2)
    invoke("retrieve", "--corpus", vectors, "-m", folders["first"], "--pooling", "mean", "--query", "cat", check=0)


def test_a_single_file_is_checked_with_a_model(folders, invoke, tmp_path):
    text, report = tmp_path / "text.txt", tmp_path / "out.json"
    text.write_text("the cat sat on the mat\na dog ran in the park\n")
    for name in ("v.parquet", "v.safetensors", "v.npy"):
        invoke("encode", text, "-o", tmp_path / name, "-m", folders["first"], check=0)
        invoke("encode", "--check", tmp_path / name, "--json", report, check=0)
        assert json.loads(report.read_text())["results"]["rows"] == 2
        if name != "v.npy":
            invoke("encode", "--check", tmp_path / name, "-m", folders["copy"], "--json", report, check=0)
            assert json.loads(report.read_text())["results"]["model_is"] == "equal"
            invoke("encode", "--check", tmp_path / name, "-m", folders["other"], check=1)
    invoke("encode", "--check", tmp_path / "v.npy", "-m", folders["first"], check=2)  # it says nothing of its model
    (tmp_path / "v.parquet").write_bytes((tmp_path / "v.parquet").read_bytes()[:-40])
    for name in ("v.parquet", "text.txt", "missing.npy"):
        assert name in invoke("encode", "--check", tmp_path / name, check=2).stderr


def _of_another(vectors, made):
    """Make the directory's canaries those of another model, as if this one had changed under its files."""
    from dataclasses import asdict

    manifest = json.loads((vectors / "manifest.json").read_text())
    manifest["settings"]["canaries"] = asdict(made("other"))
    (vectors / "manifest.json").write_text(json.dumps(manifest))


def test_a_model_that_has_changed_under_the_same_files_neither_searches_nor_goes_on(
    vectors, folders, made, invoke, tmp_path
):
    model = ["-m", folders["first"], "--pooling", "mean"]
    found = ["retrieve", "--corpus", vectors, *model, "--query", "the cat"]
    invoke(*found, check=0)
    again = ["encode", tmp_path / "text.txt", "-o", vectors, *model]
    invoke(*again, "--resume", check=0)
    _of_another(vectors, made)
    assert "another model" in invoke(*found, check=2).stderr
    (tmp_path / "more.txt").write_text("two men eat\n")
    for command in ([*again, "--resume"], ["encode", tmp_path / "more.txt", "-o", vectors, *model, "--append"]):
        assert "another model" in invoke(*command, check=2).stderr
    invoke(*again, "--overwrite", check=0)
    invoke(*found, check=0)


@pytest.mark.slow
def test_an_export_keeps_its_own(folders, invoke, tmp_path):
    export = tmp_path / "export"
    invoke("export", "-m", "minilm", "-o", export, "--precision", "int8", "--no-verify", check=0)
    out = invoke("encode", "--check", export, "-m", export, "--json", "-", check=0).stdout
    assert json.loads(out)["results"]["model_is"] == "equal"
    out = invoke("encode", "--check", export, "-m", "minilm", "--json", "-", check=0).stdout
    assert json.loads(out)["results"]["model_is"] == "another precision"
    invoke("encode", "--check", export, "-m", folders["first"], check=1)
    graph = export / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-8])
    invoke("encode", "--check", export, check=2)


def test_a_baseline_says_what_the_model_of_now_is(folders, invoke, tmp_path):
    rows = "".join(f"the cat {n}\ta dog in the park {n % 7}\t{n % 5}\n" for n in range(30))
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + rows)
    base, out = tmp_path / "base.json", tmp_path / "out.json"
    command = ["evaluate", tmp_path / "pairs.tsv"]
    invoke(*command, "-m", folders["first"], "--save-baseline", base, check=0)
    for name, kinship in (("first", "equal"), ("half", "another precision"), ("other", "another model")):
        invoke(*command, "-m", folders[name], "--baseline", base, "--allow", 1000, "--json", out, check=0)
        assert json.loads(out.read_text())["results"]["pairs.tsv"]["baseline"]["model_is"] == kinship
    kept = json.loads(base.read_text())
    del kept["canaries"]
    base.write_text(json.dumps(kept))
    invoke(*command, "-m", folders["first"], "--baseline", base, "--allow", 1000, "--json", out, check=0)
    assert "model_is" not in json.loads(out.read_text())["results"]["pairs.tsv"]["baseline"]


@pytest.mark.slow
def test_a_baseline_tells_other_prompts_of_queries(tiny_bert, invoke, tmp_path):
    from sentence_transformers import SentenceTransformer

    for name, query in (("one", "the woman finds "), ("two", "the dog sees ")):
        prompted = SentenceTransformer(str(tiny_bert), device="cpu", prompts={"query": query})
        prompted.save(str(tmp_path / name))
    corpus = [{"_id": f"d{n}", "text": f"{word} is near {word}"} for n, word in enumerate(WORDS[:12])]
    queries = [{"_id": f"q{n}", "text": word} for n, word in enumerate(WORDS[:12])]
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(12))
    folder = write_set(tmp_path / "set", corpus, queries, qrels)
    base, out = tmp_path / "base.json", tmp_path / "out.json"
    invoke("evaluate", folder, "-m", tmp_path / "one", "--save-baseline", base, check=0)
    for name, kinship in (("one", "equal"), ("two", "another pooling or prompt")):
        invoke("evaluate", folder, "-m", tmp_path / name, "--baseline", base, "--allow", 1, "--json", out, check=0)
        assert json.loads(out.read_text())["results"]["set"]["baseline"]["model_is"] == kinship


@pytest.mark.slow
@pytest.mark.parametrize("database", ["milvus", "lance"])
def test_collections_keep_those_of_their_directory(vectors, folders, made, invoke, soon_indexed, tmp_path, database):
    if database == "lance":
        pytest.importorskip("lancedb", reason="LanceDB comes with the extra sentcli[lance]")
    uri = f"{database}:{tmp_path / 'notes.db'}"
    model = ["-m", folders["first"], "--pooling", "mean"]
    invoke("index", vectors, "--to", uri, "--collection", "notes", check=0)
    found = ["retrieve", "--corpus", uri, "--collection", "notes", *model, "--query", "the cat"]
    invoke(*found, check=0)
    _of_another(vectors, made)
    invoke("index", vectors, "--to", uri, "--collection", "notes", "--overwrite", check=0)
    assert "another model" in invoke(*found, check=2).stderr


def test_the_files_of_a_shard_do_not_have_them(vectors):
    """Machines that round otherwise make the same bytes."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(vectors / "rows-00000.parquet").metadata
    assert "canaries" not in json.loads(metadata[b"sentcli"])
    assert "canaries" in json.loads((vectors / "manifest.json").read_text())["settings"]
