"""What runs logged about their terms, and the groups that whitening works on."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sentcli.analysis.curves import mean_lines
from sentcli.analysis.objectives.groups import divisors_of, group_spectra
from sentcli.analysis.objectives.terms import terms_of
from sentcli.analysis.runs import read_runs
from sentcli.errors import InputError
from sentcli.objectives.whitening import shuffled_group_whitening

METHOD = {
    "name": "micse",
    "contrastive": {"weight": 1.0},
    "ami": {"weight": 0.0025},
    "head": {"kind": "shuffled-group", "num_groups": 16},
}


def write_run(folder, lines, *, finished=True):
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "run.json").write_text(json.dumps({"method": METHOD}))
    if finished:
        (folder / "sentcli.json").write_text(json.dumps({"method": METHOD}))
    return folder


def steps(count, every=2):
    lines = [{"step": 0, "dev_spearman": 50.0}]
    for step in range(1, count + 1):
        used = {"learning_rate": 1e-5, "grad_norm": 1.0, "sentences_per_second": 9.0}
        shares = {"share_contrastive": 0.9, "share_ami": 0.1 / step} if step == 1 or step % every == 0 else {}
        lines.append({"step": step, "loss": 1.0, "contrastive": 1 / step, "ami": -0.5, **shares, **used})
    return lines


def terms(folder):
    return terms_of(read_runs([folder])[0])


def test_terms_with_weights_and_shares(tmp_path):
    found = terms(write_run(tmp_path / "run", steps(6)))
    contrastive, ami = found.to_dict()["terms"].values()
    assert dict(found.weights) == {"contrastive": 1.0, "ami": 0.0025}
    assert (contrastive["first"], contrastive["last"]) == (1, 1 / 6)
    assert ami["share_steps"] == [1, 2, 4, 6]
    assert ami["mean_share"] == pytest.approx(np.mean([0.1, 0.1 / 2, 0.1 / 4, 0.1 / 6]))
    assert (found.steps, found.finished, found.measured, found.groups) == (6, True, True, 16)


def test_a_run_that_goes_on(tmp_path):
    found = terms(write_run(tmp_path / "run", steps(3), finished=False))
    assert (found.steps, found.finished) == (3, False)
    assert found.weights["ami"] == 0.0025, "run.json says it"


def test_shares_of_nothing(tmp_path):
    lines = [{key: value for key, value in line.items() if not key.startswith("share_")} for line in steps(4)]
    found = terms(write_run(tmp_path / "run", lines))
    assert not found.measured
    assert found.to_dict()["terms"]["contrastive"]["mean_share"] is None


def test_a_loss_that_was_not_finite_is_left_out(tmp_path):
    lines = steps(4)
    lines[4]["ami"] = None  # what the log holds for NaN
    lines[3]["ami"] = -0.25
    assert terms(write_run(tmp_path / "run", lines)).to_dict()["terms"]["ami"]["last"] == -0.25


def test_a_run_before_its_first_step(tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path}/run "):
        terms(write_run(tmp_path / "run", steps(0), finished=False))


@given(st.integers(1, 50), st.integers(1, 20))
def test_thinned_curves_keep_the_mean(count, most):
    values = [float(i % 7) for i in range(count)]
    lines = pd.DataFrame({"panel": "p", "series": "s", "x": range(1, count + 1), "value": values})
    thin = mean_lines(lines, most)
    assert len(thin) == min(count, most)
    assert thin["x"].iloc[-1] == count
    sizes = np.diff([0, *thin["x"]])
    assert np.average(thin["y"], weights=sizes) == pytest.approx(np.mean(values))


def vectors(rows=300, width=24):
    rng = np.random.default_rng(0)
    return (rng.normal(size=(rows, width)) @ rng.normal(size=(width, width))).astype(np.float32)


def test_eigenvalues_are_those_of_the_groups_covariance():
    found = group_spectra(vectors(), 6, seed=4)
    order = np.random.default_rng(4).permutation(24).reshape(6, 4)
    expected = [np.linalg.eigvalsh(np.cov(vectors()[:, columns].T, bias=True))[::-1] for columns in order]
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-5)
    np.testing.assert_allclose(found.conditions, [values[0] / values[-1] for values in expected], rtol=1e-4)
    assert found.rows == 300
    np.testing.assert_allclose(found.by_count[6], found.conditions)
    assert set(found.by_count) == {1, 2, 3, 4, 6, 8, 12}


def test_whitened_groups_have_condition_one():
    order = torch.from_numpy(np.random.default_rng(7).permutation(24))
    white = shuffled_group_whitening(torch.from_numpy(vectors()).double(), 6, order).numpy()
    assert group_spectra(white, 6, seed=7).conditions == pytest.approx(np.ones(6), abs=1e-6)
    assert group_spectra(white, 6, seed=8).conditions.max() > 1.1, "other groups are not white"


def test_a_column_without_variance_makes_its_group_singular():
    made = vectors()
    made[:, 3] = 1
    found = group_spectra(made, 12)
    assert np.isinf(found.conditions).sum() == 1
    assert (found.eigenvalues == 0).sum() == 1


@pytest.mark.parametrize(("rows", "groups", "message"), [
    (300, 5, "--groups 5 .*24 .*1, 2, 3, 4, 6, 8, 12, 24"),
    (12, 2, "--groups 2 .*12 .*12 "),
])  # fmt: skip
def test_groups_that_cannot_be_whitened_are_refused(rows, groups, message):
    with pytest.raises(InputError, match=message):
        group_spectra(vectors(rows), groups)


def test_divisors():
    assert divisors_of(12) == [1, 2, 3, 4, 6, 12]
