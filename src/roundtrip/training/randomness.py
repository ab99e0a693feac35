"""All that is random in training, as a function of seed, stage and step: a run that goes on repeats nothing.

No random state has to be remembered: whoever knows where a run is can draw what it would have drawn. What is
drawn for one pair of a batch does not depend on which process works on it. Neighbours: `batches.py`,
`step.py`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from roundtrip._shapes import Points, Tensor
from roundtrip.losses.regularity import points_off_grid


def seed_of(*what: int | str) -> int:
    """A seed for this purpose, as unlike those of other purposes as chance."""
    digest = hashlib.sha256(" ".join(map(str, what)).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def generator_of(*what: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """Draws for this purpose."""
    return torch.Generator(device).manual_seed(seed_of(*what))


@dataclass(frozen=True)
class PointsOfEach:
    """`points_off_grid` with a seed for every element of the batch, whichever batch that is."""

    seeds: tuple[int, ...]

    def __call__(self, image: Tensor, generator: torch.Generator | None = None) -> Points:
        draw = torch.Generator(image.device)
        return torch.cat(
            [
                points_off_grid(one, draw.manual_seed(seed))
                for one, seed in zip(image.split(1), self.seeds, strict=True)
            ]
        )


def seeds_of_elements(numbers: Sequence[int], *what: int | str) -> tuple[int, ...]:
    """One seed for each element, by its number in the whole batch."""
    return tuple(seed_of(*what, number) for number in numbers)
