"""Folders as sentence-transformers writes them, with each of its options: tiny models with random weights."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as st

from tests.conftest import WORDS

TEXTS = [
    "the cat sat",
    "The CAT sat ON the Mat",
    "a small red fish swam under the old tree near the big blue house and the river",
    "",
    "dog",
    "zebra xylophone !",
    "one cat two dogs " * 12,
]
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
LAST_TOKEN = ("qwen2", "qwen3", "llama", "mistral", "gpt2")
"""Families whose tokens see only those before them."""


def tokenizer(padding="right", *, ending=False, limit=None):
    """A word-level tokenizer that keeps capitals, so that lower-casing counts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = [word for word in WORDS if word.isalpha()]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *map(str.capitalize, words), "CAT", "ON", ".", "!"]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    single = "$A [SEP]" if ending else "[CLS] $A [SEP]"
    special = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    named = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    limits = {} if limit is None else {"model_max_length": limit}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side=padding,
        **{f"{name}_token": token for name, token in named.items()},
        **limits,
    )


SIZES = {
    "qwen2": {"num_key_value_heads": 2, "vocab_size": 200},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 8},
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8, "use_bidirectional_attention": True},
    "embedding_gemma2_text": {"num_key_value_heads": 2, "head_dim": 8},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "modernbert": {"local_attention": 16},
    "deberta-v2": {
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False,
    },
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
}  # fmt: skip
SIZES |= {
    kind: {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4} for kind in ("t5", "mt5", "umt5")
}
FAMILIES = (
    "bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "albert", "electra", "deberta-v2", "t5", "mt5", "umt5",
    "modernbert", "nomic_bert", "gte", "eurobert", "jina_embeddings_v3", "qwen2", "qwen3", "gemma3_text",
    "embedding_gemma2_text", "llama", "mistral", "gpt2", "camembert", "ernie", "roformer", "rembert", "convbert",
    "nystromformer", "ultrabert", "deberta", "bart",
)  # fmt: skip
"""Architectures that transformers builds without code from the folder."""

MADE = TemporaryDirectory(prefix="sentcli-test-folders-")
"""Holds the folders of `plain`; it goes with the process."""


@cache
def plain(kind="bert", padding="right", limit=64, layers=2):
    """A plain transformers folder with random weights, made once."""
    folder = Path(mkdtemp(prefix=f"{kind}-", dir=MADE.name))
    torch.manual_seed(0)
    made = tokenizer(padding, ending=kind in LAST_TOKEN, limit=limit)
    common = {"hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 64}
    common |= {"vocab_size": len(made), "max_position_embeddings": 64, "initializer_range": 0.2}
    common |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    sizes = dict(SIZES.get(kind, {}))
    for name in {"n_layers", "n_layer", "num_layers"} & set(sizes):
        sizes[name] = layers
    config = transformers.CONFIG_MAPPING[kind](**{**common, **sizes})
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # some families begin with weights that hardly tell tokens apart
            if parameter.dim() > 1 and parameter.std() < 0.1:
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def mean(width=32, **options):
    """Pooling by the mean."""
    return st.Pooling(width, pooling_mode="mean", **options)


def word_weights():
    """Weights of two words, and another one for all others."""
    names = tokenizer().get_vocab()
    ordered = sorted(names, key=names.get)
    return st.WordWeights(ordered, {"cat": 3.0, "the": 0.25}, unknown_word_weight=0.5)


STACKS = {
    "mean+max": lambda: [st.Pooling(32, pooling_mode=("mean", "max"))],
    "normalize": lambda: [mean(), st.Normalize()],
    "normalize-first": lambda: [mean(), st.Normalize(), st.Dense(32, 24)],
    "normalize-twice": lambda: [mean(), st.Normalize(), st.Dense(32, 24), st.Normalize()],
    "normalize-tokens": lambda: [st.Normalize(module_input_name="token_embeddings"), mean()],
    "normalize-idle": lambda: [st.Normalize(), mean()],
    "dense-tokens": lambda: [st.Dense(32, 24, module_input_name="token_embeddings"), mean(24)],
    "residual": lambda: [mean(), st.Dense(32, 32, use_residual=True), st.Dense(32, 24, use_residual=True)],
    "first-dense": lambda: [st.Pooling(32, pooling_mode="cls"), st.Dense(32, 24)],
    "without-prompt": lambda: [mean(include_prompt=False)],
    "dropout": lambda: [mean(), st.Dropout(0.3)],
    "cnn": lambda: [st.CNN(32, out_channels=16, kernel_sizes=[1, 3]), mean()],
    "word-weights": lambda: [word_weights(), mean()],
}
ACTIVATIONS = ("Tanh", "Identity", "GELU", "SiLU", "Softsign")


def modules_of(name):
    """The modules after the transformer of an option, by its name."""
    torch.manual_seed(1)
    if name in POOLINGS:
        return [st.Pooling(32, pooling_mode=name)]
    if name in STACKS:
        return STACKS[name]()
    activation = getattr(torch.nn, name.removeprefix("dense-"))
    return [mean(), st.Dense(32, 24, activation_function=activation())]


MODULES = (*POOLINGS, *STACKS, *(f"dense-{name}" for name in ACTIVATIONS))


def edit(folder, file, **changes):
    """Change keys of a configuration file."""
    path = folder / file
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}), "utf-8")


WHOLE = "config_sentence_transformers.json"
SETTINGS = {
    "nothing": lambda folder: None,
    "short": lambda folder: edit(folder, "sentence_bert_config.json", max_seq_length=9),
    "short-tokenizer": lambda folder: edit(folder, "tokenizer_config.json", model_max_length=10),
    "short-processor": lambda folder: edit(
        folder, "sentence_bert_config.json", processor_kwargs={"model_max_length": 11}
    ),
    "old-name": lambda folder: (
        edit(folder, "sentence_roberta_config.json", max_seq_length=8)
        or (folder / "sentence_bert_config.json").unlink()
    ),
    "lower-case": lambda folder: edit(folder, "sentence_bert_config.json", do_lower_case=True),
    "left": lambda folder: edit(folder, "tokenizer_config.json", truncation_side="left", model_max_length=9),
    "left-processor": lambda folder: edit(
        folder, "sentence_bert_config.json", max_seq_length=9, processor_kwargs={"truncation_side": "left"}
    ),
    "padded-left": lambda folder: edit(folder, "tokenizer_config.json", padding_side="left"),
    "truncated": lambda folder: edit(folder, WHOLE, truncate_dim=12),
    "truncated-too-far": lambda folder: edit(folder, WHOLE, truncate_dim=500),
    "dot": lambda folder: edit(folder, WHOLE, similarity_fn_name="dot"),
    "euclidean": lambda folder: edit(folder, WHOLE, similarity_fn_name="euclidean"),
    "default-prompt": lambda folder: edit(folder, WHOLE, prompts={"q": "The cat : "}, default_prompt_name="q"),
    "null-prompt": lambda folder: edit(folder, WHOLE, prompts={"query": None, "d": "dog "}, default_prompt_name="d"),
    "half": lambda folder: halve(folder / "model.safetensors"),
}


def halve(path):
    """Write weights in float16."""
    from safetensors.torch import load_file, save_file

    save_file({name: tensor.half() for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})


def make(folder, modules="mean", settings=(), kind="bert", padding="right"):
    """Write a folder with modules of one name and settings of several."""
    transformer = st.Transformer(str(plain(kind, padding)))
    SentenceTransformer(modules=[transformer, *modules_of(modules)], device="cpu").save(
        str(folder), create_model_card=False
    )
    for name in settings:
        SETTINGS[name](folder)
    return folder


def opened(folder):
    """The peer, in float32 like everything here."""
    return SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
