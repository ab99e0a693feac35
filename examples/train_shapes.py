"""The idea in code: images -> map, trained by inverse consistency alone. Two U-Nets, coarse to fine.

python examples/train_shapes.py --steps 300
"""

import argparse

import torch

import roundtrip as rt
from roundtrip.data.pairs import random_pairs
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.evaluation.overlap import dice
from roundtrip.evaluation.round_trip import round_trip_statistics

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--size", type=int, default=48)
options = parser.parse_args()

torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
training = triangles_and_circles(500, size=options.size, generator=generator).images
moving, fixed = triangles_and_circles(64, size=options.size, generator=generator).images.chunk(2)

# An algorithm is a module from (moving, fixed) to a map. Algorithms are made of algorithms.
algorithm = rt.TwoStep(
    rt.AtHalfResolution(rt.DisplacementRegistration(rt.UNet(dims=2))),
    rt.DisplacementRegistration(rt.UNet(dims=2)),
)
# Similarity plus lambda times inverse consistency. No other regulariser.
objective = rt.InverseConsistent(algorithm, similarity=rt.mse, weight=512.0)


def report(name: str) -> None:
    with torch.no_grad():
        phi_AB, phi_BA = algorithm(moving, fixed), algorithm(fixed, moving)
    overlap = dice(rt.warp(moving, phi_AB) > 0.5, fixed > 0.5).mean.mean()
    folds = rt.folds_central(rt.on_grid_of(phi_AB, fixed)).count.double().mean()
    miss = round_trip_statistics(phi_AB, phi_BA, fixed)
    print(f"{name:9} Dice {overlap:.3f}, {folds:.2f} folded pixels, round trip off by {miss.mean:.2f} pixels")


algorithm.eval()
report("untrained")
pairs = random_pairs(training, batch_size=8, generator=generator)
rt.fit(objective, pairs, steps=options.steps, learning_rate=1e-3, generator=generator)
report("trained")
