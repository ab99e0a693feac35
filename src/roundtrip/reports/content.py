"""What a report page holds of a pair: its facts, and the blocks of packed volumes they refer to.

Neighbours: `display.py` prepares volumes, `packing.py` packs them, `page.py` makes a page of both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from roundtrip._shapes import Tensor
from roundtrip.reports.display import (
    Window,
    as_bytes,
    binned,
    canonical,
    every,
    factor_for,
    foreground,
    in_three,
    linear_part,
    nodes_over,
    slices_of,
    window_of,
    with_nothing_on,
)
from roundtrip.reports.files import plain
from roundtrip.reports.packing import Packed
from roundtrip.reports.pair import ReportedPair
from roundtrip.reports.verdict import Evidence, verdict_of
from roundtrip.space.grid import Affine, Grid, orientation_of
from roundtrip.space.volume import Volume

MOST_CHARACTERS = 11_500_000
"""Of the packed volumes together: what mail servers still let through, with room for the page itself."""

# Labels up to here are counted, which is ten times as fast as sorting them.
_COUNTED = 2**16

# Voxels shown of an image, of a map, and nodes of a displacement.
_IMAGE_VOXELS, _MAP_VOXELS, _NODES = 2**24, 2**20, 300_000

# Voxels that are followed into the moving image, to see whether they land in it.
_PROBES = 50_000

# Part of a voxel to which displacements are written.
_STEP = 0.02

# Between these factors growth of volume has a colour: powers of two.
_GROWTH_EXPONENT = 2.0


@dataclass(frozen=True)
class Content:
    """Facts are for JSON; blocks are base64, by name."""

    facts: dict[str, Any]
    blocks: dict[str, str]


def content_of(pair: ReportedPair) -> Content:
    """All that the page shows, nothing of it larger than a screen can show."""
    packed = Packed()
    warped = pair.warped or pair.transform.warp(pair.moving, onto=pair.fixed)
    jacobian, error = _jacobian(pair), _roundtrip_error(pair)
    windows = {"fixed": window_of(pair.fixed), "moving": window_of(pair.moving)}

    facts: dict[str, Any] = {
        "dims": pair.fixed.dims,
        "names": {"fixed": pair.fixed_name, "moving": pair.moving_name},
        "command": pair.command,
        "metrics": plain(pair.metrics),
        "places": _places(pair),
        "windows": {name: [window.low, window.high] for name, window in windows.items()},
        "maps": _pack_maps(packed, canonical(jacobian), canonical(error)),
        "labels": _pack_labels(packed, pair),
        "transform": _pack_transform(packed, pair),
        "verdict": verdict_of(_evidence(pair, jacobian, error, windows["fixed"])),
    }
    shown = {
        "fixed": _shown(pair.fixed, windows["fixed"]),
        "warped": _shown(warped, windows["moving"]),
        "moving": _shown(pair.moving, windows["moving"]),
    }
    stacks = {name: slices_of(volume.data[0]) for name, volume in shown.items()}
    images = packed.add_stacks(stacks, budget=MOST_CHARACTERS - packed.size)
    facts["images"] = {
        name: {**images[name], "world_from_voxel": _rows(volume.world_from_voxel)}
        for name, volume in shown.items()
    }
    return Content(facts, packed.blocks)


def verdict_of_pair(pair: ReportedPair) -> dict[str, Any]:
    """What the page says of a pair in words, without making the page."""
    return verdict_of(_evidence(pair, _jacobian(pair), _roundtrip_error(pair), window_of(pair.fixed)))


def _jacobian(pair: ReportedPair) -> Volume:
    return (pair.jacobian or pair.transform.jacobian(pair.fixed)).to("cpu")


def _roundtrip_error(pair: ReportedPair) -> Volume:
    return (pair.roundtrip_error or pair.transform.round_trip_error(onto=pair.fixed)).to("cpu")


def _shown(volume: Volume, window: Window) -> Volume:
    # Bytes are turned around four times as fast as numbers; means want the numbers.
    factor = factor_for(volume.shape, _IMAGE_VOXELS)
    return canonical(as_bytes(binned(volume, factor), window))


def _places(pair: ReportedPair) -> dict[str, Any]:
    """How the voxels of the two files lie in the world, for whoever wants to find a voxel again."""
    return {
        name: {
            "shape": list(volume.shape),
            "spacing": list(volume.grid.spacing),
            "orientation": orientation_of(volume.grid),
            "voxel_from_world": _rows(volume.grid.voxel_from_world),
            "oblique_degrees": _oblique_degrees(volume.grid),
        }
        for name, volume in (("fixed", pair.fixed), ("moving", pair.moving))
    }


def _oblique_degrees(grid: Grid) -> float:
    """The largest angle between an axis of the image and the axis of the world it runs along."""
    steepest = grid.direction.abs().max(dim=0).values.clamp(max=1)
    return math.degrees(float(steepest.arccos().max()))


def _pack_maps(packed: Packed, jacobian: Volume, error: Volume) -> dict[str, Any]:
    factor = factor_for(jacobian.shape, _MAP_VOXELS)
    growth = jacobian.data
    folded = binned(Volume((~(growth > 0)).float(), jacobian.world_from_voxel), factor, largest=True)
    exponent = growth.clamp(min=2.0**-8, max=2.0**8).nan_to_num(1.0).log2()
    exponent = binned(Volume(exponent, jacobian.world_from_voxel), factor).data / _GROWTH_EXPONENT
    # 0 says folded; 128 that nothing changes.
    grey = (128 + 127 * exponent.clamp(-1, 1)).round().where(folded.data == 0, torch.zeros(()).to(exponent))

    largest = binned(Volume(error.data.nan_to_num(math.inf), error.world_from_voxel), factor, largest=True)
    finite = largest.data[largest.data.isfinite()]
    top = max(finite.max().item() if finite.numel() else 0.0, 1e-3)
    # Square roots keep what is small apart.
    missed = (255 * (largest.data / top).clamp(0, 1).sqrt()).round()
    matrix = _rows(largest.world_from_voxel)
    return {
        "jacobian": {
            **_pack_bytes(packed, "jacobian", grey[0]),
            "exponent": _GROWTH_EXPONENT,
            "folded": int(folded.data.sum()),
        },
        "error": {**_pack_bytes(packed, "error", missed[0]), "top": top},
        "world_from_voxel": matrix,
        "binned": factor,
    }


def _pack_bytes(packed: Packed, name: str, values: Tensor) -> dict[str, Any]:
    return packed.add(name, slices_of(values.to(torch.uint8)), differences=True)


def _pack_labels(packed: Packed, pair: ReportedPair) -> dict[str, Any] | None:
    volumes = {"fixed": pair.fixed_labels, "warped": _warped_labels(pair), "moving": pair.moving_labels}
    given = {name: _shown_labels(volume) for name, volume in volumes.items() if volume is not None}
    if not given:
        return None
    values, numbers = _numbered({name: volume.data[0] for name, volume in given.items()})
    parts = {
        name: {
            **packed.add(f"labels-{name}", slices_of(numbers[name])),
            "world_from_voxel": _rows(volume.world_from_voxel),
        }
        for name, volume in given.items()
    }
    return {"values": values, **parts}


def _warped_labels(pair: ReportedPair) -> Volume | None:
    if pair.warped_labels is None and pair.moving_labels is not None:
        return pair.transform.warp(pair.moving_labels, onto=pair.fixed, labels=True)
    return pair.warped_labels


def _shown_labels(volume: Volume) -> Volume:
    return canonical(every(volume, factor_for(volume.shape, _IMAGE_VOXELS)))


def _numbered(volumes: Mapping[str, Tensor]) -> tuple[list[int], dict[str, Tensor]]:
    """The labels that occur, ascending, and the volumes with each label replaced by its place among them."""
    known: set[int] = {0}
    for volume in volumes.values():
        known |= set(_labels_in(volume))
    labels = sorted(known)
    dtype = torch.uint8 if len(labels) < 256 else torch.int16
    ascending = torch.tensor(labels)
    return labels, {
        name: torch.bucketize(volume.cpu(), ascending).to(dtype)
        if labels[0] < 0 or labels[-1] > _COUNTED
        else _lookup(ascending, dtype).index_select(0, volume.flatten().cpu().int()).view(volume.shape)
        for name, volume in volumes.items()
    }


def _labels_in(volume: Tensor) -> list[int]:
    values = volume.flatten().cpu()
    if values.min() < 0 or values.max() > _COUNTED:
        return values.unique().tolist()
    return torch.bincount(values).nonzero().flatten().tolist()


def _lookup(ascending: Tensor, dtype: torch.dtype) -> Tensor:
    table = torch.zeros(int(ascending[-1]) + 1, dtype=dtype)
    table[ascending] = torch.arange(len(ascending), dtype=dtype)
    return table


def _pack_transform(packed: Packed, pair: ReportedPair) -> dict[str, Any]:
    transform = pair.transform
    forward_nodes = nodes_over(canonical(with_nothing_on(pair.fixed.grid)).grid, _NODES)
    backward_nodes = nodes_over(canonical(with_nothing_on(pair.moving.grid)).grid, _NODES)
    forward = transform.displacement(forward_nodes)
    return {
        "forward": _pack_displacement(packed, "forward", forward),
        "backward": _pack_displacement(packed, "backward", transform.inverse().displacement(backward_nodes)),
        "linear": _rows(linear_part(forward)),
    }


def _pack_displacement(packed: Packed, name: str, displacement: Volume) -> dict[str, Any]:
    largest = displacement.data.nan_to_num(0.0).abs().max().item()
    step = max(largest / 32_000, _STEP * min(displacement.grid.spacing) / 4)
    whole = (displacement.data / step).nan_to_num(0.0).round().to(torch.int16)
    stacked = np.stack([slices_of(component) for component in whole])
    return {
        **packed.add(name, stacked, differences=True),
        "step": step,
        "world_from_voxel": _rows(displacement.world_from_voxel),
    }


def _evidence(pair: ReportedPair, jacobian: Volume, error: Volume, window: Window) -> Evidence:
    inside = foreground(pair.fixed, window).cpu()
    return Evidence(pair.metrics, jacobian, error, inside, _outside_percent(pair, inside))


def _outside_percent(pair: ReportedPair, inside: Tensor) -> float:
    step = factor_for(inside.shape, _PROBES)
    places = step * inside[(slice(step // 2, None, step),) * inside.ndim].nonzero().cpu().double() + step // 2
    if not len(places):
        return 0.0
    to_world, to_voxel = pair.fixed.world_from_voxel, pair.moving.grid.voxel_from_world
    x = places @ to_world[:-1, :-1].mT + to_world[:-1, -1]
    reached = pair.transform.points(x).cpu() @ to_voxel[:-1, :-1].mT + to_voxel[:-1, -1]
    sizes = torch.tensor(pair.moving.shape, dtype=torch.float64)
    met = ((reached >= -0.5) & (reached <= sizes - 0.5)).all(dim=1)
    return 100 * (1 - met.double().mean().item())


def _rows(matrix: Affine) -> list[list[float]]:
    return in_three(matrix).tolist()
