"""A library that is installed and does not load is named with its own error; nothing else is blamed."""

import sys

import pytest

from sentcli.cli.base import _message
from sentcli.errors import InputError, MissingExtraError, SentcliError, broken_library, library_errors, required
from sentcli.model import building

BROKEN = {
    "its own module": ("import nowhere_installed", "No module named 'nowhere_installed'"),
    "a name": ("from json import loads2", "cannot import name 'loads2'"),
    "an older binary": ("raise ValueError('numpy.dtype size changed')", "numpy.dtype size changed"),
    "a cause": (
        "try:\n    import nowhere_installed\nexcept ImportError as e:\n    raise RuntimeError('not built') from e",
        "No module named 'nowhere_installed'",
    ),
}


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A function that installs a module ``halflib`` with some code."""

    def install(code):
        (tmp_path / "halflib.py").write_text(f"{code}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "halflib", raising=False)

    return install


@pytest.mark.parametrize("kind", BROKEN)
def test_a_module_that_a_library_lacks_does_not_make_it_absent(kind, library):
    code, words = BROKEN[kind]
    library(code)
    with pytest.raises(MissingExtraError) as caught:
        required("halflib", "halflib", "cpu", "search")
    assert "which does not load" in str(caught.value) and words in str(caught.value)
    assert "not installed" not in str(caught.value)


@pytest.mark.parametrize("module", ["nowhere_installed", "nowhere_installed.part"])
def test_a_library_that_is_absent_is_not_installed(module):
    with pytest.raises(MissingExtraError, match="which is not installed"):
        required(module, "nowhere", "cpu", "search")


def test_what_a_module_of_another_library_imports_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(MissingExtraError, match="tensorboard, which is not installed"):
        required("torch.utils.tensorboard", "tensorboard", "track", "--log-to tensorboard")


@pytest.mark.parametrize(
    ("to", "module", "extra"),
    [
        ("lance:tables", "lancedb", "lance"),
        ("milvus:rows.db", "pymilvus", "milvus"),
        ("milvus:rows.db", "milvus_lite", "milvus"),
        ("milvus:http://127.0.0.1:1", "pymilvus", "milvus"),
    ],
)
def test_the_library_of_a_database_is_missed_before_a_model_is_looked_for(
    to, module, extra, monkeypatch, tmp_path, invoke
):
    if extra == "milvus" and module != "pymilvus":
        pytest.importorskip("pymilvus", reason="needs the extra sentcli[milvus]")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text("a cat\n")
    failed = invoke("index", "rows.txt", "--to", to, "--collection", "c", "-m", "no-such-model", check=1)
    assert f"sentcli[{extra}]" in failed.stderr


def imported(library, code):
    library(code)
    import halflib  # noqa: F401


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_library_is_no_defect_of_sentcli(kind, library):
    code, words = BROKEN[kind]
    with pytest.raises(Exception) as caught:
        imported(library, code)
    message = _message(caught.value)
    assert message.startswith("halflib does not load: ") and words in message and "defect" not in message
    with (
        pytest.raises(SentcliError, match="halflib does not load"),
        library_errors(lambda why: InputError(f"x: {why}")),
    ):
        imported(library, code)


def test_other_errors_are_not_those_of_an_import():
    for error in (KeyError("a"), ImportError("without a name"), ImportError("ours", name="sentcli.nowhere")):
        assert broken_library(error) is None
        assert "a defect of sentcli" in _message(error)


@pytest.mark.parametrize("place", ["backbone_class", "AutoConfig"])
def test_a_broken_import_is_not_blamed_on_the_configuration(place, library, monkeypatch, tiny_bert):
    """transformers imports an architecture when it is asked for."""
    import transformers

    def fail(*args, **kwargs):
        try:
            imported(library, "import nowhere_installed")
        except ImportError as error:
            raise ModuleNotFoundError("Could not import module 'BertModel'") from error

    if place == "AutoConfig":
        monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", fail)
    else:
        monkeypatch.setattr(building, place, fail)
    with pytest.raises(SentcliError, match="does not load: No module named 'nowhere_installed'") as caught:
        building.load_backbone(tiny_bert, None)
    assert "config.json" not in str(caught.value) and caught.value.exit_code == 1


def test_a_store_says_it_too(monkeypatch, library):
    from fsspec.registry import _registry

    from sentcli.io import object_stores

    library("import nowhere_installed")
    monkeypatch.setitem(object_stores.STORE_MODULES, "s3", ("halflib", "s3fs"))
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(_registry, "s3", raising=False)  # where an earlier test has loaded it
    object_stores._filesystem.cache_clear()
    with pytest.raises(MissingExtraError, match="s3fs, which does not load"):
        object_stores._filesystem("s3")
