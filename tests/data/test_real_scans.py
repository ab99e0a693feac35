"""Real scans go from a folder to pairs: hippocampi of the Medical Segmentation Decathlon."""

from pathlib import Path

import pytest
import torch

from roundtrip.data.config import DataConfig
from roundtrip.data.dataset import open_dataset
from roundtrip.evaluation.overlap import dice

FOLDER = Path(__file__).parents[2] / "../shared/data/hippocampus"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="the shared folder of real data is not here (../shared/data/hippocampus)"
)


def test_hippocampi_are_normalised_each_by_itself_and_overlap_about_their_centres(tmp_path):
    config = DataConfig.model_validate(
        {
            "source": {
                "kind": "folder",
                "path": FOLDER / "images",
                "images": "hippocampus_00?.nii.gz",
                "labels": FOLDER / "labels",
            },
            "preparation": {
                "orientation": "RAS",
                "grid": [48, 64, 48],
                "spacing": [1, 1, 1],
                "intensities": {"unit": "percentiles", "lower": 1, "upper": 99},
            },
            "split": {"kind": "fractions", "train": 1.0},
        }
    )
    train = open_dataset(config, cache=tmp_path / "cache").train
    assert len(train.names) >= 5 and train.grid == (48, 64, 48) and train.spacing == pytest.approx((1, 1, 1))
    batch = train.load(train.pairs(None), torch.device("cpu"))
    # Raw maxima differ by four orders of magnitude.
    assert (batch.moving.amin((1, 2, 3, 4)) == 0).all() and (batch.moving.amax((1, 2, 3, 4)) == 1).all()
    overlap = dice(batch.moving_labels, batch.fixed_labels)
    assert list(overlap.labels) == [1, 2]
    assert 0.4 < overlap.mean.mean() < 0.7
