"""Seeds, subsets and grids: each run once, one file of results."""

import json
import re
import statistics
from contextlib import ExitStack, nullcontext
from operator import itemgetter

import numpy as np
import pytest
from filelock import FileLock

from sentcli.errors import DataError, InputError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.transfer_data import AVERAGED
from sentcli.training import sweep, sweep_file, sweep_view
from sentcli.training.data import Subset, read_corpus
from sentcli.training.records import append_record, map_numbers, read_results, summarize
from sentcli.training.request import TrainRequest
from sentcli.training.sweep_view import sweep_table
from tests.evaluation.conftest import write_downstream


def train(invoke, model, text, out, *options, check=0):
    return invoke(
        "train", "-m", model, "--data", text, "-o", out, "--batch-size", 16, "--max-steps", 2, "--learning-rate",
        "1e-3", *options, check=check,
    )  # fmt: skip


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_seeds_give_mean_and_sd(invoke, tiny_bert, text, dev, tmp_path):
    result = train(
        invoke, tiny_bert, text, tmp_path / "m", "--method", "simcse", "--seeds", "48,49,50", "--eval-data", dev,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    found = json.loads((tmp_path / "r.json").read_text())["results"]
    assert len({run["final_dev_spearman"] for run in found["runs"]}) == 3
    for key in ("best_dev_spearman", "final_dev_spearman"):
        scores = [run[key] for run in found["runs"]]
        assert found["mean"][key] == pytest.approx(statistics.fmean(scores))
        assert found["sd"][key] == pytest.approx(statistics.stdev(scores))
    assert re.search(r"48\b.*49\b.*50\b", result.output) and "3 of 3 " in " ".join(result.output.split())
    assert [record["seed"] for record in records(tmp_path / "m" / "results.jsonl")] == [48, 49, 50]
    assert (tmp_path / "m" / "seed=49" / "model.safetensors").exists()
    # the run of a seed is that of --seed
    train(invoke, tiny_bert, text, tmp_path / "one", "--method", "simcse", "--seed", 49, "--eval-data", dev)
    weights = [(path / "model.safetensors").read_bytes() for path in (tmp_path / "one", tmp_path / "m" / "seed=49")]
    assert weights[0] == weights[1]


@pytest.mark.deep
def test_a_grid_runs_every_point_once_and_never_again(invoke, tiny_bert, text, tmp_path, grid):
    result = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", grid)
    lines = records(tmp_path / "m" / "results.jsonl")
    assert [(line["point"], line["seed"]) for line in lines] == [
        (point, seed)
        for seed in (1, 2)
        for point in (
            {"method": "simcse", "temperature": 0.1},
            {"method": "informin-cl", "temperature": 0.1},
            {"method": "simcse", "learning_rate": 0.001},
            {"method": "simcse", "learning_rate": 0.003},
        )
    ]
    assert lines[0]["identity"]["method"]["contrastive"]["temperature"] == 0.1
    assert len({line["digest"] for line in lines}) == 8
    assert "informin-cl" in result.stdout
    refused = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", grid, check=2)
    assert "--overwrite" in refused.stderr
    again = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", grid, "--resume")
    assert again.stderr.count("finished before") == 8
    assert again.stdout == result.stdout
    # the results alone are enough, and a torn line costs its own run only
    raw = (tmp_path / "m" / "results.jsonl").read_text()
    (tmp_path / "other.jsonl").write_text(raw[:-30])
    elsewhere = train(invoke, tiny_bert, text, tmp_path / "n", "--sweep", grid, "--results", tmp_path / "other.jsonl")
    assert elsewhere.stderr.count("finished before") == 7
    assert [path.name for path in (tmp_path / "n").iterdir()] == ["method=simcse,learning_rate=0.003,seed=2"]
    assert list(read_results(tmp_path / "other.jsonl")) == [line["digest"] for line in lines]
    # another setting of the command line is another sweep
    other = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", grid, "--resume", "--max-length", 8, check=2)
    assert re.search("settings.max_length .*8 .*32", " ".join(other.stderr.split()))


@pytest.mark.deep
def test_the_start_is_scored_once_a_sweep(invoke, tiny_bert, text, dev, tmp_path, monkeypatch):
    encoded = []
    encode = EvaluatedModel.encode

    def counted(self, texts, *given, **options):
        encoded.append(self)
        return encode(self, texts, *given, **options)

    def results(out):
        train(invoke, tiny_bert, text, tmp_path / out, "--sweep", tmp_path / "s.toml", "--eval-data", dev)
        of_runs = [record["results"] for record in records(tmp_path / out / "results.jsonl")]
        return list(map(itemgetter("start_dev_spearman", "other_start", "best_dev_spearman"), of_runs))

    monkeypatch.setattr(EvaluatedModel, "encode", counted)
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    (tmp_path / "s.toml").write_text('seeds = [1, 2]\n[[grid]]\nmethod = ["simcse", "micse"]\n')
    first = results("first")
    assert len(encoded) == 6  # four trained models, the start, and the start with the other pooling
    assert results("again") == first and len(encoded) == 10  # all are trained anew, and neither start is scored
    dry = train(
        invoke, tiny_bert, text, tmp_path / "dry", "--sweep", tmp_path / "s.toml", "--eval-data", dev, "--dry-run",
        "--json", "-",
    )  # fmt: skip
    assert json.loads(dry.stdout)["results"]["starts"] == 0
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "another"))
    assert results("without") == first


@pytest.mark.slow
def test_starts_with_weights_of_their_own_are_scored_apart(invoke, tiny_bert, text, dev, tmp_path):
    options = ["--method", "is-bert", "--seeds", "1,2", "--eval-data", dev, "--json", "-"]
    found = json.loads(train(invoke, tiny_bert, text, tmp_path / "m", *options).stdout)["results"]
    starts = {of_run["start_dev_spearman"] for of_run in found["runs"]}
    assert len(starts) == 2  # the seed draws the convolutions
    dry = train(invoke, tiny_bert, text, tmp_path / "dry", *options, "--dry-run")
    assert [kind["evaluations"] for kind in json.loads(dry.stdout)["results"]["kinds"]] == [2]


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on(invoke, tiny_bert, text, tmp_path, grid, monkeypatch):
    from sentcli.training import run as runs

    train(invoke, tiny_bert, text, tmp_path / "whole", "--sweep", grid)
    calls, original = 0, runs.run

    def stop(prepared, observer=None):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return original(prepared, observer)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "run", stop)
        assert train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", grid, check=130)
    train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", grid, "--resume")
    for path in (tmp_path / "whole").rglob("model.safetensors"):
        assert (tmp_path / "m" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()


def test_a_run_that_fails_does_not_stop_the_others(invoke, tiny_bert, text, tmp_path):
    (tmp_path / "s.toml").write_text('[[grid]]\nmethod = "simcse"\nlearning_rate = [1e30, 1e-3]\n')
    result = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", tmp_path / "s.toml", check=1)
    message = " ".join(result.stderr.split())
    assert re.search(r"run 1 of 2, method=simcse,learning_rate=1e\+30: step ", message)  # said when it happens
    assert message.count("method=simcse,learning_rate=1e+30") > 2 and re.search(r"error: 1 of 2 ", message)
    assert [line["point"]["learning_rate"] for line in records(tmp_path / "m" / "results.jsonl")] == [0.001]


def test_a_point_that_does_not_fit_the_model_does_not_stop_the_others(invoke, tiny_bert, text, tmp_path):
    """It is found when its turn comes, perhaps hours later; as the first it is an error at once."""
    (tmp_path / "s.toml").write_text("[[grid]]\nmethod = 'simcse'\nmax_length = [16, 10000, 8]\n")
    result = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", tmp_path / "s.toml", check=1)
    assert "error: 1 of 3 " in " ".join(result.stderr.split())
    assert [line["point"]["max_length"] for line in records(tmp_path / "m" / "results.jsonl")] == [16, 8]
    (tmp_path / "s.toml").write_text("[[grid]]\nmethod = 'simcse'\nmax_length = [10000, 8]\n")
    train(invoke, tiny_bert, text, tmp_path / "n", "--sweep", tmp_path / "s.toml", check=2)
    assert not (tmp_path / "n" / "results.jsonl").exists()


def test_a_run_of_another_process_is_left_to_it(invoke, tiny_bert, text, tmp_path):
    busy = tmp_path / "m" / "seed=1"
    busy.mkdir(parents=True)
    with FileLock(busy / ".lock"):
        result = train(invoke, tiny_bert, text, tmp_path / "m", "--method", "simcse", "--seeds", "1,2", "--resume")
    assert re.search("warning: seed=1 .*1 of 2 ", " ".join(result.stderr.split()))
    assert [line["seed"] for line in records(tmp_path / "m" / "results.jsonl")] == [2]


def test_a_run_that_another_process_finishes_meanwhile_has_one_line(invoke, tiny_bert, text, tmp_path, monkeypatch):
    from sentcli.training import run as runs

    original = runs.run
    call = (invoke, tiny_bert, text, tmp_path / "m", "--method", "simcse", "--seeds", "1,2", "--resume")

    def second(prepared, observer=None):
        monkeypatch.setattr(runs, "run", original)
        train(*call)  # between the look into the results and the training
        return original(prepared, observer)

    monkeypatch.setattr(runs, "run", second)
    train(*call)
    assert [line["seed"] for line in records(tmp_path / "m" / "results.jsonl")] == [1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seeds = 3", "seeds: .*3"),
        ("[grid]\nmethod = 'simcse'", r"grid: .*\[\[grid\]\]"),
        ("", r"grid: .*\[\[grid\]\]"),
        ("sedes = [1]\n[[grid]]\nseed = 1", "'sedes'.*'seeds'"),
        ("[[grid]]\nami.weight = [1]", 'grid: .*"ami.weight" ='),
        ("[[grid", "TOML.*"),
    ],
)
def test_broken_sweeps(tmp_path, content, message):
    (tmp_path / "s.toml").write_text(content)
    with pytest.raises(DataError, match=rf"s\.toml: .*{message}"):
        sweep_file.read_sweep(tmp_path / "s.toml")


def test_results_are_never_lost(tmp_path):
    """A last line that is whole stays, one that is cut off goes, something else is an error."""
    path = tmp_path / "r.jsonl"
    record = {"digest": "a", "text": "\N{SNOWMAN}"}
    whole = json.dumps(record, ensure_ascii=False).encode()
    for before, kept in (
        (b"", []),
        (whole, ["a"]),
        (whole + b"\n", ["a"]),
        (whole + b"\n" + whole.replace(b'"a"', b'"b"')[:-4], ["a"]),  # torn inside of the snowman
    ):
        path.write_bytes(before)
        assert list(read_results(path)) == kept
        append_record(path, {"digest": "c"})
        assert list(read_results(path)) == [*kept, "c"]
    for foreign in (b"words", b'{"mine": 1}', b'{"mine": 1}\n', b"words\n" + whole):
        path.write_bytes(foreign)
        with pytest.raises(DataError, match="line 1"):
            read_results(path)


def test_all_of_a_sweep_is_checked_before_its_first_run(invoke, tiny_bert, text, tmp_path):
    for line, message in (
        ("learning_rate = [1e-3, -1]", "learning_rate"),
        ("warmup_share = [0.1, 1.5]", "warmup_share"),
        ('pooling = ["cls", "clz"]', "'clz'.*'cls'"),
        ("seed = [1, -2]", "seed"),
        ("learning_rate = []", "learning_rate: .*list"),
    ):
        (tmp_path / "s.toml").write_text(f"[[grid]]\nmethod = 'simcse'\n{line}\n")
        result = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", tmp_path / "s.toml", check=2)
        assert re.search(message, " ".join(result.stderr.split()))
        assert not (tmp_path / "m").exists()


def test_wrong_usage_of_sweeps(invoke, tiny_bert, text, tmp_path):
    with pytest.raises(InputError, match=str(tmp_path / "none.toml")):
        sweep_file.read_sweep(tmp_path / "none.toml")
    (tmp_path / "mine.json").write_text('{"mine": 1}')
    for options, message in (
        (["--seeds", "1,x"], "--seeds"),
        (["--seeds", "1,1"], "--seeds"),
        (["--seeds", "1", "--sts"], "--eval-data"),
        (["--seeds", "1", "--set", "temperatur=1"], "--set temperatur: .*'temperature'"),
        (["--seeds", "1", "--seed", 1], "--seed .*seeds"),
        (["--seeds", "1", "--results", tmp_path], str(tmp_path)),
        (["--seeds", "1", "--results", tmp_path / "mine.json"], str(tmp_path / "mine.json")),
        (["--results", tmp_path / "r.jsonl"], "--results .*--seeds.*--sweep"),
        (["--subset-seed", 1], "--subset-seed .*--limit.*--fraction"),
        (["--sweep", tmp_path], str(tmp_path)),
    ):
        result = train(invoke, tiny_bert, text, tmp_path / "m", "--method", "simcse", *options, check=2)
        assert re.search(message, " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists() or not list((tmp_path / "m").iterdir())
    train(invoke, tiny_bert, text, tmp_path / "one", "--method", "simcse")
    result = train(
        invoke, tiny_bert, text, tmp_path / "one", "--method", "simcse", "--seeds", "1,2", "--resume", check=2
    )
    assert re.search(f"{tmp_path}/one .*-o", " ".join(result.stderr.split()))
    (tmp_path / "r.jsonl").write_text('{"run": 1}\n{}\n')
    with pytest.raises(DataError, match="line 1"):
        read_results(tmp_path / "r.jsonl")


def test_subsets_are_nested_and_drawn_by_their_seed(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"sentence {i}\n" for i in range(1000)))

    def taken(*subset):
        return list(read_corpus([str(path)], subset=Subset(*subset)).sentences)

    assert taken(10) == [f"sentence {i}" for i in range(10)]
    assert taken(None, 0.01) == taken(10)
    drawn = taken(None, 0.1, 48)
    assert len(drawn) == 100 and drawn != taken(100) and drawn == taken(100, None, 48) != taken(100, None, 49)
    assert set(taken(None, 0.01, 48)) < set(drawn)
    assert drawn == sorted(drawn, key=lambda text: int(text.split()[1]))
    assert len(taken(None, 0.0001, 1)) == 1 and len(taken(5000, None, 1)) == 1000
    files = read_corpus([str(path), str(path)], subset=Subset(None, 0.5, 3)).files
    assert sum(entry["sentences"] for entry in files) == 1000 and 450 < files[0]["sentences"] < 550


@pytest.mark.slow
def test_low_shot_with_a_constant_number_of_steps(invoke, tiny_bert, text, tmp_path):
    invoke(
        "train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", "--batch-size", 8,
        "--fraction", 0.15, "--subset-seed", 48, "--max-steps", 12, check=0,
    )  # fmt: skip
    config = json.loads((tmp_path / "m" / "sentcli.json").read_text())
    assert config["results"]["steps"] == 12
    assert config["data"][0]["sentences"] == round(0.15 * len([s for s in text.read_text().splitlines() if s.strip()]))


def test_the_seed_of_the_training_draws_the_sentences(invoke, tiny_bert, text, tmp_path):
    (tmp_path / "s.toml").write_text(
        'seeds = [48, 49]\n[[grid]]\nmethod = "simcse"\nlimit = 20\nsubset_seed = "seed"\n'
    )
    result = train(
        invoke, tiny_bert, text, tmp_path / "m", "--sweep", tmp_path / "s.toml", "--json", tmp_path / "r.json"
    )
    lines = records(tmp_path / "m" / "results.jsonl")
    assert [line["identity"]["subset"] for line in lines] == [
        {"limit": 20, "fraction": None, "seed": seed} for seed in (48, 49)
    ]
    found = json.loads((tmp_path / "r.json").read_text())["results"]
    assert found["seeds"] == [48, 49], "both are one system: the deviation is over subsets and seeds"
    assert "48, 49" in result.stdout
    # as if both numbers had been given
    given = ("--method", "simcse", "--limit", 20, "--subset-seed", 48, "--seeds", 48)
    train(invoke, tiny_bert, text, tmp_path / "n", *given)
    assert records(tmp_path / "n" / "results.jsonl")[0]["digest"] == lines[0]["digest"]


@pytest.mark.slow
def test_a_recipe_draws_its_sentences_by_the_seed_of_the_training(invoke, tiny_bert, text, tmp_path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(f'method = "simcse"\nmodel = "{tiny_bert}"\nlimit = 20\nsubset_seed = "seed"\n')
    subsets = {}
    for name, options in {
        "two": ["--seeds", "48,49"],
        "own": ["--seeds", "48", "--subset-seed", 1],
        "larger": ["--seeds", "48", "--limit", 30],
        "share": ["--seeds", "48", "--fraction", 0.5],
    }.items():
        train(invoke, tiny_bert, text, tmp_path / name, "--recipe", recipe, *options)
        subsets[name] = [line["identity"]["subset"] for line in records(tmp_path / name / "results.jsonl")]
    assert subsets == {
        "two": [{"limit": 20, "fraction": None, "seed": 48}, {"limit": 20, "fraction": None, "seed": 49}],
        "own": [{"limit": 20, "fraction": None, "seed": 1}],
        "larger": [{"limit": 30, "fraction": None, "seed": 48}],
        "share": [{"limit": None, "fraction": 0.5, "seed": 48}],
    }
    train(invoke, tiny_bert, text, tmp_path / "one", "--recipe", recipe, "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["protocol"]["subset"]["seed"] == 42  # the method's own
    (tmp_path / "s.toml").write_text(f'seeds = [50]\n[[grid]]\nrecipe = "{recipe}"\n')
    options = ("--batch-size", 16, "--max-steps", 2)
    invoke("train", "--sweep", tmp_path / "s.toml", "--data", text, "-o", tmp_path / "grid", *options)
    assert records(tmp_path / "grid" / "results.jsonl")[0]["identity"]["subset"]["seed"] == 50


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('limit = "abc"', "limit=abc: limit .*'abc'"),
        ("limit = 0", "limit=0: limit .*1.*0"),
        ('subset_seed = "sed"', "subset_seed=sed: subset_seed .*'sed'"),
        ("subset_seed = -1", "subset_seed=-1: subset_seed .*0.*-1"),
        ("fraction = 2.0", r"fraction=2\.0: fraction .*0 .*1.*2\.0"),
    ],
)
def test_subsets_that_make_no_sense(invoke, tiny_bert, text, tmp_path, line, message):
    (tmp_path / "s.toml").write_text(f"[[grid]]\nmethod = 'simcse'\n{line}\n")
    result = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", tmp_path / "s.toml", check=2)
    assert re.search(rf"s\.toml: .*{message}", " ".join(result.stderr.split()))


@pytest.mark.deep
def test_two_points_that_mean_the_same_run(invoke, tiny_bert, text, tmp_path):
    """It is run once and stands in both rows; a long name keeps its seed apart."""
    long = "".join(
        f"{key} = {value}\n" for key, value in {"weight_decay": 0.0, "clip_norm": 1.0, "eval_every": 125}.items()
    )
    long += "".join(f'"settings.{key}" = 0\n' for key in ("warmup_steps", "patience", "share_every", "drop_heads"))
    long += 'schedule = "linear"\noptimizer = "adamw"\nadam_epsilon = 1e-8\nmax_length = 32\n'
    (tmp_path / "s.toml").write_text(
        f"seeds = [1, 2]\n[[grid]]\nmethod = 'simcse'\n[[grid]]\nmethod = 'simcse'\ntemperature = 0.05\n"
        f"[[grid]]\nmethod = 'simcse'\n{long}"
    )
    result = train(
        invoke, tiny_bert, text, tmp_path / "m", "--sweep", tmp_path / "s.toml", "--json", tmp_path / "r.json"
    )  # fmt: skip
    assert result.stderr.count("finished before") == 2
    points = json.loads((tmp_path / "r.json").read_text())["results"]["points"]
    assert [point["seeds"] for point in points] == [[1, 2]] * 3
    again = train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", tmp_path / "s.toml", "--overwrite")
    assert "finished before" not in again.stderr


def test_runs_whose_names_and_hashes_are_equal_have_folders_of_their_own(tmp_path, tiny_bert, text, monkeypatch):
    monkeypatch.setattr(sweep, "_short_hash", lambda text: "00000000")
    points = []
    for name in ("a b", "a:b", "a*b", "a;b"):
        (tmp_path / name).symlink_to(tiny_bert)
        points.append({"model": str(tmp_path / name)})
    request = TrainRequest("simcse", str(tiny_bert), [str(text)], tmp_path / "out")
    planned = sweep.plan(request, points, [1])
    assert [run.request.model for run in planned] == [point["model"] for point in points]
    assert len({run.request.output for run in planned}) == len(points)


def test_means_over_nested_results():
    runs = [{"a": 1.0, "sts": {"x": 2, "y": 3}, "n": None}, {"a": 3.0, "sts": {"x": 4, "y": 5}, "n": None}]
    assert map_numbers(runs, statistics.fmean) == {"a": 2.0, "sts": {"x": 3.0, "y": 4.0}, "n": None}
    records = [{"point": {"p": 1}, "seed": seed, "results": run} for seed, run in zip((5, 6), runs, strict=True)]
    (summary,) = summarize(records)
    assert summary.sd["a"] == pytest.approx(np.std([1, 3], ddof=1)) and summary.seeds == [5, 6]
    assert summarize(records[:1])[0].sd["a"] is None


def test_runs_whose_trainings_differ_are_no_seeds_of_one_point():
    """A file of results of several trainings without a grid gave one row, with the mean of all."""

    def record(method, rate, seed, **more):
        settings = {"learning_rate": rate, "seed": seed, **more}
        identity = {"method": {"name": method}, "settings": settings, "start_model": "a", "device": f"d{seed}"}
        results = {"best_dev_spearman": 70.0 + seed}
        return {"point": {}, "seed": seed, "method": method, "identity": identity, "results": results}

    runs = [record("simcse", 1e-5, 1), record("simcse", 3e-5, 1), record("micse", 1e-5, 1), record("simcse", 1e-5, 2)]
    summaries = summarize([*runs, record("micse", 1e-5, 2, of_a_later_version=0)])
    assert [(summary.point, summary.seeds) for summary in summaries] == [
        ({"method": "simcse", "learning_rate": 1e-5}, [1, 2]),
        ({"method": "simcse", "learning_rate": 3e-5}, [1]),
        ({"method": "micse", "learning_rate": 1e-5}, [1, 2]),
    ]
    assert sweep_table("runs", summaries).columns[:3] == ["method", "learning_rate", "seeds"]
    other_start = record("simcse", 1e-5, 3)
    other_start["identity"]["start_model"] = "b"
    assert [summary.seeds for summary in summarize([runs[0], other_start])] == [[1], [3]]
    two_stages = [dict(run, after="is-bert", model="bert") for run in (runs[0], other_start)]
    assert [summary.seeds for summary in summarize(two_stages)] == [[1, 3]], "the first stage has the seed, too"


def test_a_run_says_of_which_training_it_is_a_seed(invoke, tiny_bert, text, tmp_path):
    for name, rate, seed in (("a", "1e-3", 1), ("b", "1e-3", 2), ("c", "1e-4", 1)):
        train(invoke, tiny_bert, text, tmp_path / name, "--method", "simcse", "--seed", seed, "--learning-rate", rate)
    first, second, third = (EvaluatedModel(str(tmp_path / name)).run_facts["training"] for name in "abc")
    assert first == second and len({first, third, None}) == 3
    assert "training" not in EvaluatedModel(str(tiny_bert)).run_facts
    (tmp_path / "b" / "run.json").write_text("[1]")
    assert "training" not in EvaluatedModel(str(tmp_path / "b")).run_facts


def test_early_stop(invoke, tiny_bert, text, dev, tmp_path, monkeypatch):
    from sentcli.training.loop import BestKeeper

    scores = iter([50.0, 60.0, 55.0, 58.0, 57.0, 99.0, 99.0])
    evaluate = BestKeeper._evaluate

    def scored(self, step):
        score = next(scores)
        self.score = lambda encoder, is_start: {"dev_spearman": score}
        evaluate(self, step)

    monkeypatch.setattr(BestKeeper, "_evaluate", scored)
    train(
        invoke, tiny_bert, text, tmp_path / "m", "--method", "simcse", "--eval-data", dev, "--eval-every", 2,
        "--max-steps", 40, "--set", "patience=3", "--json", tmp_path / "r.json",
    )  # fmt: skip
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert (results["steps"], results["best_step"], results["final_dev_spearman"]) == (8, 2, 57.0)


def test_tensorboard(invoke, tiny_bert, text, dev, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(
        invoke, tiny_bert, text, tmp_path / "m", "--method", "informin-cl", "--eval-data", dev, "--log-to",
        "tensorboard", "--max-steps", 3,
    )  # fmt: skip
    events = event_accumulator.EventAccumulator(str(tmp_path / "m" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/reconstruction")] == [1, 2, 3]
    assert [event.step for event in events.Scalars("dev/spearman")] == [0, 3]
    lines = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    np.testing.assert_allclose([event.value for event in events.Scalars("train/loss")], losses, rtol=1e-6)
    assert events.Scalars("share/contrastive")[0].value == pytest.approx(lines[1]["share_contrastive"])
    result = train(invoke, tiny_bert, text, tmp_path / "n", "--method", "simcse", "--log-to", "mlflow", check=2)
    assert re.search("--log-to .*'mlflow'.*tensorboard, wandb", result.stderr) and not (tmp_path / "n").exists()


def test_settings_of_some_runs_share_a_column():
    points = {"method": "simcse", "dropout": 0.2}, {"method": "micse", "ami.weight": 0.0, "warmup_steps": 0}
    records = [{"point": point, "seed": 42, "results": {"best_dev_spearman": 81.5}} for point in points]
    table = sweep_table("runs", summarize(records))
    assert table.columns[:2] == ["method", "settings"]
    assert [row[:2] for row in table.rows] == [["simcse", "dropout 0.2"], ["micse", "ami.weight 0.0, warmup_steps 0"]]


def test_the_table_shows_small_numbers_and_runs_that_ended_early():
    records = [
        {"point": {"learning_rate": 3e-5}, "seed": 1, "results": {"best_dev_spearman": 81.5, "ended_early": True}},
        {"point": {"learning_rate": 3e-5}, "seed": 2, "results": {"best_dev_spearman": 82.5}},
    ]
    table = sweep_table("runs", summarize(records))
    assert table.rows[0][:2] == ["3e-05", "1 (ended early), 2"]


@pytest.mark.slow
def test_transfer_tasks_are_scored_as_senteval_scores_the_trained_model(invoke, tiny_bert, text, tmp_path):
    downstream = write_downstream(tmp_path / "downstream")
    options = ["--senteval", downstream, "--senteval-tasks", "MR,TREC", "--senteval-protocol", "lbfgs"]
    call = ["--method", "simcse", "--seeds", "1,2"]
    report = tmp_path / "r.json"
    train(invoke, tiny_bert, text, tmp_path / "m", *call, *options, "--json", report)
    results = json.loads(report.read_text())["results"]
    scores = [tmp_path / "m" / f"seed={seed}" for seed in (1, 2)]
    for run, folder in zip(results["runs"], scores, strict=True):
        alone = ["senteval", "-m", folder, "--data", downstream, "--tasks", "MR,TREC", "--protocol", "lbfgs"]
        invoke(*alone, "--json", report, check=0)
        scored = json.loads(report.read_text())
        assert {task: of["accuracy"] for task, of in run["senteval"].items()} == {
            task: pytest.approx(of["accuracy"]) for task, of in scored["results"].items()
        }
        assert run["senteval_average"] == pytest.approx(scored["average"])
    first, second = (run["senteval"]["MR"]["accuracy"] for run in results["runs"])
    assert results["mean"]["senteval"]["MR"]["accuracy"] == pytest.approx((first + second) / 2)
    steps = (tmp_path / "m" / "seed=1" / "metrics.jsonl").read_bytes()
    more = [*options[:3], "MR,TREC,MRPC", *options[4:], "--resume", "--json", report]
    train(invoke, tiny_bert, text, tmp_path / "m", *call, *more)
    run = json.loads(report.read_text())["results"]["runs"][0]
    assert list(run["senteval"]) == ["MR", "TREC", "MRPC"] and run["senteval"]["MR"]["accuracy"] == first
    assert (tmp_path / "m" / "seed=1" / "metrics.jsonl").read_bytes() == steps  # it was not trained again


@pytest.mark.slow
def test_each_task_is_trained_on_and_scored_in_turn(invoke, tiny_bert, tmp_path):
    """As in table 3 of IS-BERT's paper (Zhang et al., 2020), with the mean of all below."""
    downstream, report = write_downstream(tmp_path / "downstream"), tmp_path / "r.json"
    call = ["train", "--method", "simcse", "-m", tiny_bert, "--data", downstream, "--text-of", "each", "--max-steps", 1]
    call += ["--batch-size", 4, "--senteval", downstream, "--senteval-protocol", "lbfgs"]
    out = invoke(*call, "-o", tmp_path / "m", "--json", report, check=0).stdout
    results = json.loads(report.read_text())["results"]
    scored = {point["point"]["text_of"]: point["mean"]["senteval"] for point in results["points"]}
    assert list(scored) == list(AVERAGED) and all(list(scores) == [task] for task, scores in scored.items())
    (mean,) = results["text_of"]
    values = [round(scores[task]["accuracy"], 2) for task, scores in scored.items()]
    assert mean["text_of"] == list(AVERAGED) and mean["senteval_average"] == pytest.approx(np.mean(values))
    assert f"{mean['senteval_average']:.2f}" in out


def test_tasks_of_another_folder_are_refused_before_anything_is_trained(invoke, tiny_bert, text, tmp_path):
    call = ["--method", "simcse"]
    for options in (["--senteval", tmp_path], ["--senteval-tasks", "MR"], ["--senteval-protocol", "fast"]):
        result = train(invoke, tiny_bert, text, tmp_path / "m", *call, *options, check=2)
        assert (str(tmp_path) if options[0] == "--senteval" else "--senteval") in result.stderr
    downstream = write_downstream(tmp_path / "downstream")
    result = train(
        invoke, tiny_bert, text, tmp_path / "m", *call, "--senteval", downstream, "--senteval-tasks", "RM", check=2
    )
    assert "RM" in result.stderr and not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("learning_rate = [[1]]", r"learning_rate=\[1\]: expected a number"),
        ("learning_rate = [true]", r"learning_rate=True: expected a number"),
        ("batch_size = [[4]]", r"batch_size=\[4\]: expected a whole number"),
        ("batch_size = [{ a = 1 }]", r"batch_size=.*: expected a whole number"),
        ("limit = [[4]]", r"limit: \[4\] is a list"),
        ("limit = [true]", "limit must be a whole number, not True"),
        ("fraction = [true]", "fraction must be a number, not True"),
        ('method = [["simcse"]]', r"method: \['simcse'\] is a list"),
    ],
)
def test_a_value_of_a_run_is_no_list_and_no_other_type(tmp_path, tiny_bert, text, line, words):
    (tmp_path / "s.toml").write_text(f"[[grid]]\n{line}\n")
    with pytest.raises(InputError, match=words):
        points = sweep_file.read_sweep(tmp_path / "s.toml").points
        sweep.plan(TrainRequest("simcse", str(tiny_bert), [str(text)], tmp_path / "out"), points, [1])


def test_the_time_left_is_that_of_runs_that_are_still_to_be_made(tiny_bert, text, tmp_path, monkeypatch, capsys):
    request = TrainRequest("simcse", str(tiny_bert), [str(text)], tmp_path / "out")
    runs = sweep.plan(request, [{}], [1, 2, 3, 4, 5])
    clock = iter([0.0, 60.0])
    monkeypatch.setattr(sweep_view.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sweep_view, "training", lambda prepared: nullcontext())
    with ExitStack() as views:
        view = sweep_view.SweepView(runs, views, finished={"seed=3", "seed=5"})
        view.starts(runs[0], None)
        view.starts(runs[1], None)
    assert "0:02:00 left" in capsys.readouterr().err  # of two runs of a minute, and not of four


def test_a_sweep_that_is_there_names_resume(invoke, tiny_bert, text, tmp_path):
    command = ("--method", "simcse", "--seeds", "1,2")
    train(invoke, tiny_bert, text, tmp_path / "out", *command)
    assert "--resume" in train(invoke, tiny_bert, text, tmp_path / "out", *command, check=2).stderr


@pytest.mark.slow
def test_a_grid_takes_terms_away_and_adds_them(invoke, tiny_bert, text, tmp_path):
    path = tmp_path / "terms.toml"
    path.write_text(
        '[[grid]]\nmethod = "simcse"\n"objectives+" = "mlm"\n'
        '[[grid]]\nmethod = "simcse"\n"objectives+" = "mlm"\n"objectives-" = ["contrastive", "mlm"]\n'
    )
    train(invoke, tiny_bert, text, tmp_path / "m", "--sweep", path, "--set", "batch_size=8")
    terms = []
    for folder in sorted((tmp_path / "m").glob("*/metrics.jsonl")):
        first = json.loads(folder.read_text().splitlines()[0])
        terms.append([name for name in ("contrastive", "mlm") if name in first])
    assert sorted(terms) == [["contrastive"], ["contrastive", "mlm"], ["mlm"]]
