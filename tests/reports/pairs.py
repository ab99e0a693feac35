"""A small registered pair whose every number is known, for tests of the report."""

import torch

from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.reports.pair import ReportedPair
from roundtrip.space.grid import Grid
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

LAS = torch.tensor(
    [[1.0, 0.0, 0.0, -9.0], [0.0, -1.5, 0.0, 12.0], [0.0, 0.0, 2.0, 30.0], [0.0, 0.0, 0.0, 1.0]],
    dtype=torch.float64,
)
"""Axes to the left, front and head, of 1 x 1.5 x 2 mm: not the order in which a page shows them."""


def grid(shape=(20, 16, 12), world_from_voxel=LAS) -> Grid:
    size = len(shape)
    keep = [*range(size), 3]
    return Grid(shape, world_from_voxel[keep][:, keep])


def ball(place: Grid, centre=0.5, *, dtype=torch.float32) -> Volume:
    """Bright in the middle, with two labels (3 below and 70000 above) where whole numbers are asked for."""
    x = unit_grid(place.shape)[0]
    inside = (x - centre).square().sum(dim=0) < 0.09
    if dtype.is_floating_point:
        return Volume((1000 * inside * (0.5 + x[0]))[None], place.world_from_voxel)
    labels = torch.where(x[-1] < 0.5, 3, 70_000) * inside
    return Volume(labels[None].to(dtype), place.world_from_voxel)


def bend(shape, height: float) -> DisplacementMap:
    x = unit_grid(shape)
    return DisplacementMap(height * torch.sin(torch.pi * x).prod(dim=1, keepdim=True).expand_as(x))


def pair(shape=(20, 16, 12), height: float = 0.05, **changes) -> ReportedPair:
    place = grid(shape)
    fixed, moving = ball(place), ball(place, 0.55)
    transform = Transform.from_maps(bend(shape, height), fixed, moving, inverse=bend(shape, -height))
    metrics = {
        "seconds": 1.25,
        "similarity": {"name": "lncc", "before": -0.4, "after": -0.7, "better": "lower"},
        "folds": {"count": 0, "percent": 0.0, "non_diffeomorphic_volume_percent": 0.0},
        "dice": {
            "mean": 0.85,
            "labels": {"3": 0.9, "70000": 0.8},
            "num_labels": 2,
            "before": {"mean": 0.75, "labels": {"3": 0.6, "70000": 0.9}},
        },
        "settings": {"levels": [4, 2], "linear": {"kind": "affine"}},
    }
    parts = {
        "fixed": fixed,
        "moving": moving,
        "transform": transform,
        "metrics": metrics,
        "fixed_labels": ball(place, dtype=torch.int32),
        "moving_labels": ball(place, 0.55, dtype=torch.int32),
        "fixed_name": "fixed.nii.gz",
        "moving_name": "moving.nii.gz",
        "command": "roundtrip register -f fixed.nii.gz -m moving.nii.gz -o out",
    }
    return ReportedPair(**{**parts, **changes})
