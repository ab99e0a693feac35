"""How lambda and the learning rate change, against what their descriptions say, by hand."""

import pytest
from pydantic import TypeAdapter, ValidationError

from roundtrip.training.control import (
    LARGEST_VIOLATION,
    AugmentedLagrangian,
    Control,
    FixedLambda,
    GrowingLambda,
    Lambda,
    Observation,
    ScheduledLambda,
)
from roundtrip.training.schedule import LearningRate


def seen(step: int, *, folds: float = 0.0, miss: float = 0.0) -> Observation:
    """With a round trip that misses by so many voxels, both ways."""
    voxel = 1 / 64**2
    return Observation(step, folds, inverse_consistency=2 * miss**2 * voxel, voxel=voxel)


def course(control, observations) -> list[float]:
    lambdas = [control.first()]
    for observation in observations:
        lambdas.append(control.after(lambdas[-1], observation))
    return [lambda_.value for lambda_ in lambdas]


def test_a_fixed_lambda_stays():
    assert course(FixedLambda(start=7.0), [seen(n, folds=1e6) for n in range(1, 4)]) == [7.0] * 4


def test_lambda_grows_by_the_increment_after_more_folds_than_are_acceptable():
    control = GrowingLambda(start=1.0, acceptable_folds=200.0, increment=0.5)
    folds = (200.0, 201.0, 0.0, 500.0)
    assert course(control, [seen(n, folds=f) for n, f in enumerate(folds, start=1)]) == [1, 1, 1.5, 1.5, 2]


def test_a_schedule_is_made_of_straight_lines():
    control = ScheduledLambda(points=((0, 10.0), (4, 30.0), (6, 0.0)))
    assert course(control, [seen(n) for n in range(1, 9)]) == [10, 15, 20, 25, 30, 15, 0, 0, 0]


@pytest.mark.parametrize("points", [(), ((1, 1.0),), ((0, 1.0), (0, 2.0)), ((0, 1.0), (5, 1.0), (3, 1.0))])
def test_a_schedule_begins_at_0_and_goes_on(points):
    with pytest.raises(ValidationError):
        ScheduledLambda(points=points)


def test_the_augmented_lagrangian_finds_the_lambda_that_meets_its_bound():
    """Where the miss is 4 / lambda voxels, half a voxel takes a lambda of 8."""
    control = AugmentedLagrangian(start=1.0, acceptable_miss=0.5, penalty=1.0, every=20)
    lambda_ = control.first()
    for step in range(1, 4001):
        lambda_ = control.after(lambda_, seen(step, miss=4 / max(lambda_.value, 0.1)))
    assert lambda_.value == pytest.approx(8.0, rel=0.05)


def test_a_constraint_that_is_met_costs_nothing():
    control = AugmentedLagrangian(start=5.0, acceptable_miss=0.5, penalty=1.0, every=10)
    assert course(control, [seen(n, miss=0.1) for n in range(1, 200)])[-1] == 0.0


def test_one_early_excess_is_not_paid_for_ever_after():
    control = AugmentedLagrangian(acceptable_miss=0.5, penalty=2.0, every=50)
    once = control.after(control.first(), seen(1, miss=1000.0))
    assert once.value <= 2.0 * LARGEST_VIOLATION


def test_what_a_control_remembers_goes_through_a_checkpoint():
    """Numbers by name, and nothing else, decide how it goes on."""
    control = AugmentedLagrangian(penalty=1.0, every=5)
    lambda_ = control.first()
    for step in range(1, 8):
        lambda_ = control.after(lambda_, seen(step, miss=0.3 * step))
    again = Lambda(lambda_.value, dict(lambda_.memory))
    assert control.after(again, seen(8, miss=1.0)) == control.after(lambda_, seen(8, miss=1.0))


def test_a_configuration_names_a_control_by_its_kind():
    adapter = TypeAdapter(Control)
    for control in (FixedLambda(start=1.0), GrowingLambda(increment=0.1), AugmentedLagrangian(penalty=1.0)):
        assert adapter.validate_python(control.model_dump()) == control


def test_the_rate_rises_and_falls_and_is_never_0():
    rate = LearningRate(start=1.0, decay="cosine", warmup=4)
    rates = [rate.at(step, steps=100) for step in range(1, 101)]
    assert rates[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8]) and rates[4] == pytest.approx(1.0)
    assert rates[5:] == sorted(rates[5:], reverse=True) and 0 < rates[-1] < 1e-2
    # Half-way through the fall it is half as high.
    assert rate.at(4 + 1 + 48, steps=100) == pytest.approx(0.5, abs=1e-9)
