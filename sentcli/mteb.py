"""A model on sentcli's engines as an encoder of mteb: ``mteb.evaluate(MtebEncoder(encoder), tasks)``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sentcli.arrays import Vectors
from sentcli.encoder.sentence_encoder import SentenceEncoder


class MtebEncoder:
    """An encoder of texts after mteb's ``EncoderProtocol`` (2.x), with any backend, or served.

    Args:
        encoder: the loaded model.
    """

    def __init__(self, encoder: SentenceEncoder) -> None:
        self.encoder = encoder

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> Vectors:
        """Return one vector a text, float32 ``[n, dim]``.

        Args:
            inputs: batches with the texts under ``text``; all of them are sorted by length and packed anew.
            task_metadata: of the task; a prompt of the model with its name or type comes first, as mteb has it.
            hf_split: the split, which changes nothing.
            hf_subset: the subset, which changes nothing.
            prompt_type: whether these are queries or documents, which get the model's prompt for them.
            kwargs: such as ``batch_size``; not used.

        Raises:
            SentcliError: as `SentenceEncoder.encode`.
        """
        from mteb.models.abs_encoder import get_prompt

        texts: list[str] = []
        for batch in inputs:
            texts += batch["text"]
        prompt = get_prompt(self.encoder.spec.prompts, task_metadata, prompt_type)
        if prompt is None and prompt_type is not None:
            prompt = self.encoder.role_prompt(prompt_type.value)
        return self.encoder.encode(texts, prompt=prompt)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of each of the first with each of the second, a tensor ``[n, m]``."""
        from mteb.similarity_functions import cos_sim, dot_score

        compare = dot_score if self.encoder.spec.similarity == "dot" else cos_sim
        return compare(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of each of the first with the second in its place, a tensor ``[n]``."""
        from mteb.similarity_functions import pairwise_cos_sim, pairwise_dot_score

        compare = pairwise_dot_score if self.encoder.spec.similarity == "dot" else pairwise_cos_sim
        return compare(embeddings1, embeddings2)

    @property
    def mteb_model_meta(self) -> Any:
        """Name and revision under which mteb keeps the scores: another model never gets those of this one."""
        from mteb.models import ModelMeta

        encoder = self.encoder
        facts = [encoder.fingerprint(), encoder.describe(), encoder.spec.prompts]
        last = encoder.model.partition("://")[2]
        if Path(encoder.model).is_dir():
            last = Path(encoder.model).name
        name = re.sub(r"[^\w.-]+", "-", last or encoder.model).strip("-")
        known = {
            "name": f"sentcli/{name}",
            "revision": hashlib.sha256(repr(facts).encode()).hexdigest()[:40],
            "max_tokens": encoder.spec.max_length,
            "embed_dim": encoder.dimension,
            "similarity_fn_name": encoder.spec.stated_similarity,
            "use_instructions": any(encoder.spec.prompts.values()),
        }
        return ModelMeta.create_empty(known)
