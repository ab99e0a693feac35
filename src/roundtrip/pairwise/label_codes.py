"""Label maps as images of few channels, in which equal labels look alike: what labels steer by.

Neighbour: `steering.py`, which compares them.
"""

import itertools
from collections.abc import Sequence

import torch

from roundtrip.space.volume import Volume

# Up to so many labels have a channel each; more share so many, by their codes.
_CHANNELS = 4


def common_labels(fixed: Volume, moving: Volume) -> list[int]:
    """The labels, without 0, that both maps have."""
    both = set(fixed.data.unique().tolist()) & set(moving.data.unique().tolist())
    return sorted(both - {0})


def coded(labels: Volume, common: Sequence[int]) -> Volume:
    """Every one of the common labels as its code, everything else as 0."""
    values = labels.data[0]
    known = torch.tensor(common, dtype=values.dtype, device=values.device)
    place = torch.searchsorted(known, values.clamp(common[0], common[-1]).contiguous())
    table = torch.cat([torch.zeros(1, len(_codes(len(common))[0])), _codes(len(common))]).to(values.device)
    index = torch.where(known[place] == values, place + 1, 0)
    return Volume(table[index].movedim(-1, 0).contiguous(), labels.world_from_voxel)


def _codes(count: int) -> torch.Tensor:
    """As many vectors, none near 0 and no two near each other: of a lattice, in an order without meaning."""
    if count <= _CHANNELS:
        return torch.eye(count)
    steps = 2
    while steps**_CHANNELS < count:
        steps += 2
    along = torch.linspace(-1, 1, steps)
    lattice = torch.stack([torch.stack(code) for code in itertools.product(along, repeat=_CHANNELS)])
    return lattice[torch.randperm(len(lattice), generator=torch.Generator().manual_seed(0))[:count]]
