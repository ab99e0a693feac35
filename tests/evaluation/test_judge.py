"""One pair judged: numbers that can be computed by hand, from the maps of shifted shapes."""

import functools
import json
import math

import pytest
import torch

from roundtrip.evaluation.judge import Side, judge, judge_sides
from roundtrip.evaluation.lengths import frame_of
from roundtrip.evaluation.quality import PairQuality
from roundtrip.losses.local import lncc
from roundtrip.losses.similarity import mse
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.map import Identity

SHAPE, SPACING = (21, 11), (2.0, 3.0)


def box(low: tuple[int, ...], high: tuple[int, ...], shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    mask = torch.zeros(1, 1, *shape, dtype=torch.bool)
    mask[(..., *(slice(a, b) for a, b in zip(low, high, strict=True)))] = True
    return mask


def shift(*voxels: float, shape: tuple[int, ...] = SHAPE) -> AffineMap:
    offset = torch.tensor([[v / (n - 1) for v, n in zip(voxels, shape, strict=True)]], dtype=torch.float64)
    return AffineMap(torch.eye(len(shape), dtype=torch.float64)[None], offset)


FIXED = box((5, 3), (10, 8))
MOVING = box((9, 4), (14, 9))  # 4 voxels further down and 1 to the right


def judged(phi_AB, phi_BA, **more) -> PairQuality:
    return judge(
        phi_AB,
        phi_BA,
        MOVING.double(),
        FIXED.double(),
        moving_labels=MOVING,
        fixed_labels=FIXED,
        **more,
    )


def test_the_right_map_is_perfect_and_the_identity_is_not():
    quality = judged(shift(4, 1), shift(-4, -1), spacing=SPACING)
    assert quality.similarity.name == "mse"
    assert quality.similarity.after == pytest.approx(0, abs=1e-20) and quality.similarity.improved
    # 25 voxels of each box, of which the other covers 1 x 4.
    assert quality.similarity.before == pytest.approx((25 + 25 - 2 * 4) / (21 * 11))
    assert quality.dice.after == {1: 1.0} and quality.dice.before == {1: pytest.approx(2 * 4 / 50)}
    assert quality.dice.num_labels == 1
    assert quality.hd95.after == {1: 0.0} == quality.surface_distance.after
    assert quality.hd95.before[1] == pytest.approx(math.hypot(8, 3), rel=0.1)
    assert quality.folds.count == 0 == quality.folds.non_diffeomorphic_volume_percent
    assert quality.roundtrip_error.max == pytest.approx(0, abs=1e-12)
    assert quality.magnitude == pytest.approx(math.hypot(4 * 2, 1 * 3))


def test_distances_are_in_voxels_where_no_spacing_is_given():
    quality = judged(shift(4, 1), shift(0, 0))
    assert quality.unit == "voxels"
    assert quality.roundtrip_error.mean == pytest.approx(math.hypot(4, 1)) == quality.magnitude
    assert {"roundtrip_error_voxels", "magnitude_voxels", "hd95_voxels"} <= quality.as_dict().keys()


def test_a_map_that_is_not_undone_misses_by_its_length_in_millimetres():
    quality = judged(shift(4, 1), Identity(), spacing=SPACING)
    expected = pytest.approx(math.hypot(8, 3))
    assert (quality.roundtrip_error.mean, quality.roundtrip_error.max) == (expected, expected)


def test_a_mirror_folds_everywhere():
    mirror = AffineMap(
        torch.diag(torch.tensor([-1.0, 1], dtype=torch.float64))[None],
        torch.tensor([[1.0, 0]], dtype=torch.float64),
    )
    quality = judged(mirror, mirror)
    assert quality.folds.count == 21 * 11 and quality.folds.percent == 100
    assert quality.folds.non_diffeomorphic_volume_percent == pytest.approx(100)


def test_a_mirror_between_mirrored_worlds_folds_nowhere():
    mirror = AffineMap(
        torch.diag(torch.tensor([-1.0, 1], dtype=torch.float64))[None],
        torch.tensor([[1.0, 0]], dtype=torch.float64),
    )
    frame = frame_of(FIXED.double(), SPACING)
    flipped = frame * torch.tensor([-1, 1])
    sides = Side(MOVING.double(), flipped), Side(FIXED.double(), frame)
    assert judge_sides(mirror, mirror, *sides, unit="mm").folds.count == 0


def test_images_may_have_grids_of_their_own():
    # The moving image has every second row and column of the fixed one: the same map in unit coordinates.
    moving, fixed = FIXED[..., ::2, ::2].double(), FIXED.double()
    frames = frame_of(moving, (4.0, 6.0)), frame_of(fixed, SPACING)
    torch.testing.assert_close(*frames)
    quality = judge_sides(
        Identity(),
        Identity(),
        Side(moving, frames[0], labels=FIXED[..., ::2, ::2]),
        Side(fixed, frames[1], labels=FIXED),
        unit="mm",
    )
    assert quality.magnitude == 0 == quality.roundtrip_error.max
    assert quality.dice.mean > 0.7 and quality.dice.after == quality.dice.before


def test_before_is_where_registration_began():
    sides = [Side(image.double(), frame_of(image.double()), labels=image) for image in (MOVING, FIXED)]
    quality = judge_sides(
        shift(4, 1), shift(-4, -1), *sides, unit="voxels", before=shift(4, 0), similarity=mse
    )
    assert quality.dice.before == {1: pytest.approx(0.8)}
    assert quality.magnitude == pytest.approx(1)


def test_labels_count_where_both_images_have_them_and_one_that_leaves_overlaps_nothing():
    moving, fixed = (torch.zeros(1, 1, *SHAPE, dtype=torch.int16) for _ in range(2))
    moving[FIXED], fixed[FIXED] = 7, 7
    moving[..., 20, :], fixed[..., 19, :] = 3, 3
    moving[..., 0, :], fixed[..., 0, 0] = 4, 5
    quality = judge(
        shift(-2, 0),
        shift(2, 0),
        moving.double(),
        fixed.double(),
        moving_labels=moving,
        fixed_labels=fixed,
    )
    assert quality.dice.before == {3: 0.0, 7: 1.0}
    assert quality.dice.after == {3: 0.0, 7: pytest.approx(0.6)}
    assert quality.dice.mean == pytest.approx(0.3)
    assert math.isnan(quality.hd95.after[3]) and quality.hd95.before[3] == 1
    assert quality.hd95.mean == quality.hd95.after[7]


def test_landmarks_are_missed_by_their_distance_in_millimetres():
    there = torch.tensor([[[0.2, 0.5], [0.4, 0.5]]], dtype=torch.float64)
    quality = judged(
        shift(4, 1),
        shift(-4, -1),
        spacing=SPACING,
        fixed_landmarks=there,
        moving_landmarks=shift(4, 1)(there) + torch.tensor([[[0.0, 3 / 20], [0, 4 / 10]]]),
    )
    errors = quality.landmark_error
    assert errors.count == 2
    assert errors.max == pytest.approx(math.hypot(3 * 2, 4 * 3)) and errors.mean == pytest.approx(
        errors.max / 2
    )
    assert errors.before > errors.mean


def test_a_mask_says_where_images_are_compared():
    moving, fixed = MOVING.double(), FIXED.double()
    frame = frame_of(fixed)
    quality = judge_sides(
        Identity(), Identity(), Side(moving, frame), Side(fixed, frame, mask=FIXED), unit="voxels"
    )
    assert quality.similarity.after == pytest.approx(21 / 25)
    quality = judge_sides(
        Identity(),
        Identity(),
        Side(moving, frame, mask=MOVING),
        Side(fixed, frame, mask=FIXED),
        unit="voxels",
    )
    assert quality.similarity.after == 0


def test_a_similarity_is_named_whatever_its_options():
    quality = judged(Identity(), Identity(), similarity=functools.partial(lncc, sigma=3.0))
    assert quality.similarity.name == "lncc" and not quality.similarity.improved


def test_what_is_written_down_can_be_read_again():
    quality = judged(shift(4, 1), shift(-4, -1), spacing=SPACING)
    text = json.dumps(quality.as_dict(), allow_nan=False)
    assert PairQuality.from_dict(json.loads(text)) == quality
    values = json.loads(text)
    assert values["dice"]["labels"] == {"1": 1.0} and values["dice"]["mean"] == 1.0
    assert values["roundtrip_error_mm"].keys() == {"mean", "p99", "max"}
    assert values["folds"].keys() == {"count", "percent", "non_diffeomorphic_volume_percent"}


def test_what_could_not_be_measured_is_null():
    left = torch.zeros(1, 1, *SHAPE, dtype=torch.int64)
    left[..., 0, 0] = 1
    quality = judge(
        shift(4, 1), shift(-4, -1), left.double(), left.double(), moving_labels=left, fixed_labels=left
    )
    values = json.loads(json.dumps(quality.as_dict(), allow_nan=False))
    assert values["hd95_voxels"]["labels"] == {"1": None} and values["dice"]["labels"] == {"1": 0.0}
    assert math.isnan(PairQuality.from_dict(values).hd95.after[1])
    assert "landmark_error_voxels" not in values


def test_pairs_are_judged_one_by_one():
    two = torch.zeros(2, 1, 4, 4)
    with pytest.raises(ValueError, match="one by one"):
        judge(Identity(), Identity(), two, two)


@pytest.mark.parametrize(
    ("labels", "says"), [(torch.zeros(1, 1, 4, 5), "grid of its image"), (torch.zeros(1, 1, 4, 4), "long()")]
)
def test_labels_are_integers_on_the_grid_of_their_image(labels, says, as_users_see_it):
    image = torch.zeros(1, 1, 4, 4)
    with pytest.raises(ValueError, match=says.replace("(", r"\(").replace(")", r"\)")):
        judge(Identity(), Identity(), image, image, moving_labels=labels, fixed_labels=labels)
