"""`SentenceEncoder`, which users load: the choice of folder and backend, and the exports in the cache.

What stands here loads a model for a verb, and tells the user what was loaded and which texts were cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentcli import console

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.options import LoadOptions


def load_encoder(model: str, options: LoadOptions, *, pairs: bool = False, make_export: bool = True) -> SentenceEncoder:
    """Load a model, and tell the user its backend and an assumed pooling; see `SentenceEncoder.load`."""
    from sentcli.encoder.sentence_encoder import SentenceEncoder

    encoder = SentenceEncoder.load_with(model, options, make_export=make_export, notice=console.note, pairs=pairs)
    announce(encoder)
    return encoder


def announce(encoder: SentenceEncoder) -> None:
    """Tell the user what was loaded: an assumed pooling, and if verbose the backend."""
    model = encoder.model
    if encoder.spec.assumed_pooling:
        console.warn(f"{model} does not say how it pools; taking mean (--pooling chooses)")
    facts = ", ".join(f"{key} {value}" for key, value in encoder.describe().items())
    console.detail(f"{model}: {facts}, device {encoder.backend.device}, {encoder.dimension} dimensions")


def warn_truncated(limit: int | None, truncated: int, lost: int | None = None, *, what: str = "distinct texts") -> None:
    """Warn of texts that were cut to the maximum length.

    Args:
        limit: the maximum length in tokens.
        truncated: how many texts were cut; none gives no warning.
        lost: how many tokens were lost, if that is known.
        what: the name of what is counted.
    """
    if truncated:
        tokens = f", {lost} tokens lost" if lost is not None else ""
        console.warn(f"{truncated} {what} are longer than {limit} tokens and were cut{tokens} (--max-length)")


def prompt_of_rows(encoder: SentenceEncoder, name: str | None, text: str | None) -> str:
    """Return the text in front of each row, and warn if a model that was trained with prompts gets none.

    Args:
        encoder: the model.
        name: of one of its prompts, or None.
        text: of the prompt itself, or None.
    """
    prompt = encoder.prompt_text(name, text)
    is_chosen = name is not None or text is not None
    names = [name for name, text in encoder.spec.prompts.items() if text]
    if names and not prompt and not is_chosen:
        console.warn(
            f"{encoder.model} was trained with prompts ({', '.join(names)}), and these rows get none; "
            "--prompt-name chooses one"
        )
    return prompt
