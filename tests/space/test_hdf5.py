"""What is written as HDF5 is read by ITK, whose library is HDF5's own."""

import numpy as np
import pytest
import SimpleITK as sitk

from roundtrip.space._hdf5 import write_hdf5


def composite(field):
    """A displacement on a grid of 3 axes, as ITK lists it."""
    *shape, _ = field.shape
    frame = np.array([*shape[::-1], 1, 2, 3, 1, 1.5, 2, 0, 1, 0, -1, 0, 0, 0, 0, 1], dtype=np.float64)
    return {
        "TransformGroup": {
            "0": {"TransformType": "CompositeTransform_double_3_3"},
            "1": {
                "TransformType": "DisplacementFieldTransform_double_3_3",
                "TransformFixedParameters": frame,
                "TransformParameters": field.ravel(),
            },
        }
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 16, 17), (23, 24, 25), (40, 50, 30)])
def test_arrays_of_any_length_come_back_bit_by_bit(shape, dtype, tmp_path):
    field = np.random.default_rng(0).standard_normal((*shape, 3)).astype(dtype)
    write_hdf5(composite(field), tmp_path / "field.h5")
    read = sitk.ReadTransform(str(tmp_path / "field.h5")).Downcast().GetNthTransform(0).Downcast()
    image = read.GetDisplacementField()
    assert np.array_equal(sitk.GetArrayFromImage(image), field.astype(np.float64))
    assert image.GetSpacing() == (1, 1.5, 2) and image.GetOrigin() == (1, 2, 3)


def test_smooth_fields_become_small(tmp_path):
    z, y, x = np.meshgrid(*(np.linspace(0, 3, n) for n in (50, 60, 40)), indexing="ij")
    field = np.stack([np.sin(x + y), np.cos(z), np.sin(y * z)], axis=-1)
    field = np.rint(field * 8192).astype(np.float32) / np.float32(8192)
    write_hdf5(composite(field), tmp_path / "field.h5")
    assert (tmp_path / "field.h5").stat().st_size < 0.5 * field.nbytes
