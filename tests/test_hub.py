"""Models of the hub: fetched once over HTTP, at a commit that is named everywhere, and told why where they are not."""

import hashlib
import json
import multiprocessing
import shutil

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.hub import HubModel
from sentcli.hub_fetch import fetch
from sentcli.zoo import on_this_machine, resolve
from tests.conftest import save_backbone
from tests.hub import LARGE

MINI = "acme/mini"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A plain model."""
    return save_backbone(tmp_path_factory.mktemp("first"), seed=1)


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """The same model with other weights."""
    return save_backbone(tmp_path_factory.mktemp("second"), seed=2)


def weights_of(folder):
    return (folder / "model.safetensors").read_bytes()


def moved(hub, files):
    """Move `main` on the hub, and fetch it as ``hf download`` does; the new commit."""
    from huggingface_hub import snapshot_download

    commit = hub.put(MINI, files)
    snapshot_download(MINI, endpoint=hub.url)
    return commit


@pytest.mark.slow
def test_what_was_fetched_is_used_without_a_request(hub, first, second, invoke, text, tmp_path):
    hub.put(MINI, first)
    said = invoke("encode", text, "-o", tmp_path / "a.npy", "-m", MINI, "--backend", "torch", "-q", check=0)
    assert said.stderr == "" and "model.safetensors" in hub.fetched()
    hub.put(MINI, second)
    hub.requests.clear()
    assert on_this_machine(MINI)
    invoke("encode", text, "-o", tmp_path / "b.npy", "-m", MINI, "--backend", "torch", check=0)
    assert hub.requests == []
    assert (np.load(tmp_path / "a.npy") == np.load(tmp_path / "b.npy")).all()


def test_a_newer_main_is_taken_when_the_user_fetches_it_and_said_once(hub, first, second, capsys):
    old = hub.put(MINI, first)
    resolve(MINI)
    new = moved(hub, second)
    hub.requests.clear()
    capsys.readouterr()
    assert weights_of(resolve(MINI)[0]) == weights_of(second)
    said = " ".join(capsys.readouterr().err.split())
    assert "another model now" in said and new[:12] in said and f"{MINI}@{old[:12]}" in said
    assert weights_of(resolve(f"{MINI}@{old[:12]}")[0]) == weights_of(first)
    resolve(MINI)
    assert capsys.readouterr().err == "" and hub.requests == []


def test_a_newer_main_that_is_not_whole_does_not_replace_what_was_used(hub, first, second, capsys):
    hub.put(MINI, first)
    resolve(MINI)
    new = moved(hub, second)
    (HubModel(MINI).snapshot(new) / "model.safetensors").unlink()
    hub.requests.clear()
    assert weights_of(resolve(MINI)[0]) == weights_of(first) and hub.requests == []
    assert f"hf download {MINI}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v1", "feature/x", "COMMIT", "SHORT"])
def test_a_revision_is_a_branch_a_tag_or_a_commit(name, hub, first, second):
    commit = hub.put(MINI, first, "v1", "feature/x")
    hub.put(MINI, second)
    hub.versions[MINI, commit[:7]] = hub.versions[MINI, commit]
    revision = {"COMMIT": commit, "SHORT": commit[:7]}.get(name, name)
    assert weights_of(resolve(f"{MINI}@{revision}")[0]) == weights_of(first)
    assert weights_of(resolve(MINI)[0]) == weights_of(second)
    hub.requests.clear()
    encoder = SentenceEncoder.load(f"{MINI}@{revision}", backend="torch")
    assert hub.requests == [] and encoder.provenance()["revision"] == commit


def test_a_folder_whose_name_holds_an_at_comes_first(hub, first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(first, tmp_path / "acme" / "mini@v1")
    assert resolve(f"{MINI}@v1")[0].samefile(tmp_path / "acme" / "mini@v1") and hub.requests == []


def test_a_short_name_with_a_revision_is_that_of_the_hub_and_keeps_its_pin(hub, first, minilm):
    hub.put("sentence-transformers/all-MiniLM-L6-v2", first, "v1")
    with pytest.raises(InputError, match="SHA-256"):
        resolve(f"{minilm}@v1")
    assert hub.requests


REFUSALS = {
    401: ("private", "hf auth login"),
    403: ("gated", f"/{MINI}", "hf auth login"),
    404: ("no model", "private"),
}


@pytest.mark.parametrize("status", REFUSALS)
def test_what_the_hub_does_not_give_says_why_and_where_to_ask(status, hub, invoke, text, tmp_path):
    hub.refused[MINI] = status
    said = invoke("encode", text, "-o", tmp_path / "v.npy", "-m", MINI, check=2).stderr
    assert all(word in said for word in REFUSALS[status]) and hub.waits == [] and len(hub.requests) == 1


def test_a_gated_model_may_be_described_and_not_given(hub, first):
    """The real hub tells everybody which files there are."""
    hub.put(MINI, first)
    hub.faults += [None, *[(403, {"X_Error_Code": "GatedRepo"})] * 20]
    with pytest.raises(InputError, match="is gated: ask for access on its page"):
        resolve(MINI)


@pytest.mark.parametrize("revision", ["v9", "abcdef1", "0" * 40])
def test_a_revision_that_is_not_there_is_named(revision, hub, first):
    hub.put(MINI, first)
    with pytest.raises(InputError, match=rf"no revision '{revision}'.*acme/mini"):
        resolve(f"{MINI}@{revision}")


@pytest.mark.slow
@pytest.mark.parametrize(("status", "header", "waits"), [(429, "7", [7.0, 7.0]), (503, "", [1.0, 4.0])])
def test_a_busy_hub_is_asked_again(status, header, waits, hub, first):
    hub.put(MINI, first)
    hub.faults += [(status, {"Retry_After": header})] * 2
    assert weights_of(resolve(MINI)[0]) == weights_of(first) and hub.waits[:2] == waits


@pytest.mark.parametrize("status", [429, 503])
def test_a_hub_that_stays_busy_is_told_as_that(status, hub):
    hub.refused[MINI] = status
    with pytest.raises(SentcliError, match=rf"the hub answers {status} for acme/mini, again after several attempts"):
        resolve(MINI)
    assert hub.waits == [1.0, 4.0, 16.0] and len(hub.requests) == 4


def test_a_download_that_is_cut_goes_on_where_it_broke_off(hub, first):
    hub.put(MINI, first)
    hub.cuts = 3
    assert weights_of(resolve(MINI)[0]) == weights_of(first)
    assert len(weights_of(first)) > LARGE and hub.ranges and min(hub.ranges) > 0


def test_a_download_that_always_breaks_off_is_told_as_that_and_begun_again(hub, first):
    hub.put(MINI, {"config.json": b"{}", "model.safetensors": b"w" * LARGE * 2})
    hub.empty = True
    with pytest.raises(SentcliError, match="the hub breaks off or is too slow for acme/mini, again after"):
        resolve(MINI)
    hub.empty = False
    assert not on_this_machine(MINI)
    resolve(MINI)
    assert on_this_machine(MINI)


def test_nobody_is_asked_under_hf_hub_offline(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SentcliError, match=r"cannot be reached \(HF_HUB_OFFLINE"):
        resolve(MINI)
    assert hub.requests == []


def _resolve_in_child(cache, endpoint, model, answers):
    from huggingface_hub import constants

    constants.HF_HUB_CACHE, constants.ENDPOINT, constants.HF_HUB_OFFLINE = cache, endpoint, False
    constants.HUGGINGFACE_CO_URL_TEMPLATE = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    try:
        answers.put(weights_of(resolve(model)[0])[:100])
    except BaseException as error:
        answers.put(repr(error))


def test_two_processes_fetch_one_model_at_once(hub, first, tmp_path):
    hub.put(MINI, first)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    given = (str(tmp_path / "hub cache"), hub.url, MINI, answers)
    children = [context.Process(target=_resolve_in_child, args=given) for _ in range(2)]
    for child in children:
        child.start()
    assert [answers.get(timeout=60) for _ in children] == [weights_of(first)[:100]] * 2
    for child in children:
        child.join()


GRAPHS = {
    "optimum": ({"model.onnx", "model.onnx_data"}, {"model_quantized.onnx"}),
    "transformers.js": ({"onnx/model.onnx"}, {"onnx/model_quantized.onnx", "onnx/model_fp16.onnx"}),
    "sentcli": ({"onnx/model.onnx", "onnx/model.export.json"}, {"onnx/model_fp16.onnx", "onnx/model_fp16.export.json"}),
    "one other": ({"model_optimized.onnx"}, set()),
    "OpenVINO": ({"openvino/openvino_model.xml", "openvino/openvino_model.bin"}, {"openvino/other.xml"}),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_graph_is_fetched_where_there_is_nothing_else(kind, hub):
    graph, others = GRAPHS[kind]
    graph_bytes = b"a graph with its weights in model.onnx_data" if kind == "optimum" else b"a graph"
    content = dict.fromkeys(graph | others, graph_bytes)
    hub.put(MINI, {"config.json": b"{}", "tokenizer.json": b"{}", **content})
    folder = fetch(HubModel(MINI))
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} == {
        "config.json", "tokenizer.json", *graph
    }  # fmt: skip
    assert on_this_machine(MINI)
    needed = [name for name in graph if not name.endswith(".json")]
    (folder / max(needed, key=len)).unlink()
    assert not on_this_machine(MINI)


def test_a_module_outside_of_the_folder_is_refused(hub):
    entries = [{"idx": 0, "path": "../../other", "type": "sentence_transformers.models.Transformer"}]
    hub.put(MINI, {"config.json": b"{}", "modules.json": json.dumps(entries).encode(), "model.safetensors": b"w"})
    with pytest.raises(InputError, match="inside the folder"):
        resolve(MINI)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"model-q8.gguf"}, ["llama.cpp", "-m http"]),
        ({"tf_model.h5", "config.json"}, ["TensorFlow"]),
        ({"onnx/model_q4.onnx", "onnx/model_fp16.onnx"}, ["no model.onnx", "onnx/model_fp16.onnx"]),
    ],
)
def test_weights_that_are_not_read_are_named(files, words, hub):
    hub.put(MINI, dict.fromkeys(files, b"{}"))
    with pytest.raises(InputError) as error:
        resolve(MINI)
    assert all(word in str(error.value) for word in words)


@pytest.fixture
def fetched(hub, first, second):
    """A model at two commits, both of which are on this machine: `main` is the second one."""
    commits = {"v1": hub.put(MINI, first, "v1"), "main": hub.put(MINI, second)}
    for revision in commits:
        resolve(f"{MINI}@{revision}")
    return commits


def test_commit_and_digest_stand_in_results_and_on_the_page(fetched, first, tmp_path, invoke):
    rows = "".join(f"the cat {i},a dog {i % 7},{i % 5}\n" for i in range(40))
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\n" + rows)
    for revision in fetched:
        given = ["--pairs", tmp_path / "pairs.csv", "-m", f"{MINI}@{revision}", "--backend", "torch"]
        invoke("sts-eval", *given, "--json", tmp_path / f"{revision}.json", "-q", check=0)
    results = {revision: json.loads((tmp_path / f"{revision}.json").read_text()) for revision in fetched}
    for revision, commit in fetched.items():
        assert results[revision]["environment"]["revision"] == results[revision]["protocol"]["revision"] == commit
    digest = hashlib.sha256(weights_of(first)).hexdigest()
    assert results["v1"]["protocol"]["weights"] == digest != results["main"]["protocol"]["weights"]
    for revision, result in results.items():  # as files of a name that has moved
        (tmp_path / f"{revision}.json").write_text(json.dumps(result | {"model": MINI}))
    files = [tmp_path / f"{revision}.json" for revision in fetched]
    invoke("report", *files, "-o", tmp_path / "page.md", check=0)
    lines = (tmp_path / "page.md").read_text().splitlines()
    shown = [line for line in lines if line.startswith(f"| {MINI}")][:2]  # of the first table
    assert all(commit[:12] in row for commit, row in zip(fetched.values(), shown, strict=True))
    refused = invoke("report", *files, "-o", tmp_path / "b.md", "--group", f"one={MINI}", check=2).stderr
    assert "two models" in refused


def test_a_directory_names_the_commit_and_is_searched_with_it(hub, first, second, invoke, tmp_path):
    commit = hub.put(MINI, first)
    (tmp_path / "rows.txt").write_text("the cat sat\na dog ran\nthe fish swam\n")
    load = ["-m", MINI, "--backend", "torch"]
    invoke("encode", tmp_path / "rows.txt", "-o", tmp_path / "dir", *load, check=0)
    settings = json.loads((tmp_path / "dir" / "manifest.json").read_text())["settings"]
    assert settings["revision"] == commit and settings["weights"] == hashlib.sha256(weights_of(first)).hexdigest()
    invoke("index", tmp_path / "dir", "--type", "flat", "--json", tmp_path / "index.json", "-q", check=0)
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["environment"]["revision"] == index["protocol"]["revision"] == commit
    moved(hub, second)
    query = ["retrieve", "--corpus", tmp_path / "dir", "--query", "the cat"]
    assert commit in invoke(*query, *load, check=2).stderr
    said = invoke(*query, "--json", tmp_path / "hits.json", check=0).stderr
    result = json.loads((tmp_path / "hits.json").read_text())
    assert result["environment"]["revision"] == commit and result["model"] == f"{MINI}@{commit}" and commit in said


@pytest.mark.slow
def test_a_directory_goes_on_at_a_commit_with_the_same_weights(hub, first, invoke, text, tmp_path):
    files = {path.name: path.read_bytes() for path in first.iterdir()}
    first_commit = hub.put(MINI, files)
    given = ["encode", text, "-o", tmp_path / "dir", "-m", MINI, "--backend", "torch"]
    invoke(*given, check=0)
    moved(hub, files | {"README.md": b"Now with a card."})
    (tmp_path / "dir" / "vectors-00000.npy").unlink()
    second_commit = HubModel(MINI).cached().name
    invoke(*given, "--resume", check=0)
    settings = json.loads((tmp_path / "dir" / "manifest.json").read_text())["settings"]
    assert first_commit != settings["revision"] == second_commit


def test_a_trained_and_an_exported_folder_name_the_commit(fetched, invoke, text, tmp_path):
    name, commit = f"{MINI}@v1", fetched["v1"]
    train = ["train", "--method", "simcse", "--data", text, "--max-steps", 1, "--batch-size", 4, "-q"]
    invoke(*train, "-m", name, "-o", tmp_path / "trained", check=0)
    config = json.loads((tmp_path / "trained" / "sentcli.json").read_text())
    assert config["start_model"]["revision"] == config["environment"]["revision"] == commit
    card = (tmp_path / "trained" / "README.md").read_text()
    assert commit in card and f"base_model: {MINI}\n" in card
    invoke("export", "-m", name, "-o", tmp_path / "exported", "--no-verify", "-q", check=0)
    export = json.loads((tmp_path / "exported" / "export.json").read_text())
    assert export["revision"] == export["environment"]["revision"] == commit
    assert commit in (tmp_path / "exported" / "README.md").read_text()
    exported = SentenceEncoder.load(tmp_path / "exported", backend="onnx")
    assert exported.provenance() == SentenceEncoder.load(name, backend="torch").provenance()


def test_doctor_lists_what_the_cache_holds(fetched):
    from sentcli.diagnosis import of_hub
    from sentcli.hub import models_in_cache

    found = [of_hub(model, folder) for model, folder in models_in_cache()]
    assert {(each["model"], each["revision"]) for each in found} == {
        (MINI, fetched["main"]), (f"{MINI}@v1", fetched["v1"])
    }  # fmt: skip
    assert all(len(each["weights"]) == 64 for each in found)


def test_the_base_of_an_adapter_has_a_revision_of_its_own(fetched, tmp_path):
    from sentcli.model.adapters import base_folder

    settings = {"peft_type": "LORA", "base_model_name_or_path": MINI, "revision": "v1"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    (tmp_path / "adapter_model.safetensors").touch()
    assert base_folder(tmp_path).name == fetched["v1"]
