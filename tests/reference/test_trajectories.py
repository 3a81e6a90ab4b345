"""Five optimiser steps of every method on a tiny dropout-free BERT, against the authors' published code.

See TRAJECTORIES.md beside the files: losses before each update, gradient norms, weights and embeddings afterwards,
all in float64. What is random in a method (masks, permutations, sampled positions) is stored with them.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sentcli.methods import METHODS, configure
from sentcli.model.modules import CNNSpec, PoolingSpec
from sentcli.model.spec import EncoderSpec
from sentcli.model.torch_model import BuiltModule, TorchEncoder
from sentcli.objectives import ObjectiveContext, Vocabulary
from sentcli.training.training_model import TrainingModel

FOLDER = Path(os.environ.get("SENTCLI_GOLDEN") or Path(__file__).parent / "golden")


def start(z, prefix):
    """The part of a stored state dict under a prefix."""
    keys = [key for key in z.files if key.startswith(prefix) and not key.endswith("position_ids")]
    return {key.removeprefix(prefix): torch.tensor(z[key]) for key in keys}


def tiny_bert(z):
    from transformers import BertConfig, BertModel

    pooler = any(".pooler." in key for key in z.files)
    config = BertConfig(
        vocab_size=int(z["vocab"]), hidden_size=int(z["hidden"]), num_hidden_layers=int(z["n_layers"]),
        num_attention_heads=int(z["n_heads"]), intermediate_size=int(z["ffn"]),
        max_position_embeddings=int(z["max_pos"]), layer_norm_eps=float(z["layer_norm_eps"]),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=pooler)


def build(z, method, *settings, modules=None):
    """The training model of a method with the stored start weights, in float64 and training mode."""
    pooling = BuiltModule(PoolingSpec(("mean" if modules else "cls",)))
    encoder = TorchEncoder(tiny_bert(z), [*(modules or []), pooling])
    specs = (cnn_spec(z),) if modules else ()
    spec = EncoderSpec(Path("nowhere"), (*specs, PoolingSpec()), config={"hidden_size": int(z["hidden"])})
    vocabulary = Vocabulary(int(z["vocab"]), 4, frozenset({0, 2, 3, 4}), 0)
    dimension = specs[0].out_channels * len(specs[0].kernel_sizes) if modules else int(z["hidden"])
    changed = configure(METHODS[method], [("batch_size", z["input_ids"].shape[1]), *settings])
    model = TrainingModel(changed, ObjectiveContext(encoder, spec, vocabulary, dimension)).double()
    model.encoder.backbone.load_state_dict(start(z, "init.bert."))
    return model.train()


def cnn_spec(z):
    kernels = tuple(int(k) for k in z["cnn_kernels"])
    return CNNSpec(int(z["hidden"]), int(z["cnn_channels"]), kernels, (1,) * len(kernels))


def inputs(z, step, views):
    ids = np.concatenate([z[name][step] for name in ("input_ids", "view2_ids", "view3_ids")[:views]])
    mask = torch.tensor(z["attention_mask"][step]).repeat(views, 1)
    return {"input_ids": torch.tensor(ids), "attention_mask": mask}


def follow(z, model, each_step=lambda step: None):
    """Train as the reference did; compare total losses and gradient norms, and return the terms of each step."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trainable, lr=float(z["lr"]), betas=tuple(z["betas"].tolist()), eps=float(z["eps"]), weight_decay=0
    )
    recorded = []
    for step in range(len(z["loss_total"])):
        each_step(step)
        loss, terms = model(inputs(z, step, model.views))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trainable, float("inf"))
        optimizer.step()
        np.testing.assert_allclose(loss.item(), z["loss_total"][step], atol=1e-9)
        np.testing.assert_allclose(norm, z["grad_norm"][step], rtol=1e-6)
        recorded.append({name: term.item() for name, term in terms.items()})
    return recorded


def same_terms(recorded, name, expected):
    np.testing.assert_allclose([terms[name] for terms in recorded], expected, atol=1e-9)


def same_end(z, model):
    """Final weights and the embeddings of the probe sentences."""
    same_weights(model.encoder.backbone, z, "final.bert.")
    np.testing.assert_allclose(probe(z, model.encoder), z["probe_embedding_final"], atol=1e-7)


def same_weights(module, z, prefix):
    expected = start(z, prefix)
    state = module.state_dict()
    assert set(expected) == set(state)
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, atol=1e-7, err_msg=name)


def probe(z, encoder):
    batch = {"input_ids": torch.tensor(z["probe_input_ids"]), "attention_mask": torch.tensor(z["probe_attention_mask"])}
    with torch.no_grad():
        return encoder.eval()(batch)


def without_gradient(model):
    return {name for name, p in model.named_parameters() if p.grad is None}


def test_simcse():
    z = np.load(FOLDER / "traj_simcse.npz")
    model = build(z, "simcse", ("temperature", float(z["tau"])))
    model.head.load_state_dict(start(z, "init.mlp."))
    np.testing.assert_allclose(probe(z, model.encoder), z["probe_embedding_initial"], atol=1e-12)
    recorded = follow(z, model.train())
    same_terms(recorded, "contrastive", z["loss_contrastive"])
    same_weights(model.head, z, "final.mlp.")
    same_end(z, model)


def test_informin_cl():
    z = np.load(FOLDER / "traj_informin.npz")
    model = build(z, "informin-cl", ("reconstruction.weight", float(z["lambda_reg"])))
    model.head.load_state_dict(start(z, "init.mlp."))
    recorded = follow(z, model)
    same_terms(recorded, "contrastive", z["loss_contrastive"])
    same_terms(recorded, "reconstruction", z["loss_reg_unweighted"])
    same_weights(model.head, z, "final.mlp.")
    same_end(z, model)


def test_is_bert():
    z = np.load(FOLDER / "traj_isbert.npz")
    cnn = BuiltModule(cnn_spec(z))
    model = build(z, "is-bert", modules=[cnn])
    cnn.load_state_dict(start(z, "init.cnn."))
    recorded = follow(z, model)
    same_terms(recorded, "jsd", z["loss_E_neg"] - z["loss_E_pos"])
    same_weights(cnn, z, "final.cnn.")
    cnn.blank_padding = False  # the reference's convolutions see the backbone's output at padding, also in encoding
    same_end(z, model)


def infocse_names(z, prefix):
    """Our names for the auxiliary network of the reference's state dict."""
    lm_head = {"transform.dense": "dense", "transform.LayerNorm": "norm"}
    state = {}
    for key, value in start(z, prefix).items():
        if key.startswith("c_head."):
            state["layers.encoder.layer." + key.removeprefix("c_head.")] = value
        elif key.startswith("lm_head."):
            name = key.removeprefix("lm_head.")
            for theirs, ours in lm_head.items():
                name = name.replace(theirs, ours)
            if name != "decoder.bias":  # the same tensor as bias
                state["lm_head." + name] = value
    return state


def test_infocse():
    z = np.load(FOLDER / "traj_infocse.npz")
    model = build(
        z, "infocse", ("auxiliary_mlm.weight", float(z["lambda_mlm"])), ("skip_from", int(z["skip_from"])),
        ("aux_init", "random"), ("auxiliary_mlm.layers", int(z["n_head_layers"])),
    )  # fmt: skip
    model.head.load_state_dict(start(z, "init.mlp."))
    objective = model.objectives["auxiliary-mlm"]
    objective.network.load_state_dict(infocse_names(z, "init."))
    frozen = start(z, "init.mlm.bert.")
    fits = {key: value for key, value in frozen.items() if key in objective.lower.state_dict()}
    objective.lower.load_state_dict(fits)
    for key, value in objective.lower.state_dict().items():  # a copy of the encoder's lower layers, as ours is
        torch.testing.assert_close(value, model.encoder.backbone.state_dict()[key])

    def masks(step):
        masked, labels = (
            np.concatenate(list(z[name][step].swapaxes(0, 1))) for name in ("mlm_input_ids", "mlm_labels")
        )
        objective.forward = lambda views: objective.predict(views, torch.tensor(masked), torch.tensor(labels))

    recorded = follow(z, model, masks)
    same_terms(recorded, "contrastive", z["loss_contrastive"])
    same_terms(recorded, "auxiliary-mlm", z["loss_mlm_unweighted"])
    frozen_names = {name for name in without_gradient(model) if ".lower." in name}
    assert frozen_names and all(".lower." in name or ".pooler." in name for name in without_gradient(model))
    same_weights(model.head, z, "final.mlp.")
    expected = infocse_names(z, "final.")
    for name, value in objective.network.state_dict().items():
        np.testing.assert_allclose(value, expected[name], atol=1e-7, err_msg=name)
    same_end(z, model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["micse", "micse_sampled"])
def test_micse(name, monkeypatch):
    z = np.load(FOLDER / f"traj_{name}.npz")
    layers = f"{int(z['min_layer'])}:{int(z['max_layer'])}"
    model = build(
        z, "micse", ("ami.weight", float(z["lambda_ami"])), ("ami.layers", layers),
        ("queue_size", int(z["queue_capacity"])), ("momentum", float(z["momentum"])), ("momentum_dropout", 0),
    )  # fmt: skip
    model.head.load_state_dict(start(z, "init.mlp."))
    memory = model.objectives["contrastive"]
    memory.encoder.backbone.load_state_dict(start(z, "init.momentum_model."))

    def positions(step):
        queue = memory.queue if memory.queue is not None else np.zeros((0, int(z["hidden"])))
        np.testing.assert_allclose(queue, z[f"queue_seen_step{step}"], atol=1e-9)

        def draw(joint, samples, generator=None):
            np.testing.assert_array_equal(joint.sum(dim=1), z[f"joint_nonzero_step{step}"])
            return torch.tensor(z[f"kept_slices_step{step}"]), torch.tensor(z[f"sample_idx_step{step}"])

        monkeypatch.setattr("sentcli.objectives.mutual_information.draw", draw)

    recorded = follow(z, model, positions)
    same_terms(recorded, "contrastive", z["loss_contrastive_queue"])
    same_terms(recorded, "ami", z["loss_ami_code"])
    np.testing.assert_allclose(memory.queue, z["queue_final"], atol=1e-9)
    same_weights(model.head, z, "final.mlp.")
    same_weights(memory.encoder.backbone, z, "final.momentum_model.")
    np.testing.assert_allclose(probe(z, memory.encoder), z["probe_embedding_momentum_final"], atol=1e-7)
    same_end(z, model)


def test_whitenedcse():
    z = np.load(FOLDER / "traj_whitenedcse.npz")
    model = build(z, "whitenedcse", ("num_groups", int(z["num_groups"])), ("eps", 0))
    model.head.load_state_dict({k: v for k, v in start(z, "init.mlp.").items() if not k.startswith("dbn")})
    terms = []

    def shuffles(step):
        orders = iter(z["perms"][step])
        model.head.permutation = lambda width: torch.tensor(next(orders))

    objective = model.objectives["multi-positive"]

    def each_positive(views):
        terms.append([objective(replace(views, projected=views.projected[[0, i]])).item() for i in (1, 2)])
        return objective(views)

    model.objectives["multi-positive"] = each_positive
    follow(z, model, shuffles)
    np.testing.assert_allclose(terms, np.stack([z["loss_view2"], z["loss_view3"]], axis=1), atol=1e-9)
    expected = start(z, "final.mlp.")
    for name, value in model.head.state_dict().items():
        np.testing.assert_allclose(value, expected[name], atol=1e-7, err_msg=name)
    same_end(z, model)


def test_infocse_on_the_reference_models_own_batch():
    """One forward pass of InfoCSE's model: every intermediate tensor, both totals, and gradients."""
    z = dict(np.load(FOLDER / "infocse_tiny_bert.npz").items())
    words, positions = (z[f"sd.bert.embeddings.{name}_embeddings.weight"] for name in ("word", "position"))
    z |= {"vocab": len(words), "hidden": words.shape[1], "n_layers": z["layers"], "n_heads": z["heads"]}
    z |= {"ffn": len(z["sd.bert.encoder.layer.0.intermediate.dense.bias"]), "max_pos": len(positions)}
    z["layer_norm_eps"] = 1e-12

    class Stored(dict):
        files = property(lambda self: list(self))

    z = Stored(z)
    z.update({key.replace("sd.", "init.", 1): z[key] for key in list(z) if key.startswith("sd.")})
    model = build(
        z, "infocse", ("auxiliary_mlm.weight", 5e-3), ("skip_from", int(z["skip_from"])), ("aux_init", "random")
    )  # fmt: skip
    model.head.load_state_dict(start(z, "init.mlp."))
    objective = model.objectives["auxiliary-mlm"]
    objective.network.load_state_dict(infocse_names(z, "init."))
    frozen = start(z, "init.mlm.bert.") or start(z, "init.mlm.")
    objective.lower.load_state_dict({k: v for k, v in frozen.items() if k in objective.lower.state_dict()})

    def rows(name):
        return torch.tensor(np.concatenate(list(z[name].swapaxes(0, 1))))

    def reordered(name):  # the reference interleaves the views
        return np.concatenate([z[name][view::2] for view in range(2)])

    batch = {"input_ids": rows("input_ids"), "attention_mask": rows("attention_mask")}
    model.requires.add("tokens")
    views = model.encode_views(batch)
    real = batch["attention_mask"].bool()
    np.testing.assert_allclose(views.tokens.flatten(0, 1).detach()[real], reordered("last_hidden")[real], atol=1e-10)
    masked = {**batch, "input_ids": rows("mlm_input_ids")}
    states = objective.lower_states(views, masked)
    sentence = views.pooled.flatten(0, 1)
    aux_input = torch.cat([sentence[:, None], states[:, 1:]], dim=1)
    np.testing.assert_allclose(aux_input.detach()[real], reordered("aux_input")[real], atol=1e-10)
    hidden = objective.network(sentence, states, batch["attention_mask"])
    np.testing.assert_allclose(hidden.detach()[real], reordered("aux_output")[real], atol=1e-10)
    logits = objective.network.lm_head(hidden, model.encoder.backbone)
    np.testing.assert_allclose(logits.detach()[real], reordered("mlm_logits")[real], atol=1e-10)

    model.head.load_state_dict(start(z, "init.mlp."))
    objective.forward = lambda views: objective.predict(views, masked["input_ids"], rows("mlm_labels"))
    total, terms = model(batch)
    total.backward()
    np.testing.assert_allclose(terms["auxiliary-mlm"].item(), z["aux_mlm_loss"], rtol=1e-9)
    np.testing.assert_allclose(terms["contrastive"].item(), z["contrastive_loss"], atol=1e-12)
    np.testing.assert_allclose(total.item(), z["total_lambda_5em3"], rtol=1e-9)
    np.testing.assert_allclose(
        terms["contrastive"].item() + 1e-5 * terms["auxiliary-mlm"].item(), z["total_lambda_1em5"], rtol=1e-9
    )
    words = model.encoder.backbone.embeddings.word_embeddings.weight.grad
    np.testing.assert_allclose(words, z["grad_word_emb"], rtol=1e-7, atol=1e-10)
    query = objective.network.layers.encoder.layer[0].attention.self.query.weight.grad
    np.testing.assert_allclose(query, z["grad_c_head0_query_weight"], rtol=1e-7, atol=1e-10)
