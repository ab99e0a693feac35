"""How regular maps are: inverse consistency in all its forms, and the regularisers it is compared with.

`(phi_AB, phi_BA, x) -> Scalar` for pairs of maps, at the points of `points_off_grid` or its neighbours, and
`(phi, image) -> Scalar` for `diffusion` and `bending_energy`. Lower is better; all lengths are in unit
coordinates, so that values do not depend on a resolution. Options are set with `functools.partial`.

Squared lengths sum over the N components, as the paper writes them. The published package takes their mean:
where its weight is lambda, the paper's and ours is lambda / N.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from roundtrip._shapes import Float, Image, Points, Scalar, Tensor
from roundtrip.maps.displacement import displacement_of
from roundtrip.maps.grid import along_channels, point_dtype, unit_grid, voxel_size
from roundtrip.maps.jacobian import central_difference, determinant
from roundtrip.maps.map import Map

Step = float | Sequence[float] | Float[Tensor, "N"]
"""A small length in unit coordinates, one for all axes or one per axis, such as `voxel_size(shape)`."""


def inverse_consistency(phi_AB: Map, phi_BA: Map, x: Points) -> Scalar:
    r"""How far the two round trips end from where they started.

    $E_x |\phi_{AB}(\phi_{BA}(x)) - x|^2 + E_x |\phi_{BA}(\phi_{AB}(x)) - x|^2$  -- ICON, Eqs. (13), (15)
    and (16), the latter at points from `points_off_grid`. The published package's is this divided by N.
    """
    return round_trip_error(phi_AB, phi_BA, x) + round_trip_error(phi_BA, phi_AB, x)


def round_trip_error(outer: Map, inner: Map, x: Points) -> Scalar:
    """Mean squared distance between x and outer(inner(x)): one direction of the above, Eq. (14)."""
    x = x.to(point_dtype(x))
    return _mean_squared_length(outer(inner(x)) - x)


def noisy_inverse_consistency(
    phi_AB: Map, phi_BA: Map, x: Points, *, epsilon: float, generator: torch.Generator | None = None
) -> Scalar:
    """As `inverse_consistency`, with white noise after every map -- ICON, Eq. (5).

    Its standard deviation is `epsilon` in unit coordinates along each axis, and it is new at every point: the
    two directions, which visit different points, see independent values.
    """
    noisy_AB = _Noisy(phi_AB, epsilon, generator)
    noisy_BA = _Noisy(phi_BA, epsilon, generator)
    return inverse_consistency(noisy_AB, noisy_BA, x)


def expected_inverse_consistency(
    phi_AB: Map, phi_BA: Map, x: Points, *, epsilon: float, step: Step
) -> Scalar:
    r"""What `noisy_inverse_consistency` is on average, without drawing noise -- ICON, Eq. (10).

    $L_{inv} + \epsilon^2 E_x [|d\phi_{AB}|^2 |\det d\phi_{AB}| + |d\phi_{BA}|^2 |\det d\phi_{BA}|]$, without
    the constant $2 N \epsilon^2$, which has no gradient. Right to second order in epsilon for maps that are
    inverse to each other up to about epsilon and keep the unit cube, on which x is uniform. The determinant
    comes from a change of variables: it counts by its magnitude, also where a map folds (the paper writes
    its square root). `step` is that of the derivatives, in unit coordinates.
    """
    gradients = _weighted_gradient(phi_AB, x, step) + _weighted_gradient(phi_BA, x, step)
    return inverse_consistency(phi_AB, phi_BA, x) + epsilon**2 * gradients


def gradicon(phi_AB: Map, phi_BA: Map, x: Points, *, step: float = 0.001) -> Scalar:
    r"""How far one round trip is from a mere translation, as GradICON's package computes it.

    $\sum_k E_x [((e(x) - e(x + h e_k)) / h)^2]$ with $e(x) = x - \phi_{AB}(\phi_{BA}(x))$ and h the `step`;
    one direction only. E is a mean over the N components too, unlike in `inverse_consistency`, because the
    weights published for it are of this form.
    """
    N, *layout = x.shape[1:]
    x = x.to(point_dtype(x))
    steps = torch.cat([x.new_zeros(N, 1), step * torch.eye(N, dtype=x.dtype, device=x.device)], dim=1)
    stencil = x[:, :, None] + steps.view(1, N, N + 1, *[1] * len(layout))
    error = phi_AB(phi_BA(stencil)) - stencil
    return ((error[:, :, 1:] - error[:, :, :1]) / step).square().sum(dim=2).mean()


def diffusion(phi: Map, image: Image) -> Scalar:
    """Mean squared gradient of the displacement on the grid of `image`; a translation costs nothing.

    By differences of neighbouring voxels, the squares summed over components and axes.
    """
    displacement = displacement_of(phi, image)
    return _total(_derivatives(displacement, image), displacement)


def bending_energy(phi: Map, image: Image) -> Scalar:
    """Mean squared second derivatives of the displacement on the grid of `image`; affine maps cost nothing.

    By differences of neighbouring voxels, the squares summed over components and pairs of axes, each mixed
    derivative twice -- as in Rueckert et al., IEEE TMI 1999.
    """
    displacement = displacement_of(phi, image)
    first = _derivatives(displacement, image)
    return _total([second for one in first for second in _derivatives(one, image)], displacement)


def points_off_grid(image: Image, generator: torch.Generator | None = None) -> Float[Tensor, "B N *S"]:
    """Every voxel of `image`, moved by normal noise of one voxel along each axis -- ICON, Eq. (16).

    A draw of its own for every element of the batch: (B, N, *S).
    """
    grid = unit_grid(image.shape[2:], like=image)
    noise = _normal(grid.expand(len(image), *grid.shape[1:]), generator)
    return grid + along_channels(voxel_size(image.shape[2:], like=image), grid) * noise


def points_on_grid(image: Image, generator: torch.Generator | None = None) -> Float[Tensor, "1 N *S"]:
    """The voxels of `image` themselves, for the whole batch: (1, N, *S); nothing is drawn.

    To show what goes wrong: maps may swap voxels between which nobody looks -- ICON, Figs. 2 and 3.
    """
    return unit_grid(image.shape[2:], like=image)


def points_as_published(image: Image, generator: torch.Generator | None = None) -> Float[Tensor, "1 N *S"]:
    """The voxels of `image` moved as the published package does it, for the whole batch: (1, N, *S).

    The noise is 1 / (voxels along the last axis) along all axes, and one draw serves all elements of a batch.
    """
    grid = unit_grid(image.shape[2:], like=image)
    return grid + _normal(grid, generator) / image.shape[-1]


def _mean_squared_length(vectors: Float[Tensor, "B N *P"]) -> Scalar:
    return vectors.square().sum(dim=1).mean()


def _weighted_gradient(phi: Map, x: Points, step: Step) -> Scalar:
    r"""$E |d\phi|^2 |\det d\phi|$."""
    derivative = central_difference(phi, x, step)
    return (derivative.square().sum(dim=(1, 2))[:, None] * determinant(derivative).abs()).mean()


def _derivatives(values: Tensor, image: Tensor) -> list[Tensor]:
    """The differences along every axis on which there are any, per unit of length of the grid of `image`."""
    steps = enumerate(image.shape[2:], start=2)
    return [values.diff(dim=axis) * (n - 1) for axis, n in steps if values.shape[axis] > 1]


def _total(derivatives: list[Tensor], like: Tensor) -> Scalar:
    """The mean squared lengths of all, which may be known at different voxels, added; 0 of none."""
    return sum((_mean_squared_length(field) for field in derivatives), start=like.new_zeros(()))


@dataclass(frozen=True)
class _Noisy:
    """phi(x) + epsilon n, with n new at every point and every call."""

    phi: Map
    epsilon: float
    generator: torch.Generator | None

    def __call__(self, x: Points) -> Points:
        y = self.phi(x)
        return y + self.epsilon * _normal(y, self.generator)


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)
