"""`DisplacementMap`: x -> x + u(x), with u stored on a grid. The map every network of the paper produces.

Neighbours: `map.py` says what a map is, `interpolate.py` samples u, `velocity.py` makes u from a velocity.
"""

from dataclasses import dataclass

from roundtrip._checks import require_points
from roundtrip._shapes import Field, Float, Points, Tensor
from roundtrip._showing import shown
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import interpolate
from roundtrip.maps.map import AbstractMap, Map, on_grid_of


@dataclass(frozen=True, eq=False, repr=False)
class DisplacementMap(AbstractMap):
    """x -> x + u(x), u interpolated linearly -- ICON, Eq. (11).

    Outside the image u is continued by its value at the nearest edge, and added to the point as it is: a
    displacement can be extrapolated, a map cannot.
    """

    displacement: Field

    def __post_init__(self) -> None:
        require_points(self.displacement, self.displacement.ndim - 2, "displacement")

    def __call__(self, x: Float[Tensor, "#B N *P"]) -> Points:
        require_points(x, self.displacement.ndim - 2)
        return x + interpolate(self.displacement, at=x)

    def on_grid_of(self, image: Tensor) -> Points:
        if image.shape[2:] != self.displacement.shape[2:]:
            return super().on_grid_of(image)
        return unit_grid(image.shape[2:], like=self.displacement) + self.displacement

    def _repr_html_(self) -> str:
        """In a notebook: how far it moves points, where it folds, and the grid it deforms."""
        return shown(self, "map_as_html")


def displacement_of(phi: Map, image: Tensor) -> Field:
    """phi(x) - x at every voxel of `image`."""
    return on_grid_of(phi, image) - unit_grid(image.shape[2:], like=image)


def sampled(phi: Map, image: Tensor) -> DisplacementMap:
    """Any map, stored as displacements on the grid of `image`; between the voxels it becomes linear."""
    return DisplacementMap(displacement_of(phi, image))
