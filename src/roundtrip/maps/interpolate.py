"""Sampling, owned here and nowhere else: values on a grid, read at any points between its voxels.

Four functions `(values, at) -> values there`, which stand for each other wherever an `interpolation` is
asked for: `interpolate` (linear, the paper's), `interpolate_or_zero`, `interpolate_nearest` (labels),
`interpolate_cubic` (B-spline). `warp` applies one to an image under a map. The fast volumetric kernel lives
in `_volume_kernel.py`; how points are numbered in `grid.py`.
"""

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from roundtrip._checks import require_broadcastable_batch, require_points
from roundtrip._shapes import Float, Shaped, Tensor
from roundtrip.maps.grid import along_channels, point_dtype, unit_from_voxel, voxel_from_unit
from roundtrip.maps.map import Map, on_grid_of

Interpolation = Callable[[Tensor, Tensor], Tensor]


def warp(
    image: Shaped[Tensor, "B C *S"],
    phi: Map,
    *,
    like: Tensor | None = None,
    interpolation: Interpolation | None = None,
) -> Tensor:
    """image(phi(x)) at every voxel x of its own grid, or of the grid of `like`.

    With phi from (moving, fixed) this lays the moving image onto the fixed one. `interpolation` is one of
    this file's functions; linear unless given.
    """
    return (interpolation or interpolate)(image, on_grid_of(phi, image if like is None else like))


def interpolate(values: Float[Tensor, "#B C *S"], at: Float[Tensor, "#B N *P"]) -> Float[Tensor, "b C *P"]:
    """Linear interpolation; a point outside the image sees the nearest edge.

    Differentiable in both arguments, twice if asked.
    """
    _require_samplable(values, at)
    dtype = torch.promote_types(point_dtype(values), at.dtype)
    values, at = values.to(dtype), at.to(dtype)
    on_cpu = values.device.type == "cpu" and not torch.compiler.is_compiling()
    if values.ndim == 5 and on_cpu and at.numel():
        # torch's own volumetric sampler is slow on a CPU; its planar one is not, nor are its GPU kernels.
        from roundtrip.maps._volume_kernel import sample_volume

        return sample_volume(values, at)
    return _grid_sample(values, at)


def interpolate_or_zero(
    values: Float[Tensor, "#B C *S"], at: Float[Tensor, "#B N *P"]
) -> Float[Tensor, "b C *P"]:
    """Linear interpolation of an image that continues as zeros: it falls to 0 within one voxel."""
    _require_samplable(values, at)
    shape = values.shape[2:]
    padded = F.pad(values, [1, 1] * len(shape))
    at = at.to(torch.promote_types(point_dtype(values), at.dtype))
    # On an axis of one voxel every point is at index 0: it has no outside here, as everywhere else.
    return interpolate(padded, unit_from_voxel(voxel_from_unit(at, shape) + 1, padded.shape[2:]))


def interpolate_nearest(
    values: Shaped[Tensor, "#B C *S"], at: Float[Tensor, "#B N *P"]
) -> Shaped[Tensor, "b C *P"]:
    """The value of the nearest voxel, for labels of any dtype. Halfway is rounded up, as in ITK."""
    _require_samplable(values, at)
    voxel = _clamped(voxel_from_unit(at.to(point_dtype(at)), values.shape[2:]), values.shape[2:])
    return _gather(values, (voxel + 0.5).floor().long())


def interpolate_cubic(
    values: Float[Tensor, "#B C *S"], at: Float[Tensor, "#B N *P"]
) -> Float[Tensor, "b C *P"]:
    """Cubic B-spline interpolation through the voxels; a point outside sees the nearest edge.

    The image is mirrored at its border voxels, as in scipy's `mode="mirror"` and ITK's B-spline interpolator.
    """
    _require_samplable(values, at)
    dtype = torch.promote_types(point_dtype(values), at.dtype)
    coefficients, shape = values.to(dtype).contiguous(), values.shape[2:]
    for axis, n in enumerate(shape, start=2):
        if n > 1:
            solve = torch.linalg.inv(_spline_at_voxels(n, coefficients))
            # Autocast would make the product in bfloat16.
            with torch.autocast(solve.device.type, enabled=False):
                coefficients = (coefficients.movedim(axis, -1) @ solve.mT).movedim(-1, axis)

    voxel = _clamped(voxel_from_unit(at.to(dtype), shape), shape)
    base = voxel.detach().floor()
    weights = _cubic_weights(voxel - base)
    total: Tensor | float = 0.0
    for taps in itertools.product(range(4), repeat=len(shape)):
        index = [_mirrored(base[:, d].long() + tap - 1, shape[d]) for d, tap in enumerate(taps)]
        weight = torch.stack([weights[tap][:, d] for d, tap in enumerate(taps)]).prod(dim=0)
        total = total + weight[:, None] * _gather(coefficients, torch.stack(index, dim=1))
    assert isinstance(total, Tensor)
    return total


def interpolate_by_gathering(values: Tensor, at: Tensor) -> Tensor:
    """`interpolate`, written out corner by corner: slow, obvious, differentiable as often as one likes."""
    shape = values.shape[2:]
    voxel = _clamped(voxel_from_unit(at, shape), shape)
    # At the last voxel the fraction is 0, and the voxel after it, which counts nothing, is itself.
    base = voxel.detach().floor()
    fraction = voxel - base
    total: Tensor | float = 0.0
    for corner in itertools.product((0, 1), repeat=len(shape)):
        step = along_channels(at.new_tensor(corner), at)
        weight = torch.where(step > 0, fraction, 1 - fraction).prod(dim=1, keepdim=True)
        total = total + weight * _gather(values, (base + step).long())
    assert isinstance(total, Tensor)
    return total


def _require_samplable(values: Tensor, at: Tensor) -> None:
    require_points(at, values.ndim - 2, "at")
    require_broadcastable_batch(values, at)


def _grid_sample(values: Tensor, at: Tensor) -> Tensor:
    batch, N, *layout = max(values.shape[0], at.shape[0]), *at.shape[1:]
    if N == 1:
        # grid_sample knows planes and volumes: a line is a plane of width one.
        values, at, N = values[..., None], torch.cat([at, torch.zeros_like(at)], dim=1), 2
    values, at = values.expand(batch, *values.shape[1:]), at.expand(batch, *at.shape[1:])
    # grid_sample counts in [-1, 1], wants the coordinate last, and names the fastest axis first.
    # Nothing outside this function knows that.
    query = (2 * at - 1).reshape(batch, N, -1).mT.flip(-1).reshape(batch, -1, *[1] * (N - 1), N)
    sampled = F.grid_sample(values, query, padding_mode="border", align_corners=True)
    return sampled.reshape(batch, values.shape[1], *layout)


def _clamped(voxel: Tensor, shape: Sequence[int]) -> Tensor:
    """Voxel indices, brought to the grid. No gradient passes where they were not strictly inside it."""
    last = along_channels(voxel.new_tensor([n - 1 for n in shape]), voxel)
    nearest = voxel.detach().clamp(min=torch.zeros_like(last), max=last)
    return torch.where((voxel > 0) & (voxel < last), voxel, nearest)


def _gather(values: Tensor, index: Tensor) -> Tensor:
    """values[b, c, index...] for index `(B, N, *P)`, clamped to the grid."""
    batch, shape = max(values.shape[0], index.shape[0]), values.shape[2:]
    flat = torch.zeros_like(index[:, 0])
    for d, n in enumerate(shape):
        flat = flat * n + index[:, d].clamp(0, n - 1)
    columns = flat.reshape(flat.shape[0], 1, -1).expand(batch, values.shape[1], -1)
    picked = values.reshape(*values.shape[:2], -1).expand(batch, -1, -1).gather(2, columns)
    return picked.reshape(batch, values.shape[1], *index.shape[2:])


def _cubic_weights(t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The cubic B-spline's weights of the voxels at -1, 0, 1 and 2, for a point at 0 <= t <= 1."""
    s = 1 - t
    return s**3 / 6, 2 / 3 - t**2 + t**3 / 2, 2 / 3 - s**2 + s**3 / 2, t**3 / 6


def _mirrored(index: Tensor, n: int) -> Tensor:
    """Indices just outside [0, n) reflected at the border voxels."""
    if n == 1:
        return torch.zeros_like(index)
    period = 2 * (n - 1)
    index = index.remainder(period)
    return torch.minimum(index, period - index)


def _spline_at_voxels(n: int, like: Tensor) -> Tensor:
    """The matrix that takes spline coefficients to values at the n voxels of a mirrored axis."""
    matrix = torch.eye(n, dtype=like.dtype, device=like.device) * (2 / 3)
    for row in range(n):
        for neighbour in (row - 1, row + 1):
            column = neighbour if 0 <= neighbour < n else 2 * row - neighbour
            matrix[row, column] += 1 / 6
    return matrix
