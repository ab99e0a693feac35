"""The U-Net's batch norm: as torch's, but with sums that stay exact on large grids."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from roundtrip.networks.batch_norm import BatchNorm
from roundtrip.networks.layers import CHANNELS_LAST

SHAPES = [(3, 4, 9), (3, 4, 7, 6), (70, 3, 10, 9), (2, 4, 5, 6, 7), (1, 2, 60, 61, 62)]


def norm_and_images(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    norm = BatchNorm(shape[1]).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(shape[1], generator=generator) + 0.5)
        norm.bias.copy_(torch.rand(shape[1], generator=generator))
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 20
    return norm, x.to(dtype).contiguous(memory_format=CHANNELS_LAST[len(shape)]).requires_grad_()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_batch_norm_with_gradients_and_running_statistics(shape):
    norm, x = norm_and_images(shape, torch.float64)
    usual = {"running_mean": torch.zeros(shape[1]).double(), "running_var": torch.ones(shape[1]).double()}
    expected = F.batch_norm(x, *usual.values(), norm.weight, norm.bias, training=True)
    found, weights = norm(x), torch.randn(shape, dtype=torch.float64)
    assert_close(found, expected)
    inputs = (x, norm.weight, norm.bias)
    for one, other in zip(
        *(torch.autograd.grad((y * weights).sum(), inputs) for y in (found, expected)), strict=True
    ):
        assert_close(one, other)
    assert_close({name: getattr(norm, name) for name in usual}, usual)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_over_a_volume_are_exact_in_single_precision(shape):
    norm, x = norm_and_images(shape, torch.float32)
    expected = F.batch_norm(x.double(), None, None, norm.weight.double(), norm.bias.double(), training=True)
    assert (norm(x).double() - expected).abs().max() < 1e-5


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_statistics_of_images_in_low_precision_are_not_rounded_to_it(shape):
    norm, x = norm_and_images(shape, torch.float32)
    x, norm.momentum = x.detach().bfloat16(), 1.0
    norm(x)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    variance, mean = torch.var_mean(x.double(), dim=axes)
    assert_close(norm.running_mean.double(), mean, rtol=1e-5, atol=0)
    assert_close(norm.running_var.double(), variance, rtol=1e-5, atol=0)


def test_second_derivatives():
    norm, x = norm_and_images((2, 3, 4, 3), torch.float64)
    assert torch.autograd.gradgradcheck(norm, (x,))
