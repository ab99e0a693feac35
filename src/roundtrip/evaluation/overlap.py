"""How well regions overlap: Dice, per label and per pair. Neighbours: `surface.py`, `round_trip.py`."""

from dataclasses import dataclass

import torch

from roundtrip._checks import shape_of
from roundtrip._shapes import Float, Shaped, Tensor

# Labels below are counted without being sorted.
_COUNTABLE = 2**16


@dataclass(frozen=True, eq=False)
class Overlap:
    """Dice of each label in each pair of a batch; NaN where one of the two images lacks the label."""

    labels: tuple[int, ...]
    dice: Float[Tensor, "B L"]

    @property
    def mean(self) -> Float[Tensor, "B"]:
        """Of each pair, over the labels that both images have; NaN where they share none."""
        return self.dice.nanmean(dim=1)

    @property
    def num_labels(self) -> Shaped[Tensor, "B"]:
        """Over how many labels `mean` averages."""
        return (~self.dice.isnan()).sum(dim=1)


def dice(first: Shaped[Tensor, "B 1 *S"], second: Shaped[Tensor, "B 1 *S"]) -> Overlap:
    """2 |a and b| / (|a| + |b|) of every label but 0, the background, in two label maps or masks.

    A mask has the one label 1. The paper's Dice is that of the pixels brighter than 0.5:
    `dice(warped > 0.5, fixed > 0.5)`.
    """
    require_label_maps(first, second)
    batch = first.shape[0]
    # Labels become the indices 0, 1, ... of those that occur, so that counting is counting bins.
    labels, index = _enumerated(torch.cat([first, second]))
    index = index.view(2, batch, -1)
    bins = index + len(labels) * torch.arange(batch, device=index.device)[:, None]

    def count(selected: Tensor) -> Tensor:
        return selected.bincount(minlength=batch * len(labels)).view(batch, len(labels)).double()

    in_first, in_second = count(bins[0].flatten()), count(bins[1].flatten())
    in_both = count(bins[0][index[0] == index[1]])
    scores = 2 * in_both / (in_first + in_second)
    scores = scores.masked_fill((in_first == 0) | (in_second == 0), torch.nan)
    foreground = labels != 0
    return Overlap(tuple(int(label) for label in labels[foreground]), scores[:, foreground])


def _enumerated(values: Tensor) -> tuple[Tensor, Tensor]:
    """The labels that occur, in their order, and of every voxel the number of its label."""
    lowest, highest = (int(bound) for bound in values.aminmax())
    if lowest < 0 or highest >= _COUNTABLE:
        return values.unique(return_inverse=True)
    # Counting is many times faster than the sorting behind `unique`.
    values = values.long()
    occurs = values.flatten().bincount() > 0
    return occurs.nonzero()[:, 0], (occurs.cumsum(0) - 1)[values]


def require_label_maps(first: Tensor, second: Tensor) -> None:
    """Both hold integers or booleans, in one shape."""
    if first.shape != second.shape or first.ndim < 3 or first.shape[1] != 1:
        raise ValueError(
            f"overlap compares two label maps of one shape (batch, 1, *grid), but was given "
            f"{shape_of(first)} and {shape_of(second)}. Warp one onto the grid of the other first: "
            "`rt.warp(labels, phi, like=fixed, interpolation=rt.interpolate_nearest)`."
        )
    for labels in (first, second):
        if labels.is_floating_point() or labels.is_complex():
            raise ValueError(
                f"overlap counts labels, which are integers or booleans, but was given {labels.dtype}. Round "
                "a label map, `labels.long()`, or threshold an image, `image > 0.5`."
            )
