"""A stage's algorithm: new where it says so, and else exactly what earlier stages learned."""

import pytest
import torch

from roundtrip.algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from roundtrip.maps.map import on_grid_of
from roundtrip.training.assembly import Blueprint, assembled, at_full_resolution, require_buildable, thawed
from training_samples import UNET

LOW = Blueprint(algorithm=UNET, resolution=4)


def learned(blueprint: Blueprint = LOW, seed: int = 0):
    """As after training: no weight is what it was."""
    algorithm = assembled(blueprint, {}, {}, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in algorithm.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return algorithm


def on_low(*, frozen: bool, resolution: int = 1):
    algorithm = {"class": "TwoStep", "first": {"stage": "low", "frozen": frozen}, "second": UNET}
    return Blueprint(algorithm=algorithm, resolution=resolution)


def pair():
    return torch.rand((2, 1, 1, 16, 16), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("resolution", [1, 2, 4])
def test_a_reference_is_what_its_stage_learned_on_images_as_coarse_as_then(resolution):
    low = learned().eval()
    high = assembled(
        on_low(frozen=True, resolution=resolution), {"low": LOW}, {"low": low.state_dict()}, seed=0
    )
    assert isinstance(high, TwoStep) and isinstance(high.first, Frozen)
    found = high.eval()(*pair())
    expected = at_full_resolution(low, 4 // resolution)(*pair())
    # New networks begin with the identity: all that is found is what the first stage finds.
    torch.testing.assert_close(on_grid_of(found, pair()[0]), on_grid_of(expected, pair()[0]))


def test_what_is_frozen_gets_no_gradient_and_the_rest_does():
    for frozen in (True, False):
        high = assembled(on_low(frozen=frozen), {"low": LOW}, {"low": learned().state_dict()}, seed=0)
        assert all(weight.requires_grad == (not frozen) for weight in high.first.parameters())
        assert all(weight.requires_grad for weight in high.second.parameters())


def test_the_seed_decides_new_weights_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (assembled(LOW, {}, {}, seed=seed) for seed in (1, 1, 2))
    assert torch.get_rng_state().equal(before)
    weights = [a.state_dict()["net.down.0.convolution.weight"] for a in (first, again, other)]
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])


def test_stages_build_on_stages_that_build_on_stages():
    middle = on_low(frozen=True, resolution=2)
    last = Blueprint(algorithm={"class": "TwoStep", "first": {"stage": "middle"}, "second": UNET})
    low = learned()
    half = assembled(middle, {"low": LOW}, {"low": low.state_dict()}, seed=3)
    results = {"low": low.state_dict(), "middle": half.state_dict()}
    whole = assembled(last, {"low": LOW, "middle": middle}, results, seed=4)
    assert isinstance(whole.first, AtHalfResolution)
    inner = whole.first.inner.state_dict()
    assert all(inner[name].equal(value) for name, value in half.state_dict().items())


def test_a_thawed_copy_finds_the_same_and_can_learn():
    high = assembled(on_low(frozen=True), {"low": LOW}, {"low": learned().state_dict()}, seed=0).eval()
    free = thawed(high)
    assert not any(isinstance(module, Frozen) for module in free.modules())
    assert all(weight.requires_grad for weight in free.parameters())
    assert isinstance(high.first, Frozen), "the original stays frozen"
    a, b = (on_grid_of(algorithm(*pair()), pair()[0]) for algorithm in (high, free))
    assert a.equal(b)


@pytest.mark.parametrize(
    ("algorithm", "resolution", "says"),
    [
        ({"stage": "nobody"}, 1, "earlier stages: low"),
        ({"stage": "low"}, 8, "coarse to fine"),
        (UNET["net"], 1, "is a network"),
        ({"class": "TwoStep", "first": UNET}, 1, "second"),
    ],
)
def test_what_cannot_be_built_is_said(algorithm, resolution, says):
    with pytest.raises(ValueError, match=says):
        require_buildable(Blueprint(algorithm=algorithm, resolution=resolution), {"low": LOW})
