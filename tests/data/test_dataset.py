"""Opening a data set: whose images are where, and that all of it is decided by the configuration."""

import torch

from roundtrip.data.config import Counts, DataConfig
from roundtrip.data.dataset import Dataset, open_dataset
from roundtrip.data.sources import ShapesSource


def shapes(cache, **changes) -> Dataset:
    config = DataConfig(
        source=ShapesSource(count=20, size=8), split=Counts(train=9, validation=4, test=5)
    ).model_copy(update=changes)
    return open_dataset(config, cache=cache)


def test_shapes_are_split_and_drawn_by_the_seed(tmp_path):
    first, again = shapes(tmp_path), shapes(tmp_path)
    assert [len(part.names) for part in (first.train, first.validation, first.test)] == [9, 4, 5]
    assert first.split == again.split
    subjects = [subject for part in first.split.values() for subject in part]
    assert len(set(subjects)) == len(subjects) == 18
    pairs = first.test.pairs(None)
    assert len(pairs) == 5 * 4
    device = torch.device("cpu")
    assert first.test.load(pairs, device).moving.equal(again.test.load(pairs, device).moving)


def test_a_shapes_label_is_its_inside(tmp_path):
    train = shapes(tmp_path).train
    batch = train.load([(0, 1), (3, 2)], torch.device("cpu"))
    assert batch.moving_labels.equal((batch.moving > 0).int())
    assert batch.fixed_labels.equal((batch.fixed > 0).int())
    assert batch.moving_mask is None
