"""Read the description of an encoder out of the files of its folder.

Three layouts are read: that of sentence-transformers (``modules.json`` and one folder for each module), a plain
transformers folder, whose pooling has to be chosen, and a folder of model2vec.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from sentcli.errors import DataError, InputError
from sentcli.io.forms import checked, read_json
from sentcli.io.typed import ValueCheck
from sentcli.io.weights import ADAPTER, SERVE_IT, inside
from sentcli.model.folder_keys import CONFIG, MODULE_LIST, refuse_keys, refuse_unknown
from sentcli.model.modules import ModuleSpec, NormalizeSpec, PoolingSpec, TruncateSpec, module_called
from sentcli.model.modules.base import OWN_PREFIX
from sentcli.model.settings_files import (
    read_prompt_settings,
    read_text_settings,
    read_tokenizer_settings,
    similarity_of,
)
from sentcli.model.spec import STATIC, UNKNOWN_LEFT_OUT, EncoderSpec

_SENTENCE_TRANSFORMERS_PREFIX = "sentence_transformers."
"""The prefix of the names of sentence-transformers' modules."""


@dataclass(frozen=True)
class ModuleEntry:
    """One module in ``modules.json``."""

    type: str
    path: Annotated[str, ValueCheck(inside)]

    @property
    def name(self) -> str:
        """The name by which the module is known: its class, in full if it is not one of sentence-transformers."""
        if not self.type.startswith(_SENTENCE_TRANSFORMERS_PREFIX):
            return self.type
        return self.type.rpartition(".")[2]


_Size = Annotated[int, Ge(1), Le(10**8)] | None
_Layers = Annotated[int, Ge(1), Le(1000)] | None


@dataclass(frozen=True)
class TransformerSizes:
    """The class and sizes in ``config.json``, without which no model is built; transformers checks the rest."""

    architectures: list[str] | None = None
    hidden_size: _Size = None
    dim: _Size = None
    d_model: _Size = None
    n_embd: _Size = None
    emb_dim: _Size = None
    intermediate_size: _Size = None
    hidden_dim: _Size = None
    vocab_size: _Size = None
    max_position_embeddings: _Size = None
    num_hidden_layers: _Layers = None
    n_layers: _Layers = None
    n_layer: _Layers = None
    num_layers: _Layers = None
    encoder_layers: _Layers = None


def is_model_folder(folder: Path) -> bool:
    """Tell whether a folder holds a model, which static embeddings do without a config.json."""
    return any((folder / name).exists() for name in ("config.json", "modules.json"))


def read_spec(folder: Path, *, native: bool = False) -> EncoderSpec:
    """Read the description of the encoder in a model folder.

    Args:
        folder: of the model.
        native: whether transformers' class is known to compute what the code does that the folder names (`auto_map`).

    Raises:
        InputError: if there is no such folder, it holds no model, or a configuration file is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"no such model folder: {folder}")
    if (folder / MODULE_LIST).exists() or (folder / MODULE_LIST).is_symlink():
        try:
            return _sentence_transformers_spec(folder, native=native)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{folder}: a configuration file of its modules is damaged: {error!r}") from error
    from sentcli.model import static

    if static.is_model2vec(folder):
        return _static_spec(folder, folder, ())
    spec = _transformer(folder, (PoolingSpec(),), whole=folder, native=native)
    return replace(spec, assumed_pooling=True)


def _sentence_transformers_spec(folder: Path, *, native: bool) -> EncoderSpec:
    path = folder / MODULE_LIST
    content = read_json(path)
    entries = checked(list[ModuleEntry], content, path)
    for entry in content:
        refuse_unknown(MODULE_LIST, entry, path)
    if not entries or entries[0].name not in ("Transformer", STATIC):
        first = entries[0].type if entries else "nothing"
        raise InputError(f"{folder}: the first module is {first}; only Transformer and {STATIC} are supported")
    transformer = folder / entries[0].path
    named = [entry for entry in entries[1:] if entry.name != "Dropout"]  # dropout is for training
    modules = tuple(_read_module(entry, folder) for entry in named)
    if entries[0].name == STATIC:
        spec = _static_spec(transformer, folder, modules)
    else:
        if not any(module.pools for module in modules):
            raise InputError(
                f"{folder}: modules.json names no Pooling, so its output is not one vector a text; a classifier or "
                "cross-encoder goes with sts-eval and --rerank of evaluate and retrieve"
            )
        spec = _transformer(transformer, _without_idle(modules), whole=folder, native=native)
    _check_modules(folder, spec)
    return spec


def _without_idle(modules: tuple[ModuleSpec, ...]) -> tuple[ModuleSpec, ...]:
    """Return modules without those that normalise the sentence vector before there is one, which do nothing."""
    remaining: list[ModuleSpec] = []
    pooled = False
    for module in modules:
        pooled = pooled or module.pools
        if pooled or not isinstance(module, NormalizeSpec) or module.on_tokens:
            remaining.append(module)
    return tuple(remaining)


def _check_modules(folder: Path, spec: EncoderSpec) -> None:
    """Refuse modules that do not follow on each other.

    Raises:
        InputError: which names the module.
    """
    pooled = False
    for module in spec.modules:
        on_tokens = getattr(module, "on_tokens", None)
        if on_tokens == pooled:
            place = "token vectors after" if on_tokens else "sentence vectors before"
            raise InputError(f"{folder}: its module {module.name} takes {place} the pooling")
        pooled |= module.pools
    if not spec.hidden_size:
        return
    for module, width in zip(spec.modules, spec.widths, strict=True):
        misfit = module.misfit(width, spec.layers)
        if misfit:
            raise InputError(f"{folder}: its module {module.name} {misfit}")


def _static_spec(table: Path, folder: Path, modules: tuple[ModuleSpec, ...]) -> EncoderSpec:
    """Return the description of a table of token vectors, which has the mean of its vectors in itself.

    Args:
        table: the folder of the table.
        folder: the folder of the model.
        modules: what follows on the mean.
    """
    from sentcli.model import static

    rule = static.read_rule(table)
    if rule.normalize is not None:  # model2vec's own file says it, whatever modules.json lists
        modules = tuple(module for module in modules if not isinstance(module, NormalizeSpec))
    if rule.normalize:
        modules = (*modules, NormalizeSpec())
    config = {"model_type": STATIC, **static.table_sizes(table)}
    if rule.leaves_out_unknown:
        config[UNKNOWN_LEFT_OUT] = True
    modules = (PoolingSpec(("mean",)), *modules)
    spec = EncoderSpec(table, modules, max_length=rule.max_length, config=config, unknown_keys=rule.unknown_keys)
    return _with_prompts(spec, folder)


def _transformer(folder: Path, modules: tuple[ModuleSpec, ...], *, whole: Path, native: bool) -> EncoderSpec:
    """Return the description of a transformer with modules.

    Args:
        folder: the folder of the transformer.
        modules: what follows on it.
        whole: the folder of the model.
        native: see `read_spec`.
    """
    base = folder
    has_adapter = (folder / ADAPTER).exists()
    if has_adapter:
        from sentcli.model import adapters

        base = adapters.base_folder(folder)
    config = read_config(base, missing_config(whole), native=native)
    left_out = config.pop("auto_map", None)
    texts = read_text_settings(folder)
    tokenizer, unknown = read_tokenizer_settings(folder)
    spec = EncoderSpec(
        base,
        modules,
        max_length=_whole(texts.processor.model_max_length) or texts.max_seq_length,
        lowercase=bool(texts.do_lower_case),
        truncation_side=texts.processor.truncation_side or tokenizer.truncation_side,
        tokenizer_length=tokenizer.limit,
        adapter=folder if has_adapter else None,
        config=config,
        has_code=bool(left_out),
        unknown_keys=tuple(unknown),
    )
    return _with_prompts(spec, whole)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _with_prompts(spec: EncoderSpec, folder: Path) -> EncoderSpec:
    """Return a description with the prompts, the similarity and the dimensions that the folder of the model states."""
    settings, unknown = read_prompt_settings(folder)
    path = folder / "config_sentence_transformers.json"
    if settings.model_type not in (None, "SentenceTransformer", "CrossEncoder"):
        raise InputError(f"{path}: its model_type is {settings.model_type}, which makes no dense vectors of texts")
    if settings.truncate_dim is not None:
        spec = replace(spec, modules=(*spec.modules, TruncateSpec(settings.truncate_dim)))
    return replace(
        spec,
        prompts=settings.texts,
        default_prompt=settings.default_prompt_name,
        stated_similarity=similarity_of(settings, path),
        unknown_keys=(*spec.unknown_keys, *unknown),
    )


def missing_config(folder: Path) -> str:
    """Return what is wrong with a folder without a config.json."""
    if (folder / MODULE_LIST).exists():
        return f"{folder} has no config.json for its transformer"
    reason = "there is no config.json"
    if (folder / "metrics.jsonl").exists():
        reason = "its training has not finished"
    quantised = next(folder.glob("*.gguf"), None)
    if quantised is not None:
        reason = f"of {quantised.name}, {SERVE_IT}"
    return f"{folder} holds no model: {reason}"


def read_config(folder: Path, missing: str, *, native: bool = False) -> dict[str, Any]:
    """Read the ``config.json`` of a transformer.

    Args:
        folder: that has it.
        missing: the error message where it is missing.
        native: see `read_spec`.

    Raises:
        InputError: if it is missing or damaged, or says what is not supported.
    """
    path = folder / CONFIG
    config = read_json(path, missing)
    checked(TransformerSizes, config, path)
    if not isinstance(config, dict):
        raise DataError(path, f"expected a JSON object, not {config!r:.60}")
    if config.get("auto_map") and not native:
        raise InputError(
            f"{path}: auto_map names code of the folder's own, which is never run, and transformers' class for "
            f"{config.get('model_type')!r} may compute other vectors: if you know that it does not, remove auto_map"
        )
    checked_keys = dict(config)
    if native:
        checked_keys.pop("auto_map", None)
    refuse_keys(CONFIG, checked_keys, path)
    return dict(config)


def _read_module(entry: ModuleEntry, folder: Path) -> ModuleSpec:
    name = entry.name
    path = folder / entry.path
    module = module_called(name)
    if module is not None:
        return module.read(path)
    if name.startswith(OWN_PREFIX):
        raise InputError(
            f"{folder}: module {name} is not one of this package: import the file that defines it first, or run "
            "the model.onnx beside it with onnxruntime"
        )
    if not entry.type.startswith(_SENTENCE_TRANSFORMERS_PREFIX):
        raise InputError(f"{folder}: module {entry.type} is code from elsewhere, which is never run")
    raise InputError(
        f"{folder}: module {name} is not supported; "
        "Transformer, Pooling, WordWeights, WeightedLayerPooling, CNN, Dense, Dropout and Normalize are"
    )
