"""Your own registration algorithm in 30 lines: Thirion's demons, as a module from (moving, fixed) to a map.

It then nests with everything else: here, coarse to fine, and judged by its round trip.

    python examples/own_algorithm.py --steps 100
"""

import argparse

import torch
import torch.nn.functional as F

import roundtrip as rt
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.evaluation.overlap import dice
from roundtrip.evaluation.round_trip import round_trip_statistics


class Demons(rt.AbstractRegistration):
    """Pushes each pixel along the fixed image's gradient, and smooths, again and again."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, moving: torch.Tensor, fixed: torch.Tensor) -> rt.DisplacementMap:
        size = torch.tensor(fixed.shape[2:]).view(1, 2, 1, 1) - 1
        gradient = torch.cat(torch.gradient(fixed, dim=(2, 3)), dim=1)
        voxels = torch.zeros_like(gradient)
        for _ in range(self.steps):
            difference = rt.warp(moving, rt.DisplacementMap(voxels / size)) - fixed
            square = gradient.square().sum(dim=1, keepdim=True) + difference.square()
            voxels = voxels - difference * gradient / square.clamp(min=1e-6)
            voxels = F.avg_pool2d(F.pad(voxels, [2] * 4, mode="replicate"), 5, stride=1)
        return rt.DisplacementMap(voxels / size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps

    shapes = triangles_and_circles(16, size=64, generator=torch.Generator().manual_seed(0)).images
    moving, fixed = shapes.chunk(2)
    for name, algorithm in [
        ("demons", Demons(steps)),
        ("coarse to fine", rt.TwoStep(rt.AtHalfResolution(Demons(steps)), Demons(steps))),
    ]:
        phi_AB, phi_BA = algorithm(moving, fixed), algorithm(fixed, moving)
        overlap = dice(rt.warp(moving, phi_AB) > 0.5, fixed > 0.5).mean.mean()
        miss = round_trip_statistics(phi_AB, phi_BA, fixed)
        print(f"{name:15} Dice {overlap:.3f}   the round trip misses by {miss.mean:.1f} pixels on average")
