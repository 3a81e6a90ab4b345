"""Write a model folder in sentence-transformers' layout, readable by its releases from 2 on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.hub import CARD
from sentcli.io.atomic import OwnFiles, check_output, replacing
from sentcli.io.forms import read_json, write_json
from sentcli.io.graph_files import HUB_FOLDERS, ONNX
from sentcli.io.weights import save_state, save_weights
from sentcli.model.exported import EXPORT
from sentcli.model.modules import ClassifierSpec, TruncateSpec
from sentcli.model.spec import STATIC, UNKNOWN_LEFT_OUT
from sentcli.model.static import STATIC_LENGTH, THEIR_TABLE

if TYPE_CHECKING:
    from sentcli.model.encoding import LoadedModel


MODEL_FILES = (
    CARD, "config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    "model*.safetensors*", "pytorch_model*.bin*", "*token*.json", "vocab.*", "merges.txt", "*.model", "[0-9]_*", EXPORT,
    f"{ONNX}*", "openvino.*", *HUB_FOLDERS, ".*.partial",
)  # fmt: skip
"""What the folder of a model and of its exports has."""
MODEL_FOLDER = OwnFiles(MODEL_FILES, markers=("config.json", "modules.json"))


def save_model(
    model: LoadedModel, folder: Path, add_export: Callable[[str, Path], None], *, overwrite: bool = False
) -> None:
    """Write `folder` whole or not at all; see `SentenceEncoder.save`.

    Args:
        model: a model on torch.
        folder: the folder to write.
        add_export: called with the model's name and the written folder; adds an ONNX export if the folder needs one.
        overwrite: replace a model folder that exists.
    """
    check_output(folder, overwrite=overwrite, folder=True, own=MODEL_FOLDER)
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_model_files(model, temporary)
        add_export(model.name, temporary)


def write_model_files(model: LoadedModel, folder: Path, *, weights: bool = True) -> None:
    """Write the files of a model on torch into an existing folder, the transformer's weights last.

    Args:
        model: a model on torch.
        folder: the existing folder.
        weights: whether the transformer's weights are written.
    """
    spec = model.spec
    module = model.torch_module
    if spec.scores_pairs:
        _write_cross_encoder(model, folder, weights=weights)
        return
    first = STATIC if spec.is_static else "Transformer"
    entries = [{"idx": 0, "name": "0", "path": "", "type": f"sentence_transformers.models.{first}"}]
    parts = list(zip(spec.modules, spec.widths, module.stack, strict=True))
    if isinstance(spec.modules[-1], TruncateSpec):  # which is a setting of the whole model
        parts.pop()
    for i, (part, width, built) in enumerate(parts[spec.is_static :], 1):  # a table's module has its mean in itself
        path = f"{i}_{part.name}"
        entries.append({"idx": i, "name": str(i), "path": path, "type": part.type_name})
        (folder / path).mkdir()
        part.write(folder / path, width, built)
    write_json(folder / "modules.json", entries)
    text_settings = {"max_seq_length": spec.max_length, "do_lower_case": spec.lowercase}
    write_json(folder / "sentence_bert_config.json", text_settings)
    versions = {"sentence_transformers": "2.2.0", "transformers": version("transformers"), "pytorch": version("torch")}
    settings: dict[str, Any] = {
        "__version__": versions,
        "prompts": spec.prompts,
        "default_prompt_name": spec.default_prompt,
        "similarity_fn_name": spec.stated_similarity,
    }
    if isinstance(spec.modules[-1], TruncateSpec):
        settings["truncate_dim"] = spec.modules[-1].dimension
    if spec.is_static:  # model2vec looks here, and sentence-transformers at the modules
        settings["normalize"] = bool(spec.normalizes)
    write_json(folder / "config_sentence_transformers.json", settings)
    write_tokenizer(model, folder)
    if spec.config.get(UNKNOWN_LEFT_OUT):
        _write_model2vec(model, folder)
        return
    if spec.is_static:  # whose table says all; model2vec takes a config.json as the sign of its own layout
        save_weights(module.backbone, folder / "model.safetensors")
        return
    config: Any = module.backbone.config
    if module.needs_hidden_states:
        config.output_hidden_states = True  # without it, sentence-transformers does not pass the layers on
    config.save_pretrained(folder)
    if weights:
        save_weights(module.backbone, folder / "model.safetensors")


def _write_model2vec(model: LoadedModel, folder: Path) -> None:
    """Write a table and its settings as model2vec does: its rule for unknown tokens goes with the name of the table."""
    spec = model.spec
    backbone = model.torch_module.backbone
    length = None if spec.max_length == STATIC_LENGTH else spec.max_length
    write_json(folder / "config.json", {"normalize": spec.normalizes, "max_length": length})
    table = backbone.get_input_embeddings().weight  # type: ignore[operator]
    save_state({THEIR_TABLE: table}, folder / "model.safetensors")


def _write_cross_encoder(model: LoadedModel, folder: Path, *, weights: bool) -> None:
    """Write a classifier of transformers with one label, which sentence-transformers' ``CrossEncoder`` opens."""
    spec = model.spec
    module = model.torch_module
    classifier = next(part for part in spec.modules if isinstance(part, ClassifierSpec))
    write_tokenizer(model, folder)
    config: Any = copy.deepcopy(module.backbone.config)
    config.architectures = [classifier.architecture]
    config.num_labels = 1
    config.sentence_transformers = {"activation_fn": classifier.activation}
    config.save_pretrained(folder)
    if weights:
        prefix = str(module.backbone.base_model_prefix)
        state = {f"{prefix}.{name}": tensor for name, tensor in module.backbone.state_dict().items()}
        own = classifier.transformers_names(prefix)
        state |= {own[name]: tensor for name, tensor in module.stack[-1].state_dict().items()}
        save_state(state, folder / "model.safetensors")


def write_tokenizer(model: LoadedModel, folder: Path) -> None:
    """Write the tokenizer's files, whose every statement of the maximum length is the model's own.

    Programs read it from other files: sentence-transformers from its settings, transformers and fastembed from
    tokenizer_config.json, those that know tokenizer.json alone from there.
    """
    tokenizer = model.hf_tokenizer
    limit = tokenizer.model_max_length
    tokenizer.model_max_length = model.spec.max_length
    try:
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length = limit
    path = folder / "tokenizer_config.json"
    config = read_json(path)
    if config.get("tokenizer_class") == "TokenizersBackend":  # a name that only transformers 5 knows
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if model.tokenizer.side == "left":
        config["truncation_side"] = "left"
    if not model.spec.is_static:
        config["max_length"] = model.spec.max_length
        named = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
        write_json(folder / "special_tokens_map.json", named)  # which releases before 5 of transformers wrote
        write_tokenizer_json(model, folder)
    write_json(path, config)


def write_tokenizer_json(model: LoadedModel, folder: Path) -> None:
    """Write the ``tokenizer.json`` that alone gives the model's token ids: it cuts, pads and lower-cases by itself."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(model.tokenizer.backend.to_str())
    pad_id = model.tokenizer.pad_id
    backend.enable_padding(pad_id=pad_id, pad_token=backend.id_to_token(pad_id) or "[PAD]")
    backend.save(str(folder / "tokenizer.json"))
