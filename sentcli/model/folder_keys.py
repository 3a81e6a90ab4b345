"""What each key of a model folder's configuration files means for vectors.

A key is obeyed, has no effect on vectors, or is refused by name unless it has a value that changes nothing.
docs/models.md shows the table. Which keys of ``config.json`` describe an architecture is known to transformers, whose
classes obey them; here are those that no class of transformers reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sentcli.errors import DataError, InputError

Effect = Literal["obeyed", "no effect", "refused"]


@dataclass(frozen=True)
class Key:
    """What a key means."""

    effect: Effect
    meaning: str
    neutral: tuple[Any, ...] = (None,)
    """The values with which a refused key is accepted, because they change nothing."""


def _obeyed(meaning: str, *names: str) -> dict[str, Key]:
    return dict.fromkeys(names, Key("obeyed", meaning))


def _without_effect(meaning: str, *names: str) -> dict[str, Key]:
    return dict.fromkeys(names, Key("no effect", meaning))


def _refused(meaning: str, name: str, *neutral: Any) -> dict[str, Key]:
    return {name: Key("refused", meaning, (None, *neutral))}


CONFIG: Final = "config.json"
MODULE_LIST: Final = "modules.json"
SENTENCE_BERT_CONFIG: Final = "sentence_bert_config.json"
PROMPTS: Final = "config_sentence_transformers.json"
TOKENIZER: Final = "tokenizer_config.json"
STATIC_CONFIG: Final = "config.json of model2vec"

_POOLING_KEYS = (
    "pooling_mode", "pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_tokens",
    "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken",
)  # fmt: skip

_PLACES = _obeyed(
    "token or sentence vectors; an output of another name is refused", "module_input_name", "module_output_name"
)

KEYS: Final[dict[str, dict[str, Key]]] = {
    MODULE_LIST: {
        **_obeyed("the class of the module: one of sentence_transformers or sentcli, else it is refused", "type"),
        **_obeyed("the folder of the module inside the model's folder", "path"),
        **_without_effect("a name; the order in the file counts", "idx", "name"),
        **_without_effect("names of arguments that a caller may give to the module", "kwargs"),
    },
    SENTENCE_BERT_CONFIG: {
        **_obeyed("the maximum length in tokens", "max_seq_length"),
        **_obeyed("lower-case texts first; it becomes a part of the tokenizer", "do_lower_case"),
        **_refused("asks for a head on the transformer", "transformer_task", "feature-extraction"),
        **_refused("takes something else than the last hidden state", "module_output_name", "token_embeddings"),
        **_obeyed("how a text is run: the last hidden state, else it is refused", "modality_config"),
        **_obeyed("truncation_side and model_max_length; others are refused", "processor_kwargs", "tokenizer_args"),
        **_without_effect("whether padding is left out of the computation", "unpad_inputs"),
        **_refused("changes how texts are tokenised", "processing_kwargs", {}),
        **_refused("gives queries another maximum length: say --query-length", "query_length"),
        **_refused("gives documents another maximum length: say --max-length", "document_length"),
        **_refused("fills queries up with mask tokens", "query_expansion"),
        **_refused("names a tokenizer in another place", "tokenizer_name_or_path"),
        **_obeyed("dtype and kernels, which change no vector; others are refused", "model_args", "model_kwargs"),
        **_refused("changes the configuration of the transformer", "config_args", {}),
        **_refused("changes the configuration of the transformer", "config_kwargs", {}),
    },
    PROMPTS: {
        **_obeyed("texts in front of others, by name", "prompts"),
        **_obeyed("the prompt that is taken where none is named", "default_prompt_name"),
        **_obeyed("the similarity of vectors: cosine or dot; others are refused by a search", "similarity_fn_name"),
        **_obeyed("the number of dimensions that are kept", "truncate_dim"),
        **_obeyed("SentenceTransformer or CrossEncoder; others are refused", "model_type"),
        **_obeyed("of a cross-encoder: what its score goes through", "activation_fn"),
        **_without_effect("versions of the libraries that wrote the folder", "__version__"),
        **_without_effect("of a table, for model2vec: modules.json says whether vectors have length 1", "normalize"),
    },
    TOKENIZER: {
        **_obeyed("which end of a long text is cut", "truncation_side"),
        **_obeyed("whether the model is told which text of a pair a token is of", "model_input_names"),
        **_obeyed("the maximum length, where sentence_bert_config.json states none", "model_max_length", "max_len"),
        **_refused("asks for code of its own, which is never run", "auto_map"),
        **_without_effect("padding is no part of a vector", "padding_side", "pad_to_multiple_of", "pad_token_type_id"),
        **_without_effect("defaults of calls, which sentcli states", "max_length", "stride", "truncation_strategy"),
        **_without_effect("for chats", "chat_template", "use_default_system_prompt", "response_schema"),
        **_without_effect(
            "for decoding tokens, or notes of the libraries that wrote the folder",
            "clean_up_tokenization_spaces", "spaces_between_special_tokens", "name_or_path", "special_tokens_map_file",
            "tokenizer_file", "processor_class", "is_local", "local_files_only", "backend", "device_map",
            "_commit_hash", "vocab_file", "merges_file",
        ),
        **_obeyed(
            "by transformers' tokenizer",
            "tokenizer_class", "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens",
            "model_specific_special_tokens", "bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
            "cls_token", "mask_token", "add_bos_token", "add_eos_token", "add_prefix_space", "do_lower_case",
            "strip_accents", "tokenize_chinese_chars", "do_basic_tokenize", "never_split", "trim_offsets", "errors",
            "legacy",
            "sp_model_kwargs", "split_special_tokens", "extra_ids", "from_slow", "use_fast", "keep_accents",
            "remove_space", "do_subword_tokenize", "vocab_type", "unk_id", "add_dummy_prefix", "src_lang", "tgt_lang",
        ),
    },
    CONFIG: {
        **_obeyed("by transformers' class for the model_type", "model_type"),
        **_refused("asks for code of its own, which is never run", "auto_map", {}),
        **_refused("says that the weights are quantised", "quantization_config"),
        **_obeyed("absolute, or what transformers' class computes; others are refused", "position_embedding_type"),
        **_obeyed(
            "by transformers, which reads them as rope_parameters",
            "rope_theta", "rope_scaling", "global_rope_theta", "local_rope_theta", "rope_local_base_freq",
        ),
        **_refused("names attention heads that were removed", "pruned_heads", {}),
        **_obeyed("which class wrote it: classifiers are refused unless a pooling is chosen", "architectures"),
        **_without_effect(
            "notes, and settings of training, generation or speed",
            "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "torch_dtype", "dtype",
            "gradient_checkpointing", "use_cache", "output_attentions", "output_hidden_states", "output_past",
            "return_dict", "torchscript", "finetuning_task", "task_specific_params", "sentence_transformers",
            "sbert_ce_default_activation_function", "_attn_implementation", "attn_implementation",
            "_attn_implementation_internal", "_attn_implementation_autoset", "tokenizer_class", "prefix",
            "directionality",
            "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
            "pooler_type", "summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj",
            "summary_first_dropout", "summary_proj_to_labels", "id2label", "label2id", "num_labels", "problem_type",
            "do_sample", "num_beams", "top_k", "top_p", "temperature", "max_length", "min_length", "eos_token_ids",
            "n_special", "initializer_factor", "tie_word_embeddings", "scale_decoder_outputs",
            "num_decoder_layers", "fused_mlp", "use_flash_attn", "unpad_inputs",
            "use_memory_efficient_attention", "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index",
            "sparse_prediction", "use_bfloat16",
        ),
    },
    STATIC_CONFIG: {
        **_obeyed("whether vectors have length 1", "normalize"),
        **_obeyed("the maximum length in tokens: 512 unless it is stated", "max_length"),
        **_without_effect(
            "notes on how the table was made",
            "model_type", "architectures", "tokenizer_name", "apply_pca", "apply_zipf", "sif_coefficient", "hidden_dim",
            "seq_length", "cache_dir", "embedding_dtype", "vocabulary_quantization", "pooling", "explained_variance",
            "base_model_name", "language",
        ),
    },
    "Pooling": {
        **_obeyed("how token vectors become one; several are put one after the other", *_POOLING_KEYS),
        **_obeyed("whether the tokens of a prompt are pooled", "include_prompt"),
        **_without_effect("the input says it", "embedding_dimension", "word_embedding_dimension"),
    },
    "Dense": {
        **_obeyed("the linear layer", "in_features", "out_features", "bias"),
        **_obeyed("a class of torch.nn; others are refused", "activation_function"),
        **_obeyed("adds the input to the output", "use_residual"),
        **_PLACES,
    },
    "Normalize": _PLACES,
    "WordWeights": _obeyed("weights of tokens before the pooling", "vocab", "word_weights", "unknown_word_weight"),
    "WeightedLayerPooling": {
        **_obeyed("which layers are averaged", "layer_start"),
        **_without_effect(
            "the transformer says it; weights are stored beside it",
            "embedding_dimension", "word_embedding_dimension", "num_hidden_layers", "layer_weights",
        ),
    },
    "CNN": {
        **_obeyed("the convolutions", "out_channels", "kernel_sizes", "stride_sizes"),
        **_obeyed("their input", "in_embedding_dimension", "in_word_embedding_dimension"),
    },
}  # fmt: skip
"""The keys by file, or by the class of the module whose ``config.json`` has them."""


def refuse_keys(kind: str, settings: Mapping[str, Any], path: Path) -> list[str]:
    """Refuse keys whose meaning is not supported, and return those that are not known at all.

    Args:
        kind: a key of `KEYS`.
        settings: the content of the file.
        path: of the file, for messages.

    Raises:
        InputError: for a key that is refused, with a value that would change vectors.
    """
    keys = KEYS[kind]
    unknown = []
    for name, value in settings.items():
        key = keys.get(name)
        if key is None:
            unknown.append(name)
        elif key.effect == "refused" and value not in key.neutral:
            raise InputError(f"{path}: {name} {key.meaning}, which is not supported (it is {value!r:.80})")
    return unknown


def refuse_unknown(kind: str, settings: Mapping[str, Any], path: Path) -> None:
    """Refuse keys that are not supported, known or unknown, in a file where each key changes vectors.

    Raises:
        InputError: which names the key.
    """
    unknown = refuse_keys(kind, settings, path)
    if unknown:
        raise DataError(
            path, f"the key {unknown[0]!r} of {kind} is not known and may change vectors; it is not supported"
        )
