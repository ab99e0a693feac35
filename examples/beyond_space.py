"""Inverse consistency where maps are not spatial: two embeddings of the same images, mapped onto each other.

Few images are known in both. All others only have to come home, there and back, from a point beside them.

    python examples/beyond_space.py --steps 2000
"""

import argparse

import torch
from torch import Tensor, nn

from roundtrip.data.shapes import triangles_and_circles

DIMS, KNOWN = 6, 60


def embeddings(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Principal components of drawn shapes, and a crooked view of them; both with variance 1."""
    images = triangles_and_circles(count, size=24, generator=generator).images.flatten(1).double()
    first = torch.linalg.svd(images - images.mean(dim=0), full_matrices=False)[0][:, :DIMS] * count**0.5
    turn = torch.linalg.qr(torch.randn(DIMS, DIMS, dtype=torch.float64, generator=generator))[0]
    second = (first @ turn + 0.9 * torch.sin(1.5 * (first @ turn).roll(1, dims=1))) @ turn
    return first, (second - second.mean(dim=0)) / second.std(dim=0)


def train(a: Tensor, b: Tensor, weight: float, steps: int) -> nn.ModuleList:
    """Maps a to b, and b to a: pairs are known of the first rows alone."""
    torch.manual_seed(0)
    layers = [
        (nn.Linear(DIMS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, DIMS)) for _ in "ab"
    ]
    maps, draw = (
        nn.ModuleList(nn.Sequential(*each) for each in layers).double(),
        torch.Generator().manual_seed(0),
    )
    there, back = maps
    optimizer = torch.optim.Adam(maps.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = (there(a[:KNOWN]) - b[:KNOWN]).square().mean() + (back(b[:KNOWN]) - a[:KNOWN]).square().mean()
        x, y = (every[torch.randint(len(every), (128,), generator=draw)] for every in (a, b))
        x, y = (z + 0.1 * torch.randn(z.shape, dtype=z.dtype, generator=draw) for z in (x, y))
        loss = loss + weight * ((back(there(x)) - x).square().mean() + (there(back(y)) - y).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return maps


if __name__ == "__main__":
    (parser := argparse.ArgumentParser()).add_argument("--steps", type=int, default=2000)
    steps, (a, b) = parser.parse_args().steps, embeddings(2000, torch.Generator().manual_seed(0))
    for name, weight in [("pairs alone", 0.0), ("and there and back", 1.0)]:
        there, back = train(a[:1500], b[:1500], weight, steps)
        miss = (there(a[1500:]) - b[1500:]).square().mean().sqrt()
        home = (back(there(a[1500:])) - a[1500:]).square().mean().sqrt()
        growth = torch.linalg.det(torch.func.vmap(torch.func.jacrev(there))(a[1500:]))
        folded = 100 * min((growth > 0).double().mean(), (growth < 0).double().mean())
        print(f"{name:20} held-out error {miss:.3f}   round trip {home:.3f}   folded {folded:.1f} %")
