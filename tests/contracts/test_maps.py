"""What every map promises, whatever it is made of: adding a map is adding one line to `MAPS`."""

import dataclasses
import math

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap, sampled
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.inverse import inverse_at, invert
from roundtrip.maps.jacobian import central_difference, jacobian
from roundtrip.maps.map import Composition, Identity, on_grid_of
from roundtrip.maps.velocity import exponential

BATCH = 3


def shape(N):
    return (6, 5, 4)[:N]


def image(N, dtype=torch.float64):
    return torch.zeros(BATCH, 1, *shape(N), dtype=dtype)


def field(N, seed=0):
    """Displacements that differ between the elements of a batch and fold nowhere."""
    waves = torch.rand(BATCH, N, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    phase = torch.einsum(
        "bij,bj...->bi...", 4 * waves, unit_grid(shape(N), like=waves).expand(BATCH, -1, *shape(N))
    )
    return 0.05 * torch.sin(phase + waves[..., 0].view(BATCH, N, *[1] * N))


def affine(N):
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(BATCH, N, N + 1, generator=generator, dtype=torch.float64)
    return AffineMap(torch.eye(N, dtype=torch.float64) + 0.3 * noise[..., :N], noise[..., N])


def shear(x):
    """A map that is only a function: exactly invertible, and none of our objects."""
    return torch.cat([x[:, :1] + 0.2 * x[:, -1:].cos() * (x.shape[1] > 1), x[:, 1:]], dim=1)


MAPS = {
    "Identity": lambda N: Identity(),
    "AffineMap": affine,
    "DisplacementMap": lambda N: DisplacementMap(field(N)),
    "Composition": lambda N: Composition(affine(N), DisplacementMap(field(N))),
    "Composition of three": lambda N: DisplacementMap(field(N)) @ affine(N) @ exponential(field(N, seed=2)),
    "Composition with a function": lambda N: Composition(shear, DisplacementMap(field(N))),
    "exponential": lambda N: exponential(field(N)),
    "sampled": lambda N: sampled(affine(N), image(N)),
    "invert": lambda N: invert(DisplacementMap(field(N)), like=image(N)).map,
}


@pytest.fixture(params=(1, 2, 3), ids=lambda N: f"{N}D")
def N(request):
    return request.param


@pytest.fixture(params=MAPS.values(), ids=MAPS.keys())
def phi(request, N):
    return request.param(N)


def points(N, layout=(7,), batch=BATCH):
    """In the image and a little around it."""
    generator = torch.Generator().manual_seed(3)
    return 1.4 * torch.rand(batch, N, *layout, generator=generator, dtype=torch.float64) - 0.2


def test_batch_elements_do_not_mix(phi, N):
    x = points(N)
    alone = [phi[b : b + 1](x[b : b + 1]) for b in range(BATCH)]
    assert_close(phi(x), torch.cat(alone), rtol=0, atol=1e-14)


def test_one_set_of_points_serves_every_map_of_a_batch(phi, N):
    x = points(N, batch=1)
    expected = phi(x.expand(BATCH, -1, -1))
    assert_close(phi(x).expand_as(expected), expected)


def test_one_map_serves_every_set_of_points(phi, N):
    x = points(N)
    assert_close(phi[:1](x), torch.cat([phi[:1](one) for one in x.split(1)]))


@pytest.mark.parametrize("layout", [(), (0,), (3, 4), (2, 1, 2, 3)], ids=str)
def test_points_may_have_any_layout(phi, N, layout):
    x = points(N, layout)
    assert phi(x).shape == x.shape
    in_a_row = (BATCH, N, math.prod(layout))
    assert_close(phi(x).reshape(in_a_row), phi(x.reshape(in_a_row)))


def test_points_need_not_lie_in_order_in_memory(phi, N):
    x = points(N, (4, 5))
    assert_close(phi(x.mT), phi(x).mT)
    assert_close(phi(x.flip(-1)), phi(x).flip(-1))
    # One point seen many times, with a stride of zero.
    assert_close(phi(x[..., :1].expand(-1, -1, -1, 5)), phi(x[..., :1].repeat(1, 1, 1, 5)))


def test_composition_is_composition(phi, N):
    x = points(N)
    assert_close((phi @ phi)(x), phi(phi(x)), rtol=0, atol=0)


def test_composition_is_associative(phi, N):
    x, psi, chi = points(N), affine(N), DisplacementMap(field(N, seed=4))
    assert_close(((phi @ psi) @ chi)(x), (phi @ (psi @ chi))(x), rtol=0, atol=0)


def test_any_function_composes_from_both_sides(phi, N):
    x = points(N)
    assert isinstance(phi @ shear, Composition) and isinstance(shear @ phi, Composition)
    assert_close((phi @ shear)(x), phi(shear(x)), rtol=0, atol=0)
    assert_close((shear @ phi)(x), shear(phi(x)), rtol=0, atol=0)


def test_on_its_own_grid_a_map_gives_what_it_gives_anywhere(phi, N):
    expected = phi(unit_grid(shape(N), like=image(N)))
    assert_close(on_grid_of(phi, image(N)), expected, rtol=0, atol=1e-14)
    assert_close(phi.on_grid_of(image(N)[:1]), expected, rtol=0, atol=1e-14)


def test_on_another_grid_too(phi, N):
    other = torch.zeros(2, 4, *(9, 7, 3)[:N], dtype=torch.float64)
    assert_close(on_grid_of(phi, other), phi(unit_grid(other.shape[2:], like=other)), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_to_changes_the_precision(phi, N, dtype):
    x = points(N)
    moved = phi.to(dtype)(x.to(dtype))
    assert moved.dtype == dtype
    assert_close(moved.double(), phi(x), rtol=0, atol=1e-14 if dtype == torch.float64 else 2e-6)


def test_autocast_changes_nothing(phi, N):
    x, single = points(N).float(), phi.to(torch.float32)
    expected = single(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(single(x), expected, rtol=0, atol=0)


def test_to_leaves_the_map_itself_as_it_was(phi, N):
    before = phi(points(N))
    phi.to(torch.float32)
    assert_close(phi(points(N)), before, rtol=0, atol=0)


def test_a_slice_of_the_batch_are_the_maps_of_that_slice(phi, N):
    x = points(N)
    assert type(phi[1:]) is type(phi)
    assert_close(phi[1:](x[1:]), phi(x)[1:], rtol=0, atol=1e-14)


def test_only_slices_select_from_the_batch(phi, as_users_see_it):
    with pytest.raises(ValueError, match=r"give a slice, e.g. phi\[0:1\]"):
        phi[0]


def test_detach_cuts_the_graph(phi, N):
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    scaled = with_tensors(phi, lambda tensor: weight * tensor)
    x = points(N)
    assert_close(scaled.detach()(x), phi(x))
    assert not scaled.detach()(x).requires_grad
    if not isinstance(phi, Identity):
        assert scaled(x).requires_grad


def with_tensors(phi, change):
    """`phi` with every tensor changed, those of its parts included."""

    def changed(value):
        if isinstance(value, torch.Tensor):
            return change(value)
        return with_tensors(value, change) if dataclasses.is_dataclass(value) else value

    fields = {f.name: changed(getattr(phi, f.name)) for f in dataclasses.fields(phi)}
    return dataclasses.replace(phi, **fields)


def test_it_prints_on_one_line_what_it_is_made_of(phi, N):
    printed = repr(phi)
    assert printed.startswith(type(phi).__name__ + "(") and "\n" not in printed
    assert "tensor(" not in printed
    if isinstance(phi, DisplacementMap):
        assert f"<{'x'.join(map(str, (BATCH, N, *shape(N))))} float64 on cpu>" in printed


def test_it_cannot_be_changed(phi):
    with pytest.raises(dataclasses.FrozenInstanceError):
        phi.displacement = None


def test_gradients_reach_the_points(phi, N):
    x = points(N, (2,)).requires_grad_()
    assert torch.autograd.gradcheck(phi, (x,))


def test_its_exact_jacobian_is_the_limit_of_differences(phi, N):
    x = points(N)
    assert_close(central_difference(phi, x, 1e-6), jacobian(phi, x), rtol=0, atol=1e-8)


def test_it_can_be_inverted(phi, N):
    # Targets come from inside: for a `sampled` map the outside is not invertible, only continued.
    x = points(N).clamp(0, 1)
    found = inverse_at(phi, phi(x), tolerance=1e-12)
    assert found.converged.tolist() == [1.0] * BATCH
    assert_close(phi(found.points), phi(x), rtol=0, atol=1e-12 * math.sqrt(N))


def test_points_of_another_dimension_are_refused(phi, N, as_users_see_it):
    if isinstance(phi, Identity):
        pytest.skip("the identity takes points of any dimension")
    with pytest.raises(ValueError, match=f"points of {N} dimensions are needed"):
        phi(torch.zeros(BATCH, N + 1, 5, dtype=torch.float64))


def test_another_batch_is_refused(phi, N, as_users_see_it):
    if isinstance(phi, Identity):
        pytest.skip("the identity has no batch of its own")
    with pytest.raises(ValueError, match="a batch of 3 is evaluated at a batch of 2"):
        phi(torch.zeros(2, N, 5, dtype=torch.float64))
