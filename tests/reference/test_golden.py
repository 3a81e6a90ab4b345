"""Our functions on the inputs of the reference implementations, against their outputs.

The files are read from SENTCLI_GOLDEN, by default from the copies beside this test.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sentcli.evaluation import sts
from sentcli.methods.simcse import SimCSE, TanhHead
from sentcli.objectives import info_nce

FOLDER = Path(os.environ.get("SENTCLI_GOLDEN") or Path(__file__).parent / "golden")


def golden(name):
    return np.load(FOLDER / f"{name}.npz")


def leaf(array):
    return torch.tensor(array, requires_grad=True)


def close(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["simcse_infonce_random", "simcse_infonce_near"])
def test_info_nce_and_its_gradients(name):
    z = golden(name)
    first, second = leaf(z["h1"]), leaf(z["h2"])
    loss = info_nce(first, second, float(z["tau"]))
    loss.backward()
    close(loss.detach(), z["loss"])
    close(first.grad, z["grad_h1"])
    close(second.grad, z["grad_h2"])


def test_info_nce_with_a_queue_of_negatives():
    z = golden("micse_queue_infonce")
    first, second, queue = leaf(z["z1"]), leaf(z["z2"]), leaf(z["queue"])
    loss = info_nce(first, second, float(z["tau"]), negatives=queue)
    loss.backward()
    close(loss.detach(), z["code_loss"])
    close(first.grad, z["grad_z1"])
    close(second.grad, z["grad_z2"])
    close(queue.grad, z["grad_queue_if_not_detached"])
    close(info_nce(first, second, float(z["tau"])).detach(), z["code_loss_no_queue"])


def test_simcse_head():
    z = golden("simcse_mlp")
    head = TanhHead(16).double()
    head.dense.weight.data, head.dense.bias.data = torch.tensor(z["W"]), torch.tensor(z["b"])
    first, second = leaf(z["cls1"]), leaf(z["cls2"])
    loss = info_nce(head(first), head(second), float(z["tau"]))
    loss.backward()
    close(loss.detach(), z["loss"])
    for actual, name in [
        (first.grad, "cls1"), (second.grad, "cls2"), (head.dense.weight.grad, "W"), (head.dense.bias.grad, "b"),
    ]:  # fmt: skip
        close(actual, z[f"grad_{name}"])


def test_sts_aggregation():
    z = golden("senteval_sts_aggregation")
    subsets = [(s, sts.cosine(z[f"emb1_{s}"], z[f"emb2_{s}"]), z[f"gold_{s}"]) for s in "abc"]
    score = sts.aggregate("golden", subsets)
    close(score.spearman / 100, z["all_spearman"])
    close(score.pearson / 100, z["all_pearson"])
    close(score.spearman_mean / 100, z["mean_spearman"])
    close(score.spearman_wmean / 100, z["wmean_spearman"])
    for s in "abc":
        close(score.subsets[s] / 100, z[f"spearman_{s}"])


def trajectory_model(z):
    """The tiny dropout-free BERT of the trajectories with its start weights, as a training model in float64."""
    from transformers import BertConfig, BertModel

    from sentcli.encoder.spec import PoolingSpec
    from sentcli.encoder.torch_model import Pooling, TorchEncoder
    from sentcli.training.loop import TrainingModel

    config = BertConfig(
        vocab_size=int(z["vocab"]), hidden_size=int(z["hidden"]), num_hidden_layers=int(z["n_layers"]),
        num_attention_heads=int(z["n_heads"]), intermediate_size=int(z["ffn"]),
        max_position_embeddings=int(z["max_pos"]), layer_norm_eps=float(z["layer_norm_eps"]),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    encoder = TorchEncoder(BertModel(config, add_pooling_layer=False), [Pooling(PoolingSpec(("cls",)))])
    model = TrainingModel(encoder, SimCSE(float(z["tau"])), int(z["hidden"])).double()
    start = {key.removeprefix("init."): torch.tensor(z[key]) for key in z.files if key.startswith("init.")}
    bert = {key.removeprefix("bert."): value for key, value in start.items() if key.startswith("bert.")}
    bert.pop("embeddings.position_ids")
    encoder.backbone.load_state_dict(bert)
    model.head.load_state_dict({key.removeprefix("mlp."): v for key, v in start.items() if key.startswith("mlp.")})
    return model


def test_simcse_trajectory():
    """Five optimiser steps of the reference's loop: the same losses, gradient norms, weights and embeddings."""
    z = golden("traj_simcse")
    model = trajectory_model(z)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=float(z["lr"]), betas=tuple(z["betas"].tolist()), eps=float(z["eps"]), weight_decay=0
    )
    for step in range(5):
        model.train()
        ids = torch.tensor(np.concatenate([z["input_ids"][step], z["view2_ids"][step]]))
        loss, terms = model({"input_ids": ids, "attention_mask": torch.tensor(z["attention_mask"][step]).repeat(2, 1)})
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        optimizer.step()
        close(loss.detach(), z["loss_total"][step])
        close(terms["contrastive"].detach(), z["loss_contrastive"][step])
        np.testing.assert_allclose(norm, z["grad_norm"][step], rtol=1e-7)
    for name, value in model.encoder.backbone.state_dict().items():
        np.testing.assert_allclose(value, z[f"final.bert.{name}"], atol=1e-7, err_msg=name)
    probe = {"input_ids": torch.tensor(z["probe_input_ids"]), "attention_mask": torch.tensor(z["probe_attention_mask"])}
    with torch.no_grad():
        np.testing.assert_allclose(model.encoder.eval()(probe), z["probe_embedding_final"], atol=1e-7)
