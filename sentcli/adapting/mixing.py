"""Weights between those of a start and those of a model that was trained from it."""

from __future__ import annotations

from pathlib import Path

from sentcli.encoder.sentence_encoder import SentenceEncoder

SHARES = (0.5, 1.0)
"""How much of the way from the start to the trained weights is tried."""


def write_between(start: str, trained: str, share: float, folder: Path) -> None:
    """Write the model whose weights lie between two models' (Wortsman et al., Robust fine-tuning, CVPR 2022, eq. 1).

    Args:
        start: the name of the start.
        trained: the folder of a model that was trained from it.
        share: 0 is the start, 1 the trained model.
        folder: is written.
    """
    encoder = SentenceEncoder.load(trained, backend="torch", device="cpu", precision="fp32")
    if share < 1:
        before = SentenceEncoder.load(start, backend="torch", device="cpu", precision="fp32").torch_module.state_dict()
        state = encoder.torch_module.state_dict()
        for name, weights in state.items():
            if weights.is_floating_point():
                state[name] = before[name].lerp(weights, share)
        encoder.torch_module.load_state_dict(state)
    encoder.save(folder, overwrite=True)
