"""Our functions on the inputs of the reference implementations, against their outputs.

The files are read from SENTCLI_GOLDEN, by default from the copies beside this test.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sentcli.analysis import alignment, uniformity
from sentcli.evaluation import sts
from sentcli.methods.heads import TanhLayer, WhiteningHead
from sentcli.model.modules import Features
from sentcli.objectives import (
    Contrastive,
    ObjectiveContext,
    Views,
    Vocabulary,
    attention_mutual_information,
    info_nce,
    jensen_shannon_mi_loss,
    multi_positive_info_nce,
    reconstruction_loss,
    shuffled_group_whitening,
)
from sentcli.objectives.contrastive import MomentumContrastive, printed_info_nce
from sentcli.objectives.mutual_information import draw, mutual_information, slices

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


@pytest.mark.parametrize(("of_view", "name"), [("own-view", "negE1"), ("other-view", "negE2")])
def test_info_nce_as_eq_2_of_micse_prints_it(of_view, name):
    z = golden("micse_queue_infonce")
    first, second, queue = leaf(z["z1"]), leaf(z["z2"]), leaf(z["queue"])
    loss = printed_info_nce(first, second, float(z["tau"]), queue, of_view=of_view)
    close(loss.detach(), z[f"paper_eq2_sum_{name}"])


def test_simcse_head():
    z = golden("simcse_mlp")
    head = TanhLayer(len(z["b"])).double()
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
    score = sts.correlations("golden", subsets)
    close(score.metrics["spearman"] / 100, z["all_spearman"])
    close(score.metrics["pearson"] / 100, z["all_pearson"])
    close(score.metrics["spearman_mean"] / 100, z["mean_spearman"])
    close(score.metrics["spearman_wmean"] / 100, z["wmean_spearman"])
    for s in "abc":
        close(score.details["subsets"][s] / 100, z[f"spearman_{s}"])


def test_alignment_and_uniformity():
    z = golden("align_uniform")
    np.testing.assert_allclose(alignment(z["x"], z["y"]), z["align"], rtol=1e-6)
    np.testing.assert_allclose(uniformity(z["x"]), z["uniform_x"], rtol=1e-6)
    np.testing.assert_allclose(uniformity(np.concatenate([z["x"], z["y"]])), z["uniform_xy"], rtol=1e-6)


def test_informin_terms_and_gradients():
    z = golden("informin")
    tau = float(z["tau"])
    for i, weight in enumerate(z["lambdas"]):
        first, second = leaf(z["z1"]), leaf(z["z2"])
        total = info_nce(first, second, tau) + float(weight) * reconstruction_loss(first, second)
        total.backward()
        close(total.detach(), z["code_total_loss"][i])
        close(first.grad, z["code_grads_z1_z2"][i, 0])
        close(second.grad, z["code_grads_z1_z2"][i, 1])
    first, second = torch.tensor(z["z1"]), torch.tensor(z["z2"])
    close(reconstruction_loss(first, second), z["code_reconstruction"])
    close(reconstruction_loss(first, second, "l2-raw"), z["paper_sq_l2_raw_mean"])
    close(reconstruction_loss(first, second, "l2-normalized"), z["paper_sq_l2_normalised_mean"])
    base = info_nce(first, second, tau)
    close(base + 0.4 * reconstruction_loss(first, second, "l2-raw"), z["paper_total_raw_lambda0p4"])
    close(base + 0.4 * reconstruction_loss(first, second, "l2-normalized"), z["paper_total_norm_lambda0p4"])


def chosen_attentions(z):
    """The selected layers of both views ``[L, B, H, T, T]`` from a batch that interleaves them, and the leaf."""
    whole = leaf(z["attentions"])
    chosen = whole[int(z["min_layer"]) : int(z["max_layer"])]
    return whole, chosen[:, 0::2], chosen[:, 1::2], torch.tensor(z["lens"])


@pytest.mark.parametrize("name", ["micse_ami_allpos", "micse_ami_sampled", "micse_ami_short"])
def test_attention_mutual_information_on_the_positions_that_the_reference_drew(name, monkeypatch):
    z = golden(name)
    whole, first, second, lengths = chosen_attentions(z)
    one, two, inside = slices(first, second, lengths, "layer-pairs", False)
    joint = (one > 0) & (two > 0) & inside
    np.testing.assert_array_equal(joint.sum(dim=1), z["slice_joint_nonzero"])
    kept, positions = draw(joint, 150)
    np.testing.assert_array_equal(kept, z["kept_slices"])
    assert positions.shape == z["sample_idx"].shape
    assert bool(joint[kept].gather(1, positions).all())
    assert all(len(set(row)) == len(row) for row in positions.tolist())

    fixed = torch.tensor(z["sample_idx"])
    monkeypatch.setattr("sentcli.objectives.mutual_information.draw", lambda *_: (kept, fixed))
    value = attention_mutual_information(first, second, lengths)
    value.backward()
    close(-value.detach(), z["code_MI_attn"])
    close(-whole.grad, z["code_grad_attentions"])
    plain = attention_mutual_information(first, second, lengths, scale_by_share=False)
    close(plain.detach(), z["paper_eq4_meanMI_noscale"])
    no_log = attention_mutual_information(first, second, lengths, scale_by_share=False, log=False)
    close(no_log.detach(), z["paper_alg1_mean_nolog"])
    total = info_nce(torch.tensor(z["z1"]), torch.tensor(z["z2"]), float(z["tau"])) - 2.5e-3 * value.detach()
    close(total, z["code_total_alpha1_lambda2p5em3"])
    ones = torch.ones(fixed.shape, dtype=torch.bool)
    values = mutual_information(one[kept].gather(1, fixed), two[kept].gather(1, fixed), ones)
    close(values.detach(), -0.5 * np.log(1 - z["rho"] ** 2))


def test_attention_mutual_information_where_nothing_is_drawn():
    """Every slice of `allpos` has exactly the 150 positions that are wanted: the public function, no patching."""
    z = golden("micse_ami_allpos")
    _, first, second, lengths = chosen_attentions(z)
    close(-attention_mutual_information(first, second, lengths).detach(), z["code_MI_attn"])
    every = attention_mutual_information(first, second, lengths, samples=None)
    close(-every.detach(), z["code_MI_attn"])


def test_attention_mutual_information_in_the_papers_slices():
    z = golden("micse_ami_paperslices")
    source = np.load(FOLDER / "micse_ami_sampled.npz")
    whole = torch.tensor(source["attentions"])[torch.tensor(z["layers0"])]
    lengths = torch.tensor(source["lens"])
    arguments = (whole[:, 0::2], whole[:, 1::2], lengths, "head-pairs", None, False)
    close(-2.5e-3 * attention_mutual_information(*arguments), z["LD_eq5_lambda2p5em3"])
    close(attention_mutual_information(*arguments, log=False), z["mi_alg1"].mean())
    one, two, inside = slices(*arguments[:4], False)
    close(mutual_information(one, two, inside & (one > 0) & (two > 0)), z["mi_eq4"].reshape(-1))


def test_layer_pairs_take_one_head_of_every_second_layer():
    z = golden("micse_slicemap")
    first, last = int(z["min_layer"]), int(z["max_layer"])
    members = z["slice_members_100layer_plus_head"]
    mark = torch.arange(last)[:, None] * 100 + torch.arange(len(members) // 2)
    attention = mark[first:last, None, :, None, None].double().expand(-1, 1, -1, 2, 2).contiguous()
    one, _, _ = slices(attention, attention, torch.tensor([2]), "layer-pairs", False)
    found = [sorted(set(row)) for row in one.long().tolist()]
    assert found == members.tolist()


def test_moving_average_and_queue():
    from sentcli.model.surgery import ema_update

    z = golden("micse_ema")
    online, average = torch.nn.Module(), torch.nn.Module()
    online.w, average.w = (torch.nn.Parameter(torch.tensor(a)) for a in (z["online"], z["momentum_trace"][0]))
    for expected in z["momentum_trace"][1:]:
        ema_update(average, online, float(z["momentum"]))
        close(average.w.detach(), expected)

    z = golden("micse_fifo")
    batch, size = int(z["batch"]), int(z["neg_size"])
    memory = tiny_memory(size)
    sizes = []
    for step in range(5):
        seen = memory.queue
        assert (step == 0) == (seen is None)
        if step == 4:
            np.testing.assert_array_equal(seen[:, 0].round(), z["queue_ids_seen_by_loss_step5"])
        ids = torch.arange(step * batch, (step + 1) * batch).repeat(2)
        memory.enqueue(Views({"number": ids}, head=torch.nn.Identity(), projected=torch.zeros(2, batch, 1)))
        sizes.append(len(memory.queue))
    np.testing.assert_array_equal(sizes, z["queue_sizes_after_step"])
    np.testing.assert_array_equal(memory.queue[:, 0].round(), z["queue_ids_after_step5"])


def tiny_memory(size):
    """A queue whose momentum encoder turns the number of a sentence into the vector of that number."""

    class Encoder(torch.nn.Module):
        def features(self, batch, **options):
            return Features(torch.zeros(0), torch.zeros(0), sentence=batch["number"][:, None].float())

    parts = ObjectiveContext(Encoder(), None, Vocabulary(1, None, frozenset(), 0), 1)
    return MomentumContrastive(Contrastive(queue_size=size), parts)


@pytest.mark.parametrize("groups", [2, 4, 6, 12])
def test_shuffled_group_whitening(groups):
    z = golden(f"whitened_sgw_G{groups}")
    chunks, upstream = np.split(z["x"], 3), np.split(z["upstream"], 3)
    outs, grads, outs32, through = [], [], [], []
    for rows, up, permutation in zip(chunks, upstream, z["perms"], strict=True):
        order = torch.tensor(permutation)
        x = leaf(rows.astype(np.float64))
        out = shuffled_group_whitening(x, int(z["num_groups"]), order)
        (out * torch.tensor(up, dtype=torch.float64)).sum().backward()
        outs.append(out.detach())
        grads.append(x.grad)
        x = leaf(rows.astype(np.float64))
        whole = shuffled_group_whitening(x, int(z["num_groups"]), order, detach=False)
        (whole * torch.tensor(up, dtype=torch.float64)).sum().backward()
        through.append(x.grad)
        outs32.append(shuffled_group_whitening(torch.tensor(rows), int(z["num_groups"]), order))
    close(torch.cat(outs), z["ref64_out"])
    close(torch.cat(grads), z["ref64_grad_x_W_detached"])
    np.testing.assert_allclose(torch.cat(through), z["ref64_grad_x_through_W"], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(torch.cat(outs32), z["code_out_train"], atol=2e-5)
    np.testing.assert_allclose(torch.cat(grads), z["code_grad_x"], atol=2e-5)
    order = torch.arange(z["x"].shape[1])
    plain = [shuffled_group_whitening(torch.tensor(rows), int(z["num_groups"]), order) for rows in chunks]
    np.testing.assert_allclose(torch.cat(plain), z["code_out_train_noshuffle"], atol=2e-5)


@pytest.mark.parametrize(
    ("chunks", "prefix", "kind"), [("views", "paper", "viewwise"), ("thirds", "code", "interleaved_thirds")]
)
def test_whitening_head(chunks, prefix, kind):
    z = golden("whitened_head")
    views = torch.tensor(np.stack([z["view1"], z["view2"], z["view3"]]))
    rows, width = z["view1"].shape
    head = WhiteningHead(num_groups=int(z["num_groups"]), eps=0, chunks=chunks).build(width, rows)
    head.dense.weight.data, head.dense.bias.data = torch.tensor(z["W"]), torch.tensor(z["b"])
    orders = iter(z["perms"])
    head.permutation = lambda width: torch.tensor(next(orders))
    whitened = head.whitened(views)
    np.testing.assert_allclose(whitened.transpose(0, 1), z[f"{prefix}_sgw_out_{kind}"], atol=2e-5)
    orders = iter(z["perms"])
    loss = multi_positive_info_nce(head(views), float(z["tau"]))
    np.testing.assert_allclose(loss.detach(), z[f"{prefix}_loss_{kind}"], atol=2e-5)


def test_multi_positive_info_nce():
    z = golden("whitened_multipos")
    views = leaf(np.stack([z["z1"], z["z2"], z["z3"]]))
    loss = multi_positive_info_nce(views, float(z["tau"]))
    loss.backward()
    close(loss.detach(), z["code_loss"])
    close(loss.detach(), z["paper_eq7_lambda1"])
    for i in range(3):
        close(views.grad[i], z[f"grad_z{i + 1}"])


def test_jensen_shannon_loss():
    from sentcli.objectives.mutual_information import jensen_shannon_terms

    z = golden("isbert_jsd")
    mask = (torch.arange(z["token_features"].shape[1]) < torch.tensor(z["lengths"])[:, None]).double()
    tokens = leaf(z["token_features"])
    sentences = (tokens * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    close(sentences.detach(), z["sentence_features"])
    loss = jensen_shannon_mi_loss(tokens, sentences, mask)
    loss.backward()
    close(loss.detach(), z["code_loss"])
    close(tokens.grad, z["grad_tokens_through_pooling"])
    tokens, sentences = leaf(z["token_features"]), leaf(z["sentence_features"])
    jensen_shannon_mi_loss(tokens, sentences, mask).backward()
    close(tokens.grad, z["grad_tokens_independent"])
    close(sentences.grad, z["grad_sentences_independent"])
    positive, negative = jensen_shannon_terms(tokens, sentences, mask)
    close(positive.detach(), z["code_E_pos"])
    close(negative.detach(), z["code_E_neg"])


def test_cnn():
    from sentcli.methods.modules import RELU
    from sentcli.model.modules import CNNSpec, DenseSpec
    from sentcli.model.torch_model import BuiltModule

    z = golden("isbert_cnn")
    weights = {key.removeprefix("sd."): torch.tensor(z[key]) for key in z.files if key.startswith("sd.")}
    convolutions = [weights[f"convs.{i}.weight"] for i in range(len(weights) // 2)]
    channels, width, _ = convolutions[0].shape
    kernels = tuple(w.shape[2] for w in convolutions)
    cnn = BuiltModule(CNNSpec(width, channels, kernels, (1,) * len(kernels))).double()
    cnn.load_state_dict(weights)
    x = torch.tensor(z["x"])
    features = cnn(Features(x, torch.ones(x.shape[:2])))
    close(features.tokens.detach(), z["code_out_no_relu"])
    # the paper's ReLU, as the module that stands for it in a saved model
    out = channels * len(kernels)
    relu = BuiltModule(DenseSpec(out, out, bias=False, activation=RELU, on_tokens=True)).double()
    assert not any(p.requires_grad for p in relu.parameters())
    close(relu(features).tokens.detach(), z["paper_out_relu"])
