"""Images in files lie where SimpleITK and nibabel say, on oblique, flipped and anisotropic grids;
and what is written lies there for them."""

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from scenes import GRIDS, VOLUMES, body, labelled

from roundtrip.space._itk import to_itk
from roundtrip.space.files import read, write
from roundtrip.space.grid import orientation_of
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

PLANES = [name for name in GRIDS if name not in VOLUMES]


def seen_by_itk(path):
    """Values in our order of axes, and where three voxels lie, in LPS."""
    image = sitk.ReadImage(str(path))
    corners = [
        [0] * image.GetDimension(),
        [1, 2, 3][: image.GetDimension()],
        [n - 1 for n in image.GetSize()],
    ]
    at = [image.TransformIndexToPhysicalPoint(corner) for corner in corners]
    return sitk.GetArrayFromImage(image).transpose(), corners, np.array(at)


def lies_at(volume, corners):
    index = torch.tensor([[*corner, 1] for corner in corners], dtype=torch.float64)
    return (index @ volume.world_from_voxel.mT)[:, :-1].numpy()


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha"])
@pytest.mark.parametrize("name", VOLUMES)
def test_itk_finds_our_volumes_where_they_are(name, suffix, tmp_path):
    volume = body(GRIDS[name])
    write(volume, tmp_path / f"image{suffix}")
    values, corners, at = seen_by_itk(tmp_path / f"image{suffix}")
    assert np.array_equal(values, volume.data[0].numpy())
    assert np.abs(at - lies_at(volume, corners)).max() < 1e-3


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha", ".mhd"])
@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_of_itk_are_read_where_they_are(name, suffix, tmp_path):
    volume = body(GRIDS[name])
    sitk.WriteImage(to_itk(volume), str(tmp_path / f"image{suffix}"))
    ours = read(tmp_path / f"image{suffix}")
    assert ours.data.equal(volume.data) and ours.grid.same_as(volume.grid, tolerance=1e-3)


@pytest.mark.parametrize("name", VOLUMES)
def test_nibabel_and_we_agree_up_to_the_first_two_axes_of_the_world(name, tmp_path):
    volume = body(GRIDS[name])
    write(volume, tmp_path / "image.nii.gz")
    image = nib.load(tmp_path / "image.nii.gz")
    flip = np.diag([-1, -1, 1, 1])
    assert np.allclose(flip @ image.affine, volume.world_from_voxel.numpy(), atol=1e-4)
    assert "".join(nib.aff2axcodes(image.affine)) == orientation_of(volume)
    nib.save(nib.Nifti1Image(volume.data[0].numpy(), image.affine), tmp_path / "theirs.nii.gz")
    assert read(tmp_path / "theirs.nii.gz").grid.same_as(volume.grid)


def test_the_qform_counts_where_there_is_no_sform(tmp_path):
    volume = body(GRIDS["oblique"])
    image = nib.Nifti1Image(volume.data[0].numpy(), None)
    image.set_qform(np.diag([-1, -1, 1, 1]) @ volume.world_from_voxel.numpy(), code=1)
    image.set_sform(None, code=0)
    nib.save(image, tmp_path / "qform.nii.gz")
    assert read(tmp_path / "qform.nii.gz").grid.same_as(volume.grid)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_numbers_of_any_type_are_intensities_or_labels(dtype, suffix, tmp_path):
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    if suffix == ".nii.gz":
        nib.save(nib.Nifti1Image(values, np.eye(4)), tmp_path / f"x{suffix}")
    else:
        sitk.WriteImage(sitk.GetImageFromArray(values.transpose()), str(tmp_path / f"x{suffix}"))
    image, labels = read(tmp_path / f"x{suffix}"), read(tmp_path / f"x{suffix}", labels=True)
    assert image.data.dtype == torch.float32 and labels.data.dtype == torch.int32
    assert np.array_equal(image.data[0], values) and np.array_equal(labels.data[0], values)


def test_the_scaling_of_a_header_is_applied(tmp_path):
    image = nib.Nifti1Image(np.arange(8, dtype=np.int16).reshape(2, 2, 2), np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    nib.save(image, tmp_path / "scaled.nii.gz")
    assert read(tmp_path / "scaled.nii.gz").data.max() == 13.5


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_labels_are_written_as_whole_numbers(suffix, tmp_path):
    labels = labelled(GRIDS["oblique"])
    write(labels, tmp_path / f"labels{suffix}")
    assert read(tmp_path / f"labels{suffix}", labels=True).data.equal(labels.data)
    assert seen_by_itk(tmp_path / f"labels{suffix}")[0].dtype.kind in "iu"


def series(folder):
    """Two images in one file, in two formats."""
    values = np.stack([np.zeros((3, 4, 5), np.float32), np.ones((3, 4, 5), np.float32)], axis=-1)
    nib.save(nib.Nifti1Image(values, np.eye(4)), folder / "series.nii.gz")
    both = [sitk.GetImageFromArray(values[..., i].transpose()) for i in (0, 1)]
    sitk.WriteImage(sitk.JoinSeries(both), str(folder / "series.mha"))


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha"])
def test_one_image_of_a_series_has_to_be_chosen(suffix, tmp_path):
    series(tmp_path)
    for chosen in (0, 1):
        volume = read(tmp_path / f"series{suffix}", volume=chosen)
        assert volume.shape == (3, 4, 5) and (volume.data == chosen).all()
    with pytest.raises(ValueError, match=r"holds 2 volumes.*`--volume 0`"):
        read(tmp_path / f"series{suffix}")
    with pytest.raises(ValueError, match="0 to 1 exist"):
        read(tmp_path / f"series{suffix}", volume=2)


def write_dicom(folder, volume, positions=None):
    """One slice a file, with what a scanner says of where it lies; names do not tell the order.

    `positions`: another affine matrix, which says where the first voxels of the slices lie.
    """
    folder.mkdir()
    image = sitk.Cast(to_itk(volume), sitk.sitkInt16)
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    direction = image.GetDirection()
    cosines = "\\".join(f"{direction[i]:.8f}" for i in (0, 3, 6, 1, 4, 7))
    for k in range(image.GetDepth()):
        plane = image[:, :, k]
        matrix = volume.world_from_voxel if positions is None else positions
        position = (matrix[:3, 3] + k * matrix[:3, 2]).tolist()
        tags = {
            "0008|0060": "MR",
            "0020|000d": "1.2.3",
            "0020|000e": "1.2.3.4",
            "0008|0018": f"1.2.3.4.{k + 1}",
            "0020|0032": "\\".join(f"{value:.6f}" for value in position),
            "0020|0037": cosines,
            "0020|0013": str(k),
        }
        for tag, value in tags.items():
            plane.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"{(7 * k) % 23:03d}.dcm"))
        writer.Execute(plane)


@pytest.mark.parametrize("name", ["anisotropic", "oblique"])
def test_a_folder_of_dicom_slices_is_a_volume(name, tmp_path):
    place = GRIDS[name]
    volume = Volume(body(place).data[..., :20], place.world_from_voxel)
    write_dicom(tmp_path / "slices", volume)
    ours = read(tmp_path / "slices")
    expected = volume.data.to(torch.int16).float()
    if not ours.grid.same_as(volume.grid, tolerance=0.01):
        # A scanner's slices run either way; the volume is the same one.
        expected, matrix = expected.flip(3), volume.world_from_voxel.clone()
        matrix[:, 3] = volume.world_from_voxel @ torch.tensor([0, 0, 19, 1.0]).double()
        matrix[:, 2] = -matrix[:, 2]
        assert ours.grid.same_as(Volume(expected, matrix).grid, tolerance=0.01)
    assert ours.data.equal(expected)


def test_a_missing_slice_is_not_stretched_over(tmp_path):
    volume = Volume(body(GRIDS["oblique"]).data[..., :20], GRIDS["oblique"].world_from_voxel)
    write_dicom(tmp_path / "slices", volume)
    (tmp_path / "slices" / f"{(7 * 5) % 23:03d}.dcm").unlink()
    with pytest.raises(ValueError, match=r"do not lie evenly.* Is one missing"):
        read(tmp_path / "slices")


def test_slices_of_a_tilted_scanner_lie_where_it_says(tmp_path):
    """Each a little further to the back than the one below, though all look straight up."""
    slanted = torch.tensor([[1.0, 0, 0, 5], [0, 1, 0.6, -7], [0, 0, 2, 3], [0, 0, 0, 1]], dtype=torch.float64)
    straight = slanted.clone()
    straight[1, 2] = 0
    volume = Volume(torch.arange(240.0).view(1, 8, 6, 5), straight)
    write_dicom(tmp_path / "slices", volume, positions=slanted)
    ours = read(tmp_path / "slices")
    assert ours.grid.same_as(Volume(volume.data, slanted).grid) and ours.data.equal(volume.data)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".tiff", ".nii.gz", ".mha", ".nrrd"])
def test_planes(suffix, tmp_path):
    plane = Volume((100 * torch.rand(1, 12, 9)).round(), torch.eye(3))
    write(plane, tmp_path / f"plane{suffix}")
    again = read(tmp_path / f"plane{suffix}")
    assert again.data.equal(plane.data) and again.dims == 2
    assert np.array_equal(seen_by_itk(tmp_path / f"plane{suffix}")[0].squeeze(), plane.data[0].numpy())


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_pictures_may_have_colours(suffix, tmp_path):
    colours = np.random.default_rng(0).integers(0, 255, (9, 12, 3)).astype(np.uint8)
    sitk.WriteImage(sitk.GetImageFromArray(colours, isVector=True), str(tmp_path / f"colours{suffix}"))
    assert read(tmp_path / f"colours{suffix}").data.shape == (3, 12, 9)


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("suffix", [".nrrd", ".mha"])
def test_oblique_planes_stay_where_they_are(name, suffix, tmp_path):
    write(body(GRIDS[name]), tmp_path / f"plane{suffix}")
    assert read(tmp_path / f"plane{suffix}").grid.same_as(GRIDS[name])


def test_headers_without_orientation_need_one(tmp_path):
    image = nib.Nifti1Image(np.zeros((3, 4, 5), np.float32), np.diag([1.0, 2, 3, 1]))
    image.set_sform(None, code=0)
    image.set_qform(None, code=0)
    nib.save(image, tmp_path / "nowhere.nii.gz")
    with pytest.raises(ValueError, match="header without orientation"):
        read(tmp_path / "nowhere.nii.gz")
    volume = read(tmp_path / "nowhere.nii.gz", orientation="RAS")
    assert orientation_of(volume) == "RAS" and volume.spacing == (1, 2, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_numbers_are_refused_or_replaced(bad, tmp_path):
    values = np.zeros((3, 4, 5), np.float32)
    values[1, 2, 3] = bad
    nib.save(nib.Nifti1Image(values, np.eye(4)), tmp_path / "bad.nii.gz")
    with pytest.raises(ValueError, match="1 of 60 values are NaN or infinite"):
        read(tmp_path / "bad.nii.gz")
    assert read(tmp_path / "bad.nii.gz", replace_nan=5.0).data[0, 1, 2, 3] == 5


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha", ".png"])
def test_half_a_file_is_said_to_be_one(suffix, tmp_path):
    shape = (40, 30) if suffix == ".png" else (20, 21, 22)
    image = (100 * torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))).round()
    write(Volume(image, torch.eye(len(shape) + 1)), tmp_path / f"whole{suffix}")
    content = (tmp_path / f"whole{suffix}").read_bytes()
    (tmp_path / f"half{suffix}").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"half.* could not be read"):
        read(tmp_path / f"half{suffix}")


@pytest.mark.parametrize("suffix", [".nrrd", ".mha", ".png", ".h5"])
def test_libraries_do_not_speak_of_it_on_the_terminal(suffix, tmp_path, capfd):
    if suffix == ".h5":
        Transform.from_affine(torch.eye(4)).save(tmp_path / "whole.h5")
    else:
        write(Volume(torch.rand(1, 20, 30), torch.eye(3)), tmp_path / f"whole{suffix}")
    content = (tmp_path / f"whole{suffix}").read_bytes()
    (tmp_path / f"half{suffix}").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"half.* could not be read") as caught:
        (Transform.load if suffix == ".h5" else read)(tmp_path / f"half{suffix}")
    assert capfd.readouterr().err == ""
    assert "No such file" not in str(caught.value) and "sitk::" not in str(caught.value)


def test_a_folder_without_images_is_said_and_nothing_else(tmp_path, capfd):
    with pytest.raises(ValueError, match="folder without a DICOM series"):
        read(tmp_path)
    assert capfd.readouterr().err == ""


def test_a_changed_byte_is_noticed(tmp_path):
    write(Volume(torch.rand(1, 20, 21, 22), torch.eye(4)), tmp_path / "image.nii.gz")
    content = bytearray((tmp_path / "image.nii.gz").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "image.nii.gz").write_bytes(content)
    with pytest.raises(ValueError, match="truncated or damaged"):
        read(tmp_path / "image.nii.gz")


def test_units_that_nobody_knows_are_millimetres(tmp_path):
    image = nib.Nifti1Image(np.zeros((3, 4, 5), np.float32), np.diag([1.0, 2, 3, 1]))
    image.header["xyzt_units"] = 7
    nib.save(image, tmp_path / "image.nii.gz")
    assert read(tmp_path / "image.nii.gz").spacing == (1, 2, 3)


def test_an_array_is_no_file(as_users_see_it):
    with pytest.raises(ValueError, match=r"not a ndarray.*rt\.Volume"):
        read(np.zeros((3, 4, 5)))


def test_a_line_is_no_image(tmp_path):
    nib.save(nib.Nifti1Image(np.zeros(5, np.float32), np.eye(4)), tmp_path / "line.nii.gz")
    with pytest.raises(ValueError, match="a plane or a volume is needed"):
        read(tmp_path / "line.nii.gz")


def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path):
    volume = body(GRIDS["straight"])
    for name, says in (
        ("x.jpg", "cannot be written"),
        ("x.png", "is for planes"),
        ("x", "ends with nothing"),
    ):
        with pytest.raises(ValueError, match=says):
            write(volume, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
