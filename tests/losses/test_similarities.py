"""What every similarity promises: adding one is adding one line to `SIMILARITIES`."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

from roundtrip.losses.information import mutual_information
from roundtrip.losses.local import box_lncc, lncc
from roundtrip.losses.mind import mind_ssc
from roundtrip.losses.similarity import mse, ncc
from roundtrip.losses.supervision import soft_dice
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.grid import inside_image
from roundtrip.maps.interpolate import interpolate
from roundtrip.maps.map import on_grid_of

SIMILARITIES = {
    "mse": mse,
    "ncc": ncc,
    "lncc": partial(lncc, sigma=1.5),
    "box_lncc": partial(box_lncc, radius=1),
    "mutual_information": partial(mutual_information, bins=8),
    "mind_ssc": partial(mind_ssc, radius=1, dilation=1),
    "soft_dice": soft_dice,
}
BLIND_TO_CONTRAST = ("ncc", "lncc", "box_lncc", "mutual_information", "mind_ssc")
BLIND_TO_INVERSION = ("mutual_information", "mind_ssc")


@pytest.fixture(params=SIMILARITIES)
def similarity(request):
    return SIMILARITIES[request.param]


@pytest.fixture(params=[1, 2, 3])
def dims(request, similarity):
    if request.param == 1 and similarity is SIMILARITIES["mind_ssc"]:
        pytest.skip("MIND-SSC has no meaning on a line")
    return request.param


def images(dims=2, batch=2, channels=2, dtype=torch.float64, seed=0):
    """A pair that is neither alike nor unrelated."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, channels, *(7, 6, 5)[:dims])
    one, noise = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    return one.to(dtype), (0.7 * one + 0.3 * noise).to(dtype)


def mask_like(image, batch=None, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch or len(image), 1, *image.shape[2:], generator=generator) > 0.3


def value_and_gradients(similarity, warped, fixed, mask=None):
    pair = [image.clone().requires_grad_() for image in (warped, fixed)]
    value = similarity(*pair, mask)
    return value.detach(), *torch.autograd.grad(value, pair)


def test_gradients(similarity, dims):
    pair = [image.requires_grad_() for image in images(dims, channels=1)]
    for mask in (None, mask_like(pair[0])):
        assert torch.autograd.gradcheck(partial(similarity, mask=mask), pair, fast_mode=True)


@pytest.mark.parametrize("name", ["mse", "ncc", "lncc", "mutual_information", "mind_ssc", "soft_dice"])
def test_second_derivatives(name):
    pair = [image[..., :3, :3].clone().requires_grad_() for image in images(batch=1, channels=1)]
    assert torch.autograd.gradgradcheck(SIMILARITIES[name], pair, fast_mode=True)


def test_more_alike_is_lower(similarity, dims):
    warped, fixed = images(dims)
    unrelated = images(dims, seed=5)[0]
    assert similarity(fixed, fixed) < similarity(warped, fixed) < similarity(unrelated, fixed)


def test_symmetric(similarity, dims):
    warped, fixed = images(dims)
    mask = mask_like(fixed)
    assert_close(similarity(warped, fixed, mask), similarity(fixed, warped, mask))


def test_mean_over_batch_and_channels(similarity, dims):
    warped, fixed = images(dims, batch=3, channels=2)
    mask = mask_like(fixed)
    alone = [
        similarity(warped[b : b + 1, c : c + 1], fixed[b : b + 1, c : c + 1], mask[b : b + 1])
        for b in range(3)
        for c in range(2)
    ]
    assert_close(similarity(warped, fixed, mask), torch.stack(alone).mean())


def test_one_mask_serves_a_batch(similarity, dims):
    warped, fixed = images(dims)
    mask = mask_like(fixed, batch=1)
    assert_close(similarity(warped, fixed, mask), similarity(warped, fixed, mask.expand(2, *mask.shape[1:])))


def test_a_mask_of_ones_is_none(similarity, dims):
    warped, fixed = images(dims)
    ones = torch.ones(2, 1, *fixed.shape[2:], dtype=torch.bool)
    for masked, plain in zip(
        value_and_gradients(similarity, warped, fixed, ones),
        value_and_gradients(similarity, warped, fixed),
        strict=True,
    ):
        assert_close(masked, plain)


@pytest.mark.parametrize("filling", [1e3, float("nan")])
def test_what_a_mask_excludes_does_not_exist(similarity, dims, filling):
    warped, fixed = images(dims)
    mask = mask_like(fixed)
    filled = [torch.where(mask, image, filling) for image in (warped, fixed)]
    value, *gradients = value_and_gradients(similarity, warped, fixed, mask)
    other_value, *other_gradients = value_and_gradients(similarity, *filled, mask)
    assert value == other_value
    for gradient, other in zip(gradients, other_gradients, strict=True):
        assert torch.equal(gradient, other)
        assert (gradient[~mask.expand_as(gradient)] == 0).all()


def test_only_the_proportions_of_a_mask_matter(similarity, dims):
    warped, fixed = images(dims)
    assert_close(
        similarity(warped, fixed, mask_like(fixed)), similarity(warped, fixed, 0.25 * mask_like(fixed))
    )


def test_an_empty_mask_pulls_nowhere(similarity, dims):
    warped, fixed = images(dims, dtype=torch.float32)
    value, *gradients = value_and_gradients(similarity, warped, fixed, torch.zeros(2, 1, *fixed.shape[2:]))
    assert value.isfinite()
    assert all((gradient == 0).all() for gradient in gradients)


def test_an_empty_mask_leaves_the_rest_of_the_batch_alone(similarity, dims):
    warped, fixed = images(dims)
    mask = mask_like(fixed)
    mask[0] = False
    gradient = value_and_gradients(similarity, warped, fixed, mask)[1]
    alone = value_and_gradients(similarity, warped[1:], fixed[1:], mask[1:])[1]
    assert (gradient[0] == 0).all()
    assert_close(gradient[1:], alone / 2)


@pytest.mark.parametrize("level", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_on_constant_images(similarity, dims, level, dtype):
    image = images(dims, dtype=dtype)[0]
    flat = torch.full_like(image, level)
    for pair in ((flat, flat), (flat, image), (image, flat)):
        for mask in (None, mask_like(image)):
            assert all(x.isfinite().all() for x in value_and_gradients(similarity, *pair, mask))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_computed_in_float32(similarity, dims, dtype):
    warped, fixed = images(dims, dtype=dtype)
    value, gradient, _ = value_and_gradients(similarity, warped, fixed)
    expected, exact, _ = value_and_gradients(similarity, warped.float(), fixed.float())
    assert value.dtype == torch.float32 and value == expected
    assert torch.equal(gradient, exact.to(dtype))


def test_precisions_mix(similarity, dims):
    warped, fixed = images(dims, dtype=torch.float32)
    assert similarity(warped.bfloat16(), fixed) == similarity(warped.bfloat16().float(), fixed)


def test_autocast_changes_nothing(similarity, dims):
    warped, fixed = images(dims, dtype=torch.float32)
    pair = [image.clone().requires_grad_() for image in (warped, fixed)]
    with torch.autocast("cpu", torch.bfloat16):
        value = similarity(*pair)
    expected, *gradients = value_and_gradients(similarity, warped, fixed)
    assert value == expected
    for gradient, other in zip(gradients, torch.autograd.grad(value, pair), strict=True):
        assert torch.equal(gradient, other)


@pytest.mark.parametrize("name", BLIND_TO_CONTRAST)
def test_contrast_and_brightness_do_not_matter(name):
    warped, fixed = images()
    expected = SIMILARITIES[name](warped, fixed)
    assert_close(SIMILARITIES[name](400 * warped - 1000, fixed), expected)
    assert_close(SIMILARITIES[name](warped, 1e-3 * fixed + 5), expected)


@pytest.mark.parametrize("name", BLIND_TO_INVERSION)
def test_inversion_does_not_matter(name):
    warped, fixed = images()
    assert_close(SIMILARITIES[name](1 - warped, fixed), SIMILARITIES[name](warped, fixed))


@pytest.mark.parametrize("name", ["ncc", "lncc", "box_lncc"])
def test_inversion_turns_correlation_round(name):
    warped, fixed = images()
    assert_close(2 - SIMILARITIES[name](-warped, fixed), SIMILARITIES[name](warped, fixed))


def test_mse_is_the_mean_squared_difference():
    warped, fixed = images()
    mask = mask_like(fixed)
    assert_close(mse(warped, fixed), ((warped - fixed) ** 2).mean())
    counted = [((a - b) ** 2)[:, m[0]].mean() for a, b, m in zip(warped, fixed, mask, strict=True)]
    assert_close(mse(warped, fixed, mask), torch.stack(counted).mean())


def test_mse_of_the_samples_inside_the_image():
    fixed = torch.arange(5.0)[None, None]
    phi = AffineMap(torch.ones(1, 1, 1), torch.full((1, 1), 0.5))
    at = on_grid_of(phi, fixed)
    warped = interpolate(fixed, at)
    # Moved by two voxels: three samples differ by 2, the others saw the edge.
    assert_close(mse(warped, fixed, inside_image(at)), torch.tensor(4.0))
    assert mse(warped, fixed) < 4


def test_ncc_is_the_correlation_coefficient():
    warped, fixed = images(batch=1, channels=1)
    mask = mask_like(fixed)
    one, other = warped[mask], fixed[mask]
    assert_close(ncc(warped, fixed, mask), 1 - torch.corrcoef(torch.stack([one, other]))[0, 1])


def test_a_constant_image_has_no_correlation_and_pulls_nowhere():
    image = images(dtype=torch.float32)[0]
    # 1000.1 is not a number of float32, nor is the mean of many of them exactly their value.
    value, *gradients = value_and_gradients(ncc, torch.full_like(image, 1000.1), image)
    assert value == 1
    assert all((gradient == 0).all() for gradient in gradients)


def test_weights_count_like_repetitions():
    warped, fixed = images(1, batch=1, channels=1)
    weights = torch.tensor([0, 1, 2, 1, 1, 3, 1])
    repeated = [image.repeat_interleave(weights, dim=2) for image in (warped, fixed)]
    for similarity in (mse, ncc, soft_dice, SIMILARITIES["mutual_information"]):
        assert_close(similarity(warped, fixed, weights[None, None]), similarity(*repeated))


@pytest.mark.usefixtures("as_users_see_it")
def test_wrong_inputs_say_what_to_do(similarity):
    warped, fixed = images()
    with pytest.raises(ValueError, match=r"`warped` has shape \(2, 2, 7, 6\) and `fixed` \(2, 2, 7, 5\)"):
        similarity(warped, fixed[..., :-1])
    with pytest.raises(ValueError, match=r"equal shapes \(batch, channels, \*grid\)"):
        similarity(warped[0, 0], fixed[0, 0])
    with pytest.raises(ValueError, match=r"`fixed` has dtype torch.int64.*`fixed.float\(\)`"):
        similarity(warped, fixed.long())
    with pytest.raises(ValueError, match=r"`mask` has shape \(7, 6\).*`mask\[None, None\]`"):
        similarity(warped, fixed, mask_like(fixed)[0, 0])
    with pytest.raises(ValueError, match=r"`mask` has shape \(3, 1, 7, 6\).*\(2, 1, 7, 6\)"):
        similarity(warped, fixed, mask_like(fixed, batch=3))
