"""Local correlation against windows cut out one by one, and its compiled form against the plain one."""

import itertools
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from roundtrip.losses import _local_kernel
from roundtrip.losses.local import box_lncc, lncc, mean_local_correlation_by_torch
from roundtrip.losses.window import box, gaussian, window_sum

FLAT = 1e-4


def images(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    one, noise = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    return one.to(dtype), (0.6 * one + 0.4 * noise).to(dtype)


def weights_around(place, shape, window):
    impulse = torch.zeros(1, 1, *shape, dtype=torch.float64)
    impulse[0, 0][place] = 1
    return window_sum(impulse, window)[0, 0]


def one_by_one(warped, fixed, mask, window):
    """The formula of the docstring for one image of one channel, at one place after the other."""
    shape = fixed.shape
    count = mask / mask.sum()
    floors = [FLAT * (count * (x - (count * x).sum()) ** 2).sum() for x in (warped, fixed)]
    total = 0.0
    for place in itertools.product(*map(range, shape)):
        share = weights_around(place, shape, window) * mask
        if mask[place] == 0:
            continue
        share = share / share.sum()
        x, y = (image - (share * image).sum() for image in (warped, fixed))
        spread = ((share * x * x).sum() + floors[0]) * ((share * y * y).sum() + floors[1])
        total += count[place] * (share * x * y).sum() / spread.sqrt()
    return 1 - total


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(9,), (5, 6), (4, 3, 5)], ids=str)
@pytest.mark.parametrize(
    ("similarity", "window"),
    [(partial(lncc, sigma=1.2), gaussian(1.2)), (partial(box_lncc, radius=1), box(1))],
    ids=["lncc", "box_lncc"],
)
def test_it_is_the_correlation_in_every_window(similarity, window, shape, masked):
    warped, fixed = images(1, 1, *shape)
    mask = torch.ones(1, 1, *shape, dtype=torch.float64)
    if masked:
        mask = (images(1, 1, *shape)[0] > 0.4).double() * (1 + images(1, 1, *shape)[1])
    expected = one_by_one(warped[0, 0], fixed[0, 0], mask[0, 0], window)
    assert_close(similarity(warped, fixed, mask), expected)
    if not masked:
        assert_close(similarity(warped, fixed), expected)


@pytest.mark.parametrize("window", [gaussian(1.5), box(2)], ids=["gaussian", "box"])
@pytest.mark.parametrize("masks", [0, 1, 2])
def test_the_compiled_form_is_the_plain_one(window, masks):
    inputs = [*images(2, 3, 6, 5, 7), torch.full((2, 3), 1e-3), torch.full((2, 3), 1e-2)]
    inputs = [x.double().requires_grad_() for x in inputs]
    weights = images(masks, 1, 6, 5, 7)[0] * (images(masks, 1, 6, 5, 7)[0] > 0.3) if masks else None
    results = []
    for form in (_local_kernel.mean_local_correlation, mean_local_correlation_by_torch):
        correlation = form(*inputs, weights, window)
        # Each image of the batch weighs differently, so that they cannot be mixed up.
        factors = torch.arange(1.0, 7, dtype=torch.float64).view(2, 3)
        results.append([correlation, *torch.autograd.grad((factors * correlation).sum(), inputs)])
    for compiled, plain in zip(*results, strict=True):
        # The plain form averages over ones, with weights that do not sum to 1 here.
        assert_close(compiled, plain)


def test_only_the_gradients_that_are_asked_for():
    warped, fixed = images(1, 2, 5, 6)
    both = [x.clone().requires_grad_() for x in (warped, fixed)]
    expected = torch.autograd.grad(lncc(*both, sigma=1.0), both)
    for i in range(2):
        pair = [warped, fixed]
        pair[i] = pair[i].clone().requires_grad_()
        assert_close(torch.autograd.grad(lncc(*pair, sigma=1.0), pair[i])[0], expected[i])


def test_backward_may_run_twice():
    warped, fixed = images(1, 1, 5, 6)
    loss = lncc(warped.requires_grad_(), fixed, sigma=1.0)
    first, second = (torch.autograd.grad(loss, warped, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_second_derivatives():
    pair = [x.requires_grad_() for x in images(1, 1, 3, 4)]
    assert torch.autograd.gradgradcheck(partial(lncc, sigma=1.0), pair, fast_mode=True)


def test_the_result_does_not_depend_on_the_number_of_threads():
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            pair = [x.requires_grad_() for x in images(2, 1, 9, 10, 11, dtype=torch.float32)]
            correlation = _local_kernel.mean_local_correlation(
                *pair, torch.full((2, 1), 1e-3), torch.full((2, 1), 1e-3), None, gaussian(2.0)
            )
            results.append([correlation, *torch.autograd.grad(correlation.sum(), pair)])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_slow_changes_of_brightness_hardly_matter():
    texture = images(1, 1, 40, 40)[0]
    ramp = torch.linspace(1, 3, 40, dtype=torch.float64)
    assert lncc(ramp * texture, texture, sigma=2) < 0.01 < lncc(texture.flip(2), texture, sigma=2)


def test_a_flat_window_correlates_with_nothing():
    half = images(1, 1, 30, 30)[0]
    half[..., 15:] = 0.5
    # Windows of radius 1 at columns 16 to 29 are flat: 14 of 30.
    assert float(box_lncc(half, half, radius=1)) == pytest.approx(14 / 30, abs=0.01)


def test_float32_is_enough_for_bright_images():
    warped, fixed = images(1, 1, 12, 12, 12)
    expected = lncc(warped, fixed, sigma=2)
    single = lncc((1000 + warped).float(), (1000 + fixed).float(), sigma=2)
    assert abs(float(single - expected)) < 1e-3
    assert abs(float(lncc(warped.float(), fixed.float(), sigma=2) - expected)) < 1e-6


def test_sigma_may_differ_between_axes():
    warped, fixed = images(1, 1, 8, 9)
    assert_close(
        lncc(warped, fixed, sigma=[1.0, 2.0]),
        lncc(warped.mT.contiguous(), fixed.mT.contiguous(), sigma=[2.0, 1.0]),
    )
    assert lncc(warped, fixed, sigma=[1.0, 2.0]) != lncc(warped, fixed, sigma=[2.0, 1.0])
    with pytest.raises(ValueError, match="3 sizes, one per axis, but the image 2"):
        lncc(warped, fixed, sigma=[1.0, 2.0, 3.0])
