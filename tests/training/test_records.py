"""Every kept line of the studies still counts as finished: the digest of its run is the one in the file.

What a run reads (start model, text, dev set) is taken from the line; method and settings are made anew from the
sweep's points and the options that the study's script gives.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from sentcli.io.forms import finite
from sentcli.methods import configure, get_method
from sentcli.training import sweep, sweep_file
from sentcli.training.prepare import method_identity

STUDY = Path(__file__).parents[2] / "docs" / "results" / "study"
TRAINING = [
    ("precision", "bf16"), ("keep_start", "false"), ("settings.batch_size", 64), ("settings.max_steps", 250),
    ("settings.max_length", 32), ("settings.eval_every", 125),
]  # fmt: skip
"""The options of every training step in run.sh, in the order in which the command hands them on."""
OPTIONS = {"method", "model", "pooling", "limit", "fraction", "subset_seed"}


def test_the_script_gives_these_options():
    script = (STUDY / "run.sh").read_text()
    for words in (
        "--batch-size 64 --max-length 32 --eval-every 125",
        "precision=bf16 --set keep_start=false",
        "steps 250",
    ):
        assert words in script


def test_the_script_gives_stage_1_the_settings_that_it_had():
    """Its defaults are Condenser's now; the lines of stages.jsonl start from a model that was trained otherwise."""
    words = (STUDY / "run.sh").read_text().split("--stage pretrain")[1].split(";;")[0].split("#")[0].split()
    given = [tuple(word.split("=")) for option, word in pairwise(words) if option == "--set"]
    aux_init = words[words.index("--aux-init") + 1]
    method = configure(get_method("infocse", "pretrain"), [*given, ("aux_init", aux_init)])
    condenser, settings = method.objectives["condenser-mlm"], method.settings
    assert (condenser.tie, condenser.init, condenser.rate, condenser.layers) == (False, "copy-top", 0.15, 2)
    assert (settings.warmup_share, settings.weight_decay, settings.precision) == (0.05, 0.0, "bf16")


def without_newer(values, kept):
    """Return nested settings without those that a line from before they were added does not have; the digest, which
    leaves out defaults, shows that they have their default."""
    if not isinstance(values, dict) or not isinstance(kept, dict):
        return values
    return {key: without_newer(value, kept[key]) for key, value in values.items() if key in kept}


@pytest.mark.slow
@pytest.mark.parametrize("step", sorted(path.stem for path in STUDY.glob("*.jsonl")))
def test_kept_lines_count_as_finished(step):
    read = sweep_file.read_sweep(STUDY / f"{step}.toml")
    seeds, points = read.seeds, read.points
    records = [json.loads(line) for line in (STUDY / f"{step}.jsonl").read_text("utf-8").splitlines()]
    assert records
    for record in records:
        assert record["point"] in points and (not seeds or record["seed"] in seeds)
        method, fitted = get_method(record["method"]), step in ("baselines", "whitening")
        given = [(key, value) for key, value in record["point"].items() if key not in OPTIONS]
        seed = [] if fitted else [("seed", record["seed"])]
        method = configure(method, [*([] if fitted else TRAINING), *given, *seed])
        whole = json.loads(json.dumps(finite(method_identity(method, None))))
        kept = {key: record["identity"][key] for key in whole}
        assert without_newer(whole, kept) == kept, record["run"]
        identity = {**record["identity"], **method_identity(method, None, changed_only=True)}
        assert sweep.run_digest(identity) == record["digest"], record["run"]
