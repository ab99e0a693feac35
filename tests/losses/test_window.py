"""Window sums against matrices written out, and the Gaussian window against scipy's Gaussian."""

import numpy as np
import pytest
import scipy.ndimage
import torch
from torch.testing import assert_close

from roundtrip.losses.window import (
    Window,
    box,
    gaussian,
    window_mean,
    window_sum,
    window_sum_by_torch,
    window_weight,
)

SHAPES = [(9,), (1,), (7, 12), (2, 1, 5), (4, 6, 9), (3, 130, 2)]
WINDOWS = {"box": box(2), "fractional box": box(1.3), "gaussian": gaussian(1.2), "wide gaussian": gaussian(6)}


def values(shape, batch=2, channels=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, channels, *shape, generator=generator, dtype=torch.float64).to(dtype)


def profile(half_width, passes):
    """The weights of one axis, written out: boxes with partial ends, convolved with each other."""
    whole, rim = divmod(half_width, 1)
    one = np.array([rim] + [1.0] * (2 * int(whole) + 1) + [rim])
    one, weights = one / one.sum(), np.ones(1)
    for _ in range(passes):
        weights = np.convolve(weights, one)
    return weights


def matrix(n, half_width, passes):
    """The sum over the window as a matrix: its rows are the weights, cut off at the border."""
    weights = profile(half_width, passes)
    middle = len(weights) // 2
    offsets = np.arange(n)[:, None] - np.arange(n)
    inside = np.abs(offsets) <= middle
    return torch.from_numpy(np.where(inside, weights[np.clip(offsets + middle, 0, len(weights) - 1)], 0))


def summed_by_matrices(x, window):
    for axis, n in enumerate(x.shape[2:], start=2):
        rows = matrix(n, window.half_widths[0], window.passes)
        x = torch.tensordot(x, rows, dims=([axis], [1])).movedim(-1, axis)
    return x


@pytest.fixture(params=WINDOWS)
def window(request):
    return WINDOWS[request.param]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_sum_is_that_of_the_weights_written_out(window, shape):
    x = values(shape)
    expected = summed_by_matrices(x, window)
    assert_close(window_sum(x, window), expected)
    assert_close(window_sum_by_torch(x, window), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_mean_of_a_constant_is_that_constant(window, shape):
    constant = torch.full((1, 1, *shape), 7.0, dtype=torch.float64)
    assert_close(window_mean(constant, window), constant)
    assert_close(window_weight(constant, window), window_sum(torch.ones_like(constant), window))


def test_the_sum_is_its_own_adjoint(window):
    one, other = values((5, 8)), values((5, 8), dtype=torch.float32).double() ** 2
    assert_close((window_sum(one, window) * other).sum(), (one * window_sum(other, window)).sum())


@pytest.mark.parametrize("function", [window_sum, window_sum_by_torch])
def test_gradients(window, function):
    x = values((4, 3), batch=1, channels=1).requires_grad_()
    assert torch.autograd.gradcheck(function, (x, window))
    assert torch.autograd.gradgradcheck(function, (x, window))


def test_a_masked_mean_counts_what_the_mask_counts(window):
    x = values((6, 7))
    mask = values((6, 7), channels=1) > 0.5
    sums, weight = summed_by_matrices(x * mask, window), summed_by_matrices(mask.double(), window)
    some = (weight > 1e-10).expand_as(x)
    mean = window_mean(x, window, mask)
    assert_close(mean[some], (sums / weight)[some])
    assert (mean[~some] == 0).all()


def test_where_no_voxel_counts_the_mean_is_zero():
    x, mask = values((40,)), values((40,), channels=1).abs()
    mask[..., 3:] = 0
    # Three passes of half width 2.4 reach nine voxels; running sums leave rounding errors beyond.
    window = Window((2.4,), passes=3)
    assert (window_sum(mask, window)[..., 12:] != 0).any()
    mean = window_mean(x.requires_grad_(), window, mask)
    assert (mean[..., 12:] == 0).all() and (mean[..., :12] != 0).all()
    assert torch.autograd.grad(mean.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("sigma", [0.4, 1, 1.7, 2, 3.3, 5, 12])
def test_the_gaussian_window_has_exactly_the_variance_of_the_gaussian(sigma):
    weights = profile(*gaussian(sigma).half_widths, passes=3)
    offsets = np.arange(len(weights)) - len(weights) // 2
    assert weights.sum() == pytest.approx(1)
    assert (weights * offsets**2).sum() == pytest.approx(sigma**2)


@pytest.mark.parametrize("sigma", [1, 1.5, 2, 3, 5, 12])
def test_the_gaussian_window_is_close_to_scipys(sigma):
    impulse = torch.zeros(1, 1, 161, dtype=torch.float64)
    impulse[..., 80] = 1
    gauss = scipy.ndimage.gaussian_filter1d(impulse[0, 0].numpy(), sigma, truncate=6)
    weights = window_sum(impulse, gaussian(sigma))[0, 0].numpy()
    assert np.abs(weights - gauss).max() < 0.07 * gauss.max()


def test_on_noise_it_is_close_to_scipys_at_the_border_too():
    x = values((24, 20, 22), batch=1, channels=1)

    def blurred(x):
        return torch.from_numpy(scipy.ndimage.gaussian_filter(x[0, 0].numpy(), 3.0, mode="constant"))

    mean = window_mean(x, gaussian(3.0))[0, 0]
    expected = blurred(x) / blurred(torch.ones_like(x))
    assert (mean - expected).std() < 0.1 * expected.std()


def test_a_size_for_every_axis():
    x = values((6, 7))
    along_first = torch.tensordot(x, matrix(6, 2.0, 1), dims=([2], [1])).movedim(-1, 2)
    expected = torch.tensordot(along_first, matrix(7, 0.5, 1), dims=([3], [1]))
    assert_close(window_sum(x, box([2, 0.5])), expected)
    assert_close(window_sum_by_torch(x, box([2, 0.5])), expected)


def test_the_result_does_not_depend_on_the_number_of_threads(window):
    x = values((17, 9, 11), dtype=torch.float32)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(window_sum(x, window))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_the_input_is_left_alone_whatever_its_layout(window):
    x = values((4, 5, 6)).mT
    before = x.clone()
    assert_close(window_sum(x, window), summed_by_matrices(x, window))
    assert torch.equal(x, before)


@pytest.mark.parametrize("function", [window_sum, window_sum_by_torch])
def test_nothing_is_left_of_bright_voxels_beyond_the_window(function):
    # A running sum in float32 would carry the rounding errors of the bright half along.
    x = torch.zeros(1, 1, 200)
    x[..., :100] = 1e6 * values((100,), batch=1, channels=1).float()
    assert (function(x, box(4))[..., 105:].abs() < 1e-6).all()


@pytest.mark.parametrize("make", [box, gaussian])
@pytest.mark.parametrize("size", [0, -1.0, float("nan"), float("inf"), [2, 0]])
def test_wrong_sizes_say_what_is_needed(make, size):
    with pytest.raises(ValueError, match="positive number of voxels"):
        make(size)


def test_sizes_for_the_wrong_number_of_axes_are_refused():
    with pytest.raises(ValueError, match="2 sizes, one per axis, but the image 3 spatial axes"):
        window_sum(values((3, 4, 5)), Window((1.0, 2.0), passes=1))
