"""``evaluate --variants``: every way equals what its commands make, and the chosen one loses what is said of it."""

import json
import random
import shlex
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from sentcli.compression import Compression
from sentcli.evaluation import variant_grid, variants
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import load_set
from tests.evaluation.conftest import write_set
from tests.evaluation.test_baseline import NOUNS, VERBS

REAL = json.loads((Path(__file__).parent / "variants_cranfield.json").read_text())
REAL.pop("made_by")


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """A retrieval set of 700 documents, whose queries share most words with their documents."""
    generator = random.Random(1)
    folder = tmp_path_factory.mktemp("sets") / "notes"
    texts = [" ".join(generator.choices([*NOUNS, *VERBS, "the", "old", "small"], k=14)) for _ in range(700)]
    corpus = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)]
    queries = [{"_id": f"q{n}", "text": " ".join(texts[n].split()[:11])} for n in range(80)]
    qrels = "".join(f"q{n}\td{n}\t1\n" for n in range(80))
    return write_set(folder, corpus, queries, "query-id\tcorpus-id\tscore\n" + qrels)


@pytest.fixture
def grid(tmp_path):
    """A file with a way of each kind."""
    file = tmp_path / "grid.toml"
    file.write_text(
        'dimensions = [32, 16]\ntypes = ["float32", "int8", "binary rescored", "binary"]\n'
        'indexes = ["hnsw", "ivfpq"]\nlengths = [8]\npoolings = ["cls"]\nbackends = ["torch"]\nprecisions = []\n'
    )
    return file


@pytest.mark.slow
def test_every_way_finds_what_its_commands_find(notes, grid, tiny_bert, tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["evaluate", notes, "-m", tiny_bert, "--variants", grid, "--allow", 0.05]
    result = invoke(*arguments, "--json", "out.json", "--report", "out.html", "--report", "out.md", check=0)
    entry = json.loads(Path("out.json").read_text())["results"]["notes"]
    rows = {row["name"]: row for row in entry["variants"]}
    compared = variants.score_variants(
        EvaluatedModel(str(tiny_bert)), load_set(notes), "notes", variant_grid.VariantGrid.read(str(grid)), 0.05
    )
    assert [variant.name for variant in compared.variants] == list(rows)
    first = compared.variants[0]
    assert first.values.mean() == pytest.approx(entry["value"], abs=1e-5)  # which is rounded
    qrels = {f"q{n}": {f"d{n}": 1} for n in range(80)}
    for number, variant in enumerate(compared.variants):
        row = rows[variant.name]
        assert row["value"] == pytest.approx(variant.values[compared.halves[1]].mean())
        assert row["interval"][0] <= row["difference"] <= row["interval"][1]
        commands = [shlex.split(part) for part in row["command"].split(" && ")]
        folders = []
        for command in commands:
            assert command[0] == "sentcli"
            command = [f"{number}-{word}" if word.startswith("notes-vectors") else word for word in command[1:]]
            folders += [word for word in command if word.startswith(f"{number}-")][:1]
            invoke(*command, check=0)
        rescore = ["--rescore", folders[1]] if variant.storage.rescored else []
        options = [f"--{k.replace('_', '-')}={v}" for k, v in variant.encoding.options.items() if k != "backend"]
        found = ["retrieve", "--corpus", folders[0], "--queries", notes / "queries.jsonl", *rescore, *options]
        invoke(*found, "-m", tiny_bert, "--hits", f"{number}.jsonl", check=0)
        hits = [json.loads(line) for line in Path(f"{number}.jsonl").read_text().splitlines()]
        run = {f"q{n}": {hit["id"]: hit["score"] for hit in line["hits"]} for n, line in enumerate(hits)}
        scores = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(run)
        mean = np.mean([scores[f"q{n}"]["ndcg_cut_10"] for n in range(80)])
        # an index is built of other random numbers of threads, and its search may find others
        tolerance = 0.05 if variant.storage.index == "ivfpq" else 0.003
        assert mean == pytest.approx(variant.values.mean(), abs=tolerance), variant.name
    assert any(row["pareto"] for row in entry["variants"]) and sum(row["chosen"] for row in entry["variants"]) == 1
    chosen = next(row for row in entry["variants"] if row["chosen"])
    assert chosen["command"].split(" && ")[0] in result.output and "may save on notes" in Path("out.html").read_text()
    assert (tmp_path / "out-figures" / "variants-1.csv").exists()


@pytest.mark.slow
def test_bytes_are_those_of_the_files(notes, grid, tiny_bert, invoke, tmp_path):
    invoke("evaluate", notes, "-m", tiny_bert, "--variants", grid, "--json", tmp_path / "out.json", check=0)
    entry = json.loads((tmp_path / "out.json").read_text())["results"]["notes"]
    sizes = {row["name"]: row["bytes_per_vector"] for row in entry["variants"]}
    wide = entry["variants"][0]["bytes_per_vector"] // 4
    assert sizes[f"int8 x {wide}"] == wide
    assert sizes["bits x 16"] == 2 and sizes["bits x 16, rescored"] == 2 + 2 * wide and sizes["int8 x 16"] == 16
    assert sizes[f"float32 x {wide}, hnsw"] > 4 * wide


@pytest.mark.slow
def test_prompts_are_left_out_in_a_row_of_their_own(notes, tiny_bert, tmp_path, invoke):
    from sentence_transformers import SentenceTransformer

    prompts = {"query": "the woman finds ", "document": "the dog sees "}
    SentenceTransformer(str(tiny_bert), device="cpu", prompts=prompts).save(str(tmp_path / "prompted"))
    file = tmp_path / "grid.toml"
    file.write_text('dimensions = []\ntypes = ["float32"]\nprecisions = []\n')
    for model, names in ((tmp_path / "prompted", 2), (tiny_bert, 1)):
        invoke("evaluate", notes, "-m", model, "--variants", file, "--json", tmp_path / "out.json", check=0)
        rows = json.loads((tmp_path / "out.json").read_text())["results"]["notes"]["variants"]
        assert len(rows) == names
    invoke("evaluate", notes, "-m", tmp_path / "prompted", "--variants", file, "--json", tmp_path / "out.json", check=0)
    own, bare = json.loads((tmp_path / "out.json").read_text())["results"]["notes"]["variants"]
    assert "--prompt 'the dog sees '" in own["command"] and "--prompt ''" in bare["command"]
    assert own["difference"] == 0 and bare["value"] != own["value"]


@pytest.mark.slow
def test_rerun_encodes_in_every_way_anew(notes, tiny_bert, tmp_path, invoke, monkeypatch):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    file, out = tmp_path / "grid.toml", tmp_path / "out.json"
    file.write_text('dimensions = []\ntypes = ["float32"]\nindexes = []\nlengths = [8]\nprecisions = []\n')
    command = ["evaluate", notes, "-m", tiny_bert, "--variants", file, "--json", out]

    def values(*options):
        invoke(*command, *options, check=0)
        return [row["value"] for row in json.loads(out.read_text())["results"]["notes"]["variants"]]

    before = values()
    for path in (tmp_path / "cache" / "vectors").glob("*.db"):
        with sqlite3.connect(path) as connection:  # vectors that are not those of the model
            connection.execute("UPDATE vectors SET vector = zeroblob(length(vector))")
    assert values("--rerun") == before and len(before) == 2


@pytest.mark.slow
def test_the_commands_of_a_way_of_encoding_search_what_they_made(notes, tiny_bert, tmp_path, invoke, monkeypatch):
    from sentence_transformers import SentenceTransformer

    monkeypatch.chdir(tmp_path)
    prompts = {"query": "the ", "document": ""}  # what stands in front of documents is not what encode takes
    prompted = SentenceTransformer(str(tiny_bert), device="cpu", prompts=prompts, default_prompt_name="query")
    prompted.save("prompted")
    Path("grid.toml").write_text(
        'dimensions = []\ntypes = ["binary rescored"]\nindexes = []\nlengths = [8]\nprecisions = []\n'
    )
    options = ["--variants", "grid.toml", "--allow", 1, "--allow-cpu-fallback", "--json", "out.json"]
    invoke("evaluate", notes, "-m", "prompted", *options, check=0)
    rows = json.loads(Path("out.json").read_text())["results"]["notes"]["variants"]
    rescored = [row for row in rows if "rescored" in row["name"]]
    assert len(rescored) == 3  # as asked for, of 8 tokens, without prompts
    for number, row in enumerate(rescored):
        for command in row["command"].replace("notes-vectors", f"{number}-vectors").split(" && "):
            invoke(*shlex.split(command)[1:], check=0)


@pytest.mark.slow
@pytest.mark.parametrize("allow", [0.01, 0.03])
@pytest.mark.parametrize("queries", [60, 200])
def test_the_interval_of_the_chosen_way_holds_its_loss(allow, queries):
    """Queries are drawn from real ones; the loss on all of them is the true one. At least 95 of 100 are aimed at."""
    generator, trials, held = np.random.default_rng(0), 300, 0
    values = np.array(list(REAL.values()))
    ways = [
        variants.Variant(
            variant_grid.Encoding(), variant_grid.Storage(Compression(), name.endswith("d")), name, row, size, 1, 1, 1
        )
        for name, row, size in zip(REAL, values, (1536, 768, 384, 48, 816, 256, 800, 128, 784), strict=True)
    ]
    for _ in range(trials):
        drawn = generator.integers(0, values.shape[1], queries)
        compared = variants.VariantComparison(
            "set", "ndcg@10", [replace(w, values=w.values[drawn]) for w in ways], allow
        )
        chosen = next(number for number, way in enumerate(compared.variants) if way is compared.chosen)
        change = compared.difference(compared.chosen)
        held += change.low - 1e-9 <= (values[chosen] - values[0]).mean() <= change.high + 1e-9
    assert held >= 0.93 * trials


def test_nothing_is_chosen_that_loses_more_on_the_half_by_which_it_is_chosen():
    values = np.random.default_rng(0).random(200)
    worse = np.clip(values - 0.05, 0, 1)
    ways = [
        variants.Variant(variant_grid.Encoding(), variant_grid.Storage(), name, row, size, 1, 1, 1)
        for name, row, size in (("whole", values, 100), ("half", values, 50), ("worse", worse, 10))
    ]
    assert variants.VariantComparison("set", "ndcg@10", ways, 0.01).chosen.name == "half"
    assert variants.VariantComparison("set", "ndcg@10", ways, 0.2).chosen.name == "worse"
    front = variants.VariantComparison("set", "ndcg@10", ways, 0.01).front
    assert front == [False, True, True]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("dimensions = [4096]\n", "4096"),
        ("dims = [64]\n", "dims"),
        ('types = ["float8"]\n', "float8"),
        ('indexes = ["hsnw"]\n', "hsnw"),
        ("dimensions = [\n", "TOML"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(notes, tiny_bert, tmp_path, invoke, text, named):
    (tmp_path / "grid.toml").write_text(text)
    result = invoke("evaluate", notes, "-m", tiny_bert, "--variants", tmp_path / "grid.toml", check=2)
    assert named in result.stderr


def test_tables_and_misplaced_data_are_refused(notes, tiny_bert, tmp_path, invoke):
    table = tmp_path / "pairs.tsv"
    table.write_text("sentence1\tsentence2\tscore\n" + "".join(f"the cat {n}\ta dog\t{n % 5}\n" for n in range(20)))
    assert "pairs" in invoke("evaluate", table, "-m", tiny_bert, "--variants", check=2).stderr
    small = shutil.copytree(notes, tmp_path / "small")
    judgements = small / "qrels" / "test.tsv"
    judgements.write_text("".join(judgements.read_text().splitlines(keepends=True)[:8]))
    assert "small" in invoke("evaluate", small, "-m", tiny_bert, "--variants", check=2).stderr
    invoke("evaluate", "--variants", notes, "-m", tiny_bert, check=2)
    assert "notes" in invoke("evaluate", notes, "-m", tiny_bert, "--variants", notes, check=2).stderr
