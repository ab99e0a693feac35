"""Where a pair is computed: what is shown stays where it is, what shows nothing is left out."""

import math

import pytest
import torch

from roundtrip.pairwise.domain import BYTES_PER_VOXEL, domain_of, free_memory
from roundtrip.space.volume import Volume

PLACE = torch.tensor([[0, -1.2, 0, 5], [1.0, 0, 0, -7], [0, 0, 2.0, 3], [0, 0, 0, 1]], dtype=torch.float64)


def spot(shape=(60, 70, 50), at=(30, 20, 25), background=0.0):
    data = torch.full((1, *shape), background)
    data[(0, *(slice(k - 3, k + 4) for k in at))] = 1.0
    return Volume(data, PLACE)


def test_what_shows_nothing_is_left_out_and_the_rest_stays_where_it_is():
    fixed = spot(background=-2.0)
    domain = domain_of(fixed, spot(at=(35, 25, 20), background=-2.0))
    assert math.prod(domain.grid.shape) < 0.3 * math.prod(fixed.shape) and domain.notes == ()
    cut = domain.of(fixed)
    assert (cut.data == 1).sum() == 7**3
    first = torch.tensor([*domain.first, 1], dtype=torch.float64)
    assert (domain.grid.world_from_voxel[:, 3]).allclose(PLACE @ first)
    assert cut.data[0, 30 - domain.first[0], 20 - domain.first[1], 25 - domain.first[2]] == 1


def test_an_image_without_a_background_is_kept_whole():
    noise = Volume(torch.rand(1, 60, 70, 50, generator=torch.Generator().manual_seed(0)), PLACE)
    assert domain_of(spot(), noise).grid.same_as(spot().grid)


@pytest.mark.parametrize("share", [1, 8, 64])
def test_what_does_not_fit_into_memory_is_computed_coarser_and_that_is_said(share):
    noise = Volume(torch.rand(1, 60, 70, 50, generator=torch.Generator().manual_seed(0)), PLACE)
    memory = int(math.prod(noise.shape) * BYTES_PER_VOXEL / share)
    domain = domain_of(noise, noise, memory=memory)
    assert math.prod(domain.grid.shape) * BYTES_PER_VOXEL < 0.8 * memory
    assert domain.first is None and "GB are free" in domain.notes[0]
    assert domain.of(noise).grid.same_as(domain.grid)


def test_free_memory_is_that_of_a_computer():
    assert 2**24 < free_memory() < 2**50
