"""The description of an encoder, as plain data without torch.

`spec_files` reads it out of a model's folder; the same data writes a folder that ``SentenceTransformer(dir)`` opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from sentcli.bounds import one_of
from sentcli.errors import InputError
from sentcli.model.modules import ModuleSpec, NormalizeSpec, PoolingSpec, TruncateSpec

STATIC: Final = "StaticEmbedding"
"""The name in ``modules.json`` of a table of token vectors; see `sentcli.model.static`."""
UNKNOWN_LEFT_OUT: Final = "unknown_tokens_left_out"
"""The key of a description that says whether unknown tokens are left out of the mean, as model2vec does."""
POOLINGS = {
    "cls": "the last layer's first token",
    "cls-head": "cls through the head that was trained with it (a dense layer and tanh, or two with batch norm)",
    "mean": "mean of the last layer over the tokens",
    "max": "maximum of the last layer over the tokens",
    "first-last-avg": "mean over the tokens of (embedding layer + last layer) / 2, as in SimCSE's published tables",
    "layer1-last-avg": "the same with the first transformer layer, as in SimCSE's later code",
    "mean_sqrt_len_tokens": "sum over the tokens divided by the square root of their number",
    "weightedmean": "mean weighted by position",
    "lasttoken": "the last layer's last token",
}
"""The values of ``--pooling``, with their meanings."""


Similarity = Literal["cosine", "dot"]
"""How vectors are compared."""
OTHER_SIMILARITIES = ("euclidean", "manhattan")
"""Further similarities that a model's folder may name; a search refuses them."""


def supported_similarity(name: str) -> Similarity:
    """Return a similarity that a model's folder names.

    Raises:
        InputError: if it is not supported.
    """
    if name == "dot":
        return "dot"
    if name != "cosine":
        raise InputError(
            f"the model's folder says that its vectors are compared by {name}, which is not supported: --similarity "
            "cosine or --similarity dot says what to take instead"
        )
    return "cosine"


def check_pooling(name: str) -> None:
    """Refuse an unknown pooling."""
    one_of("pooling", name, list(POOLINGS))


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The facts of any model; a model that is served has the defaults, because its folder is elsewhere."""

    max_length: int | None = None
    """The maximum length in tokens, special ones included; None takes the tokenizer's."""
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    assumed_pooling: bool = False
    """Whether the folder does not state a pooling, so that `mean` was assumed."""
    stated_similarity: str = "cosine"
    """How its vectors are compared, as its folder says; it may be one that is not supported."""

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared.

        Raises:
            InputError: for a similarity that is not supported.
        """
        return supported_similarity(self.stated_similarity)

    @property
    def pooling(self) -> str | None:
        """The value of ``--pooling`` for this model, or a description of a combination that has no name."""
        return None

    @property
    def normalizes(self) -> bool | None:
        """Whether the vectors have length 1."""
        return None

    @property
    def usual_prompt(self) -> str:
        """The default prompt, which goes in front of a sentence unless another one is chosen; empty for most models."""
        return self.prompts.get(self.default_prompt or "", "")

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a cross-encoder, which makes no vectors of texts."""
        return False

    def chosen_prompt(self, name: str | None, text: str | None) -> str:
        """Return a prompt that was given as text, or by its name; else the default prompt, also for an unknown name."""
        if text is not None:
            return text
        return self.prompts.get(name or "", self.usual_prompt)

    def role_prompt(self, role: str) -> str:
        """Return the model's prompt for the role ``query`` or ``document``, else its default prompt, else ``""``.

        The prompt for documents may also be called passage or corpus.
        """
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        for name in names:
            if name in self.prompts:
                return self.prompts[name]
        return self.usual_prompt

    def prompt_of_documents(self, text: str | None) -> str:
        """Return the prompt for documents: a text that was given, else the model's own."""
        if text is None:
            return self.role_prompt("document")
        return text

    @property
    def role_prompts(self) -> dict[str, str]:
        """The prompts of both roles, as protocols have them."""
        return {f"{role}_prompt": self.role_prompt(role) for role in ("query", "document")}


@dataclass(frozen=True)
class EncoderSpec(ModelSpec):
    """The description of an encoder: its transformer, the modules after it, its maximum length and its prompts."""

    folder: Path
    """The folder of the transformer, with config.json, weights and tokenizer."""
    modules: tuple[ModuleSpec, ...]
    lowercase: bool = False
    """Whether text is lower-cased first, a setting of sentence-transformers; most tokenizers do it themselves."""
    truncation_side: Literal["left", "right"] | None = None
    """Which end of a text that is too long is cut; None leaves it to tokenizer.json, and else it is the right one."""
    tokenizer_length: int | None = None
    """The maximum length that the tokenizer states, which counts where `max_length` is None."""
    adapter: Path | None = None
    """The folder of an adapter that peft applies to the weights, with the tokenizer; None if there is none."""
    config: dict[str, Any] = field(default_factory=dict)
    """The transformer's config.json."""
    has_code: bool = False
    """Whether config.json names code of the folder's own, which is not run: transformers' class computes the same."""
    unknown_keys: tuple[str, ...] = ()
    """Keys of the folder's files whose meaning is not known, for a note to the user."""

    @property
    def tokenizer_folder(self) -> Path:
        """The folder of the tokenizer: an adapter may lack one, and then has that of its base."""
        if self.adapter is not None and any(self.adapter.glob("*token*.json")):
            return self.adapter
        return self.folder

    def _size(self, *names: str) -> int:
        """Return the first of some sizes that config.json states, or 0."""
        stated = [self.config[name] for name in names if self.config.get(name)]
        return int(stated[0]) if stated else 0

    @property
    def hidden_size(self) -> int:
        """The dimension of the token vectors."""
        return self._size("hidden_size", "dim", "d_model", "n_embd", "emb_dim")

    @property
    def is_static(self) -> bool:
        """Whether each token has the same vector in every text, so that there is a table and no transformer."""
        return self.config.get("model_type") == STATIC

    @property
    def layers(self) -> int:
        """The number of the transformer's layers."""
        return self._size("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers")

    @property
    def widths(self) -> list[int]:
        """The dimension of the input of each module."""
        widths = [self.hidden_size]
        for module in self.modules[:-1]:
            widths.append(module.output_width(widths[-1]))
        return widths

    @property
    def includes_prompt(self) -> bool:
        """Whether the tokens of a prompt are pooled like the others."""
        return all(module.include_prompt for module in self.modules)

    @property
    def is_sentence_transformers(self) -> bool:
        """Whether sentence-transformers has all modules of this encoder, or a setting for the last one."""
        modules = self.modules
        if isinstance(modules[-1], TruncateSpec):
            modules = modules[:-1]
        return all(module.in_sentence_transformers for module in modules)

    @property
    def pooling(self) -> str:
        """The value of ``--pooling`` for this encoder, or a description of a combination that has no name."""
        modules = [module for module in self.modules if not isinstance(module, NormalizeSpec | TruncateSpec)]
        first = modules[0]
        if len(modules) == 1 and isinstance(first, PoolingSpec):
            return "+".join(first.modes)
        from sentcli.model.modules.naming import pooling_name

        return pooling_name(modules)

    @property
    def is_plain_mean(self) -> bool:
        """Whether the transformer's token vectors, each of which counts alike, are averaged."""
        first = self.modules[0]
        return not self.is_static and isinstance(first, PoolingSpec) and first.modes == ("mean",)

    @property
    def normalizes(self) -> bool:
        """Whether the vectors have length 1."""
        return isinstance(self.modules[-1], NormalizeSpec)

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a cross-encoder, whose texts are pairs and whose vectors are their scores ``[n, 1]``."""
        return any(module.scores_pairs for module in self.modules)

    def with_pooling(self, name: str) -> EncoderSpec:
        """Return the spec with another pooling, without the CNN or the dense layers that belong to the old one.

        Raises:
            InputError: for an unknown name.
        """
        check_pooling(name)
        if name == self.pooling:
            return replace(self, assumed_pooling=False)
        if self.is_static:
            raise InputError(f"{self.folder}: static embeddings pool by the mean; --pooling {name} is not for them")
        modules: list[ModuleSpec] = []
        token_pooling = name
        if name in ("first-last-avg", "layer1-last-avg"):
            from sentcli.model.modules import LayerMeanSpec

            start = 0 if name == "first-last-avg" else 1
            between = (0.0,) * (self.layers - start - 1)
            modules.append(LayerMeanSpec(start, (1.0, *between, 1.0)))
            token_pooling = "mean"
        elif name == "cls-head":
            token_pooling = "cls"
        modules.append(PoolingSpec((token_pooling,), self.includes_prompt))
        if name == "cls-head":
            modules += self._stored_head
        modules += self.ending
        return replace(self, modules=tuple(modules), assumed_pooling=False)

    @property
    def _stored_head(self) -> list[ModuleSpec]:
        """The layers of the head that was trained on the [CLS] vector and is stored with the checkpoint."""
        from sentcli.model.modules import DenseSpec
        from sentcli.model.stored_heads import has_batch_norm

        size = self.hidden_size
        if not has_batch_norm(self.folder):
            return [DenseSpec(size, size, from_head=True)]
        return [
            DenseSpec(size, 2 * size, activation="torch.nn.modules.activation.ReLU", from_head=True),
            DenseSpec(2 * size, size, activation="torch.nn.modules.linear.Identity", from_head=True),
        ]

    @property
    def revision(self) -> str | None:
        """The commit of a model of the hub."""
        folder = self.adapter or self.folder
        if "snapshots" not in folder.parts:  # the name of a folder in the hub's cache
            return None
        from sentcli.hub import commit_of

        return commit_of(folder)

    @property
    def ending(self) -> tuple[ModuleSpec, ...]:
        """The modules at the end that stay with every pooling: normalisation, and fewer dimensions."""
        return self.modules[count_without_ending(self.modules) :]

    def with_normalize(self, normalize: bool) -> EncoderSpec:
        """Return the spec with or without L2 normalisation at the end."""
        if normalize == self.normalizes:
            return self
        if normalize:
            return replace(self, modules=(*self.modules, NormalizeSpec()))
        return replace(self, modules=without_normalize(self.modules))


def without_normalize(modules: tuple[ModuleSpec, ...]) -> tuple[ModuleSpec, ...]:
    """Return modules without the normalisations of the sentence vector at their end."""
    count = count_without_ending(modules)
    ending = (module for module in modules[count:] if not isinstance(module, NormalizeSpec))
    return (*modules[:count], *ending)


def count_without_ending(modules: tuple[ModuleSpec, ...]) -> int:
    """Return how many modules stand before normalisations of the sentence vector and fewer dimensions at the end."""
    count = len(modules)
    while count and is_ending(modules[count - 1]):
        count -= 1
    return count


def is_ending(module: ModuleSpec) -> bool:
    """Tell whether a module normalises the sentence vector or keeps its first dimensions."""
    return isinstance(module, TruncateSpec) or (isinstance(module, NormalizeSpec) and not module.on_tokens)
