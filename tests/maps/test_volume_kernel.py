"""The compiled kernel is the sampling of torch, faster: same numbers, same gradients, on any thread count."""

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps._volume_kernel import sample_volume
from roundtrip.maps.interpolate import _grid_sample, interpolate, interpolate_by_gathering

SHAPES = [(4, 6, 3), (4, 1, 3), (1, 5, 1), (1, 1, 1), (2, 2, 2)]
BATCHES = [(2, 2), (1, 3), (3, 1)]


def inputs(shape, batches, layout=(40,), dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(batches[0], 3, *shape, generator=generator, dtype=dtype)
    at = 2 * torch.rand(batches[1], 3, *layout, generator=generator, dtype=dtype) - 0.5
    # Exactly the border and a voxel plane, where there is a choice to make.
    at.view(batches[1], 3, -1)[..., :3] = torch.tensor([0.0, 1.0, 0.5], dtype=dtype)
    return values.requires_grad_(), at.requires_grad_()


def with_gradients(sample, values, at):
    out = sample(values, at)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad((weight * out).sum(), (values, at))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batches", BATCHES, ids=str)
@pytest.mark.parametrize("reference", [_grid_sample, interpolate_by_gathering], ids=lambda f: f.__name__)
def test_it_gives_what_slower_versions_give_and_their_gradients(shape, batches, reference):
    values, at = inputs(shape, batches)
    for found, expected in zip(
        with_gradients(sample_volume, values, at), with_gradients(reference, values, at), strict=True
    ):
        assert_close(found, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batches", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_on_any_number_of_threads(shape, batches, dtype):
    values, at = inputs(shape, batches, layout=(7, 11), dtype=dtype)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(with_gradients(sample_volume, values, at))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_gradient_that_can_be_differentiated_is_the_same_gradient():
    values, at = inputs((4, 6, 3), (2, 2))
    out = sample_volume(values, at).square().sum()
    plain = torch.autograd.grad(out, (values, at), retain_graph=True)
    again = torch.autograd.grad(out, (values, at), create_graph=True)
    for a, b in zip(plain, again, strict=True):
        assert_close(a, b)
        assert not a.requires_grad and b.requires_grad


def test_tensors_need_not_be_in_order_in_memory():
    values, at = inputs((4, 6, 3), (2, 2), layout=(5, 8))
    expected = with_gradients(sample_volume, values, at)
    last = values.detach().movedim(1, -1).contiguous().movedim(-1, 1).requires_grad_()
    flipped = at.detach().mT.contiguous().mT.requires_grad_()
    assert not last.is_contiguous() and not flipped.is_contiguous()
    for a, b in zip(with_gradients(sample_volume, last, flipped), expected, strict=True):
        assert torch.equal(a, b)


def test_nor_need_the_gradient_that_comes_back():
    values, at = inputs((4, 6, 3), (2, 2), layout=(5, 8))
    out = sample_volume(values, at)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out.mT)
    turned = torch.autograd.grad((weight * out.mT).sum(), (values, at), retain_graph=True)
    straight = torch.autograd.grad((weight.mT * out).sum(), (values, at))
    assert all(torch.equal(a, b) for a, b in zip(turned, straight, strict=True))


def test_volumes_on_a_cpu_go_through_it(monkeypatch):
    calls = []

    def counted(values, at):
        calls.append(at.shape)
        return sample_volume(values, at)

    monkeypatch.setattr("roundtrip.maps._volume_kernel.sample_volume", counted)
    interpolate(*inputs((4, 6, 3), (1, 1)))
    assert len(calls) == 1
