"""Triangles and circles: the paper's synthetic images, as many and as large as asked for.

Every image shows one shape, 1 inside and -1 outside. Nothing is read from disk.
"""

import math
from dataclasses import dataclass

import torch

from roundtrip._shapes import Bool, Float, Image, Tensor
from roundtrip.maps.grid import unit_grid

STEEPNESS = 40.0
"""Intensities are tanh(-STEEPNESS * distance): an edge is about 1/20 of the image wide."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """Drawn images, which pixels lie inside the shape, and which images show a triangle."""

    images: Image
    inside: Bool[Tensor, "B 1 *S"]
    is_triangle: Bool[Tensor, "B"]


def triangles_and_circles(count: int, *, size: int = 128, generator: torch.Generator) -> Shapes:
    """Draws `count` square images, half of them (in random order) triangles and the others circles.

    As the supplement says: the centre is uniform in [0.4, 0.7]^2, the radius in [0.2, 0.4], a triangle's
    angle in [0, 2 pi]; intensities are tanh(-40 * signed distance), on the unit grid, both ends included.
    The images live on the generator's device.
    """
    if count < 1 or size < 2:
        raise ValueError(
            f"{count} images of {size}x{size} pixels were asked for; at least one of at least 2x2 is needed."
        )

    def uniform(low: float, high: float) -> Tensor:
        unit = torch.rand(count, generator=generator, device=generator.device)
        return (low + (high - low) * unit).view(count, 1, 1)

    centre_x, centre_y = uniform(0.4, 0.7), uniform(0.4, 0.7)
    radius, angle = uniform(0.2, 0.4), uniform(0.0, 2 * math.pi)
    order = torch.randperm(count, generator=generator, device=generator.device)
    is_triangle = order < count // 2

    x, y = unit_grid((size, size), like=radius)[0]
    x, y = x - centre_x, y - centre_y
    edge = torch.where(is_triangle.view(count, 1, 1), _triangle_edge(x, y, radius, angle), radius)
    distance = (torch.hypot(x, y) - edge)[:, None]
    return Shapes(torch.tanh(-STEEPNESS * distance), distance < 0, is_triangle)


def _triangle_edge(x: Tensor, y: Tensor, radius: Tensor, angle: Tensor) -> Float[Tensor, "B H W"]:
    """How far an equilateral triangle's edge lies from its centre, in the direction of each point."""
    direction = torch.remainder(torch.atan2(x, y) + angle, 2 * math.pi / 3) - math.pi / 3
    return radius * math.cos(math.pi / 3) / torch.cos(direction)
