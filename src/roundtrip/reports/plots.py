"""Figures for papers, one column wide: of maps, transforms and registered pairs, in two and three dimensions.

They are in `rt.plot`. Figures are returned and nothing of matplotlib's global state is touched. Neighbours:
`sheet.py` places the panels, `curves.py` draws trainings, `volume_figures.py` a page of one pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.map import AbstractMap, Map
from roundtrip.reports.cut import PLANES, Cut, middle_of
from roundtrip.reports.display import canonical, linear_part, nodes_over, window_of, with_nothing_on
from roundtrip.reports.figures import DIFFERENCE_COLOURS
from roundtrip.reports.sheet import COLUMN, Sheet
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Slice = Literal["axial", "coronal", "sagittal"]
SLICES: tuple[Slice, ...] = ("axial", "coronal", "sagittal")


@runtime_checkable
class Pair(Protocol):
    """What `rt.register` gives, or anything else that has these three."""

    @property
    def transform(self) -> Transform: ...

    @property
    def fixed(self) -> Volume: ...

    @property
    def moving(self) -> Volume: ...


@torch.no_grad()
def grid(
    phi: Pair | Transform | Map,
    *,
    shape: Sequence[int] | None = None,
    slices: Sequence[Slice] = SLICES,
    at: Sequence[float] | None = None,
    width: float = COLUMN,
) -> "Figure":
    """A regular grid of the fixed image as the map deforms it; of a registered pair, over the pale image.

    `phi` is what `rt.register` gives, a transform that knows its fixed image, or any map in unit coordinates,
    then on images of `shape` (a `DisplacementMap` knows its own). Of volumes the `slices` through `at`, a
    point of the fixed world in LPS mm; the middle unless given. Of pairs and transforms the linear part is
    taken away, so that the deformation remains; maps are drawn as they are. `width` is in inches.
    """
    seen = _seen(phi, shape, slices, at)
    sheet = Sheet([seen.cuts], width=width)
    for column, cut in enumerate(seen.cuts):
        sheet.lines(0, column, seen.behind(cut), cut.deformed_lines(seen.transform, seen.aside))
    return sheet.figure


@torch.no_grad()
def jacobian(
    phi: Pair | Transform | Map,
    *,
    shape: Sequence[int] | None = None,
    slices: Sequence[Slice] = SLICES,
    at: Sequence[float] | None = None,
    width: float = COLUMN,
) -> "Figure":
    """By which factor volumes grow from the fixed to the moving image, with a dot wherever the map folds.

    Arguments are those of `grid`. The determinant is that of central differences, its colours one of powers
    of two, white where nothing changes. The dots are counted over the slices that are shown.
    """
    seen = _seen(phi, shape, slices, at)
    sheet = Sheet([seen.cuts], width=width, scale=True)
    folds = 0
    for column, cut in enumerate(seen.cuts):
        determinant = cut.rows(seen.transform.jacobian(cut.slab).data[0])
        shown = sheet.growth(0, column, determinant)
        folds += int((~(determinant > 0)).sum())
    sheet.scale(shown, [(-1.0, "×½"), (0.0, "×1"), (1.0, "×2")], "growth of volume")
    if folds:
        sheet.note(f"{folds:,} folded voxel{'s' if folds > 1 else ''}")
    return sheet.figure


@torch.no_grad()
def pair(
    result: Pair,
    *,
    slices: Sequence[Slice] = SLICES,
    at: Sequence[float] | None = None,
    width: float = COLUMN,
) -> "Figure":
    """A registered pair: fixed, moving as its file places it, moving as it was warped, and the difference.

    A row for each of the `slices` of a volume, the patient's right on the left. `at` and `width` are those of
    `grid`.
    """
    seen = _seen(result, None, slices, at)
    windows = window_of(result.fixed), window_of(result.moving)
    nowhere = Transform.from_affine(torch.eye(result.fixed.dims + 1, dtype=torch.float64))
    titles = ("fixed", "moving", "warped", "difference")
    sheet = Sheet([[cut] * len(titles) for cut in seen.cuts], width=width, titles=titles, scale=True)
    for row, cut in enumerate(seen.cuts):
        target = cut.picture(cut.of(canonical(result.fixed)), windows[0])
        before = cut.picture(nowhere.warp(result.moving, onto=cut.slab), windows[1])
        after = cut.picture(result.transform.warp(result.moving, onto=cut.slab), windows[1])
        for column, picture in enumerate((target, before, after)):
            sheet.image(row, column, picture, "gray", (0.0, 1.0))
            if column == 0 and result.fixed.dims == 3:
                sheet.letters(row, column)
        shown = sheet.image(row, 3, after - target, DIFFERENCE_COLOURS, (-1.0, 1.0))
    sheet.scale(shown, [(-1.0, "fixed"), (0.0, "alike"), (1.0, "warped")], "difference, brighter:")
    return sheet.figure


@dataclass(frozen=True)
class _Seen:
    """A transform, the slices it is looked at in, and what lies behind."""

    transform: Transform
    cuts: Sequence[Cut]
    aside: Affine
    """The linear part, which is not drawn."""
    image: Volume | None = None

    def behind(self, cut: Cut) -> Any:
        """White, or the image, pale."""
        if self.image is None:
            return cut.rows(torch.ones(cut.slab.shape))
        return 1 - 0.35 * cut.picture(cut.of(canonical(self.image)), window_of(self.image))


def _seen(
    phi: Pair | Transform | Map,
    shape: Sequence[int] | None,
    slices: Sequence[Slice],
    at: Sequence[float] | None,
) -> _Seen:
    image = None
    if isinstance(phi, Transform):
        transform = phi
    elif isinstance(phi, Pair):
        image = phi.fixed
        transform = phi.transform.between(image, phi.moving)
    else:
        transform = _in_voxels(phi, shape)
    if transform.fixed is None:
        raise ValueError(
            "this transform does not know a fixed image: `transform.between(fixed, moving)` tells it."
        )
    if transform.dims < 2:
        raise ValueError("figures show maps of two or three dimensions; this one has one.")
    place = canonical(with_nothing_on(transform.fixed)).grid
    middle = _point(at, transform.dims) if at is not None else _middle(image, place)
    cuts = [Cut(PLANES[number], place, middle) for number in _chosen(slices, transform.dims)]
    aside = torch.eye(transform.dims + 1, dtype=torch.float64)
    if isinstance(phi, Transform) or image is not None:
        aside = linear_part(transform.displacement(nodes_over(place, 5000)))
    return _Seen(transform, cuts, aside, image)


def _in_voxels(phi: Any, shape: Sequence[int] | None) -> Transform:
    """A map in unit coordinates as a transform of a world in which voxels are 1 mm; axis 0 runs down."""
    if not callable(phi):
        raise ValueError(
            f"a {type(phi).__name__} is not a map; give what `rt.register` returned, a transform, or a map."
        )
    if isinstance(phi, AbstractMap):
        phi = phi[:1].to("cpu").detach()
    if shape is None and isinstance(phi, DisplacementMap):
        shape = phi.displacement.shape[2:]
    if shape is None:
        raise ValueError("a map has no resolution of its own: say on which images, e.g. `shape=(64, 64)`.")
    N = len(shape)
    matrix = torch.eye(N + 1, dtype=torch.float64)
    # The last axis runs to the left of the world, which is the right of the picture.
    matrix[:-1, :-1] = matrix[:-1, :-1].flip(0)
    place = Grid(tuple(shape), matrix)
    return Transform.from_maps(phi, place, place)


def _chosen(slices: Sequence[Slice], dims: int) -> list[int]:
    unknown = [name for name in slices if name not in SLICES]
    if unknown or not slices:
        raise ValueError(f"`slices` is {tuple(slices)}; choose among {', '.join(SLICES)}.")
    return [0] if dims == 2 else [SLICES.index(name) for name in slices]


def _point(at: Sequence[float], dims: int) -> Float[Tensor, "N"]:
    if len(at) != dims:
        raise ValueError(f"`at` is {tuple(at)}; a point of {dims} coordinates is needed, in LPS mm.")
    return torch.as_tensor(at, dtype=torch.float64)


def _middle(image: Volume | None, place: Grid) -> Float[Tensor, "N"]:
    if image is not None:
        return middle_of(image, window_of(image))
    middle = [(n - 1) / 2 for n in place.shape]
    return (place.world_from_voxel @ torch.tensor([*middle, 1.0], dtype=torch.float64))[:-1]
