"""`Transform`: a map between two worlds, in millimetres. Neighbours: `steps.py`, of which it is made,
`transform_files.py`, which saves and loads it, and `resample.py`, which moves nothing.
"""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from roundtrip._shapes import Float, Tensor
from roundtrip._showing import shown
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import Interpolation
from roundtrip.maps.map import Map
from roundtrip.space import measures
from roundtrip.space.files import read, whole_numbers
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.resample import require_same_dims
from roundtrip.space.sampling import sample
from roundtrip.space.steps import (
    AffineStep,
    MapStep,
    Steps,
    affine_part,
    device_of,
    follow,
    follow_grid,
    inverse_steps,
    joined,
    moved_to,
    steps_of_map,
)
from roundtrip.space.volume import Volume, grid_of

Path = str | os.PathLike[str]


@dataclass(frozen=True, eq=False, repr=False)
class Transform:
    """Takes points of the fixed world to points of the moving world, in LPS millimetres.

    The same object lays moving images onto the fixed grid: to fill a voxel of the fixed grid one has to know
    where in the moving image to look. Points of the moving image go the other way, with `inverse()`.

    `Transform.from_maps` and `Transform.from_affine` make one, `rt.register` finds one, `Transform.load`
    reads one. `fixed` and `moving` are the grids of the two images where they are known; `back` are the steps
    of the inverse where a registration found both.
    """

    steps: Steps
    dims: int
    fixed: Grid | None = None
    moving: Grid | None = None
    back: Steps | None = None

    @staticmethod
    def from_maps(
        phi: Map,
        fixed: Volume | Grid,
        moving: Volume | Grid,
        *,
        inverse: Map | None = None,
        affine: Affine | None = None,
    ) -> "Transform":
        """The transform of a map in unit coordinates, as registration algorithms return it.

        `phi` takes unit coordinates of `fixed` to those of `moving`; its partner `inverse`, if there is one,
        takes them back. Where an affine alignment came first, give it as `affine`, from the fixed to the
        moving world in LPS mm: then `phi` and `inverse` both stay in unit coordinates of `fixed`, and the
        transform is x -> affine(phi(x)), its inverse y -> inverse(affine^-1(y)). Maps of a batch of one.

        If the maps speak of the grids of prepared images, give those grids here, and those of the images by
        `.between(fixed, moving)`.
        """
        fixed, moving = grid_of(fixed), grid_of(moving)
        require_same_dims(fixed, moving)
        if affine is None:
            steps = steps_of_map(phi, fixed, moving)
            back = None if inverse is None else steps_of_map(inverse, moving, fixed)
        else:
            after = AffineStep(torch.as_tensor(affine, dtype=torch.float64, device="cpu"))
            steps = joined(*steps_of_map(phi, fixed, fixed), after)
            before = inverse_steps((after,))
            back = None if inverse is None else joined(*before, *steps_of_map(inverse, fixed, fixed))
        return Transform(steps, fixed.dims, fixed, moving, back)

    @staticmethod
    def from_affine(
        matrix: Affine | Sequence[Sequence[float]],
        fixed: Volume | Grid | None = None,
        moving: Volume | Grid | None = None,
    ) -> "Transform":
        """x -> A x by a homogeneous matrix, from the fixed to the moving world in LPS mm."""
        matrix = torch.as_tensor(matrix, dtype=torch.float64)
        _require_homogeneous(matrix)
        identity = Transform(joined(AffineStep(matrix)), len(matrix) - 1)
        return identity.between(fixed, moving)

    @staticmethod
    def load(
        path: Path, *, fixed: Volume | Grid | None = None, moving: Volume | Grid | None = None
    ) -> "Transform":
        """Reads what `save` wrote, and what ITK, ANTs and Slicer write: .h5, .tfm, .txt, .mat, displacements.

        Of ITK: everything affine, displacements, B-splines (sampled finely), and composites of them; of ANTs
        `0GenericAffine.mat` and `1Warp.nii.gz`, which act as `affine @ warp`. `fixed` and `moving` are the
        images it lies between, which a file does not know; for Learn2Reg's .npz they are needed. Beyond its
        grid a displacement is continued by its edge, where ITK would have none.
        """
        # Imported here: that file makes transforms itself.
        from roundtrip.space.transform_files import load_transform

        return load_transform(path, fixed, moving)

    def save(self, path: Path) -> None:
        """Writes it for other programs. The file appears whole or not at all.

        .h5, .tfm, .txt: ITK's composite, as ITK, ANTs and Slicer read it; .nii, .nii.gz: the displacement at
        the voxels of the fixed grid, LPS mm, intent 1007; .npz: Learn2Reg's, in voxels, which names it
        `disp_<fixed>_<moving>.npz`. A file is of one direction: save `inverse()` into another.
        """
        from roundtrip.space.transform_files import save_transform

        save_transform(self, path)

    def between(self, fixed: Volume | Grid | None, moving: Volume | Grid | None) -> "Transform":
        """The same transform, said to be between other images: where `warp` puts images unless told."""
        grids = [None if place is None else grid_of(place) for place in (fixed, moving)]
        for grid in grids:
            self._require_dims(grid)
        return dataclasses.replace(self, fixed=grids[0], moving=grids[1])

    def warp(
        self,
        image: Volume | Path,
        *,
        onto: Volume | Grid | None = None,
        interpolation: Interpolation | None = None,
        labels: bool = False,
        fill: float = 0.0,
    ) -> Volume:
        """The moving `image`, a volume or a file, laid onto the fixed grid, or onto that of `onto`.

        Images are interpolated linearly, with `labels` (and where `image` holds whole numbers) the nearest
        voxel counts; `interpolation` takes another function, such as `rt.interpolate_cubic` or, for labels,
        `interpolate_one_hot`. What the image does not cover becomes `fill`. The result is on the device of
        the transform.
        """
        volume = image if isinstance(image, Volume) else read(image, labels=labels)
        if labels and not volume.is_labels:
            data = torch.from_numpy(whole_numbers(volume.data.cpu().numpy()))
            volume = Volume(data, volume.world_from_voxel)
        grid = self._target(onto, "warp")
        self._require_dims(volume.grid)
        volume = volume.to(self.device)
        x = follow_grid(self.steps, grid, volume.world_from_unit, like=self._like(volume.data))
        return Volume(sample(volume, x, interpolation=interpolation, fill=fill), grid.world_from_voxel)

    def points(self, xyz: Any) -> Float[Tensor, "P N"]:
        """Where points of the fixed world lie in the moving world: one point a row, LPS mm, in float64."""
        # A table's array may be one that nobody is to write into, which torch only takes as a copy.
        given = xyz if isinstance(xyz, Tensor) else torch.from_numpy(np.array(xyz, dtype=np.float64))
        rows = given.to(self.device, torch.float64)
        if rows.ndim != 2 or rows.shape[1] != self.dims:
            raise ValueError(
                f"`xyz` has shape {tuple(rows.shape)}; needed is one point of {self.dims} coordinates a row, "
                f"(points, {self.dims}). A single point becomes `[point]`."
            )
        world = torch.eye(self.dims + 1, dtype=torch.float64)
        return follow(self.steps, rows.mT[None], world, world)[0].mT.contiguous()

    def inverse(self) -> "Transform":
        """Takes points of the moving world back, and lays fixed images onto the moving grid.

        Exact for affine steps. A pair that was registered both ways has found its inverse with it; elsewhere
        it is searched for at every point it is asked for, to a millionth of the image. Where the transform
        folds there is none: `transform.inverse().round_trip_error()` says where and by how much it misses.
        """
        back = self.back if self.back is not None else inverse_steps(self.steps)
        return Transform(back, self.dims, self.moving, self.fixed, self.steps)

    def __matmul__(self, inner: "Transform") -> "Transform":
        """`outer @ inner` takes x to outer(inner(x)); an image is warped by `outer` first."""
        if not isinstance(inner, Transform):
            raise ValueError(
                f"a transform is composed with another, not with a {type(inner).__name__}; a map becomes "
                "one by "
                "`Transform.from_maps(phi, fixed, moving)`."
            )
        if inner.dims != self.dims:
            raise ValueError(f"a transform of {inner.dims} dimensions is followed by one of {self.dims}.")
        back = None
        if self.back is not None or inner.back is not None:
            back = joined(*self.inverse().steps, *inner.inverse().steps)
        steps = joined(*inner.steps, *self.steps)
        return Transform(steps, self.dims, inner.fixed, self.moving, back)

    def resampled(self, grid: Volume | Grid | None = None) -> "Transform":
        """The same transform as one displacement, stored on `grid` (the fixed one), then its affine part.

        The affine part stays exact; between the voxels of `grid` the displacement becomes linear.
        """
        target = self._target(grid, "resampled")
        steps = self._displacement_then_affine(self.steps, target)
        back = self.back and self._displacement_then_affine(self.back, self.moving or target)
        return Transform(steps, self.dims, self.fixed or target, self.moving, back)

    def jacobian(self, onto: Volume | Grid | None = None) -> Volume:
        """The factor by which volumes grow, in mm, at every voxel of the fixed grid or of `onto`.

        Above 1 the moving image is the larger one there, below 0 the transform folds. By central differences.
        """
        grid = self._target(onto, "jacobian")
        growth = measures.jacobian_determinant(self.steps, grid, like=self._like())
        return Volume(growth[0], grid.world_from_voxel)

    def displacement(self, onto: Volume | Grid | None = None) -> Volume:
        """T(x) - x at every voxel x of the fixed grid or of `onto`: a channel for each coordinate, LPS mm."""
        grid = self._target(onto, "displacement")
        moved = measures.displacement(self.steps, grid, like=self._like())
        return Volume(moved[0], grid.world_from_voxel)

    def round_trip_error(
        self, inverse: "Transform | None" = None, *, onto: Volume | Grid | None = None
    ) -> Volume:
        """How far from x inverse(T(x)) is, in mm, at every voxel x of the fixed grid or of `onto`."""
        there_and_back = (inverse or self.inverse()) @ self
        missed = there_and_back.displacement(self._target(onto, "round_trip_error"))
        return Volume(missed.data.square().sum(dim=0, keepdim=True).sqrt(), missed.world_from_voxel)

    def to(self, *args: Any, **kwargs: Any) -> "Transform":
        """The same transform with its maps moved or converted as `Tensor.to` does it."""
        back = None if self.back is None else moved_to(self.back, *args, **kwargs)
        return dataclasses.replace(self, steps=moved_to(self.steps, *args, **kwargs), back=back)

    @property
    def device(self) -> torch.device:
        return device_of(self.steps)

    def __repr__(self) -> str:
        steps = ", then ".join(map(repr, self.steps)) or "identity"
        return f"Transform({steps}; from the world of {self.fixed!r} to that of {self.moving!r})"

    def _repr_html_(self) -> str:
        """In a notebook: how far it moves points, and the grid it deforms."""
        return shown(self, "transform_as_html")

    def _displacement_then_affine(self, steps: Steps, grid: Grid) -> Steps:
        """x -> affine(x + u(x)), u on `grid`; the affine alone where there is nothing else."""
        if not any(isinstance(step, MapStep) for step in steps):
            return steps
        affine = affine_part(steps, self.dims)
        rest = joined(*steps, AffineStep(torch.linalg.inv(affine)))
        x = measures.places_in_own_frame(rest, grid, like=self._like())
        displacement = DisplacementMap(x - unit_grid(grid.shape, like=x))
        return joined(MapStep(displacement, grid), AffineStep(affine))

    def _target(self, onto: Volume | Grid | None, name: str) -> Grid:
        grid = self.fixed if onto is None else grid_of(onto)
        if grid is None:
            raise ValueError(
                "this transform does not know a fixed image: say onto which grid, e.g. "
                f"`transform.{name}(..., onto=rt.read('fixed.nii.gz'))`, or `transform.between(fixed, "
                "moving)`."
            )
        self._require_dims(grid)
        return grid

    def _require_dims(self, grid: Grid | None) -> None:
        if grid is not None and grid.dims != self.dims:
            raise ValueError(
                f"a transform of {self.dims} dimensions does not go with an image of {grid.dims} axes; a "
                "slice "
                "goes with a slice, a volume with a volume."
            )

    def _like(self, values: Tensor | None = None) -> Tensor:
        """An empty tensor of the device and precision in which points are computed."""
        dtype = torch.float32 if values is None or not values.is_floating_point() else values.dtype
        return torch.empty(0, dtype=torch.promote_types(dtype, torch.float32), device=self.device)


def _require_homogeneous(matrix: Tensor) -> None:
    N = len(matrix) - 1
    square = matrix.shape == (N + 1, N + 1) and N in (1, 2, 3)
    if not square or matrix[-1].tolist() != [*[0.0] * N, 1.0]:
        raise ValueError(
            f"`matrix` is {matrix.tolist()}; a homogeneous matrix is needed, 4 x 4 for volumes, whose last "
            "row is "
            "0 0 0 1."
        )
    if not torch.isfinite(matrix).all() or not torch.linalg.det(matrix).abs() > 1e-12:
        raise ValueError(f"`matrix` is {matrix.tolist()}, which has no inverse: it flattens space.")
