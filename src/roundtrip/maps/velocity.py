"""The flow of a stationary velocity field, by scaling and squaring: an invertible map from any smooth field.

Neighbours: `displacement.py`, the map that comes out; `inverse.py`, for maps that are no such flow.
"""

from roundtrip._checks import require_points
from roundtrip._shapes import Field
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import point_dtype, unit_grid
from roundtrip.maps.interpolate import interpolate


def exponential(velocity: Field, *, num_steps: int = 7) -> DisplacementMap:
    """exp(v): where each point is after moving with `velocity` v(x), in unit coordinates, for unit time.

    Squares exp(v / 2^n) n = `num_steps` times: u <- u + u o (id + u). The first, short step is taken with the
    velocity half-way along it; with that of its start, as is often done, exp(-v) would invert exp(v) several
    times worse, for one interpolation saved. The error falls as 4^-n and as the square of the voxel size; n
    should bring v / 2^n below a voxel or so. Up to that error exp(-v) is the inverse of exp(v), and
    exp(v / 2) its root.

    Outside the image the displacement, not the velocity, is continued from the edge: a flow through the
    border is inverted less well there.
    """
    require_points(velocity, velocity.ndim - 2, "velocity")
    if num_steps < 0:
        raise ValueError(
            f"`num_steps` is {num_steps}; velocity is halved and squared 0 or more times, e.g. 7."
        )
    step = velocity.to(point_dtype(velocity)) / 2**num_steps
    grid = unit_grid(velocity.shape[2:], like=step)
    displacement = interpolate(step, at=grid + step / 2)
    for _ in range(num_steps):
        # id + u on its own grid is known without interpolation; only the second factor is sampled.
        displacement = displacement + interpolate(displacement, at=grid + displacement)
    return DisplacementMap(displacement)
