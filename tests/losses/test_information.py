"""Mutual information against the histogram of discrete images, for which it is exact."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from roundtrip.losses import _histogram_kernel, information
from roundtrip.losses.information import mutual_information

# With 32 bins, intensities 0, 1/5, ..., 1 lie 5.8 bins apart: no voxel spreads over the bins of another.
LEVELS = 6


def discrete(seed, shape=(1, 1, 12, 11)):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(LEVELS, shape, generator=generator)
    labels.view(-1)[:LEVELS] = torch.arange(LEVELS)
    return labels


def as_image(labels):
    return labels.double() / (LEVELS - 1)


def related(labels, seed=7):
    """Labels that follow from others, except where they are drawn anew."""
    again = discrete(seed, labels.shape)
    return torch.where(discrete(seed + 1, labels.shape) < 3, (labels + 2) % LEVELS, again)


def counted(a, b):
    joint = np.histogram2d(a.flatten(), b.flatten(), bins=LEVELS)[0] / a.numel()
    independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    some = joint > 0
    return (joint[some] * np.log(joint[some] / independent[some])).sum()


def test_it_is_that_of_the_histogram():
    a = discrete(0)
    b = related(a)
    assert counted(a, b) > 0.2
    assert float(mutual_information(as_image(a), as_image(b))) == pytest.approx(-counted(a, b))


def test_of_an_image_with_itself_it_is_the_entropy():
    half = torch.tensor([0.0, 1.0]).repeat(50)[None, None]
    assert float(mutual_information(half, half)) == pytest.approx(-math.log(2))


def test_of_independent_images_it_is_zero():
    rows, columns = torch.meshgrid(torch.arange(LEVELS), torch.arange(LEVELS), indexing="ij")
    images = (as_image(labels[None, None]) for labels in (rows, columns))
    assert abs(float(mutual_information(*images))) < 1e-12


def test_permutations_of_the_intensities_do_not_matter():
    a = discrete(0)
    b = related(a)
    permuted = torch.tensor([3, 0, 5, 1, 4, 2])[a]
    assert_close(
        mutual_information(as_image(permuted), as_image(b)), mutual_information(as_image(a), as_image(b))
    )


def test_only_voxels_of_the_mask_are_counted():
    a = discrete(0)
    b, mask = related(a), discrete(3) < 4
    expected = -counted(a[mask], b[mask])
    assert float(mutual_information(as_image(a), as_image(b), mask)) == pytest.approx(expected)


@pytest.mark.parametrize("masks", [0, 1, 2])
@pytest.mark.parametrize("size", [2**22, 2 * 3 * 32 * 7], ids=["whole", "pieces"])
def test_the_compiled_form_is_the_plain_one(monkeypatch, masks, size):
    generator = torch.Generator().manual_seed(0)
    # Positions of 70 voxels among 12 bins; the first and the last possible one are among them.
    a, b = 1 + 9 * torch.rand(2, 2, 3, 70, generator=generator, dtype=torch.float64)
    a[..., 0], a[..., 1], b[..., 1] = 1, 10, 10
    weights = torch.rand(masks, 1, 70, generator=generator, dtype=torch.float64) if masks else None
    grad = torch.rand(6, 12, 12, generator=generator, dtype=torch.float64)
    monkeypatch.setattr(information, "_PIECE", size)
    assert_close(_histogram_kernel.count(a, b, weights, 12), information.count_by_torch(a, b, weights, 12))
    compiled = _histogram_kernel.gradients(a, b, weights, grad)
    for one, plain in zip(compiled, information.gradients_by_torch(a, b, weights, grad), strict=True):
        assert_close(one, plain)


def test_the_result_does_not_depend_on_the_number_of_threads():
    generator = torch.Generator().manual_seed(0)
    pair = torch.rand(2, 1, 1, 30, 31, generator=generator).requires_grad_()
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            loss = mutual_information(*pair)
            results.append((loss, *torch.autograd.grad(loss, pair)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*two) for two in zip(*results, strict=True))


def test_it_leads_towards_alignment():
    x = torch.linspace(-1, 1, 60, dtype=torch.float64)

    def bump(shift):
        return torch.exp(-20 * (x - shift) ** 2)[None, None]

    shift = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    # The other image shows the same bump dark on bright, and bent.
    (slope,) = torch.autograd.grad(mutual_information(bump(shift), 1 - bump(0.0) ** 2), shift)
    assert slope > 0


def test_too_few_bins_are_refused():
    with pytest.raises(ValueError, match="`bins` is 4; at least 5"):
        mutual_information(as_image(discrete(0)), as_image(discrete(1)), bins=4)
