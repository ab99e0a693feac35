"""MIND-SSC against patches compared one by one."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from roundtrip.losses.mind import mind_ssc, self_similarity


def image(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pairs_of_neighbours(dims, dilation):
    """The 2N face neighbours, and those pairs of them that are sqrt(2) apart."""
    neighbours = [
        tuple(sign * dilation * (d == axis) for d in range(dims)) for axis in range(dims) for sign in (1, -1)
    ]
    return [
        (a, b)
        for a, b in itertools.combinations(neighbours, 2)
        if sum((i - j) ** 2 for i, j in zip(a, b, strict=True)) == 2 * dilation**2
    ]


def one_by_one(x, radius, dilation):
    """The distances of all patches around all voxels of one channel, with loops and clamped indices."""
    shape = x.shape
    patch = list(itertools.product(range(-radius, radius + 1), repeat=x.ndim))

    def at(*places):
        index = [sum(coordinates) for coordinates in zip(*places, strict=True)]
        return x[tuple(min(max(i, 0), n - 1) for i, n in zip(index, shape, strict=True))]

    pairs = pairs_of_neighbours(x.ndim, dilation)
    distances = torch.zeros(len(pairs), *shape, dtype=x.dtype)
    for k, (a, b) in enumerate(pairs):
        for place in itertools.product(*map(range, shape)):
            inside = [
                q for q in patch if all(0 <= p + o < n for p, o, n in zip(place, q, shape, strict=True))
            ]
            squares = [(at(place, q, a) - at(place, q, b)) ** 2 for q in inside]
            distances[(k, *place)] = sum(squares) / len(squares)
    excess = distances - distances.amin(0)
    noise = excess.mean(0)
    noise = noise.clamp(0.001 * noise.mean(), 1000 * noise.mean())
    return torch.exp(-excess / noise)


@pytest.mark.parametrize(
    ("shape", "radius", "dilation"), [((6, 7), 1, 1), ((5, 8), 2, 2), ((4, 3, 5), 1, 1), ((3, 4, 3), 1, 2)]
)
def test_it_compares_patches_around_neighbours(shape, radius, dilation):
    x, y = image(*shape), image(*shape, seed=1)
    expected = one_by_one(x, radius, dilation)
    result = self_similarity(x[None, None], radius=radius, dilation=dilation)[0, 0]
    # The order of the pairs is nobody's business.
    assert_close(result.sort(dim=0).values, expected.sort(dim=0).values)
    difference = (expected - one_by_one(y, radius, dilation)).square().mean()
    loss = mind_ssc(x[None, None], y[None, None], radius=radius, dilation=dilation)
    assert_close(loss, difference)


@pytest.mark.parametrize(("shape", "count"), [((5, 5), 4), ((5, 5, 5), 12)])
def test_there_are_twelve_pairs_in_3d_and_four_in_2d(shape, count):
    context = self_similarity(image(2, 3, *shape))
    assert context.shape == (2, 3, count, *shape)
    assert context.min() > 0 and context.max() == 1
    assert (context.amax(dim=2) == 1).all()


def test_it_compares_structure_where_no_function_relates_intensities():
    square = torch.zeros(1, 1, 24, 24, dtype=torch.float64)
    square[..., 8:16, 8:16] = 1
    noise = 0.01 * image(1, 1, 24, 24)
    other = (square - 0.3 * image(1, 1, 24, 24, seed=1).round()).abs() + noise
    assert mind_ssc(square + noise, other) < mind_ssc(square + noise, other.roll(4, dims=2))


def test_a_step_beyond_the_image_sees_its_edge():
    x = image(1, 1, 3, 4)
    assert_close(self_similarity(x, dilation=3), self_similarity(x, dilation=9))


@pytest.mark.usefixtures("as_users_see_it")
def test_wrong_inputs_say_what_is_needed():
    with pytest.raises(ValueError, match="2 or 3 spatial axes, and these have 1"):
        mind_ssc(image(1, 1, 9), image(1, 1, 9))
    with pytest.raises(ValueError, match="`radius` is 0; a whole number of voxels"):
        mind_ssc(image(1, 1, 9, 9), image(1, 1, 9, 9), radius=0)
    with pytest.raises(ValueError, match=r"`dilation` is 1\.5; a whole number of voxels"):
        mind_ssc(image(1, 1, 9, 9), image(1, 1, 9, 9), dilation=1.5)
