"""Derivatives of maps: Jacobian matrices of any map, three ways, and their determinants.

`jacobian` is exact, `central_difference` needs no gradients, `grid_jacobian` takes a map that was already
evaluated on its grid. All are of unit coordinates; `physical_jacobian` turns them into millimetres.
`folds.py` counts where the determinant says that a map folds.
"""

from collections.abc import Sequence

import torch

from roundtrip._checks import require_points, shape_of
from roundtrip._shapes import Float, Matrices, Tensor
from roundtrip.maps.grid import along_channels, point_dtype
from roundtrip.maps.map import Map

Frame = Float[Tensor, "N N"]
"""Linear part of world-from-unit: column j leads from the first to the last voxel centre of axis j."""


def jacobian(phi: Map, x: Float[Tensor, "#B N *P"], *, create_graph: bool = False) -> Matrices:
    """Entry (i, j) is the derivative of component i of `phi` along axis j, by automatic differentiation.

    Exact. Works under `torch.no_grad()` too; with `create_graph` the result can itself be differentiated.
    A map that is stored on a grid has kinks at its voxels: exactly there this is the derivative on the side
    of the higher index, and at the border that of the outside, where the displacement is constant.
    """
    _dims_of(x)

    def tracked(x: Tensor) -> Tensor:
        return x if create_graph and x.requires_grad else x.detach().requires_grad_()

    with torch.enable_grad():
        x = tracked(x)
        moved = phi(x)
        if moved.shape[0] != x.shape[0]:
            # One set of points under several maps: the gradients of a shared set would be summed over them.
            x = tracked(x.expand(moved.shape[0], *x.shape[1:]))
            moved = phi(x)
        rows = [
            # Each point moves on its own, so that one gradient of the sum is the row of every point.
            _gradient(component.sum(), x, create_graph=create_graph, phi=phi)
            for component in moved.unbind(1)
        ]
    return torch.stack(rows, dim=1)


def central_difference(
    phi: Map, x: Float[Tensor, "#B N *P"], step: float | Sequence[float] | Float[Tensor, "N"]
) -> Matrices:
    """(phi(x + step e_j) - phi(x - step e_j)) / (2 step) in column j.

    `step` is in unit coordinates, one number or one per axis, such as `voxel_size(shape, like=x)`. The result
    is second-order accurate in it.
    """
    N, x = _dims_of(x), x.to(point_dtype(x))
    steps = torch.as_tensor(step, dtype=x.dtype, device=x.device)
    if steps.shape not in ((), (N,)):
        raise ValueError(
            f"`step` has shape {shape_of(steps)}; points of {N} dimensions need one number, or {N}: one per "
            "axis, such as `voxel_size(image.shape[2:])`."
        )
    columns = []
    for axis, size in enumerate(steps.expand(N)):
        offset = along_channels(size * torch.eye(N, dtype=x.dtype, device=x.device)[axis], x)
        columns.append((phi(x + offset) - phi(x - offset)) / (2 * size))
    return torch.stack(columns, dim=2)


def grid_jacobian(points_on_grid: Float[Tensor, "B N *S"]) -> Float[Tensor, "B N N *S"]:
    """The Jacobian at every voxel of a map that was evaluated on a grid, e.g. by `on_grid_of(phi, image)`.

    Central differences over two voxels, one-sided at the border; second-order accurate, first at the border.
    Along an axis of one voxel nothing is known, and the map is taken to keep its points' coordinate there:
    the column is that of the identity.
    """
    points = checked_points(points_on_grid)
    columns = []
    for axis, n in enumerate(points.shape[2:]):
        if n > 1:
            columns.append(torch.gradient(points, spacing=1 / (n - 1), dim=axis + 2)[0])
        else:
            columns.append(unit_vector(axis, points).expand_as(points))
    return torch.stack(columns, dim=2)


def physical_jacobian(matrices: Matrices, fixed_frame: Frame, moving_frame: Frame) -> Matrices:
    """M_moving J M_fixed^-1: the Jacobian of the same map between two worlds, e.g. in millimetres.

    A frame is the linear part of world-from-unit. Points of the fixed world go to points of the moving one,
    so the fixed frame is the one that is inverted. Give an axis of one voxel any column that leads out of
    the others' plane, e.g. the slice thickness along its normal.
    """
    require_frame(fixed_frame, matrices.shape[1], "fixed_frame")
    require_frame(moving_frame, matrices.shape[1], "moving_frame")
    unit_from_fixed = torch.linalg.inv(fixed_frame.to(matrices))
    # Autocast would make the products in bfloat16.
    with torch.autocast(matrices.device.type, enabled=False):
        return torch.einsum("ik,bkl...,lj->bij...", moving_frame.to(matrices), matrices, unit_from_fixed)


def determinant(matrices: Matrices) -> Float[Tensor, "B 1 *P"]:
    """The factor by which volumes grow; negative where orientation is reversed."""
    if matrices.ndim < 3 or matrices.shape[1] != matrices.shape[2]:
        raise ValueError(
            f"`matrices` has shape {shape_of(matrices)}; one square matrix per point is needed, "
            "(batch, N, N, *layout), such as `jacobian(phi, x)` gives."
        )
    return determinant_of_rows(matrices.unbind(1))[:, None]


def determinant_of_rows(rows: Sequence[Float[Tensor, "B N *P"]]) -> Float[Tensor, "B *P"]:
    """The determinant of the matrices that have these N rows (or columns), without stacking them."""
    return _expanded([list(row.unbind(1)) for row in rows])


def require_frame(frame: Tensor, dims: int, name: str) -> None:
    """`frame` is an invertible matrix of `dims` dimensions."""
    if frame.shape != (dims, dims) or not torch.linalg.det(frame.double()).abs() > 0:
        raise ValueError(
            f"`{name}` is {frame.tolist()}, but an invertible {dims} x {dims} matrix is needed: the "
            "linear part of world-from-unit. An axis of one voxel has no length of its own: put the slice "
            "thickness times its normal into that column."
        )


def checked_points(points_on_grid: Tensor) -> Float[Tensor, "B N *S"]:
    """The points of a map on a grid, in at least float32."""
    require_points(points_on_grid, points_on_grid.ndim - 2, "points_on_grid")
    return points_on_grid.to(point_dtype(points_on_grid))


def unit_vector(axis: int, points: Tensor) -> Tensor:
    """e_axis, shaped to be added to `points`."""
    return along_channels(torch.eye(points.shape[1], dtype=points.dtype, device=points.device)[axis], points)


def _gradient(total: Tensor, x: Tensor, *, create_graph: bool, phi: Map) -> Tensor:
    grad = None
    if total.requires_grad:
        (grad,) = torch.autograd.grad(
            total, x, create_graph=create_graph, retain_graph=True, allow_unused=True
        )
    if grad is None:
        raise ValueError(
            f"the points that {phi!r} returns cannot be differentiated with respect to those it was given. "
            "Use `central_difference(phi, x, step)`, or remove `no_grad`, `detach` or rounding from the map."
        )
    return grad


def _dims_of(x: Tensor) -> int:
    N = x.shape[1] if x.ndim > 1 else 1
    require_points(x, N)
    return N


def _expanded(rows: list[list[Tensor]]) -> Tensor:
    """Laplace's expansion along the last row: for matrices this small, far faster than a factorisation."""
    *others, last = rows
    if not others:
        return last[0]
    N, total = len(last), None
    # Beginning where the sign is positive saves a negation.
    for k, j in enumerate(range(N) if N % 2 else reversed(range(N))):
        term = last[j] * _expanded([row[:j] + row[j + 1 :] for row in others])
        total = term if total is None else (total - term if k % 2 else total + term)
    assert total is not None
    return total
