"""A model serves images of any size, spacing and orientation: known shifts are found, and judged."""

import pytest
import torch

from roundtrip.algorithms.card import Card, Intensities, Mirror, Preparation
from roundtrip.algorithms.from_network import DisplacementRegistration
from roundtrip.algorithms.objective import PairObjective
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.algorithms.saved import save
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.grid import unit_grid
from roundtrip.networks.unet import UNet
from roundtrip.pairwise.judged import Case, judge_registered
from roundtrip.pairwise.model import Model, Scan, open_model
from roundtrip.pairwise.refine import Refinement
from roundtrip.space.grid import affine_map
from space.scenes import CENTRE, GRIDS, VOLUMES, body, grid, labelled

PREPARATION = Preparation(
    orientation="LPS",
    intensities=Intensities(unit="percentiles", lower=1, upper=99),
    spacing=(1.5, 1.5, 1.5),
    grid=(32, 28, 30),
)


class CentresOfMass(AbstractRegistration):
    """Shifts the moving image by `share` of what makes the centres of mass agree."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.share = torch.nn.Parameter(torch.tensor(share))

    def forward(self, moving, fixed):
        def centre(image):
            at = unit_grid(image.shape[2:], like=image)
            return (at * image).flatten(2).sum(dim=2) / image.flatten(2).sum(dim=2)

        eye = torch.eye(moving.ndim - 2)[None].expand(len(moving), -1, -1)
        return AffineMap(eye, self.share * (centre(moving) - centre(fixed)))


MODEL = Model(CentresOfMass(), PREPARATION)
SHIFT = (3.0, -2.0, 2.5)


def world(registered, moving, fixed) -> torch.Tensor:
    """Where the fixed body's centre goes, in millimetres."""
    maps = registered.between(moving.grid, fixed.grid)
    like = torch.zeros((), dtype=torch.float64)
    point = torch.tensor(CENTRE, dtype=torch.float64)[None, :, None]
    unit = affine_map(fixed.unit_from_world, like=like)(point)
    return affine_map(moving.world_from_unit, like=like)(maps.AB(unit))[0, :, 0]


@pytest.mark.parametrize("moving", VOLUMES)
@pytest.mark.parametrize("fixed", ["straight", "oblique"])
def test_a_shift_of_the_world_is_found_between_any_two_grids(moving, fixed):
    shifted, still = body(GRIDS[moving], shift=SHIFT), body(GRIDS[fixed])
    found = MODEL(Scan(shifted), Scan(still))
    there = world(found, shifted, still)
    assert (there - torch.tensor(CENTRE) - torch.tensor(SHIFT)).abs().max() < 0.25


def test_both_ways_come_home():
    moving, fixed = body(GRIDS["oblique"], shift=SHIFT), body(GRIDS["flipped"])
    maps = MODEL(Scan(moving), Scan(fixed)).between(moving.grid, fixed.grid)
    x = unit_grid((3, 3, 3)).double()
    torch.testing.assert_close(maps.BA(maps.AB(x)), x, atol=1e-5, rtol=0)


def test_images_that_are_only_resampled_are_brought_to_one_grid():
    model = Model(MODEL.algorithm, Preparation(orientation="LPS", spacing=(1.5, 1.5, 1.5)))
    large, small = body(grid((60, 50, 40))), body(grid((40, 44, 36)), shift=(2.0, 0.0, 1.0))
    found = model(Scan(small), Scan(large))
    assert found.moving.shape == found.fixed.shape
    assert (world(found, small, large) - torch.tensor(CENTRE) - torch.tensor((2.0, 0, 1))).abs().max() < 0.5


def test_it_is_judged_at_the_resolution_of_the_images():
    moving, fixed = grid((60, 50, 56), (0.7, 0.9, 0.8), off=(2.0, 0.0, 0.0)), GRIDS["flipped"]
    cases = [
        Case("moving", Scan(body(moving)), labels=labelled(moving)),
        Case("fixed", Scan(body(fixed)), labels=labelled(fixed)),
    ]
    found = MODEL(cases[0].scan, cases[1].scan)
    quality = judge_registered(found, *cases, PREPARATION)
    assert quality.unit == "mm" and quality.folds.count == 0
    assert quality.dice.mean > 0.9 and quality.dice.num_labels == 2
    assert quality.hd95.mean < 2.0 and quality.roundtrip_error.max < 0.05
    assert quality.similarity.after < quality.similarity.before
    # Centre on centre, the body of the moving image lies beside that of the fixed one.
    assert quality.dice.mean_before < quality.dice.mean and 0.8 < quality.magnitude < 5


def test_landmarks_are_in_millimetres_of_the_world():
    place = GRIDS["permuted"]
    there = torch.tensor([CENTRE, (10.0, -3.0, 28.0)], dtype=torch.float64)
    moving = Case("a", Scan(body(place, shift=SHIFT)), landmarks=there + torch.tensor(SHIFT))
    fixed = Case("b", Scan(body(GRIDS["straight"])), landmarks=there)
    errors = judge_registered(MODEL(moving.scan, fixed.scan), moving, fixed, PREPARATION).landmark_error
    assert errors.count == 2 and errors.max < 0.25 < errors.before


def test_a_mirrored_image_is_mirrored_for_the_model_and_does_not_fold():
    preparation = PREPARATION.model_copy(update={"mirror": Mirror(column="side", value="left", axis=0)})
    model = Model(MODEL.algorithm, preparation)
    place = grid((44, 44, 40))
    left, right = body(place), body(place)
    flipped = left.data.flip(1)
    left = type(left)(flipped, left.world_from_voxel)
    labels = type(left)(labelled(place).data.flip(1), left.world_from_voxel)
    moving = Case("left", Scan(left, mirrored=True), labels=labels)
    fixed = Case("right", Scan(right), labels=labelled(place))
    quality = judge_registered(model(moving.scan, fixed.scan), moving, fixed, preparation)
    assert quality.dice.mean > 0.99 and quality.dice.mean_before > 0.99 and quality.folds.count == 0
    ignored = Case("left", Scan(left), labels=labels)
    without = judge_registered(model(ignored.scan, fixed.scan), ignored, fixed, preparation)
    assert without.dice.after[2] < 0.9 and without.folds.count == 0


def small() -> DisplacementRegistration:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DisplacementRegistration(UNet(dims=3, down_features=(4, 8), up_features=(4, 8))).eval()


def test_a_refined_registration_is_better_and_leaves_the_model_alone():
    model = Model(CentresOfMass(share=0.0), PREPARATION)
    moving, fixed = Scan(body(GRIDS["straight"], shift=SHIFT)), Scan(body(GRIDS["straight"]))
    how = Refinement(PairObjective(weight=1.0), steps=6, learning_rate=0.1)
    plain, refined = model(moving, fixed), model(moving, fixed, refinement=how)
    case = [Case("a", moving), Case("b", fixed)]
    before, after = (judge_registered(one, *case, PREPARATION).similarity for one in (plain, refined))
    # The same comparison twice, up to the rounding of sums in single precision.
    assert after.after < 0.7 * before.after and before.after == pytest.approx(before.before, rel=1e-5)
    assert plain.algorithm is model.algorithm is not refined.algorithm and refined.algorithm.share > 0.4
    assert judge_registered(model(moving, fixed), *case, PREPARATION).similarity == before


def test_it_is_opened_from_its_folder(tmp_path):
    card = Card(preparation=PREPARATION, data="", numbers={}, licence="")
    save(small(), tmp_path / "model", card=card)
    assert open_model(tmp_path / "model").preparation == PREPARATION


def test_a_card_that_does_not_say_how_to_prepare_is_no_use(tmp_path):
    save(small(), tmp_path / "model", card=Card(preparation=None, data="", numbers={}, licence=""))
    with pytest.raises(ValueError, match=r"does not say how images are prepared.*card.json"):
        open_model(tmp_path / "model")


def test_an_image_without_contrast_is_refused():
    flat = body(GRIDS["straight"])
    flat = type(flat)(torch.zeros_like(flat.data), flat.world_from_voxel)
    with pytest.raises(ValueError, match="every voxel of the image is 0"):
        MODEL(Scan(flat), Scan(body(GRIDS["straight"])))
