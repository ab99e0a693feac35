"""How well one image explains the other where a linear map lays them, with the way to a better map.

The intensities of the other image are predicted from one's own by a curve, straight between a few knots; the
best curve is found with every map, so that only the map is left to search for. Two knots make a straight
line: what is left unexplained is 1 - r^2 of the correlation r. More knots follow any change of contrast: the
correlation ratio (Roche et al., MICCAI 1998). Neighbours: `linear_levels.py` (the images and samples),
`linear_descent.py` (goes that way), `_linear_kernel.py` (the sums on a CPU).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from roundtrip._shapes import Tensor
from roundtrip.pairwise.linear_levels import Samples, View

# Of the intensity range, squared: contrast below this is taken for noise.
_FLOOR = 1e-4

_GRADIENTS = [(a, b) for a in range(3) for b in range(a, 3)]
_COORDINATES = [(i, j) for i in range(4) for j in range(i, 4)]
# Where the second derivative by two entries (a, i) and (b, j) of a 3 x 4 matrix is stored: it is a product of
# two entries of the image's gradient and two coordinates, and of each pair only one order is kept.
_SQUARES = np.array(
    [
        [
            len(_COORDINATES) * _GRADIENTS.index((min(a, b), max(a, b)))
            + _COORDINATES.index((min(i, j), max(i, j)))
            for b in range(3)
            for j in range(4)
        ]
        for a in range(3)
        for i in range(4)
    ]
)


@dataclass(frozen=True, eq=False)
class Fit:
    """Of each matrix of a batch; derivatives are by the 12 entries of its upper three rows."""

    unexplained: np.ndarray
    """Which share of the variance: 0 for images that determine each other."""
    overlap: np.ndarray
    """The share of the samples that see the other image."""
    gradient: Any
    hessian: Any
    """By Gauss and Newton: never negative. Arrays, and None where nobody asked."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Weighted sums over the samples p of a chunk: of the target's value m there, its derivative d by the
    matrix, and the hat function h_k of each knot; of every matrix and chunk."""

    weight: np.ndarray
    mm: np.ndarray
    hm: np.ndarray
    hh: np.ndarray
    """Of each knot with itself, then of each knot with the next."""
    md: np.ndarray
    hd: np.ndarray
    dd: np.ndarray
    """As `_SQUARES` finds them."""


def fit(
    samples: Samples, target: View, matrices: np.ndarray, *, local: bool, differentiate: bool = True
) -> Fit:
    """How well `samples` explain `target` through each matrix, from voxels of one to voxels of the other.

    With `local` each chunk has its own curve. Channels count alike.
    """
    fits = [
        _explained(add_up(samples, target, matrices, channel, differentiate), samples, local, differentiate)
        for channel in range(len(target.data))
    ]
    if len(fits) == 1:
        return fits[0]
    names = ("unexplained", "overlap", "gradient", "hessian") if differentiate else ("unexplained", "overlap")
    means = [np.mean([getattr(one, name) for one in fits], axis=0) for name in names]
    return Fit(*means, *[None] * (4 - len(means)))


def add_up(samples: Samples, target: View, matrices: np.ndarray, channel: int, differentiate: bool) -> Sums:
    """All sums of one channel."""
    if target.data.device.type == "cpu":
        from roundtrip.pairwise._linear_kernel import add_up as add_up_flat
    else:
        add_up_flat = add_up_by_torch
    flat = add_up_flat(samples, target, matrices, channel, differentiate)
    K, lead = samples.knots, flat.shape[:2]
    sizes = [1, 1, K, 2 * K - 1, 12, 12 * K, 60]
    parts = np.split(flat, np.cumsum(sizes)[: 6 if differentiate else 3], axis=2)
    if not differentiate:
        parts += [flat[..., :0]] * 3
    weight, mm, hm, hh, md, hd, dd = parts
    return Sums(weight[..., 0], mm[..., 0], hm, hh, md, hd.reshape(*lead, K if differentiate else 0, 12), dd)


def add_up_by_torch(
    samples: Samples, target: View, matrices: np.ndarray, channel: int, differentiate: bool
) -> np.ndarray:
    """The sums one after the other, matrices x chunks x sums: weight, mm, hm, hh, md, hd, dd."""
    lengths = samples.edges.diff().to(target.data.device)
    chunk = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    rows = []
    for matrix in torch.from_numpy(matrices).to(target.data.device):
        w, m, gradient = _seen(samples, target, matrix, channel)
        hats = torch.nn.functional.one_hot(samples.knot[channel], samples.knots).mT.double()
        t = samples.fraction[channel].double()
        hats = hats * (1 - t) + hats.roll(1, dims=0) * t
        terms = [w, w * m * m, *(w * m * hats), *(w * hats * hats), *(w * hats[1:] * hats[:-1])]
        if differentiate:
            x = torch.cat([samples.points.double(), torch.ones_like(w)[None]])
            d = (gradient[:, None] * x).flatten(0, 1)
            terms += [*(w * m * d), *(w * hats[:, None] * d).flatten(0, 1)]
            terms += [
                w * gradient[a] * gradient[b] * x[i] * x[j] for a, b in _GRADIENTS for i, j in _COORDINATES
            ]
        table = torch.stack(terms, dim=1)
        rows.append(table.new_zeros(len(lengths), table.shape[1]).index_add_(0, chunk, table))
    return torch.stack(rows).cpu().numpy()


def _seen(samples: Samples, target: View, matrix: Tensor, channel: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each sample in the target: how much it counts, the value there, and the gradient in voxels."""
    y = matrix[:3, :3] @ samples.points.double() + matrix[:3, 3:]
    last = torch.tensor(target.data.shape[1:], dtype=y.dtype, device=y.device)[:, None] - 1
    beyond = torch.maximum(-y, y - last).clamp(min=0)
    inside = torch.minimum(y.clamp(min=0), last)
    lower = torch.minimum(inside.floor(), (last - 1).clamp(min=0))
    f, lower, upper = inside - lower, lower.long(), torch.minimum(lower + 1, last).long()
    weight = samples.weights.double() * (1 - beyond).clamp(min=0).prod(dim=0)
    if target.weight is not None:
        nearest = torch.where(f > 0.5, upper, lower)
        weight = weight * target.weight[tuple(nearest)]
    value, gradient = torch.zeros_like(weight), torch.zeros_like(y)
    for corner in torch.cartesian_prod(*[torch.arange(2, device=y.device)] * 3).bool():
        at = torch.where(corner[:, None], upper, lower)
        v = target.data[channel][tuple(at)].double()
        share = torch.where(corner[:, None], f, 1 - f)
        sign = torch.where(corner, 1.0, -1.0).double()
        value = value + v * share.prod(dim=0)
        gradient = gradient + v * sign[:, None] * torch.stack(
            [share[1] * share[2], share[0] * share[2], share[0] * share[1]]
        )
    return weight, value, gradient * (beyond == 0)


def _explained(sums: Sums, samples: Samples, local: bool, differentiate: bool) -> Fit:
    total = sums.weight.sum(axis=1)
    overlap = total / samples.total
    if not local:
        sums = Sums(*(part.sum(axis=1, keepdims=True) for part in vars(sums).values()))
    w, K = sums.weight, samples.knots
    right = sums.hm[..., None]
    if differentiate:
        right = np.concatenate([right, sums.hd], axis=-1)
    # Knots that no sample is near, and chunks that no sample is in, get a curve too.
    diagonal = sums.hh[..., :K] + 1e-6 * w[..., None] + 1e-9
    solved = _solve_tridiagonal(diagonal, sums.hh[..., K:], right)
    curve = solved[..., 0]
    mean = sums.hm.sum(axis=-1) / np.maximum(w, 1e-9)
    noise = _FLOOR * w + 1e-12
    spread = np.maximum(sums.mm - mean * mean * w, 0) + noise
    left = (np.maximum(sums.mm - (sums.hm * curve).sum(axis=-1), 0) + noise) / spread
    # Images of one contrast that are each other's negative are farther from agreeing than unrelated ones.
    sign = np.where(curve[..., 1] < curve[..., 0], -1.0, 1.0) if K == 2 else np.ones_like(left)
    share = w / np.maximum(total, 1e-9)[:, None]
    unexplained = (share * (1 + sign * (left - 1))).sum(axis=1)
    if not differentiate:
        return Fit(unexplained, overlap, None, None)
    # The curve is the best one, so that a small change of it changes nothing.
    by_left = sums.md - np.einsum("bck,bckd->bcd", curve, sums.hd)
    by_spread = sums.md - mean[..., None] * sums.hd.sum(axis=2)
    factor = 2 * share / spread
    gradient = np.einsum("bc,bcd->bd", sign * factor, by_left - left[..., None] * by_spread)
    # The variance grows with what is left: of the residual's curvature, about this share remains.
    factor = factor * np.maximum(1 - left, 0.1)
    hessian = np.einsum("bc,bcs->bs", factor, sums.dd)[:, _SQUARES]
    hessian -= np.einsum("bckd,bcke->bde", factor[..., None, None] * sums.hd, solved[..., 1:])
    return Fit(unexplained, overlap, gradient, hessian)


def _solve_tridiagonal(diagonal: np.ndarray, beside: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solves many symmetric systems at once: n on the diagonal, n - 1 beside it, n x columns on the right."""
    x, pivots, n = right.copy(), diagonal.copy(), diagonal.shape[-1]
    for k in range(1, n):
        factor = beside[..., k - 1] / pivots[..., k - 1]
        pivots[..., k] -= factor * beside[..., k - 1]
        x[..., k, :] -= factor[..., None] * x[..., k - 1, :]
    x[..., n - 1, :] /= pivots[..., n - 1, None]
    for k in range(n - 2, -1, -1):
        x[..., k, :] = (x[..., k, :] - beside[..., k, None] * x[..., k + 1, :]) / pivots[..., k, None]
    return x
