"""The kernels of training on a CPU against torch's own."""

import pytest
import torch
from torch.nn import functional

from sentcli.model.kernels import CpuKernels


def dropped(seed: int, rate: float, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a million ones after dropout, and the gradient of their sum."""
    torch.manual_seed(seed)
    ones = torch.ones(1000, 1001, dtype=dtype, requires_grad=True)
    with CpuKernels():
        after = functional.dropout(ones, rate, training=True)
    after.sum().backward()
    assert ones.grad is not None
    return after.detach(), ones.grad


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
def test_dropout_keeps_the_mean_and_its_gradient_has_the_same_zeros(rate):
    after, gradient = dropped(1, rate)
    assert torch.equal(after, gradient)
    share = float((after == 0).double().mean())
    assert share == pytest.approx(rate, abs=4 * (rate * (1 - rate) / after.numel()) ** 0.5 + 2**-16)
    assert after.unique().tolist() == [0.0, pytest.approx(1 / (1 - rate), rel=1e-4)]
    # neither neighbours nor rows are dropped together more often than by chance
    zero = (after == 0).double() - share
    for other in (zero.roll(1, 0), zero.roll(1, 1), zero.roll(4, 1)):
        assert abs(float((zero * other).mean())) < 5 * rate * (1 - rate) / after.numel() ** 0.5


def test_dropout_follows_from_the_state_of_torchs_generator():
    first, again, other = dropped(3, 0.1)[0], dropped(3, 0.1)[0], dropped(4, 0.1)[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(3)
    with CpuKernels():
        masks = [functional.dropout(torch.ones(64, 64), 0.1) for _ in range(2)]
    assert not torch.equal(*masks)


def test_dropout_in_evaluation_is_the_identity_and_half_precision_stays():
    states = torch.randn(4, 5)
    with CpuKernels():
        assert torch.equal(functional.dropout(states, 0.3, training=False), states)
        assert torch.equal(functional.dropout(states, 0.0), states)
    after, _ = dropped(5, 0.5, torch.bfloat16)
    assert after.dtype == torch.bfloat16
    assert set(after.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
def test_attention_weights_sum_to_the_values_that_torch_attends_to(kind):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 7, 8).unbind(0)
    mask = torch.rand(2, 1, 7, 7) < 0.7
    mask[..., 0] = True
    masks = {"none": None, "bool": mask, "float": torch.zeros(mask.shape).masked_fill(~mask, -1e9)}
    expected = functional.scaled_dot_product_attention(query, key, value, masks[kind])
    drawn = []
    with CpuKernels():  # the mean over many draws of dropout is the attention without it
        for _ in range(3000):
            drawn.append(functional.scaled_dot_product_attention(query, key, value, masks[kind], dropout_p=0.05))
    error = torch.stack(drawn).mean(dim=0) - expected
    assert float(error.abs().max()) < 0.05
    assert float((drawn[0] - expected).abs().max()) > 0.05


@pytest.mark.parametrize("with_mask", [False, True])
def test_attention_in_half_precision_is_that_of_fp32(with_mask):
    torch.manual_seed(0)
    states = torch.randn(3, 2, 4, 7, 8).bfloat16()
    mask = None
    if with_mask:
        mask = torch.rand(2, 1, 7, 7) < 0.7
        mask[..., 0] = True
        mask[0, :, 2] = False  # attends to nothing
    wide = states.float().requires_grad_()
    half = states.clone().requires_grad_()
    expected = functional.scaled_dot_product_attention(*wide.unbind(0), mask)
    with torch.autocast("cpu", torch.bfloat16), CpuKernels():
        found = functional.scaled_dot_product_attention(*half.unbind(0), mask)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.02, rtol=0.02)
    expected.square().sum().backward()
    found.float().square().sum().backward()
    assert half.grad is not None and wide.grad is not None
    torch.testing.assert_close(half.grad.float(), wide.grad, atol=0.05, rtol=0.05)


def test_attention_in_half_precision_trains_a_bias_of_its_scores():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 7, 8).bfloat16().unbind(0)
    bias = torch.randn(1, 4, 7, 7).bfloat16()
    biases = [bias.clone().requires_grad_(), bias.clone().requires_grad_()]
    wide = functional.scaled_dot_product_attention(query.float(), key.float(), value.float(), biases[0].float())
    wide.square().sum().backward()
    with torch.autocast("cpu", torch.bfloat16), CpuKernels():
        half = functional.scaled_dot_product_attention(query, key, value, biases[1])
    half.float().square().sum().backward()
    gradients = [bias.grad for bias in biases]
    assert gradients[0] is not None and gradients[1] is not None
    torch.testing.assert_close(gradients[1], gradients[0], atol=0.05, rtol=0.05)
