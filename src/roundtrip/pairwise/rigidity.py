"""How rigid a transform is where it was to be rigid, in millimetres. Neighbour: `guidance.py`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roundtrip.pairwise.linear_landmarks import fit
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

# Of the smallest side of a voxel: what interpolation and float32 leave of a rigid motion.
_TOLERANCE = 0.02

# So many voxels of a region tell.
_VOXELS = 2**17


@dataclass(frozen=True)
class Rigidity:
    """One region, beside the rigid motion that is nearest to what the transform does to it."""

    voxels: int
    rotation_degrees: float
    mean: float
    """How far the transform is from the motion, in mm."""
    max: float
    is_rigid: bool

    def as_dict(self) -> dict[str, Any]:
        """A part of metrics.json."""
        return {
            "voxels": self.voxels,
            "rotation_degrees": round(self.rotation_degrees, 3),
            "off_by_mm": {"mean": self.mean, "max": self.max},
        }


def rigidity(transform: Transform, region: Volume) -> Mapping[int, Rigidity]:
    """Of every label of a region, on the image from which the transform goes."""
    found = {}
    matrix = region.world_from_voxel
    tolerance = _TOLERANCE * min(region.spacing)
    for body in region.data.unique().tolist():
        if body == 0:
            continue
        index = (region.data[0] == body).nonzero().double().cpu()
        count = len(index)
        index = index[:: max(1, count // _VOXELS)]
        x = index @ matrix[:-1, :-1].mT + matrix[:-1, -1]
        y = transform.points(x).cpu()
        motion = fit(x.mT, y.mT, "rigid")
        off = (x @ motion[:-1, :-1].mT + motion[:-1, -1] - y).norm(dim=1)
        N = region.dims
        cosine = (motion[:-1, :-1].trace().item() - N + 2) / 2
        found[body] = Rigidity(
            count,
            math.degrees(math.acos(max(-1.0, min(1.0, cosine)))),
            off.mean().item(),
            off.max().item(),
            bool(off.max() <= tolerance),
        )
    return found
