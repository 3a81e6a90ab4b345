"""Writing a model folder in sentence-transformers' layout, readable by its releases from 2 on."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.io.atomic import check_output, replacing
from sentcli.io.json_files import write_json
from sentcli.io.weights import save_weights
from sentcli.model.spec import (
    LEGACY_POOLING_KEYS,
    CNNSpec,
    DenseSpec,
    EncoderSpec,
    LayerMeanSpec,
    ModuleSpec,
    NormalizeSpec,
    PoolingSpec,
)

if TYPE_CHECKING:
    import torch

    from sentcli.model.encoding import LoadedModel

ST_NAMES = {
    PoolingSpec: "Pooling",
    NormalizeSpec: "Normalize",
    CNNSpec: "CNN",
    DenseSpec: "Dense",
    LayerMeanSpec: "WeightedLayerPooling",
}


def save_model(model: LoadedModel, folder: Path, *, overwrite: bool = False) -> None:
    """Write `folder` whole or not at all; see `SentenceEncoder.save`."""
    check_output(folder, overwrite=overwrite, folder=True)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "config.json").exists():
        raise InputError(f"{folder} holds files that are not a model's; choose another folder")
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_model_files(model, temporary)


def write_model_files(model: LoadedModel, folder: Path, *, weights: bool = True) -> None:
    """Write the files of a model on torch into an existing folder, the transformer's weights last or not at all."""
    spec, module = model.spec, model.torch_module
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (part, built) in enumerate(zip(spec.modules, module.stack, strict=True), 1):
        name = ST_NAMES[type(part)]
        path = f"{i}_{name}"
        kind = f"sentence_transformers.models.{name}"
        entries.append({"idx": i, "name": str(i), "path": path, "type": kind})
        (folder / path).mkdir()
        _write_module(folder / path, part, built, spec)
    write_json(folder / "modules.json", entries)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": spec.max_length, "do_lower_case": spec.lowercase},
    )
    versions = {
        "sentence_transformers": "2.2.0",
        "transformers": version("transformers"),
        "pytorch": version("torch"),
    }
    write_json(
        folder / "config_sentence_transformers.json",
        {"__version__": versions, "prompts": spec.prompts, "default_prompt_name": spec.default_prompt},
    )
    _write_tokenizer(model, folder)
    config: Any = module.backbone.config
    if module.needs_hidden_states:
        config.output_hidden_states = True  # sentence-transformers hands the layers on only if the config says so
    config.save_pretrained(folder)
    if weights:
        save_weights(module.backbone, folder / "model.safetensors")


def _write_tokenizer(model: LoadedModel, folder: Path) -> None:
    tokenizer = model.hf_tokenizer
    limit = tokenizer.model_max_length
    tokenizer.model_max_length = model.spec.max_length
    try:
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length = limit


def _write_module(folder: Path, spec: ModuleSpec, module: torch.nn.Module, encoder: EncoderSpec) -> None:
    width = encoder.hidden_size
    config: dict[str, Any]
    match spec:
        case NormalizeSpec():
            (folder / ".keep").touch()  # an empty folder would be lost by git and by hubs
            return
        case PoolingSpec():
            in_dim = next(
                (m.out_channels * len(m.kernel_sizes) for m in encoder.modules if isinstance(m, CNNSpec)),
                width,
            )
            config = {"word_embedding_dimension": in_dim}
            if list(spec.modes) == [mode for mode in LEGACY_POOLING_KEYS if mode in spec.modes]:
                config |= {key: mode in spec.modes for mode, key in LEGACY_POOLING_KEYS.items()}
            else:  # another order, which only sentence-transformers from 5 on can name
                config["pooling_mode"] = list(spec.modes)
            write_json(folder / "config.json", {**config, "include_prompt": spec.include_prompt})
            return
        case LayerMeanSpec():
            layers = len(module.layer_weights) - 1 + spec.layer_start  # type: ignore[arg-type]
            config = {
                "word_embedding_dimension": width,
                "layer_start": spec.layer_start,
                "num_hidden_layers": layers,
            }
        case CNNSpec():
            config = {
                "in_word_embedding_dimension": spec.in_dim,
                "out_channels": spec.out_channels,
                "kernel_sizes": list(spec.kernel_sizes),
                "stride_sizes": list(spec.strides),
            }
            write_json(folder / "cnn_config.json", config)
        case DenseSpec():
            config = {
                "in_features": spec.in_features,
                "out_features": spec.out_features,
                "bias": spec.bias,
                "activation_function": spec.activation,
            }
            if spec.on_tokens:
                config["module_input_name"] = "token_embeddings"
    if not isinstance(spec, CNNSpec):
        write_json(folder / "config.json", config)
    save_weights(module, folder / "model.safetensors")
