"""Sampling: exact where it must be, continued outside as it says, of its order, and differentiable."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import map_coordinates
from torch.testing import assert_close

from roundtrip.maps.grid import unit_grid, voxel_from_unit
from roundtrip.maps.interpolate import (
    interpolate,
    interpolate_by_gathering,
    interpolate_cubic,
    interpolate_nearest,
    interpolate_or_zero,
)

SHAPES = [(6,), (1,), (5, 4), (2, 1), (4, 6, 3), (4, 1, 2)]
SAMPLERS = [interpolate, interpolate_or_zero, interpolate_nearest, interpolate_cubic]


@pytest.fixture(params=SHAPES, ids=str)
def shape(request):
    return request.param


@pytest.fixture(params=SAMPLERS, ids=lambda f: f.__name__)
def sample(request):
    return request.param


def random(*size, seed=0, dtype=torch.float64):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def around(N, *layout, batch=2, seed=1):
    """Points in the image and as far outside again."""
    return 2 * random(batch, N, *layout, seed=seed) - 0.5


def exact_grid(shape):
    """The unit grid, such that no rounding moves a voxel."""
    return unit_grid(shape, like=torch.zeros(1, dtype=torch.float64))


class TestEverySampler:
    def test_at_the_voxels_it_gives_the_voxels(self, sample, shape):
        values = random(2, 3, *shape)
        assert_close(sample(values, exact_grid(shape)), values, rtol=0, atol=1e-13)

    def test_a_constant_stays_constant(self, sample, shape):
        at = around(len(shape), 20)
        if sample is interpolate_or_zero:
            at = at.clamp(0, 1)
        assert_close(
            sample(torch.full((1, 1, *shape), 3.0).double(), at), torch.full((2, 1, 20), 3.0).double()
        )

    def test_channels_and_batch_elements_do_not_mix(self, sample, shape):
        values, at = random(2, 3, *shape), around(len(shape), 7)
        apart = [[sample(values[b : b + 1, c : c + 1], at[b : b + 1]) for c in range(3)] for b in range(2)]
        assert_close(sample(values, at), torch.cat([torch.cat(row, dim=1) for row in apart]))

    @pytest.mark.parametrize("batches", [(1, 3), (3, 1), (3, 3), (1, 1)], ids=str)
    def test_a_batch_of_one_serves_all(self, sample, shape, batches):
        values, at = random(batches[0], 2, *shape), around(len(shape), 5, batch=batches[1])
        full = max(batches)
        expected = sample(
            values.repeat(full // batches[0], *[1] * (len(shape) + 1)), at.repeat(full // batches[1], 1, 1)
        )
        assert_close(sample(values, at), expected)

    @pytest.mark.parametrize("layout", [(), (0,), (2, 3), (2, 1, 2, 3)], ids=str)
    def test_points_may_have_any_layout(self, sample, shape, layout):
        values, at = random(2, 3, *shape), around(len(shape), *layout)
        in_a_row = sample(values, at.reshape(2, len(shape), math.prod(layout)))
        assert_close(sample(values, at), in_a_row.reshape(2, 3, *layout))

    def test_order_in_memory_does_not_matter(self, sample, shape):
        values, at = random(2, 3, *shape), around(len(shape), 4, 5)
        scattered = values.movedim(1, -1).contiguous().movedim(-1, 1)
        assert_close(sample(scattered, at), sample(values, at), rtol=0, atol=0)
        assert_close(sample(values, at.mT), sample(values, at).mT)
        stretched = values[:, :1].expand_as(values)
        assert_close(sample(stretched, at), sample(stretched.contiguous(), at), rtol=0, atol=0)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -1e30])
    def test_points_that_are_nowhere_do_no_harm(self, sample, shape, bad):
        at = around(len(shape), 5)
        at[:, 0, 2] = bad
        good = [0, 1, 3, 4]
        values = random(2, 1, *shape)
        assert_close(sample(values, at)[..., good], sample(values, at[..., good]))

    def test_infinitely_far_is_still_outside(self, sample, shape):
        values = random(2, 1, *shape)
        # Times zero, the length of an axis of one voxel, infinity is not a number.
        for end, far in (
            (0.0, -1e30),
            (1.0, 1e30),
            *([(0.0, -math.inf), (1.0, math.inf)] if min(shape) > 1 else []),
        ):
            at_edge = torch.full((1, len(shape), 1), end, dtype=torch.float64)
            expected = sample(values, at_edge)
            if sample is interpolate_or_zero and max(shape) > 1:
                expected = torch.zeros_like(expected)
            assert_close(sample(values, torch.full_like(at_edge, far)), expected)

    def test_values_of_another_dimension_are_refused(self, sample, shape, as_users_see_it):
        with pytest.raises(ValueError, match=f"points of {len(shape)} dimensions are needed"):
            sample(random(1, 1, *shape), around(len(shape) + 1, 5))

    def test_batches_that_do_not_fit_are_refused(self, sample, shape, as_users_see_it):
        with pytest.raises(ValueError, match="a batch of 3 is evaluated at a batch of 2"):
            sample(random(3, 1, *shape), around(len(shape), 5))

    def test_points_that_are_integers_are_refused(self, sample, shape, as_users_see_it):
        with pytest.raises(ValueError, match=r"`at` has dtype torch\.int64"):
            sample(random(1, 1, *shape), torch.zeros(1, len(shape), 5, dtype=torch.int64))


class TestLinear:
    def test_linear_images_are_exact(self, shape):
        slope = random(len(shape), seed=2)
        image = torch.einsum("d,bd...->b...", slope, exact_grid(shape))[:, None]
        at = random(1, len(shape), 30)
        # An axis of one voxel has no slope.
        visible = slope * torch.tensor([n > 1 for n in shape])
        assert_close(interpolate(image, at), torch.einsum("d,bd...->b...", visible, at)[:, None])

    def test_outside_is_the_nearest_edge(self, shape):
        values, at = random(2, 3, *shape), around(len(shape), 30)
        assert_close(interpolate(values, at), interpolate(values, at.clamp(0, 1)), rtol=0, atol=0)

    def test_it_is_what_the_slow_version_gives(self, shape):
        values, at = random(2, 3, *shape), around(len(shape), 30)
        assert_close(interpolate(values, at), interpolate_by_gathering(values, at))

    def test_it_is_second_order(self):
        def error(n):
            return (interpolate(waves(exact_grid((n, n))), INSIDE) - waves(INSIDE)).abs().mean()

        assert 1.8 < math.log2(error(33) / error(65)) < 2.2


class TestZerosOutside:
    @pytest.mark.parametrize("shape", [(5, 4), (4, 6, 3)], ids=str)
    def test_it_is_what_torch_gives_with_zeros(self, shape):
        values, at = random(2, 3, *shape), around(len(shape), 200)
        query = (2 * at - 1).mT.flip(-1).reshape(2, -1, *[1] * (len(shape) - 1), len(shape))
        expected = F.grid_sample(values, query, padding_mode="zeros", align_corners=True)
        assert_close(interpolate_or_zero(values, at), expected.flatten(2))

    def test_it_falls_to_zero_within_a_voxel(self):
        image = torch.ones(1, 1, 5, dtype=torch.float64)
        at = torch.tensor([[[-0.25, -0.125, 0.0, 0.5, 1.0, 1.125, 1.25, 9.0]]], dtype=torch.float64)
        expected = torch.tensor([[[0, 0.5, 1, 1, 1, 0.5, 0, 0]]], dtype=torch.float64)
        assert_close(interpolate_or_zero(image, at), expected)

    def test_inside_it_is_linear(self, shape):
        values, at = random(2, 3, *shape), around(len(shape), 30).clamp(0, 1)
        assert_close(interpolate_or_zero(values, at), interpolate(values, at))

    def test_an_axis_of_one_voxel_has_no_outside(self):
        at = torch.tensor([[[0.5], [7.0]]], dtype=torch.float64)
        assert interpolate_or_zero(torch.ones(1, 1, 3, 1, dtype=torch.float64), at).item() == 1


class TestNearest:
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.bool, torch.float32])
    def test_labels_of_any_type_keep_it(self, shape, dtype):
        labels = (100 * random(2, 1, *shape)).to(dtype)
        at = around(len(shape), 30)
        found = interpolate_nearest(labels, at)
        assert found.dtype == dtype
        voxel = voxel_from_unit(at, shape).clamp(min=0)
        index = [(voxel[:, d] + 0.5).floor().long().clamp(max=n - 1) for d, n in enumerate(shape)]
        assert_close(found[:, 0], torch.stack([labels[b, 0][tuple(i[b] for i in index)] for b in range(2)]))

    def test_halfway_is_rounded_up(self):
        labels = torch.tensor([[[10, 20, 30, 40, 50]]])
        at = torch.tensor([[[0.125, 0.375, 0.625, 0.875]]])
        assert interpolate_nearest(labels, at).tolist() == [[[20, 30, 40, 50]]]

    def test_it_never_mixes_labels(self, shape):
        labels = torch.randint(0, 9, (2, 1, *shape), generator=torch.Generator().manual_seed(0))
        assert set(interpolate_nearest(labels, around(len(shape), 50)).unique().tolist()) <= set(
            labels.unique().tolist()
        )

    def test_points_of_low_precision_are_counted_in_single(self):
        # The point is exact in bfloat16, but voxel 149.4 of 301 is not: it would be rounded to 149, then 150.
        at = torch.tensor([[[255 / 512]]], dtype=torch.bfloat16)
        assert interpolate_nearest(torch.arange(301).view(1, 1, 301), at).item() == 149


class TestCubic:
    def test_it_is_what_scipy_gives(self, shape):
        values, at = random(1, 1, *shape), around(len(shape), 200, batch=1)
        # Both mirror the image at its border voxels; beyond them ours stays at the edge.
        coordinates = voxel_from_unit(at.clamp(0, 1), shape)[0].numpy()
        expected = map_coordinates(values[0, 0].numpy(), coordinates, order=3, mode="mirror")
        np.testing.assert_allclose(interpolate_cubic(values, at)[0, 0].numpy(), expected, atol=1e-12)

    def test_it_is_fourth_order(self):
        def error(n):
            return (interpolate_cubic(waves(exact_grid((n, n))), INSIDE) - waves(INSIDE)).abs().mean()

        assert 3.7 < math.log2(error(33) / error(65)) < 4.3

    def test_its_slope_is_continuous_across_voxels(self):
        values = random(1, 1, 7)

        def slope(at):
            x = torch.tensor([[[at]]], dtype=torch.float64, requires_grad=True)
            return torch.autograd.grad(interpolate_cubic(values, x).sum(), x)[0]

        assert_close(slope(0.5 - 1e-9), slope(0.5 + 1e-9), rtol=0, atol=1e-6)


INSIDE = random(1, 2, 500)


def waves(x):
    """Smooth, and flat across the border, as the mirrored image of cubic interpolation is."""
    return torch.cos(2 * math.pi * x[:, :1]) * torch.cos(math.pi * x[:, 1:])


class TestGradients:
    """Points are kept away from voxel planes, where linear interpolation has no derivative."""

    SHAPES = ((5,), (1,), (4, 3), (3, 4, 2), (3, 1, 2))
    SMOOTH = (interpolate, interpolate_or_zero, interpolate_cubic)

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("sample", SMOOTH, ids=lambda f: f.__name__)
    def test_first_and_second_derivatives(self, sample, shape):
        values = random(1, 2, *shape).requires_grad_()
        at = around(len(shape), 1, batch=1).requires_grad_()
        assert torch.autograd.gradcheck(sample, (values, at), fast_mode=True)
        assert torch.autograd.gradgradcheck(sample, (values, at), fast_mode=True)

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    @pytest.mark.parametrize("batches", [(1, 3), (3, 1)], ids=str)
    @pytest.mark.parametrize("sample", SMOOTH, ids=lambda f: f.__name__)
    def test_what_serves_the_whole_batch_hears_from_all_of_it(self, sample, shape, batches):
        values = random(batches[0], 1, *shape).requires_grad_()
        at = around(len(shape), 1, batch=batches[1]).requires_grad_()
        assert torch.autograd.gradcheck(sample, (values, at), fast_mode=True)

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_a_point_at_the_border_or_beyond_is_held_there(self, shape):
        values = random(1, 1, *shape)
        at = torch.tensor([0.0, 1.0, -0.2, 1.2], dtype=torch.float64).expand(1, len(shape), 4)
        for sample in (interpolate, interpolate_by_gathering):
            x = at.clone().requires_grad_()
            for create_graph in (False, True):
                (grad,) = torch.autograd.grad(sample(values, x).sum(), x, create_graph=create_graph)
                assert grad.tolist() == torch.zeros_like(at).tolist()

    @pytest.mark.parametrize("wanted", ["values", "at"])
    @pytest.mark.parametrize("shape", [(4, 3), (3, 4, 2)], ids=str)
    def test_either_gradient_alone(self, shape, wanted):
        tensors = {"values": random(2, 2, *shape), "at": around(len(shape), 3)}
        tensors[wanted].requires_grad_()
        interpolate(**tensors).square().sum().backward()
        reference = {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}
        interpolate_by_gathering(**reference).square().sum().backward()
        assert_close(tensors[wanted].grad, reference[wanted].grad)


class TestPrecision:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("sample", [interpolate, interpolate_or_zero, interpolate_cubic])
    def test_low_precision_values_are_sampled_in_single(self, sample, shape, dtype):
        values, at = random(2, 1, *shape).to(dtype), around(len(shape), 9).float()
        assert sample(values, at).dtype == torch.float32
        assert_close(sample(values, at), sample(values.float(), at), rtol=0, atol=0)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("sample", [interpolate, interpolate_or_zero, interpolate_cubic])
    def test_low_precision_points_too(self, sample, shape, dtype):
        values, at = random(2, 1, *shape).float(), around(len(shape), 9).to(dtype)
        assert_close(sample(values, at), sample(values, at.float()), rtol=0, atol=0)

    def test_the_higher_precision_of_both_is_kept(self, shape):
        values, at = random(2, 1, *shape), around(len(shape), 9)
        assert interpolate(values.float(), at).dtype == torch.float64
        assert interpolate(values, at.float()).dtype == torch.float64

    @pytest.mark.parametrize("sample", [interpolate, interpolate_or_zero, interpolate_cubic])
    def test_single_precision_is_as_good_as_it_can_be(self, sample, shape):
        values, at = random(2, 1, *shape).float().double(), random(2, len(shape), 9)
        assert_close(sample(values.float(), at.float()).double(), sample(values, at), rtol=0, atol=2e-6)

    @pytest.mark.parametrize("sample", [interpolate, interpolate_or_zero, interpolate_cubic])
    def test_autocast_changes_nothing(self, sample, shape):
        values, at = random(2, 1, *shape).float(), around(len(shape), 9).float()
        expected = sample(values, at)
        with torch.autocast("cpu", torch.bfloat16):
            assert_close(sample(values, at), expected, rtol=0, atol=0)
