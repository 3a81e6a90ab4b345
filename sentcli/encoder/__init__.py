"""`SentenceEncoder`, which users load: the choice of folder and backend, and the exports in the cache.

What stands here loads a model for a verb, and tells the user what was loaded and which texts were cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentcli import console

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.options import LoadOptions


EXPORT_PAYS_FROM = 30_000
"""So many texts are encoded sooner by an export that has to be made first than without one.

On two cores, with STS sentences: an export of sentcli-bert-mini (4 layers of 256) takes 2.5 s and saves 0.4 of 1.8 ms a
text, which pays from 7,000 texts on; that of MiniLM (6 of 384) 11 s and 0.2 of 4.2 ms, from 51,000 on; that of BERT
base 76 s and about 2 of 29 ms, from 38,000 on (benchmarks/export_pays.py).
"""


def export_pays(texts: int) -> bool:
    """Tell whether a model is exported to encode so many texts, where ``--backend auto`` might do without."""
    return texts >= EXPORT_PAYS_FROM


def load_encoder(model: str, options: LoadOptions, *, pairs: bool = False, texts: int | None = None) -> SentenceEncoder:
    """Load a model, and tell the user its backend and an assumed pooling.

    Args:
        model: its name.
        options: of loading it.
        pairs: take a cross-encoder, too.
        texts: how many texts it is loaded for, if it is for no others: then ``auto`` exports it only if that pays.
    """
    from sentcli.encoder.sentence_encoder import SentenceEncoder

    make_export = texts is None or export_pays(texts)
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
