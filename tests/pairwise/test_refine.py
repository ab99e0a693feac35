"""Instance optimisation: a copy learns, what it learned is returned, and the original does not know."""

import copy

import pytest
import torch

from roundtrip.algorithms.direct import DirectOptimisation
from roundtrip.algorithms.from_network import DisplacementRegistration
from roundtrip.algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from roundtrip.algorithms.objective import PairObjective
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.maps.grid import unit_grid
from roundtrip.networks.unet import UNet
from roundtrip.pairwise.refine import Refinement, refine

OBJECTIVE = PairObjective(weight=8.0)
PAIR = triangles_and_circles(2, size=16, generator=torch.Generator().manual_seed(3)).images.split(1)


def step() -> DisplacementRegistration:
    return DisplacementRegistration(UNet(dims=2, down_features=(4, 8), up_features=(4, 8)))


@pytest.fixture
def algorithm() -> AbstractRegistration:
    """Two steps, the first of them frozen, as the paper's stages leave them, with some weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = TwoStep(Frozen(AtHalfResolution(step())), step()).eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape))
        return made


def test_the_loss_goes_down(algorithm):
    refined = refine(algorithm, *PAIR, Refinement(OBJECTIVE, steps=25, learning_rate=3e-3))
    assert refined.after.total < 0.9 * refined.before.total
    more = refine(algorithm, *PAIR, Refinement(OBJECTIVE, steps=50, learning_rate=3e-3))
    assert more.after.total < refined.after.total and more.before.total == refined.before.total


def test_the_given_weights_stay_bit_for_bit(algorithm):
    before = copy.deepcopy(algorithm.state_dict())
    asked = [parameter.requires_grad for parameter in algorithm.parameters()]
    refine(algorithm, *PAIR, Refinement(OBJECTIVE, steps=2, learning_rate=0.1))
    after = algorithm.state_dict()
    assert before.keys() == after.keys() and all(before[name].equal(after[name]) for name in before)
    assert asked == [parameter.requires_grad for parameter in algorithm.parameters()]
    assert all(parameter.grad is None for parameter in algorithm.parameters())


def test_the_maps_are_those_of_the_refined_weights(algorithm):
    moving, fixed = PAIR
    refined = refine(algorithm, moving, fixed, Refinement(OBJECTIVE, steps=3, learning_rate=1e-2))
    x = unit_grid((16, 16))
    for phi, pair in ((refined.phi_AB, (moving, fixed)), (refined.phi_BA, (fixed, moving))):
        torch.testing.assert_close(phi(x), refined.algorithm(*pair)(x), atol=1e-6, rtol=1e-6)
        assert not phi(x).requires_grad
        assert (phi(x) - algorithm(*pair)(x)).abs().max() > 1e-3


def test_what_was_frozen_learns_too_and_batch_statistics_stand_still(algorithm):
    refined = refine(algorithm, *PAIR, Refinement(OBJECTIVE, steps=2, learning_rate=1e-2)).algorithm
    old, new = algorithm.state_dict(), refined.state_dict()
    moved = {name for name in old if not old[name].equal(new[name])}
    assert any(name.startswith("first.inner") for name in moved)
    assert any(name.startswith("second") for name in moved)
    statistics = {name for name in old if "running" in name or "num_batches" in name}
    assert statistics and not statistics & moved
    assert not any(module.training for module in refined.modules())


def test_the_same_seed_gives_the_same_bits_and_another_one_others(algorithm):
    first, again, other = (
        refine(algorithm, *PAIR, Refinement(OBJECTIVE, steps=2, seed=seed)) for seed in (5, 5, 6)
    )
    x = unit_grid((16, 16))
    assert first.phi_AB(x).equal(again.phi_AB(x)) and not first.phi_AB(x).equal(other.phi_AB(x))


def test_a_mask_decides_what_is_compared(algorithm):
    nothing = torch.zeros(1, 1, 16, 16)
    everything = torch.ones(1, 1, 16, 16)
    measured = [
        refine(algorithm, *PAIR, Refinement(OBJECTIVE, steps=1), moving_mask=mask, fixed_mask=mask).before
        for mask in (None, everything, nothing)
    ]
    torch.testing.assert_close(measured[0].similarity, measured[1].similarity)
    assert measured[2].similarity == 0 < measured[0].similarity


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 1, "learning_rate": 0.0}])
def test_no_steps_are_no_refinement(wrong):
    with pytest.raises(ValueError, match="at least one step and a positive rate"):
        Refinement(OBJECTIVE, **wrong)


def test_an_algorithm_without_weights_cannot_be_refined():
    with pytest.raises(ValueError, match="no weights"):
        refine(DirectOptimisation(OBJECTIVE, steps=1), *PAIR, Refinement(OBJECTIVE, steps=1))


def test_a_loss_that_explodes_says_what_to_try(algorithm):
    with pytest.raises(FloatingPointError, match=r"Try a learning rate of 2.5e"):
        refine(algorithm, *PAIR, Refinement(OBJECTIVE, steps=3, learning_rate=1e30))
