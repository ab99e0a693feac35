"""Dice by hand, by counting one label at a time, and on what it cannot count."""

import pytest
import torch

from roundtrip.evaluation.overlap import dice


def labels(*rows: list[int]) -> torch.Tensor:
    """A batch of one-dimensional label maps."""
    return torch.tensor(rows)[:, None]


def one_label_at_a_time(first: torch.Tensor, second: torch.Tensor, label: int) -> float:
    a, b = first == label, second == label
    if not a.any() or not b.any():
        return float("nan")
    return 2 * (a & b).sum().item() / (a.sum() + b.sum()).item()


def test_dice_of_two_masks_by_hand():
    overlap = dice(labels([1, 1, 1, 0]) > 0, labels([0, 1, 1, 1]) > 0)
    assert overlap.labels == (1,)
    assert overlap.mean.tolist() == [2 * 2 / (3 + 3)]


def test_an_image_overlaps_itself_completely():
    some = torch.randint(4, (3, 1, 5, 6), generator=torch.Generator().manual_seed(0))
    assert dice(some, some).mean.tolist() == [1, 1, 1]


def test_every_label_of_every_pair_agrees_with_counting_one_at_a_time():
    g = torch.Generator().manual_seed(0)
    # Label 7 is rare, so that some images lack it; -3 and 900 are legal labels too.
    values = torch.tensor([0, 0, -3, 1, 1, 900, 900, 900, 900, 900, 900, 7])
    first, second = (values[torch.randint(len(values), (4, 1, 3, 4), generator=g)] for _ in range(2))
    overlap = dice(first, second)
    assert overlap.labels == (-3, 1, 7, 900)
    expected = [
        [one_label_at_a_time(a, b, label) for label in overlap.labels]
        for a, b in zip(first, second, strict=True)
    ]
    torch.testing.assert_close(overlap.dice, torch.tensor(expected, dtype=torch.float64), equal_nan=True)
    assert overlap.dice.isnan().any() and not overlap.dice.isnan().all()


def test_the_mean_is_over_labels_that_both_have():
    overlap = dice(labels([1, 1, 2, 0]), labels([1, 1, 3, 0]))
    assert overlap.labels == (1, 2, 3)
    assert overlap.mean.tolist() == [1]
    assert overlap.num_labels.tolist() == [1]


def test_nothing_in_common_is_not_a_number():
    assert dice(labels([1, 0]), labels([0, 2])).mean.isnan().all()
    assert dice(labels([0, 0]), labels([0, 0])).mean.isnan().all()


def test_pairs_of_a_batch_do_not_mix():
    first, second = labels([1, 1, 0], [1, 0, 0]), labels([1, 0, 0], [1, 0, 0])
    together = dice(first, second).mean
    assert together.tolist() == [dice(first[i : i + 1], second[i : i + 1]).mean.item() for i in range(2)]
    assert together[0] != together[1]


def test_intensities_are_not_labels():
    image = torch.rand(1, 1, 4)
    with pytest.raises(ValueError, match=r"image > 0\.5"):
        dice(image, image)


@pytest.mark.usefixtures("as_users_see_it")
def test_different_grids_do_not_compare():
    with pytest.raises(ValueError, match="Warp one onto the grid of the other"):
        dice(labels([1, 0]), labels([1, 0, 0]))
