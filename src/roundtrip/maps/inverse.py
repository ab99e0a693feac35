"""The inverse of any map, found numerically, with a report of how far it misses.

`inverse_at` finds single points, `invert` a whole map on a grid, `residual` judges any inverse. Neighbours:
`affine.py`, whose maps have an inverse of their own, and `velocity.py`, whose flows run backwards.
"""

from dataclasses import dataclass

import torch

from roundtrip._checks import require_points
from roundtrip._shapes import Float, Matrices, Points, Tensor
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import point_dtype, unit_grid
from roundtrip.maps.jacobian import central_difference, determinant_of_rows
from roundtrip.maps.map import Composition, Map

# How often a Newton step that leads away from the target is halved before it is given up.
_HALVINGS = 6

# Of so many points of the image, the one that lies best is where a search that got stuck begins again.
_SECOND_STARTS = 729

_Columns = Float[Tensor, "#B N P"]


@dataclass(frozen=True, eq=False)
class InversePoints:
    """Where a map takes given points from: phi(points) ~ x."""

    points: Points
    residual: Float[Tensor, "B 1 *P"]
    """|phi(points) - x| in unit coordinates; infinite where phi is not finite."""
    converged: Float[Tensor, "B"]
    """The fraction of points whose residual is within the tolerance."""
    iterations: int
    """Of the search, without those that found the inverse of the parts of a composition."""


@dataclass(frozen=True, eq=False)
class Inversion:
    """The inverse of a map, stored on a grid."""

    map: DisplacementMap
    residual: Float[Tensor, "B 1 *S"]
    """|phi(map(x)) - x| at every voxel x, in unit coordinates; infinite where phi is not finite."""
    converged: Float[Tensor, "B"]
    """The fraction of voxels whose residual is within the tolerance."""
    iterations: int


def invert(phi: Map, *, like: Tensor, tolerance: float = 1e-5, max_iterations: int = 50) -> Inversion:
    """The map psi with phi(psi(x)) = x at every voxel x of `like`, whose values do not matter.

    For phi of (moving, fixed) that is a map of (fixed, moving), and `like` is the moving image. Between
    the voxels psi is linear, and misses by what that costs. See `inverse_at` for what is done where phi has
    no inverse.
    """
    grid = unit_grid(like.shape[2:], like=like)
    found = inverse_at(phi, grid, tolerance=tolerance, max_iterations=max_iterations)
    psi = DisplacementMap(found.points - grid)
    return Inversion(psi, found.residual, found.converged, found.iterations)


@torch.no_grad()
def inverse_at(
    phi: Map, x: Float[Tensor, "#B N *P"], *, tolerance: float = 1e-5, max_iterations: int = 50
) -> InversePoints:
    """Solves phi(y) = x for y, for every point of `x`, until |phi(y) - x| <= `tolerance` in unit coordinates.

    Each iteration takes the fixed-point step y - (phi(y) - x), cheap and enough where displacements are small
    and smooth; points which that brings less than half-way take a Newton step too, halved until it helps. No
    step is taken that leads away from the target, so that no point ends worse than it began: at x, or at the
    inverse of the parts of which phi is composed. Points that get stuck begin once more, from wherever in the
    image phi comes closest to their target. All gradients are cut.

    Where phi has no inverse the best point that was seen is returned, never NaN: mostly one of several where
    phi folds, one that comes close where x is out of reach. `residual` and `converged` tell which points have
    not been found; that phi folds, only `folds.py` tells.
    """
    require_points(x, x.shape[1] if x.ndim > 1 else 1)
    targets = x.to(point_dtype(x)).reshape(*x.shape[:2], -1)
    points, miss, iterations = _search(
        phi, targets, _start(phi, targets, tolerance), tolerance, max_iterations
    )
    targets = targets.to(miss).expand_as(miss)

    stuck = _length(miss) > tolerance
    if (columns := _any_of_batch(stuck)).numel():
        of_stuck = targets[..., columns]
        start = _closest_of_many(phi, of_stuck)
        again, miss_again, more = _search(phi, of_stuck, start, tolerance, max_iterations)
        better = stuck[..., columns] & (_length(miss_again) < _length(miss[..., columns]))
        points[..., columns] = torch.where(better, again, points[..., columns])
        miss[..., columns] = torch.where(better, miss_again, miss[..., columns])
        iterations += more

    distance = _length(miss)
    return InversePoints(
        points=points.reshape(*points.shape[:2], *x.shape[2:]),
        residual=distance.reshape(*distance.shape[:2], *x.shape[2:]),
        converged=(distance <= tolerance).to(distance.dtype).mean(dim=(1, 2)),
        iterations=iterations,
    )


@torch.no_grad()
def residual(phi: Map, inverse: Map, x: Float[Tensor, "#B N *P"]) -> Float[Tensor, "B 1 *P"]:
    """|phi(inverse(x)) - x|, in unit coordinates."""
    return _norm(phi(inverse(x)) - x)


# Below, points have one layout, (B, N, P). Work is done on those columns p of which at least one element of
# the batch needs it; the others' steps are zero, so that no element depends on what the others need.


def _start(phi: Map, x: _Columns, tolerance: float) -> _Columns:
    """A first guess of the inverse: better than x where the kind of map tells one."""
    if isinstance(phi, Composition):
        halfway = inverse_at(phi.outer, x, tolerance=tolerance / 4).points
        return inverse_at(phi.inner, halfway, tolerance=tolerance / 4).points
    if isinstance(phi, AffineMap) and torch.linalg.det(phi.matrix).all():
        return phi.inverse()(x).nan_to_num(0, 0, 0)
    return x


def _search(
    phi: Map, x: _Columns, start: _Columns, tolerance: float, max_iterations: int
) -> tuple[Points, Points, int]:
    """The points reached from `start`, what they miss their targets x by, and after how many iterations."""
    miss = phi(start) - x
    x, y = x.to(miss).expand_as(miss), start.to(miss).expand_as(miss).clone()
    searching = _length(miss) > tolerance
    for iteration in range(max_iterations):
        columns = _any_of_batch(searching)
        if not columns.numel():
            return y, miss, iteration
        open_, old = searching[..., columns], _length(miss[..., columns])
        y_new, miss_new = _iterate(
            phi, x[..., columns], y[..., columns], miss[..., columns], open_, tolerance
        )
        y[..., columns], miss[..., columns] = y_new, miss_new
        # A point that hardly moves any more is at the end of its precision, or stuck.
        searching[..., columns] = open_ & (_length(miss_new) > tolerance) & (_length(miss_new) < 0.999 * old)
    return y, miss, max_iterations


def _iterate(
    phi: Map, x: Points, y: Points, miss: Points, open_: Tensor, tolerance: float
) -> tuple[Points, Points]:
    """A fixed-point step of the open points, and a Newton step of those it helped little."""
    before = _length(miss)
    y, miss = _descend(phi, x, y, miss, miss * open_, halvings=0)
    slow = open_ & (_length(miss) > tolerance) & (_length(miss) > before / 2)
    columns = _any_of_batch(slow)
    if columns.numel():
        x, y_slow, miss_slow, slow = x[..., columns], y[..., columns], miss[..., columns], slow[..., columns]
        matrices = central_difference(phi, y_slow, torch.finfo(y.dtype).eps ** (1 / 3) / 4)
        step = _newton_step(matrices, miss_slow) * slow
        y[..., columns], miss[..., columns] = _descend(phi, x, y_slow, miss_slow, step, halvings=_HALVINGS)
    return y, miss


def _descend(
    phi: Map, x: Points, y: Points, miss: Points, step: Points, *, halvings: int
) -> tuple[Points, Points]:
    """y - step where that lies closer to the target; elsewhere y - step / 2, and so on, or y."""
    step = step.nan_to_num(0, 0, 0)
    y_new = y - step
    miss_new = phi(y_new) - x
    closer = _length(miss_new) < _length(miss)
    y_new, miss_new = torch.where(closer, y_new, y), torch.where(closer, miss_new, miss)
    failed = ~closer & step.any(dim=1, keepdim=True)
    columns = _any_of_batch(failed)
    if halvings and columns.numel():
        x, y, miss, step = (t[..., columns] for t in (x, y_new, miss_new, step * failed / 2))
        y_new[..., columns], miss_new[..., columns] = _descend(phi, x, y, miss, step, halvings=halvings - 1)
    return y_new, miss_new


def _newton_step(matrices: Matrices, miss: Points) -> Points:
    """J^-1 miss, or what comes closest to it in least squares where J is singular (nearly: Levenberg)."""
    N = miss.shape[1]
    square = torch.einsum("bkip,bkjp->bijp", matrices, matrices)
    trace = square.diagonal(dim1=1, dim2=2).sum(dim=-1)
    square = (
        square + 1e-6 * trace[:, None, None] * torch.eye(N, dtype=miss.dtype, device=miss.device)[..., None]
    )
    columns = list(square.unbind(2))
    right = torch.einsum("bkip,bkp->bip", matrices, miss)
    # Cramer's rule: for matrices this small, far faster than a batched factorisation.
    solution = [determinant_of_rows([*columns[:j], right, *columns[j + 1 :]]) for j in range(N)]
    return torch.stack(solution, dim=1) / determinant_of_rows(columns)[:, None]


def _closest_of_many(phi: Map, x: Points) -> Points:
    """For every target x, the point of a coarse grid over the image that phi sends closest to it."""
    N = x.shape[1]
    n = round(_SECOND_STARTS ** (1 / N))
    # In the middle of n cells per axis: the border, where a stored map bends most, is a bad place to start.
    grid = (unit_grid((n,) * N, like=x).flatten(2) * (n - 1) + 0.5) / n
    images = phi(grid).to(x).expand(x.shape[0], -1, -1).mT
    nearest = [
        torch.cdist(some.mT, images).nan_to_num(torch.inf).argmin(dim=2) for some in x.split(2**12, dim=2)
    ]
    index = torch.cat(nearest, dim=1)[:, None].expand(-1, N, -1)
    return grid.expand(x.shape[0], -1, -1).gather(2, index)


def _length(miss: Points) -> Tensor:
    """How far each point misses its target; infinitely where phi is not finite."""
    return _norm(miss).nan_to_num(torch.inf, torch.inf)


def _norm(vectors: Points) -> Tensor:
    # Tensor.norm along channels is an order of magnitude slower on a CPU.
    return vectors.square().sum(dim=1, keepdim=True).sqrt()


def _any_of_batch(points: Tensor) -> Tensor:
    """The indices of the columns that some element of the batch needs."""
    return points.any(dim=0)[0].nonzero()[:, 0]
