"""`register`: any two images, as their files are. Linear first, then deformable, both ways, in millimetres.

Neighbours: `linear.py` and `deformable.py`, which find the maps; `domain.py`, which says on which grid;
`registration.py`, what comes out.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import interpolate
from roundtrip.maps.map import Map
from roundtrip.pairwise.across import deform_across
from roundtrip.pairwise.contrast import Contrast, alike, contrast_of, straight
from roundtrip.pairwise.deformable import deform
from roundtrip.pairwise.domain import Domain, domain_of
from roundtrip.pairwise.guidance import Guidance, Guide, guidance
from roundtrip.pairwise.landmark_pairs import LandmarkPairs, PointsOrPath, paired
from roundtrip.pairwise.linear import Alignment, align
from roundtrip.pairwise.registration import Registration
from roundtrip.pairwise.regular import regular_sample
from roundtrip.pairwise.settings import effort as settings_of
from roundtrip.space.files import read
from roundtrip.space.grid import Grid, orientation_of
from roundtrip.space.measures import places_in_own_frame
from roundtrip.space.resample import require_same_dims
from roundtrip.space.smoothing import antialiased
from roundtrip.space.steps import MapStep, affine_part, follow_grid, joined
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume, require_contrast, stacked

if TYPE_CHECKING:
    from roundtrip.pairwise.model import Registered

Path = str | os.PathLike[str]
Linear = Literal["none", "rigid", "similarity", "affine"]
Modality = Literal["same", "different", "auto"]
Effort = Literal["fast", "default", "best"]

# Intensities beyond these percentiles are outliers, of which some scanners make many.
_PERCENTILES, _SAMPLE = (0.1, 99.9), 2**16

# A voxel so many times larger than those it is sampled from is blurred first.
_COARSER = 1.25


def register(
    moving: Volume | Path | Sequence[Volume | Path],
    fixed: Volume | Path | Sequence[Volume | Path],
    *,
    linear: Linear = "affine",
    modality: Modality = "auto",
    effort: Effort = "default",
    moving_mask: Volume | Path | None = None,
    fixed_mask: Volume | Path | None = None,
    moving_labels: Volume | Path | None = None,
    fixed_labels: Volume | Path | None = None,
    moving_landmarks: PointsOrPath | None = None,
    fixed_landmarks: PointsOrPath | None = None,
    moving_guide: Guide | Sequence[Guide] | None = None,
    fixed_guide: Guide | Sequence[Guide] | None = None,
    moving_rigid: Volume | Path | None = None,
    fixed_rigid: Volume | Path | None = None,
    model: Path | None = None,
    device: str | torch.device = "cpu",
    on_stage: Callable[[str], None] | None = None,
) -> Registration:
    """Finds the transform that lays `moving` onto `fixed`, and its inverse: no training, nothing prepared.

    Images are volumes or files, of any orientation, spacing and size, anywhere in the world; several of one
    grid, in a list, are compared channel by channel. First a `linear` alignment, then a deformation, on the
    grid of the fixed image. `modality`: whether equal tissue is equally bright in both; "auto" looks (and
    believes in "same" with a model). `model` is the folder of a trained model, from whose maps the
    deformation starts instead of from an alignment.

    Masks say where intensities count. A guide steers, and nothing else does: a label map, landmarks (a CSV, a
    `PointTable`, or rows of LPS mm), or both in a list, for both images. Labels and landmarks given as such
    only measure. Every label of `fixed_rigid`, or of `moving_rigid`, stays rigid.

    The result is a `Registration`: `.transform`, `.inverse`, `.warped`, `.metrics`, and `.ok`, which is
    False, with `.reasons`, where the registration failed. `on_stage` is called with the name of every stage.
    """
    _require_choices(linear, modality, effort)
    tell = on_stage or (lambda name: None)
    tell("reading")
    source = _given(moving, moving_mask, moving_labels, "moving")
    target = _given(fixed, fixed_mask, fixed_labels, "fixed")
    require_same_dims(source.image, target.image)
    steered_by = guidance(
        fixed=target.image,
        moving=source.image,
        fixed_guide=fixed_guide,
        moving_guide=moving_guide,
        fixed_rigid=fixed_rigid,
        moving_rigid=moving_rigid,
    )
    landmarks = _landmarks(fixed_landmarks, moving_landmarks, target.image, source.image)

    if torch.device(device).type == "cpu":
        _make_ready()
    began = time.perf_counter()
    pair = _Pair(source.scaled().to(device), target.scaled().to(device), source.mask, target.mask)
    tell("aligning")
    registered = None
    if model is None:
        start, contrast = _aligned(pair, linear, modality, steered_by)
    else:
        registered = _by_model(model, source.image, target.image)
        start = _before_model(registered, target.image, source.image)
        # A model was trained on images like these; mostly of one contrast.
        contrast = "same" if modality == "auto" else modality
    linear_seconds = time.perf_counter() - began
    tell("deforming")
    transform, notes = _deformed(pair, start, contrast, effort, steered_by, registered)
    return Registration(
        transform=transform,
        moving=source.image,
        fixed=target.image,
        moving_labels=source.labels,
        fixed_labels=target.labels,
        contrast=contrast,
        seconds=time.perf_counter() - began,
        linear_seconds=linear_seconds,
        notes=(*notes, *steered_by.notes, *_measured_by_guides(source, target, landmarks, steered_by)),
        landmarks=landmarks,
        guidance=steered_by,
        settings={
            "linear": linear if model is None else None,
            "modality": modality,
            "compared_as": contrast,
            "effort": effort,
            "model": None if model is None else os.fspath(model),
            "masks": [
                name for name, side in (("moving", source), ("fixed", target)) if side.mask is not None
            ],
            "guides": _names_of_guides(steered_by),
            "device": str(device),
            "threads": torch.get_num_threads(),
        },
    )


@dataclass(frozen=True, eq=False)
class _Given:
    """One image, and what is known about it; all on one grid."""

    image: Volume
    mask: Volume | None
    labels: Volume | None

    def scaled(self) -> Volume:
        """Each channel between 0 and 1, without outliers."""
        channels = []
        for channel in self.image.data.float():
            sample = regular_sample(channel[None, None], _SAMPLE)[0, 0]
            low, high = np.percentile(sample.cpu().numpy(), _PERCENTILES).tolist()
            if low == high:
                low, high = channel.min().item(), channel.max().item()
            channels.append(((channel - low) / max(high - low, 1e-30)).clamp(0, 1))
        return Volume(torch.stack(channels), self.image.world_from_voxel)


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two images with intensities between 0 and 1, and where they count."""

    moving: Volume
    fixed: Volume
    moving_mask: Volume | None
    fixed_mask: Volume | None


@functools.cache
def _make_ready() -> None:
    """Once in a process, loads all that registering on a CPU needs, so that no pair waits for it later.

    Kernels are loaded, or compiled where they never were, when they are first called: here with a pair as
    small as it gets.
    """
    x = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 12)] * 3, indexing="ij"))
    ball = Volume((-4 * x.square().sum(dim=0)).exp()[None], torch.eye(4, dtype=torch.float64))
    pair = _Pair(ball, ball, None, None)
    start, contrast = _aligned(pair, "rigid", "same", Guidance())
    _deformed(pair, start, contrast, "fast")


def _aligned(
    pair: _Pair, linear: Linear, modality: Modality, steered_by: Guidance
) -> tuple[Transform, Contrast]:
    """A linear transform, found under the contrast that was asked for, or under the one that fits."""
    moving, fixed = steered_by.with_channels(pair.moving, pair.fixed)
    start = None if linear == "none" else steered_by.start(linear)

    def found(contrast: Contrast) -> Alignment:
        how: dict[str, Any] = {"moving_mask": pair.moving_mask, "fixed_mask": pair.fixed_mask}
        alignment = align(moving, fixed, kind=linear, modality=contrast, start=start, **how)
        if start is not None and not steered_by.keeps(alignment.matrix, start, min(fixed.spacing)):
            alignment = dataclasses.replace(alignment, matrix=start)
        if fixed is pair.fixed:
            return alignment
        # How alike the images alone are is for their contrast to say.
        matrix = alignment.inverse() @ pair.moving.world_from_voxel
        moved = Volume(pair.moving.data, matrix)
        if pair.moving_mask is not None:
            how["moving_mask"] = Volume(pair.moving_mask.data, matrix)
        alone = align(moved, pair.fixed, kind="none", modality=contrast, **how)
        return dataclasses.replace(alignment, after=alone.after, curved=alone.curved)

    def transform(alignment: Alignment) -> Transform:
        return Transform.from_affine(alignment.matrix, pair.fixed, pair.moving)

    if modality != "auto":
        return transform(found(modality)), modality
    same = found("same")
    if straight(same) or alike(_laid(pair.moving, transform(same), pair.fixed), pair.fixed):
        return transform(same), "same"
    different = found("different")
    contrast = contrast_of(same, different)
    return transform(same if contrast == "same" else different), contrast


def _by_model(folder: Path, moving: Volume, fixed: Volume) -> "Registered":
    # Imported here: it brings networks and their cards, which take a third of a second.
    from roundtrip.pairwise.model import Scan, open_model

    return open_model(folder)(Scan(moving), Scan(fixed))


def _before_model(registered: "Registered", fixed: Volume, moving: Volume) -> Transform:
    """How the model's preparation lays the images onto each other: centre on centre."""
    matrix = registered.moving.world_from_unit @ registered.fixed.unit_from_world
    if torch.linalg.det(matrix) < 0:
        ways = f"{orientation_of(fixed)} and {orientation_of(moving)}"
        raise ValueError(
            f"the axes of the two images run differently ({ways}), and the model does not say which way it "
            "wants them: one image would be mirrored. Write the orientation it was trained with into "
            '`preparation` in its card.json, such as "orientation": "RAS".'
        )
    return Transform.from_affine(matrix, fixed, moving)


def _model_on(registered: "Registered", start: Transform, grid: Grid) -> tuple[Map, Map]:
    """What a model adds to `start`, in unit coordinates of `grid`: a place for a deformation to begin."""
    laid = Grid(grid.shape, affine_part(start.steps, start.dims) @ grid.world_from_voxel)
    maps = registered.between(laid, grid)
    return maps.AB, maps.BA


@torch.no_grad()
def _deformed(
    pair: _Pair,
    start: Transform,
    contrast: Contrast,
    effort: Effort,
    steered_by: Guidance | None = None,
    registered: "Registered | None" = None,
) -> tuple[Transform, tuple[str, ...]]:
    """`start` after a deformation of the fixed world, found where it pays, stored on the whole fixed grid.

    It begins with what a model found, if there is one.
    """
    source, target = pair.moving, pair.fixed
    laid = _laid(_blurred(source, start, target.grid), start, target)
    domain = domain_of(target, laid, more=0 if steered_by is None else steered_by.bytes_per_voxel)
    laid_mask = None if pair.moving_mask is None else start.warp(pair.moving_mask, onto=target, labels=True)
    found = (deform if contrast == "same" else deform_across)(
        domain.of(laid).data[None],
        domain.of(target).data[None],
        spacing=domain.grid.spacing,
        settings=settings_of(effort),
        moving_mask=_weights(laid_mask, domain, target),
        fixed_mask=_weights(pair.fixed_mask, domain, target),
        start=None if registered is None else _model_on(registered, start, domain.grid),
        steering=None if steered_by is None else steered_by.steering(domain, start, target.grid),
    )
    there = MapStep(_on_whole(found.phi, domain.grid, target.grid), target.grid)
    back = MapStep(_on_whole(found.inverse, domain.grid, target.grid), target.grid)
    steps = joined(there, *start.steps)
    inverse = joined(*start.inverse().steps, back)
    return Transform(steps, target.dims, target.grid, source.grid, inverse), domain.notes


def _laid(source: Volume, start: Transform, target: Volume) -> Volume:
    """The moving image on the fixed grid, continued by its edge: where it ends there is nothing to align."""
    x = follow_grid(start.steps, target.grid, source.world_from_unit, like=source.data)
    return Volume(interpolate(source.data[None], x)[0], target.world_from_voxel)


def _on_whole(phi: Map, domain: Grid, grid: Grid) -> Map:
    """A map of a part of a grid as a displacement on all of it, continued by its edge."""
    if domain.same_as(grid, tolerance=1e-6) and isinstance(phi, DisplacementMap):
        return phi
    like = torch.empty(0, device=phi.displacement.device if isinstance(phi, DisplacementMap) else None)
    ends = places_in_own_frame((MapStep(phi, domain),), grid, like=like)
    return DisplacementMap(ends - unit_grid(grid.shape, like=ends))


def _blurred(source: Volume, start: Transform, grid: Grid) -> Volume:
    """Without what the fixed grid is too coarse for."""
    affine = affine_part(start.steps, start.dims)
    seen = Grid(grid.shape, affine @ grid.world_from_voxel)
    steps = source.grid.voxel_from_world[:-1, :-1] @ seen.world_from_voxel[:-1, :-1]
    return antialiased(source, seen) if steps.norm(dim=1).max() > _COARSER else source


def _weights(mask: Volume | None, domain: Domain, target: Volume) -> torch.Tensor | None:
    if mask is None:
        return None
    inside = domain.of(Volume((mask.data[:1] != 0).float(), mask.world_from_voxel))
    return (inside.data[None] > 0.5).to(target.data.device)


def _given(
    image: Volume | Path | Sequence[Volume | Path],
    mask: Volume | Path | None,
    labels: Volume | Path | None,
    name: str,
) -> _Given:
    """Everything on the table and checked before anything is computed."""
    given: list[Any] = list(image) if isinstance(image, list | tuple) else [image]
    called = f"the {name} image" if len(given) == 1 else f"{name} image " + "{}"
    names = [
        called.format(i) if isinstance(one, Volume) else os.fspath(one)
        for i, one in enumerate(given, start=1)
    ]
    volumes = [one if isinstance(one, Volume) else read(one) for one in given]
    for one, its_name in zip(volumes, names, strict=True):
        require_contrast(one, its_name)
    volume = stacked(volumes, names)
    if volume.dims < 2:
        raise ValueError(f"the {name} image has 1 axis; images of 2 or 3 are registered.")
    what = f"the label map of the {name} image"
    drawn = labels if isinstance(labels, Volume) or labels is None else read(labels, labels=True)
    if drawn is not None and not drawn.is_labels:
        raise ValueError(f"{what} holds {drawn.data.dtype}; read it with `rt.read(path, labels=True)`.")
    counts = mask if isinstance(mask, Volume) or mask is None else read(mask)
    if counts is not None:
        counts = Volume((counts.data[:1] != 0).int(), counts.world_from_voxel)
        if not counts.data.any():
            raise ValueError(f"the mask of the {name} image is empty: no voxel counts.")
    return _Given(
        volume,
        _on_grid(counts, volume, f"the mask of the {name} image"),
        _on_grid(drawn, volume, what),
    )


def _on_grid(volume: Volume | None, image: Volume, what: str) -> Volume | None:
    if volume is not None and not volume.grid.same_as(image.grid, tolerance=0.1):
        raise ValueError(
            f"{what} lies on another grid than its image: {volume.grid!r} instead of {image.grid!r}. Draw it "
            "on the image, or resample it: `roundtrip.space.resample.resampled(labels, like=image)`."
        )
    return volume


def _landmarks(
    fixed: PointsOrPath | None, moving: PointsOrPath | None, target: Volume, source: Volume
) -> LandmarkPairs | None:
    if fixed is None and moving is None:
        return None
    if fixed is None or moving is None:
        raise ValueError("landmarks were given for one image only; each needs its partner in the other.")
    return paired(fixed, moving, fixed_grid=target.grid, moving_grid=source.grid)


def _measured_by_guides(
    source: _Given, target: _Given, landmarks: LandmarkPairs | None, steered_by: Guidance
) -> tuple[str, ...]:
    """That what measures has steered, too, where it has: such numbers say little about other places."""
    said = []
    if steered_by.labels is not None and target.labels is not None and source.labels is not None:
        pairs = zip(steered_by.labels, (target.labels, source.labels), strict=True)
        if any(torch.equal(one.data, other.data[:1]) for one, other in pairs):
            said.append("the labels that measure have steered, too: Dice says little about other places.")
    if steered_by.landmarks is not None and landmarks is not None:
        both = {tuple(point) for point in steered_by.landmarks.fixed.tolist()}
        if any(tuple(point) in both for point in landmarks.fixed.tolist()):
            said.append(
                "landmarks that measure have steered, too: their error says little about other places."
            )
    return tuple(said)


def _names_of_guides(steered_by: Guidance) -> list[str]:
    given = {
        "labels": steered_by.labels,
        "landmarks": steered_by.landmarks,
        f"{steered_by.rigid_side} rigid region": steered_by.rigid,
    }
    return [name for name, one in given.items() if one is not None]


def _require_choices(linear: str, modality: str, effort: str) -> None:
    for name, value, kind in (
        ("linear", linear, Linear),
        ("modality", modality, Modality),
        ("effort", effort, Effort),
    ):
        if value not in get_args(kind):
            raise ValueError(f"`{name}` is {value!r}; it is one of {', '.join(map(repr, get_args(kind)))}.")
