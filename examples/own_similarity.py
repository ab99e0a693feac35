"""A similarity of your own: any differentiable number that is smaller for images that are more alike.

Here the square of the correlation, which does not care what is bright: one of the images is a negative.

    python examples/own_similarity.py --steps 300
"""

import argparse

import torch

import roundtrip as rt
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.evaluation.overlap import dice

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=300)
steps = parser.parse_args().steps


def squared_correlation(
    warped: torch.Tensor, fixed: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """One minus the squared correlation of each pair, averaged over the batch."""
    weight = torch.ones_like(fixed) if mask is None else mask.expand_as(fixed).to(fixed)
    weight = (weight / weight.flatten(1).sum(dim=1).view(-1, *[1] * (fixed.ndim - 1))).flatten(1)
    a, b = (
        image.flatten(1) - (weight * image.flatten(1)).sum(dim=1, keepdim=True) for image in (warped, fixed)
    )
    covariance, variances = (
        (weight * a * b).sum(dim=1),
        (weight * a**2).sum(dim=1) * (weight * b**2).sum(dim=1),
    )
    # A constant image correlates with nothing; without the small number it would be no number at all.
    return 1 - (covariance**2 / (variances + 1e-6)).mean()


shapes = triangles_and_circles(8, size=48, generator=torch.Generator().manual_seed(2))
moving, fixed = shapes.images.chunk(2)
inside_moving, inside_fixed = (part.double() for part in shapes.inside.chunk(2))
negative = -moving

# It goes wherever a similarity goes: into an objective for training, or for one pair.
print(f"before                Dice {dice(inside_moving > 0.5, inside_fixed > 0.5).mean.mean():.3f}")
for similarity in (rt.mse, squared_correlation):
    objective = rt.PairObjective(weight=50.0, similarity=similarity)
    phi = rt.DirectOptimisation(objective, steps=steps, learning_rate=2e-3)(negative, fixed)
    overlap = dice(rt.warp(inside_moving, phi) > 0.5, inside_fixed > 0.5).mean.mean()
    print(f"{similarity.__name__:21} Dice {overlap:.3f}")
