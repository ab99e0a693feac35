"""Where aligning begins: the best of many rotations and shifts, tried at a very low resolution.

Neighbours: `linear.py`, `linear_descent.py` (the objective they are tried on).
"""

import itertools

import numpy as np

from roundtrip.pairwise.linear_descent import Objective, exponential

_LARGEST, _STEP = 90.0, 30.0
"""Of the rotations that are tried, in degrees: a lattice of rotation vectors."""
_SHIFTS = (-0.25, 0.0, 0.25)
"""Along each axis, as shares of the diameter: a cropped image has its centre elsewhere."""


# Of all that are tried, those that few samples find best are looked at more closely.
_CLOSELY = 400


def starts(
    rough: Objective, objective: Objective, length: float, at_most: int, *, header: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """The best shift of each rotation, of the best rotations, and the map that the headers imply; named.

    Every map is half a shift, a rotation, half a shift: with each, its inverse is among those tried.
    """
    dims = objective.dims
    rotations, degrees = _rotations(dims)
    half = np.tile(np.eye(4), (len(_SHIFTS) ** dims, 1, 1))
    half[:, :dims, 3] = np.array(list(itertools.product(_SHIFTS, repeat=dims))) * length / 2
    tried = half @ rotations[:, None] @ half
    every = tried.reshape(-1, 4, 4)
    closely = np.argsort(rough.measure(every)[0], kind="stable")[:_CLOSELY]
    cost = np.full(len(every), np.inf)
    cost[closely], _ = objective.measure(every[closely])
    cost = cost.reshape(tried.shape[:2])
    shift, best = cost.argmin(axis=1), np.argsort(cost.min(axis=1), kind="stable")[:at_most]
    best = best[np.isfinite(cost.min(axis=1)[best])]
    names = [f"centre on centre, turned by {degrees[i]:.0f} degrees" for i in best]
    return (
        np.concatenate([tried[best, shift[best]], header[None]]),
        [*names, "as the images lie in the world"],
    )


def _rotations(dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Homogeneous matrices, and their angles; with each, its inverse."""
    steps = int(_LARGEST // _STEP)
    lattice = np.arange(-steps, steps + 1) * _STEP
    if dims == 2:
        vectors = np.stack([0 * lattice, 0 * lattice, lattice], axis=1)
    else:
        vectors = np.array(list(itertools.product(lattice, repeat=3)))
    degrees = np.linalg.norm(vectors, axis=1)
    vectors, degrees = vectors[degrees <= _LARGEST], degrees[degrees <= _LARGEST]
    x, y, z = np.radians(vectors).T
    turn = np.zeros((len(vectors), 4, 4))
    turn[:, 2, 1], turn[:, 0, 2], turn[:, 1, 0] = x, y, z
    turn -= turn.transpose(0, 2, 1)
    return exponential(turn), degrees
