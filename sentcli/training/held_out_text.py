"""Perplexity of masked words on text that is not trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sentcli.errors import InputError
from sentcli.model.tokenizing import pad
from sentcli.objectives.masked_lm import IGNORED, WordPrediction, mask_tokens, masked_loss

if TYPE_CHECKING:
    from sentcli.model.tokenizing import TextTokenizer
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.training_model import TrainingModel

MASK_SEED = 0
"""The seed of the masks: the same words are predicted at every evaluation, on every device."""
ROWS = 32
"""How many sentences are scored at a time."""


class HeldOutText:
    """Sentences whose words are masked once, as in training, and predicted at every evaluation."""

    def __init__(self, sentences: Sequence[str], tokenizer: TextTokenizer, model: TrainingModel) -> None:
        predicting = [part for part in model.stateful.values() if isinstance(part, WordPrediction)]
        if not predicting:
            raise InputError("--eval-text measures how well masked words are predicted: it goes with mlm")
        self.prediction: WordPrediction = predicting[0]
        tokens = tokenizer(sentences)
        rows = tokens.lengths.argsort(kind="stable")
        self.batches = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(MASK_SEED)
            for first in range(0, len(rows), ROWS):
                arrays = pad(tokens, rows[first : first + ROWS], tokenizer.pad_id)
                inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
                masked, labels = mask_tokens(inputs["input_ids"], self.prediction.vocabulary, self.prediction.rate)
                self.batches.append(({**inputs, "input_ids": masked}, labels))
        self.count = sum(int((labels != IGNORED).sum()) for _, labels in self.batches)
        if not self.count:
            raise InputError("--eval-text: too little text, not one word of it was masked")

    @torch.no_grad()
    def loss(self, encoder: TorchEncoder) -> float:
        """Return the mean cross-entropy in nats over all masked words, in float32, of the encoder's last layer."""
        device = next(encoder.parameters()).device
        total = torch.zeros((), dtype=torch.float64, device=device)
        for inputs, labels in self.batches:
            hidden: Tensor = encoder.backbone(**{n: v.to(device) for n, v in inputs.items()}).last_hidden_state
            mean = masked_loss(self.prediction.head, hidden, labels.to(device), encoder.backbone)
            total += mean * (labels != IGNORED).sum().to(device)
        return float(total) / self.count

    def values(self, encoder: TorchEncoder) -> dict[str, float]:
        """Return the loss and the perplexity, by their names in the log."""
        loss = self.loss(encoder)
        return {"held_out_loss": loss, "held_out_perplexity": math.exp(min(loss, 700))}
