"""The training loop: what it changes, what it reports, how it repeats itself and when it stops."""

import itertools
import math

import pytest
import torch
from torch import nn

from roundtrip.algorithms.from_network import DisplacementRegistration
from roundtrip.algorithms.multistep import Frozen
from roundtrip.algorithms.objective import InverseConsistent
from roundtrip.data.pairs import random_pairs
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.training.engine import fit

SIZE = 8


class OneField(nn.Module):
    """The smallest network: one displacement field, whatever the images; with a batch norm nobody needs."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Parameter(torch.zeros(1, 2, SIZE, SIZE))
        self.norm = nn.BatchNorm2d(1)

    def forward(self, moving, fixed):
        self.norm(moving)
        return self.field.expand(len(moving), -1, -1, -1)


def objective(weight: float = 1.0) -> InverseConsistent:
    return InverseConsistent(DisplacementRegistration(OneField()), weight=weight)


def images() -> torch.Tensor:
    return triangles_and_circles(6, size=SIZE, generator=torch.Generator().manual_seed(0)).images


def run(trained: InverseConsistent, steps: int = 3, seed: int = 0, **settings):
    generator = torch.Generator().manual_seed(seed)
    pairs = random_pairs(images(), batch_size=2, generator=generator)
    return fit(trained, pairs, steps=steps, generator=generator, **settings)


def field(trained: InverseConsistent) -> torch.Tensor:
    return trained.algorithm.net.field.detach()


def test_a_step_is_one_of_adam():
    """Against Adam's formulas, written out, on the gradients of three steps."""
    pair, rate = (images()[:2], images()[2:4]), 0.01
    trained, by_hand = objective(weight=0.0).double(), torch.zeros(1, 2, SIZE, SIZE, dtype=torch.float64)
    pair = tuple(image.double() for image in pair)
    fit(trained, itertools.repeat(pair), steps=3, learning_rate=rate)

    mean, square = torch.zeros_like(by_hand), torch.zeros_like(by_hand)
    for step in (1, 2, 3):
        other = objective(weight=0.0).double()
        with torch.no_grad():
            other.algorithm.net.field.copy_(by_hand)
        other(*pair).total.backward()
        gradient = other.algorithm.net.field.grad
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        by_hand -= rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
    torch.testing.assert_close(field(trained), by_hand)
    assert field(trained).abs().max() > rate


def test_the_learning_rate_may_depend_on_the_step():
    """A rate that goes to zero after two steps leaves what two steps of a constant rate make."""
    changing, constant = objective(), objective()
    run(changing, steps=4, learning_rate=lambda number: 0.01 if number <= 2 else 1e-30)
    run(constant, steps=2, learning_rate=0.01)
    torch.testing.assert_close(field(changing), field(constant), rtol=0, atol=1e-20)


def test_the_loss_falls():
    trained = objective(weight=0.0)
    pair = images()[:1], images()[1:2]
    history = fit(trained, itertools.repeat(pair), steps=60, learning_rate=0.01)
    assert history.steps[-1].total < 0.8 * history.steps[0].total


def test_the_history_holds_the_terms_of_every_step():
    weight, seen = 3.0, []
    history = run(objective(weight), steps=4, learning_rate=0.01, on_step=seen.append)
    assert tuple(seen) == history.steps
    assert [step.number for step in history.steps] == [1, 2, 3, 4]
    for step in history.steps:
        assert step.total == pytest.approx(step.similarity + weight * step.inverse_consistency, rel=1e-5)
    # Terms are those before the step's update: the first map is the identity.
    assert history.steps[0].magnitude == 0 < history.steps[1].magnitude


def test_the_seed_decides_every_bit():
    first, again, other = objective(), objective(), objective()
    histories = [run(first, seed=1), run(again, seed=1), run(other, seed=2)]
    assert histories[0] == histories[1] != histories[2]
    assert field(first).equal(field(again)) and not field(first).equal(field(other))


def test_it_trains_in_training_mode_and_ends_in_evaluation_mode():
    trained = objective().eval()
    run(trained)
    assert trained.algorithm.net.norm.num_batches_tracked == 2 * 3
    assert not any(module.training for module in trained.modules())


def test_a_loss_that_is_not_finite_stops_before_the_weights_suffer():
    trained = objective()
    good = images()[:1], images()[1:2]

    def pairs():
        yield good
        yield good
        with torch.no_grad():
            before.append(field(trained).clone())
        trained.terms = objective(math.inf).terms
        yield good

    before: list[torch.Tensor] = []
    with pytest.raises(FloatingPointError, match=r"at step 3.*learning_rate=0\.0025"):
        fit(trained, pairs(), steps=5, learning_rate=0.01)
    assert field(trained).equal(before[0]) and not trained.training


def test_nothing_to_train_is_an_error():
    frozen = InverseConsistent(Frozen(DisplacementRegistration(OneField())), weight=1.0)
    with pytest.raises(ValueError, match="nothing to train"):
        run(frozen)


def test_pairs_that_end_early_are_an_error():
    pair = images()[:1], images()[1:2]
    with pytest.raises(ValueError, match="ended after 2 batches but 5"):
        fit(objective(), [pair, pair], steps=5)


@pytest.mark.parametrize(("steps", "learning_rate"), [(0, 1e-3), (1, 0.0), (1, float("nan"))])
def test_settings_that_train_nothing_are_errors(steps, learning_rate):
    with pytest.raises(ValueError, match="at least one step and a positive rate"):
        run(objective(), steps=steps, learning_rate=learning_rate)
