"""How far a round trip misses: the promise every result is held to. Neighbour: `judge.py`, which asks."""

from dataclasses import dataclass

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.evaluation.lengths import frame_of, lengths
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.jacobian import Frame
from roundtrip.maps.map import Map, on_grid_of


@dataclass(frozen=True)
class RoundTripStatistics:
    """Distances between where round trips start and where they end, both directions together."""

    mean: float
    p99: float
    max: float


def round_trip_distance(
    outer: Map, inner: Map, image: Tensor, *, frame: Frame | None = None
) -> Float[Tensor, "B 1 *S"]:
    """|outer(inner(x)) - x| at every voxel x of `image`, whose values do not matter.

    In voxels, or in the unit of `frame`, the linear part of world-from-unit of the image.
    """
    start = unit_grid(image.shape[2:], like=image)
    return lengths(outer(on_grid_of(inner, image)) - start, frame_of(image) if frame is None else frame)


def round_trip_statistics(phi_AB: Map, phi_BA: Map, image: Tensor) -> RoundTripStatistics:
    """Mean, 99th percentile and maximum of the round-trip distance, in voxels, over all voxels of a batch.

    Both round trips count alike: fixed to moving to fixed, and moving to fixed to moving.
    """
    return statistics_of(
        round_trip_distance(phi_BA, phi_AB, image), round_trip_distance(phi_AB, phi_BA, image)
    )


def statistics_of(*distances: Tensor) -> RoundTripStatistics:
    """Of all the distances together."""
    together = torch.cat([some.flatten() for some in distances])
    # The smallest distance that 99 % do not exceed; torch.quantile refuses more than 16 million values.
    p99 = together.kthvalue(max(1, -(-99 * together.numel() // 100))).values
    return RoundTripStatistics(together.double().mean().item(), p99.item(), together.max().item())
