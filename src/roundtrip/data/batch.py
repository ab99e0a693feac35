"""`Batch`: pairs of images side by side, with whatever belongs to them. `subset.py` makes them."""

from dataclasses import dataclass

import torch

from roundtrip._shapes import Image, Shaped, Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Element i of `moving` is to be laid onto element i of `fixed`; labels and masks lie on their grid."""

    moving: Image
    fixed: Image
    moving_labels: Shaped[Tensor, "B 1 *S"] | None = None
    """Whole numbers, 0 for what has no label."""
    fixed_labels: Shaped[Tensor, "B 1 *S"] | None = None
    moving_mask: Shaped[Tensor, "B 1 *S"] | None = None
    """True where a voxel counts."""
    fixed_mask: Shaped[Tensor, "B 1 *S"] | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """The same pairs on another device."""

        def moved(part: Tensor | None) -> Tensor | None:
            return None if part is None else part.to(device, non_blocking=True)

        return Batch(
            self.moving.to(device, non_blocking=True),
            self.fixed.to(device, non_blocking=True),
            moved(self.moving_labels),
            moved(self.fixed_labels),
            moved(self.moving_mask),
            moved(self.fixed_mask),
        )
