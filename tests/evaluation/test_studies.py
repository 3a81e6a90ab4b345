"""A folder of runs stands for its models wherever models are scored; those of one training are seeds of one system."""

import json
import shutil

import pytest

from sentcli.errors import InputError
from sentcli.evaluation.studies import study_of
from tests.evaluation.conftest import write_downstream


@pytest.fixture
def study(invoke, tiny_bert, text, tmp_path):
    """A sweep of two rates with two seeds each."""
    (tmp_path / "sweep.toml").write_text("seeds = [1, 2]\n[[grid]]\nlearning_rate = [1e-3, 3e-3]\n")
    folder = tmp_path / "study"
    command = ("train", "--method", "simcse", "-m", tiny_bert, "--data", text, "--batch-size", 16, "--max-steps", 1)
    invoke(*command, "--sweep", tmp_path / "sweep.toml", "-o", folder, check=0)
    return folder


@pytest.fixture
def pairs(tmp_path, sentences):
    words = [sentence for sentence in sentences if sentence.strip() and "\t" not in sentence]
    rows = [f"{words[number]}\t{words[number + 40]}\t{number % 6}" for number in range(36)]
    file = tmp_path / "scored.tsv"
    file.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    return file


@pytest.mark.slow
def test_a_sweep_is_a_row_a_setting_with_its_seeds(invoke, study, pairs, tiny_bert, tmp_path):
    for command in (("sts-eval", "--pairs", pairs), ("evaluate", pairs)):
        page, scores = tmp_path / f"{command[0]}.md", tmp_path / f"{command[0]}.json"
        done = invoke(*command, "-m", study, "-m", tiny_bert, "--json", scores, "--report", page, check=0)
        models = json.loads(scores.read_text())
        assert [model["model"] for model in models] == [*map(str, sorted(study.glob("learning*"))), str(tiny_bert)]
        for shown in (done.stdout, page.read_text()):
            assert shown.count("±") >= 2, "two systems with a mean and a deviation"
            assert "0.001" in shown and "0.003" in shown
        compared = [model.get("compared") for model in models]
        assert "0.001" in compared[-1]["with"], "the first system is what the others are compared with"


def test_models_of_a_group_are_seeds_whatever_scores_them(invoke, pairs, make_set, tiny_bert, tmp_path, monkeypatch):
    """Only `evaluate` and `report` had ``--group``."""
    for name in ("seed-a", "seed-b", "other"):
        shutil.copytree(tiny_bert, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for command in (
        ("sts-eval", "--pairs", pairs),
        ("senteval", "--data", write_downstream(tmp_path), "--tasks", "MR", "--protocol", "lbfgs"),
        ("retrieve", "--beir", make_set()),
        ("retrieve", "--in-domain", pairs),
        ("evaluate", pairs),
    ):
        named = ("-m", "seed-a", "-m", "seed-b", "-m", "other")
        shown = invoke(*command, *named, "--group", "ours=seed-*", check=0).stdout
        assert "ours" in shown and "±" in shown, command
        refused = invoke(*command, *named, "--group", "ours=none*", check=2).stderr
        assert "--group ours=none* matches no model" in refused, command


@pytest.mark.slow
def test_a_group_of_the_user_takes_runs_out_of_the_systems_of_their_folder(study):
    some = study_of([str(study)], groups=["ours=*0.003*"])
    assert len(some.models) == 4 and len(some.labels) == 2
    assert not any("0.003" in run for run in some.labels)


@pytest.mark.slow
def test_folders_of_models_stand_for_themselves(study, tiny_bert):
    assert study_of([str(tiny_bert), "minilm"]).models == [str(tiny_bert), "minilm"]
    run = sorted(study.glob("learning*"))[0]
    assert study_of([str(run)]).models == [str(run)]
    assert study_of([str(study)]).models == list(map(str, sorted(study.glob("learning*"))))


def test_a_run_is_given_once_whatever_scores_it(invoke, pairs, make_set, tiny_bert, tmp_path, monkeypatch):
    """`sts-eval`, `senteval` and `retrieve` scored a run twice that stood for itself and in its folder."""
    study = tmp_path / "runs"
    for name in ("a", "b"):
        shutil.copytree(tiny_bert, study / name)
        (study / name / "run.json").write_text(json.dumps({"settings": {"seed": name}}))
    monkeypatch.chdir(tmp_path)
    for command in (
        ("sts-eval", "--pairs", pairs),
        ("senteval", "--data", write_downstream(tmp_path), "--tasks", "MR"),
        ("retrieve", "--beir", make_set()),
        ("retrieve", "--in-domain", pairs),
        ("evaluate", pairs),
    ):
        for twice in (("-m", study, "-m", study / "a"), ("-m", study, "-m", study)):
            assert "a is given twice" in invoke(*command, *twice, check=2).stderr, command
    assert "a is given twice" in invoke("evaluate", pairs, "-m", "runs/a", "-m", study / "a", check=2).stderr


@pytest.mark.slow
def test_runs_that_have_not_finished_are_left_out(study, capsys):
    runs = sorted(study.glob("learning*"))
    (runs[0] / "model.safetensors").unlink()
    assert len(study_of([str(study)]).models) == 3
    assert "1 of 4" in capsys.readouterr().err
    for run in runs[1:]:
        (run / "model.safetensors").unlink()
    with pytest.raises(InputError, match="study"):
        study_of([str(study)])


@pytest.mark.slow
def test_a_study_of_one_training_has_the_name_of_its_folder(study):
    for run in study.glob("*0.003*"):
        (run / "run.json").unlink()
    assert set(study_of([str(study)]).labels.values()) == {str(study)}


@pytest.mark.slow
def test_a_pattern_stands_for_the_runs_that_match(study):
    some = study_of([f"{study}/*0.003*"])
    assert some.models == list(map(str, sorted(study.glob("*0.003*"))))
    assert set(some.labels.values()) == {f"{study}/*0.003*"}


@pytest.mark.slow
def test_systems_of_two_folders_have_different_labels(study, tmp_path):
    """Both folders have a rate of 0.001, and the other settings of these differ."""
    other = tmp_path / "other"
    for run in study.glob("learning*"):
        (other / run.name).mkdir(parents=True)
        for file in ("model.safetensors", "sentcli.json"):
            (other / run.name / file).symlink_to(run / file)
        identity = json.loads((run / "run.json").read_text())
        identity["settings"]["weight_decay"] = 0.5
        (other / run.name / "run.json").write_text(json.dumps(identity))
    labels = study_of([str(study), str(other)]).labels
    assert len(set(labels.values())) == 4, "runs of different trainings were seeds of one system"
