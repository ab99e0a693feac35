"""What each process works on: together what one would see, anew at every step, drawn by the seed alone."""

from unittest import mock

import pytest
import torch
from lightning_fabric import Fabric

from roundtrip._launch import Ranks
from roundtrip.data.config import Augmentation
from roundtrip.data.dataset import open_dataset
from roundtrip.training.batches import Batches
from roundtrip.training.randomness import PointsOfEach
from training_samples import config, stage

TURNED = Augmentation(rotation_degrees=20.0, noise=0.1)


@pytest.fixture(scope="module")
def subset(tmp_path_factory):
    return open_dataset(config().data, cache=tmp_path_factory.mktemp("cache")).train


def rank(number: int, of: int) -> Ranks:
    fabric = mock.create_autospec(Fabric, instance=True)
    fabric.global_rank, fabric.world_size, fabric.device = number, of, torch.device("cpu")
    return Ranks(fabric)


def portions(subset, step: int = 1, *, number: int = 0, of: int = 1, seed: int = 0, accumulation: int = 1):
    asked = config(stage("a", batch=8, accumulation=accumulation)).stages[0]
    batches = Batches(subset, asked, rank(number, of), seed=seed, augmentation=TURNED)
    try:
        return batches.of_step(step)
    finally:
        batches.close()


@pytest.mark.parametrize("accumulation", [1, 2])
def test_processes_together_see_what_one_sees(accumulation, subset):
    alone = portions(subset, accumulation=accumulation)
    shared = [portions(subset, number=n, of=2, accumulation=accumulation) for n in (0, 1)]
    for whole, *parts in zip(alone, *shared, strict=True):
        assert list(whole.pairs) == [pair for part in parts for pair in part.pairs]
        assert whole.seeds == tuple(seed for part in parts for seed in part.seeds)
        # Augmentation included: what is drawn for a pair does not depend on who draws it.
        assert whole.batch.moving.equal(torch.cat([part.batch.moving for part in parts]))
        assert whole.batch.fixed_labels.equal(torch.cat([part.batch.fixed_labels for part in parts]))
        image = whole.batch.fixed
        points = torch.cat([PointsOfEach(part.seeds)(part.batch.fixed) for part in parts])
        assert PointsOfEach(whole.seeds)(image).equal(points)


def test_every_step_and_every_seed_draws_anew(subset):
    first, again = portions(subset)[0], portions(subset)[0]
    assert first.pairs == again.pairs and first.batch.moving.equal(again.batch.moving)
    for other in (portions(subset, step=2)[0], portions(subset, seed=1)[0]):
        assert other.pairs != first.pairs and set(other.seeds).isdisjoint(first.seeds)


def test_what_was_loaded_ahead_is_what_would_have_been_loaded(subset):
    asked = config(stage("a", batch=8)).stages[0]
    batches = Batches(subset, asked, rank(0, 1), seed=0, augmentation=TURNED)
    batches.of_step(1)
    ahead = batches.of_step(2)
    batches.close()
    assert ahead[0].batch.moving.equal(portions(subset, step=2)[0].batch.moving)


def test_a_batch_that_cannot_be_shared_is_refused(subset):
    with pytest.raises(ValueError, match="multiple of 6"):
        portions(subset, of=3, accumulation=2)
