"""The ways to read Table 1's words give the numbers they are called by."""

import pytest
import torch

from roundtrip.algorithms.from_network import DisplacementRegistration
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.data.pairing import across_subjects
from roundtrip.data.subset import InMemorySubset
from roundtrip.experiments.closeness import closeness
from roundtrip.experiments.readings import judged
from roundtrip.experiments.table1 import Published
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.networks.unet import UNet

CPU = torch.device("cpu")


class Shift(AbstractRegistration):
    """The same displacement of every pair, in pixels of an 8x8 image; both ways, so it is not consistent."""

    def __init__(self, pixels):
        super().__init__()
        self.pixels = pixels

    def forward(self, moving, fixed):
        field = torch.zeros(len(fixed), 2, 8, 8, dtype=fixed.dtype)
        field[:, 0] = self.pixels / 7
        return DisplacementMap(field)


def bars(*rows, dark=0.0, bright=1.0):
    """An image for each, with a bright row."""
    images = torch.full((len(rows), 1, 8, 8), dark, dtype=torch.float64)
    for image, row in zip(images, rows, strict=True):
        image[0, row] = bright
    names = [str(number) for number in range(len(rows))]
    return InMemorySubset(images, across_subjects(names), names=names)


def test_a_shift_lays_one_bar_onto_the_other():
    subset = bars(3, 2)
    # The bar of the moving image is a row further down than that of the fixed one.
    numbers = judged(Shift(1.0), subset, [(0, 1)], CPU)
    assert numbers["dice_before"] == 0 and numbers["dice"] == numbers["dice_of_masks"] == 1
    assert numbers["mse"] == pytest.approx(0)
    assert numbers["folds"] == numbers["folds_central"] == numbers["folded_cells"] == 0
    assert numbers["round_trip_pixels"] == pytest.approx(2)
    assert not any(name.endswith("training_mode") for name in numbers)


def test_half_of_the_range_is_zero_where_images_go_from_minus_one():
    subset = bars(3, 3, dark=-1.0)
    # A third of a pixel away the bar is at 0.4: brighter than half of the range, but not than 0.5.
    numbers = judged(Shift(0.3), subset, [(0, 1)], CPU)
    assert numbers["dice"] == 0 and numbers["dice_half_range"] == 1


def test_all_pixels_at_once_weighs_pairs_by_their_size():
    subset = bars(3, 2, 2)
    subset.images[2, 0, 3:6] = 1.0
    numbers = judged(Shift(0.0), subset, [(0, 1), (1, 2)], CPU)
    # 0 of 8 + 8 pixels, and 8 of 8 + 32.
    assert numbers["dice"] == pytest.approx((0 + 16 / 40) / 2)
    assert numbers["dice_all_pixels"] == pytest.approx(16 / 56)


def test_batch_norm_in_training_mode_learns_nothing():
    net = UNet(dims=2, down_features=(4, 6), up_features=(4, 6)).double()
    with torch.no_grad():
        for weight in net.parameters():
            weight.normal_(generator=torch.Generator().manual_seed(0), std=0.3)
    algorithm, subset = DisplacementRegistration(net), bars(3, 2, 4)
    before = {name: tensor.clone() for name, tensor in algorithm.state_dict().items()}
    numbers = judged(algorithm, subset, [(0, 1), (1, 2)], CPU)
    assert numbers["folds_training_mode"] != numbers["folds"]
    for name, tensor in algorithm.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_chessboard_is_measured_and_a_shift_is_none():
    class Chessboard(AbstractRegistration):
        def forward(self, moving, fixed):
            sign = (-1.0) ** torch.arange(8, dtype=fixed.dtype)
            field = (sign[:, None] * sign / 7).expand(len(fixed), 2, 8, 8)
            return DisplacementMap(0.25 * field)

    subset = bars(3, 3)
    assert judged(Chessboard(), subset, [(0, 1)], CPU)["alternation_pixels"] == pytest.approx(0.25)
    assert judged(Shift(2.0), subset, [(0, 1)], CPU)["alternation_pixels"] == pytest.approx(0, abs=1e-12)


def test_closeness_finds_the_reading_that_is_the_papers():
    """Made up: our numbers are the paper's of half the lambda, with another Dice."""
    published = {("unet", 64 * 2**k): Published(0.9 - 0.1 * k, 8.0 / 4**k) for k in range(3)}
    rows = [
        {"network": "unet", "lambda": 128 * 2**k, "dice": 0.9 - 0.1 * k, "folds": 8.0 / 4**k}
        for k in range(2)
    ]
    text = closeness(rows, published)
    lines = {tuple(cell.strip() for cell in line.split("|")[1:3]): line for line in text.splitlines()}
    assert lines["Dice", "128 and more: lambda as the formula's"].count(" 0.000 ") == 2
    assert lines["Dice", "128 and more: lambda as the package's"].count(" 0.100 ") == 2
    assert lines["folds", "128 and more: lambda as the formula's"].count(" x 1 ") == 2
    assert " x 3.8 " in lines["folds", "128 and more: lambda as the package's"]
    assert not any("mask" in line or "batch norm" in line for line in text.splitlines())
