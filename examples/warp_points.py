"""Points through a transform: from the fixed image to the moving one, and back by the inverse.

Two drawn heads with a known map between them, so that the distance to the truth can be printed.

    python examples/warp_points.py
"""

import argparse

import torch

import roundtrip as rt
from roundtrip.data.phantoms import draw_pair

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--size", type=int, default=60, help="voxels from left to right")
size = parser.parse_args().size

pair = draw_pair(shape=(size, size * 6 // 5, size))
result = rt.register(pair.moving.image, pair.fixed.image)

# Points of the FIXED image, one a row, in LPS millimetres (x to the left, y to the back, z up).
points = torch.tensor([[22.0, -8, 8], [-22, -8, 8], [0, 46, -42], [0, -60, 30]], dtype=torch.float64)
there = result.transform.points(points)  # fixed -> moving
home = result.inverse.points(there)  # moving -> fixed
truth = pair.truth(points.mT).mT

print("fixed, mm           moving, mm               from the truth   round trip")
for row in zip(points, there, (there - truth).norm(dim=1), (home - points).norm(dim=1), strict=True):
    start, end, error, miss = (value.tolist() for value in row)
    texts = [" ".join(f"{v:6.1f}" for v in point) for point in (start, end)]
    print(f"{texts[0]} {texts[1]}   {error:11.2f} mm {miss:9.3f} mm")

# A voxel index becomes millimetres, and back, by the matrix that the volume carries.
index = torch.tensor([10.0, 20.0, 15.0, 1.0], dtype=torch.float64)
place = pair.fixed.image.world_from_voxel @ index
print(f"voxel (10, 20, 15) of the fixed image lies at {[round(v, 1) for v in place[:3].tolist()]} mm")
