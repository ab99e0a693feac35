"""What composing costs, and how little a map needs to be one; what all maps share is in `contracts/`."""

import copy

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps import displacement
from roundtrip.maps.displacement import DisplacementMap, displacement_of, sampled
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import interpolate_nearest, interpolate_or_zero, warp
from roundtrip.maps.map import AbstractMap, Composition, Identity, on_grid_of

GRID = (4, 5, 3)


def field(batch, seed=0, shape=GRID):
    generator = torch.Generator().manual_seed(seed)
    return 0.1 * torch.randn(batch, len(shape), *shape, generator=generator, dtype=torch.float64)


def image(batch=1, shape=GRID):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(batch, 2, *shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def interpolations(monkeypatch):
    """A list that grows with every interpolation that a displacement map asks for."""
    calls, original = [], displacement.interpolate

    def counted(values, at):
        calls.append(at.shape)
        return original(values, at)

    monkeypatch.setattr(displacement, "interpolate", counted)
    return calls


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("batch_of_image", [1, 3])
def test_a_map_on_its_own_grid_costs_no_interpolation(interpolations, batch, batch_of_image):
    phi = DisplacementMap(field(batch))
    phi.on_grid_of(image(batch_of_image))
    on_grid_of(phi, image(batch_of_image))
    displacement_of(phi, image(batch_of_image))
    sampled(phi, image(batch_of_image))
    assert interpolations == []


def test_elsewhere_it_costs_one(interpolations):
    phi = DisplacementMap(field(1))
    phi.on_grid_of(torch.zeros(1, 1, 4, 5, 4))
    phi(unit_grid(GRID).double())
    assert len(interpolations) == 2


@pytest.mark.parametrize("batch", [1, 3])
def test_composed_maps_cost_one_interpolation_less_than_they_are(interpolations, batch):
    first, second, third = (DisplacementMap(field(batch, seed)) for seed in range(3))
    (first @ second @ third).on_grid_of(image())
    assert len(interpolations) == 2
    (first @ (second @ third)).on_grid_of(image())
    assert len(interpolations) == 4


def test_warping_an_image_on_the_grid_of_its_map_samples_only_the_image(interpolations):
    warp(image(3), DisplacementMap(field(3)))
    assert interpolations == []


def test_what_a_sampled_map_stores_is_where_it_goes():
    phi = DisplacementMap(field(2)) @ DisplacementMap(field(2, seed=1))
    stored = sampled(phi, image())
    assert_close(stored.displacement, displacement_of(phi, image()))
    assert_close(stored.on_grid_of(image()), phi.on_grid_of(image()))


def test_any_function_is_a_map():
    def swap(x):
        return x.flip(1)

    grid = unit_grid((3, 4), like=torch.zeros(1, dtype=torch.float64))
    assert_close(on_grid_of(swap, torch.zeros(1, 1, 3, 4, dtype=torch.float64)), grid.flip(1))
    assert isinstance(Identity() @ swap, Composition) and isinstance(swap @ Identity(), Composition)
    assert repr(Identity() @ swap).startswith("Composition(outer=Identity(), inner=<function")


def test_warping_by_the_identity_gives_the_image_back():
    assert_close(warp(image(2), Identity()), image(2))


def test_warping_reads_the_moving_image_where_the_map_sends_the_fixed_grid():
    # A shift by one voxel towards higher indices: every voxel sees its upper neighbour.
    moving = image(2)
    shift = torch.zeros(1, 3, *GRID, dtype=torch.float64)
    shift[:, 1] = 1 / (GRID[1] - 1)
    warped = warp(moving, DisplacementMap(shift))
    assert_close(warped[:, :, :, :-1], moving[:, :, :, 1:])
    assert_close(warped[:, :, :, -1], moving[:, :, :, -1])
    zeros = warp(moving, DisplacementMap(shift), interpolation=interpolate_or_zero)
    assert_close(zeros[:, :, :, -1], torch.zeros_like(moving[:, :, :, -1]), rtol=0, atol=1e-14)


def test_warping_onto_another_grid():
    other = torch.zeros(1, 1, 2, 3, 5, dtype=torch.float64)
    warped = warp(image(), Identity(), like=other)
    assert warped.shape == (1, 2, 2, 3, 5)
    assert_close(warped[..., 0, 0, 0], image()[..., 0, 0, 0])
    assert_close(warped[..., -1, -1, -1], image()[..., -1, -1, -1])


def test_labels_keep_their_type():
    labels = torch.arange(60).view(1, 1, *GRID)
    assert_close(warp(labels, Identity(), interpolation=interpolate_nearest), labels)


def test_the_abstract_map_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        AbstractMap()


def test_what_is_no_function_is_no_map(as_users_see_it):
    displacement = torch.zeros(1, 2, 4, 5)
    for mistake in (
        lambda: Identity() @ displacement,
        lambda: Composition(3, Identity()),
        lambda: warp(displacement, displacement),
    ):
        with pytest.raises(ValueError, match=r"function of points.*DisplacementMap"):
            mistake()


def test_maps_that_a_network_computed_are_copied():
    weight = torch.zeros(1, 2, 4, 5, requires_grad=True)
    phi = DisplacementMap(2 * weight) @ Identity()
    again, x = copy.deepcopy(phi), torch.rand(1, 2, 7)
    assert again.outer.displacement is not phi.outer.displacement and again(x).equal(phi(x))
