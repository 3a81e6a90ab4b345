"""The settings of a model folder: how texts are tokenised, what stands in front of them, how vectors are compared.

They stand in ``sentence_bert_config.json``, ``config_sentence_transformers.json`` and ``tokenizer_config.json``.
`folder_keys` says what each key means.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge, Gt

from sentcli.errors import DataError, InputError
from sentcli.io.forms import checked, read_json
from sentcli.model.folder_keys import PROMPTS, SENTENCE_BERT_CONFIG, TOKENIZER, refuse_keys, refuse_unknown
from sentcli.model.spec import OTHER_SIMILARITIES, Similarity

TEXT_FILES = (
    SENTENCE_BERT_CONFIG,
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
"""The names that releases of sentence-transformers gave to the settings of the transformer; the first one counts."""
UNLIMITED_FROM = 10**9
"""From this length on, a tokenizer states none: transformers writes 10^30."""
Side = Literal["left", "right"]
REFUSES_OTHERS = {"extra": "forbid"}
"""The configuration of settings of which no others are supported."""


@dataclass(frozen=True)
class TokenizerSettings:
    """What is read of ``tokenizer_config.json``; transformers reads the rest."""

    truncation_side: Side | None = None
    model_max_length: Annotated[float, Gt(0)] | None = None
    max_len: Annotated[float, Gt(0)] | None = None

    @property
    def limit(self) -> int | None:
        """The maximum length in tokens, special ones included; None if there is none."""
        stated = self.model_max_length or self.max_len
        if stated is None or stated >= UNLIMITED_FROM:
            return None
        return int(stated)


@dataclass(frozen=True)
class ProcessorSettings:
    """Arguments for the tokenizer, of which these are supported."""

    __pydantic_config__: ClassVar[dict[str, str]] = REFUSES_OTHERS
    truncation_side: Side | None = None
    model_max_length: Annotated[float, Gt(0)] | None = None
    padding_side: Side | None = None
    """Has no effect on vectors."""
    use_fast: bool | None = None
    """Has no effect: only fast tokenizers are supported."""


@dataclass(frozen=True)
class ModelSettings:
    """Arguments for the transformer that change no vector in 32-bit floats."""

    __pydantic_config__: ClassVar[dict[str, str]] = REFUSES_OTHERS
    torch_dtype: Any = None
    dtype: Any = None
    attn_implementation: Any = None
    add_pooling_layer: Any = None
    low_cpu_mem_usage: Any = None
    device_map: Any = None
    trust_remote_code: Any = None
    """No code of a folder is ever run."""


@dataclass(frozen=True)
class TextSettings:
    """The content of ``sentence_bert_config.json``."""

    max_seq_length: Annotated[int, Ge(1)] | None = None
    do_lower_case: bool | None = None
    modality_config: dict[str, dict[str, Any]] | None = None
    processor_kwargs: ProcessorSettings | None = None
    tokenizer_args: ProcessorSettings | None = None
    model_args: ModelSettings | None = None
    model_kwargs: ModelSettings | None = None

    @property
    def processor(self) -> ProcessorSettings:
        """The arguments for the tokenizer."""
        return self.processor_kwargs or self.tokenizer_args or ProcessorSettings()


@dataclass(frozen=True)
class PromptSettings:
    """The content of ``config_sentence_transformers.json``."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    activation_fn: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: Annotated[int, Ge(1)] | None = None
    model_type: str | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The prompts by name; an empty one stands where none is stated."""
        return {name: text or "" for name, text in (self.prompts or {}).items()}


_CROSS_ENCODER_SCORES = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}
"""What sentence-transformers writes of a cross-encoder."""


def read_text_settings(folder: Path, *, classifier: bool = False) -> TextSettings:
    """Read the settings of the transformer in a folder, which may have none.

    Args:
        folder: of the transformer.
        classifier: whether it is one of a cross-encoder, which is run for its scores.

    Raises:
        InputError: for a key that is not known or not supported.
    """
    present = [folder / name for name in TEXT_FILES if (folder / name).exists()]
    path = present[0] if present else folder / SENTENCE_BERT_CONFIG
    content = _content(path)
    if classifier:
        content = {key: value for key, value in content.items() if _CROSS_ENCODER_SCORES.get(key) != value}
    refuse_unknown(SENTENCE_BERT_CONFIG, content, path)
    settings = checked(TextSettings, content, path)
    for modality, how in (settings.modality_config or {}).items():
        _check_modality(modality, how, path)
    return settings


def _check_modality(modality: str, how: dict[str, Any], path: Path) -> None:
    """Refuse another way of running texts than the last hidden state, and messages in the form of a chat."""
    if modality == "message":
        raise InputError(f"{path}: modality_config puts texts into a chat template (message), which is not supported")
    output = how.get("method_output_name")
    takes_last = how.get("method") == "forward" and output in ("last_hidden_state", ["last_hidden_state"])
    if modality == "text" and not takes_last:
        raise InputError(
            f"{path}: modality_config takes {output!r} of {how.get('method')!r} for texts, not the last hidden state"
        )


def read_prompt_settings(folder: Path) -> tuple[PromptSettings, list[str]]:
    """Read the settings of a whole model, which may have none, and the keys that are not known.

    Raises:
        InputError: for a key that is not supported.
    """
    path = folder / PROMPTS
    content = _content(path)
    unknown = refuse_keys(PROMPTS, content, path)
    settings = checked(PromptSettings, content, path)
    if settings.default_prompt_name and settings.default_prompt_name not in settings.texts:
        raise DataError(path, f"default_prompt_name is {settings.default_prompt_name!r}, which is none of its prompts")
    return settings, [f"{name} in {path.name}" for name in unknown]


def similarity_of(settings: PromptSettings, path: Path) -> str:
    """Return how vectors are compared, which a search may refuse.

    Raises:
        InputError: for a word that names no similarity of vectors.
    """
    name = settings.similarity_fn_name or "cosine"
    if name not in (*get_args(Similarity), *OTHER_SIMILARITIES):
        raise InputError(f"{path}: its similarity_fn_name is {name!r}; cosine and dot are supported")
    return name


def read_tokenizer_settings(folder: Path) -> tuple[TokenizerSettings, list[str]]:
    """Read the settings of the tokenizer in a folder, which may have none, and the keys that are not known.

    Raises:
        InputError: for a key that is not supported.
    """
    path = folder / TOKENIZER
    content = _content(path)
    unknown = refuse_keys(TOKENIZER, content, path)
    return checked(TokenizerSettings, content, path), [f"{name} in {path.name}" for name in unknown]


def _content(path: Path) -> dict[str, Any]:
    """Return the object in a configuration file that a model may lack."""
    content = read_json(path, default={})
    if not isinstance(content, dict):
        raise DataError(path, f"expected a JSON object, not {content!r:.60}")
    return content
