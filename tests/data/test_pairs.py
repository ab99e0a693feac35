"""Random pairs: never an image with itself, every other pair equally often."""

import itertools

import pytest
import torch

from roundtrip.data.pairs import random_pairs


def numbered(count: int) -> torch.Tensor:
    """Image n is full of n."""
    return torch.arange(count, dtype=torch.float32).view(count, 1, 1).expand(count, 1, 2)


def draw(count: int, batch_size: int, batches: int, seed: int = 0) -> list[tuple[int, int]]:
    pairs = random_pairs(
        numbered(count), batch_size=batch_size, generator=torch.Generator().manual_seed(seed)
    )
    return [
        (int(a), int(b))
        for moving, fixed in itertools.islice(pairs, batches)
        for a, b in zip(moving[:, 0, 0], fixed[:, 0, 0], strict=True)
    ]


def test_an_image_never_meets_itself():
    assert all(a != b for a, b in draw(count=2, batch_size=50, batches=10))


def test_every_ordered_pair_is_equally_likely():
    drawn = draw(count=4, batch_size=1200, batches=10)
    counts = {pair: drawn.count(pair) for pair in itertools.permutations(range(4), 2)}
    assert sum(counts.values()) == len(drawn)
    # 1000 expected of each; the standard deviation is 30.
    assert all(850 < count < 1150 for count in counts.values())


def test_the_seed_decides():
    assert draw(5, 8, 3, seed=1) == draw(5, 8, 3, seed=1) != draw(5, 8, 3, seed=2)


def test_batches_have_the_size_asked_for():
    pairs = random_pairs(numbered(3), batch_size=7, generator=torch.Generator())
    moving, fixed = next(pairs)
    assert moving.shape == fixed.shape == (7, 1, 2)


def test_one_image_makes_no_pair():
    with pytest.raises(ValueError, match="at least two"):
        random_pairs(numbered(1), batch_size=1, generator=torch.Generator())


def test_an_empty_batch_is_an_error():
    with pytest.raises(ValueError, match="at least one pair"):
        random_pairs(numbered(3), batch_size=0, generator=torch.Generator())
