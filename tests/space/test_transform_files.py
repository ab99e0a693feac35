"""A saved transform means the same to ITK as to us, both ways, on any grids; and comes back as it was."""

import math

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from scenes import CENTRE, GRIDS, body, grid, homogeneous, rotation
from scipy.ndimage import map_coordinates
from torch.testing import assert_close

from roundtrip.maps.grid import unit_grid
from roundtrip.maps.velocity import exponential
from roundtrip.space._itk import from_itk, place, to_itk
from roundtrip.space.files import write
from roundtrip.space.steps import AffineStep, MapStep
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

PAIRS = [
    ("straight", "oblique"),
    ("oblique", "permuted"),
    ("flipped", "anisotropic"),
    ("plane", "oblique plane"),
    ("oblique plane", "plane"),
]


def alignment(dims):
    linear = 1.1 * rotation(dims, 12.0)
    centre = torch.tensor(CENTRE[:dims], dtype=torch.float64)
    return homogeneous(linear, centre - linear @ centre + torch.tensor([2.0, -1.0, 1.0][:dims]))


def registered(fixed, moving, *, affine=True):
    """As a registration leaves it: maps both ways on the fixed grid, and an affine alignment."""
    place = GRIDS[fixed]
    x = unit_grid(place.shape).double()
    velocity = (0.03 * torch.sin(math.pi * x) * torch.cos(2 * x.flip(1) + 1)).float()
    phi, psi = exponential(velocity), exponential(-velocity)
    matrix = alignment(place.dims) if affine else None
    return Transform.from_maps(phi, place, GRIDS[moving], inverse=psi, affine=matrix)


def resampled_by_itk(path, image, place_of):
    """What SimpleITK makes of our file."""
    reference = sitk.Image(list(place_of.shape), sitk.sitkFloat32)
    place(reference, place_of)
    transform = sitk.ReadTransform(str(path))
    warped = sitk.Resample(to_itk(image), reference, transform, sitk.sitkLinear, 0.0, sitk.sitkFloat32)
    return torch.from_numpy(from_itk(warped).values.copy())


def points_near_centre(dims, count=50):
    generator = torch.Generator().manual_seed(dims)
    spread = 16 * torch.rand(count, dims, generator=generator, dtype=torch.float64) - 8
    return spread + torch.tensor(CENTRE[:dims])


@pytest.mark.parametrize("suffix", [".h5", ".tfm"])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("fixed", "moving"), PAIRS)
def test_itk_warps_images_with_our_files_as_we_do(fixed, moving, affine, suffix, tmp_path):
    transform = registered(fixed, moving, affine=affine)
    for name, one in {"there": transform, "back": transform.inverse()}.items():
        path = tmp_path / f"{name}{suffix}"
        one.save(path)
        image = body(one.moving)
        ours = one.warp(image).data
        theirs = resampled_by_itk(path, image, one.fixed)
        # Where the border of the moving image is met within rounding noise, in or out is a toss.
        apart = (ours - theirs).abs() > 1e-3 * 160
        assert apart.double().mean() < 1e-3
        assert ours.max() > 100
        if suffix == ".tfm":
            return  # text is slow, and the other direction no different


@pytest.mark.parametrize(("fixed", "moving"), PAIRS)
def test_itk_moves_points_with_our_files_as_we_do(fixed, moving, tmp_path):
    transform = registered(fixed, moving)
    transform.save(tmp_path / "there.h5")
    itk = sitk.ReadTransform(str(tmp_path / "there.h5"))
    points = points_near_centre(transform.dims)
    theirs = torch.tensor([itk.TransformPoint(point) for point in points.tolist()], dtype=torch.float64)
    assert_close(theirs, transform.points(points), atol=1e-4, rtol=0)


@pytest.mark.parametrize("suffix", [".h5", ".tfm", ".nii.gz", ".npz"])
@pytest.mark.parametrize(("fixed", "moving"), PAIRS)
def test_what_was_saved_is_loaded(fixed, moving, suffix, tmp_path):
    transform = registered(fixed, moving)
    path = tmp_path / f"transform{suffix}"
    transform.save(path)
    loaded = Transform.load(path, fixed=transform.fixed, moving=transform.moving)
    # The points of a NIfTI displacement, with the affine part in it, are exact at voxels only; float16 is
    # coarse.
    atol = {".nii.gz": 0.05, ".npz": 0.05}.get(suffix, 1e-4)
    points = points_near_centre(transform.dims)
    assert_close(loaded.points(points), transform.points(points), atol=atol, rtol=0)
    assert loaded.fixed.same_as(transform.fixed) and loaded.moving.same_as(transform.moving)


def test_a_composite_holds_the_affine_part_first_then_the_displacement(tmp_path):
    registered("straight", "oblique").save(tmp_path / "there.h5")
    composite = sitk.ReadTransform(str(tmp_path / "there.h5")).Downcast()
    kinds = [type(composite.GetNthTransform(i).Downcast()).__name__ for i in (0, 1)]
    assert kinds == ["AffineTransform", "DisplacementFieldTransform"]


@pytest.mark.parametrize(("fixed", "moving"), PAIRS[:4])
def test_a_nifti_displacement_is_as_the_field_expects(fixed, moving, tmp_path):
    transform = registered(fixed, moving)
    transform.save(tmp_path / "displacement.nii.gz")
    image = nib.load(tmp_path / "displacement.nii.gz")
    dims = transform.dims
    assert image.header.get_intent()[0] == "vector" and image.header["intent_code"] == 1007
    assert image.get_data_dtype() == np.float32 and image.shape[-1] == dims and len(image.shape) == 5
    index = tuple(n // 2 for n in transform.fixed.shape)
    at = transform.fixed.world_from_voxel @ torch.tensor([*index, 1.0], dtype=torch.float64)
    moved = np.asarray(image.dataobj)[(*index, *[0] * (4 - dims))]
    assert_close(
        torch.from_numpy(moved).double(), (transform.points(at[None, :-1]) - at[:-1])[0], atol=1e-4, rtol=0
    )
    # ITK, which reads vectors as they are, has them in its own world, LPS.
    field = sitk.DisplacementFieldTransform(
        sitk.ReadImage(str(tmp_path / "displacement.nii.gz"), sitk.sitkVectorFloat64)
    )
    end = torch.tensor(field.TransformPoint(at[:-1].tolist()), dtype=torch.float64)
    assert_close(end, transform.points(at[None, :-1])[0], atol=1e-3, rtol=0)


@pytest.mark.parametrize(("fixed", "moving"), PAIRS)
def test_a_learn2reg_array_warps_by_map_coordinates(fixed, moving, tmp_path):
    transform = registered(fixed, moving)
    transform.save(tmp_path / "disp_1_2.npz")
    with np.load(tmp_path / "disp_1_2.npz") as archive:
        displacement = archive[archive.files[0]]
    assert displacement.dtype == np.float16
    assert displacement.shape == (transform.dims, *transform.fixed.shape)
    image = body(GRIDS[moving])
    index = np.meshgrid(*(np.arange(n) for n in transform.fixed.shape), indexing="ij")
    theirs = map_coordinates(image.data[0].numpy(), np.stack(index) + displacement, order=1)
    assert np.abs(theirs - transform.warp(image).data[0].numpy()).mean() < 0.2


def _euler():
    transform = sitk.Euler3DTransform()
    transform.SetCenter((5.0, -3.0, 20.0))
    transform.SetRotation(0.2, -0.1, 0.4)
    transform.SetTranslation((3.0, 1.0, -2.0))
    return transform


def _similarity():
    transform = sitk.Similarity3DTransform(1.2, (0.0, 1.0, 0.0), 0.3, (1.0, 2.0, 3.0))
    transform.SetCenter((1.0, 2.0, 3.0))
    return transform


def _spline():
    reference = sitk.Image([40, 50, 36], sitk.sitkFloat32)
    place(reference, GRIDS["oblique"])
    transform = sitk.BSplineTransformInitializer(reference, [4, 4, 4])
    count = len(transform.GetParameters())
    transform.SetParameters(np.random.default_rng(0).uniform(-3, 3, count).tolist())
    return transform


FOREIGN = {
    "affine": lambda: sitk.AffineTransform((1.1, 0.1, 0, 0, 0.9, 0, 0.2, 0, 1), (1.0, 2, 3), (4.0, 5, 6)),
    "Euler": _euler,
    "similarity": _similarity,
    "translation": lambda: sitk.TranslationTransform(3, (1.0, -2.0, 3.0)),
    "versor": lambda: sitk.VersorRigid3DTransform((0.0, 0, 1), 0.4, (1.0, 2, 3), (4.0, 5, 6)),
    "spline": _spline,
    "composite": lambda: sitk.CompositeTransform([_similarity(), _euler(), _spline()]),
    "plane": lambda: sitk.Euler2DTransform((3.0, 4.0), 0.3, (1.0, -2.0)),
}


@pytest.mark.parametrize("suffix", [".h5", ".tfm", ".mat"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_transforms_of_itk_are_understood(kind, suffix, tmp_path):
    itk = FOREIGN[kind]()
    if suffix == ".mat" and kind in ("composite", "spline"):
        pytest.skip("ITK itself reads no such file")
    path = tmp_path / f"foreign{suffix}"
    sitk.WriteTransform(itk, str(path))
    points = points_near_centre(itk.GetDimension())
    theirs = torch.tensor([itk.TransformPoint(point) for point in points.tolist()], dtype=torch.float64)
    exact = kind not in ("composite", "spline")
    ours = Transform.load(path).points(points)
    assert_close(ours, theirs, atol=1e-9 if exact else 0.03, rtol=0)


def test_an_inverse_that_is_only_searched_for_is_saved_too(tmp_path):
    there = registered("plane", "oblique plane")
    alone = Transform(there.steps, 2, there.fixed, there.moving)
    alone.inverse().save(tmp_path / "inverse.h5")
    points = alone.points(points_near_centre(2))
    loaded = Transform.load(tmp_path / "inverse.h5")
    assert_close(loaded.points(points), points_near_centre(2), atol=0.05, rtol=0)


def test_a_field_coarser_than_the_image_stays_coarse(tmp_path):
    place = GRIDS["straight"]
    coarse = Transform.from_maps(exponential(0.02 * torch.rand(1, 3, 9, 8, 7)), place, place)
    coarse.save(tmp_path / "coarse.h5")
    assert (tmp_path / "coarse.h5").stat().st_size < 60_000
    (step,) = Transform.load(tmp_path / "coarse.h5").steps
    assert isinstance(step, MapStep) and step.grid.shape == (9, 8, 7)
    points = points_near_centre(3)
    assert_close(
        Transform.load(tmp_path / "coarse.h5").points(points), coarse.points(points), atol=1e-3, rtol=0
    )


def test_the_identity_is_saved_too(tmp_path):
    identity = Transform.from_affine(torch.eye(3), GRIDS["plane"], GRIDS["plane"])
    for suffix in (".h5", ".tfm", ".nii.gz", ".npz"):
        identity.save(tmp_path / f"identity{suffix}")
        back = Transform.load(tmp_path / f"identity{suffix}", fixed=GRIDS["plane"], moving=GRIDS["plane"])
        assert back.dims == 2
        assert_close(back.points([[1.0, 2.0]]), torch.tensor([[1.0, 2.0]]).double(), atol=1e-5, rtol=0)


def test_affine_transforms_are_saved_without_grids(tmp_path):
    Transform.from_affine(alignment(3)).save(tmp_path / "affine.tfm")
    (step,) = Transform.load(tmp_path / "affine.tfm").steps
    assert isinstance(step, AffineStep)
    assert_close(step.matrix, alignment(3))


def test_what_cannot_be_saved_or_loaded_is_said(tmp_path):
    affine = Transform.from_affine(alignment(3))
    with pytest.raises(ValueError, match=r"affine\.xfm cannot be written.*\.h5"):
        affine.save(tmp_path / "affine.xfm")
    with pytest.raises(ValueError, match="does not know a fixed image"):
        affine.save(tmp_path / "affine.nii.gz")
    with pytest.raises(ValueError, match="counts in voxels of both images"):
        affine.save(tmp_path / "affine.npz")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Transform.load(tmp_path / "none.h5")
    for suffix in (".h5", ".tfm", ".mat", ".nii.gz", ".npz"):
        broken = tmp_path / f"broken{suffix}"
        broken.write_bytes(b"not a transform at all")
        with pytest.raises(ValueError, match=r"broken.*could not be read"):
            Transform.load(broken, fixed=GRIDS["straight"], moving=GRIDS["straight"])
    (tmp_path / "x.foo").write_text("")
    with pytest.raises(ValueError, match="no transform that can be read"):
        Transform.load(tmp_path / "x.foo")
    nib.save(nib.Nifti1Image(np.zeros((3, 4, 5), np.float32), np.eye(4)), tmp_path / "image.nii.gz")
    with pytest.raises(ValueError, match="Is it an image"):
        Transform.load(tmp_path / "image.nii.gz")
    np.savez(tmp_path / "small.npz", np.zeros((3, 2, 2, 2), np.float16))
    with pytest.raises(ValueError, match="name both"):
        Transform.load(tmp_path / "small.npz")
    with pytest.raises(ValueError, match=r"shape \(3, 2, 2, 2\)"):
        Transform.load(tmp_path / "small.npz", fixed=grid(), moving=grid())


def test_a_truncated_file_is_said(tmp_path):
    registered("straight", "oblique").save(tmp_path / "whole.h5")
    content = (tmp_path / "whole.h5").read_bytes()
    (tmp_path / "half.h5").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"half\.h5 could not be read"):
        Transform.load(tmp_path / "half.h5")


def test_displacements_need_as_many_values_as_axes(tmp_path):
    write(Volume(torch.zeros(2, 3, 4, 5), torch.eye(4)), tmp_path / "two.nii.gz")
    with pytest.raises(ValueError, match="Is it an image"):
        Transform.load(tmp_path / "two.nii.gz")
