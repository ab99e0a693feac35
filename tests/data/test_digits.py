"""MNIST's digits, from each of the formats they come in."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from roundtrip.data.config import DataConfig
from roundtrip.data.dataset import open_dataset
from roundtrip.data.digits import read_digits
from roundtrip.data.sources import DigitsSource

FIVES = Path(__file__).parents[2] / "../shared/data/mnist/mnist_fives.npz"
IMAGES = np.random.default_rng(0).integers(0, 256, (10, 4, 4), dtype=np.uint8)
DIGITS = np.array([5, 1, 5, 0, 5, 5, 9, 1, 5, 5], dtype=np.uint8)


def as_idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def folder(tmp_path):
    """MNIST's files: six images for training, four for testing, the latter packed."""
    for name, packed, rows in (("train", False, slice(0, 6)), ("t10k", True, slice(6, 10))):
        for kind, values in (("images-idx3", IMAGES[rows]), ("labels-idx1", DIGITS[rows])):
            content = as_idx(values)
            path = tmp_path / f"{name}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content) if packed else content)
    return tmp_path


def test_a_folder_of_idx_files_is_read(folder):
    digits = read_digits(DigitsSource(path=folder, digit=5))
    # The file of tests comes first by its name.
    assert digits.parts == ("test",) * 2 + ("train",) * 4
    expected = np.concatenate([IMAGES[6:][DIGITS[6:] == 5], IMAGES[:6][DIGITS[:6] == 5]])
    torch.testing.assert_close(digits.images[:, 0] * 255, torch.from_numpy(expected).float())


def test_one_file_is_one_part(folder):
    assert read_digits(DigitsSource(path=folder / "train-images-idx3-ubyte")).parts == ("train",) * 6


@pytest.mark.parametrize("names", [("train", None), ("x_train", "y_train")])
def test_arrays_are_read(tmp_path, names):
    images, digits = names
    arrays = {images: IMAGES} if digits is None else {images: IMAGES, digits: DIGITS}
    np.savez(tmp_path / "m.npz", **arrays)
    source = DigitsSource(path=tmp_path / "m.npz", digit=None if digits is None else 1)
    assert len(read_digits(source).images) == (10 if digits is None else 2)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"path": "none"}, "does not exist"),
        ({"path": "train-labels-idx1-ubyte"}, "none of MNIST's files of images"),
        ({"path": "cut/train-images-idx3-ubyte"}, "announces"),
        ({"path": "cut/t10k-images-idx3-ubyte.gz"}, "Is it complete"),
        ({"path": "wrong.npz"}, "its arrays: a"),
        ({"path": "unlabelled.npz", "digit": 5}, "does not say which digits"),
        ({"path": "t10k-images-idx3-ubyte.gz", "digit": 7}, "holds no digit 7"),
    ],
)
def test_what_cannot_be_read_is_refused(folder, fields, says):
    (folder / "cut").mkdir()
    for path in list(folder.glob("*images*")):
        (folder / "cut" / path.name).write_bytes(path.read_bytes()[:-20])
    np.savez(folder / "wrong.npz", a=IMAGES)
    np.savez(folder / "unlabelled.npz", train=IMAGES)
    with pytest.raises((ValueError, OSError), match=says):
        read_digits(DigitsSource(**fields | {"path": folder / fields["path"]}))


def test_they_are_prepared_split_and_labelled_as_declared(folder, tmp_path):
    config = DataConfig.model_validate(
        {
            "source": {"kind": "digits", "path": folder},
            "preparation": {"grid": [8, 8]},
            "split": {"kind": "column", "column": "part"},
        }
    )
    data = open_dataset(config, cache=tmp_path / "cache")
    assert (len(data.train.names), len(data.validation.names), len(data.test.names)) == (6, 0, 4)
    batch = data.train.load(data.train.pairs(None), torch.device("cpu"))
    assert batch.moving.shape == (30, 1, 8, 8) == batch.moving_labels.shape
    plain = open_dataset(
        config.model_copy(update={"preparation": type(config.preparation)()}), cache=tmp_path
    )
    one = plain.train.load([(0, 1)], torch.device("cpu"))
    assert one.moving_labels.equal((one.moving > 0.5).int())


@pytest.mark.skipif(not FIVES.exists(), reason="the shared folder of real data is not here")
def test_the_fives_of_mnist():
    digits = read_digits(DigitsSource(path=FIVES))
    assert (digits.parts.count("train"), digits.parts.count("test")) == (5421, 892)
    assert digits.images.shape == (6313, 1, 28, 28) and digits.images.max() == 1
