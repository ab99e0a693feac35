"""What every algorithm promises, whatever it is made of: adding one is adding a line to `ALGORITHMS`.

The list is in `tests/algorithm_samples.py`.
"""

import copy
import json

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from algorithm_samples import ALGORITHMS, images, points, seeded, trained
from roundtrip.algorithms.consistent import AbstractConsistentRegistration, ConsistentTwoStep
from roundtrip.algorithms.description import build, describe
from roundtrip.algorithms.direct import DirectOptimisation
from roundtrip.algorithms.multistep import Frozen
from roundtrip.algorithms.objective import InverseConsistent, both_directions
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.map import AbstractMap, on_grid_of

SHAPES = [(1,), (23,), (1, 1), (7, 12), (5, 1), (1, 1, 1), (3, 7, 4)]
TYPICAL = [(13,), (7, 12), (5, 3, 6)]


@pytest.fixture(params=ALGORITHMS.values(), ids=ALGORITHMS.keys())
def make(request):
    """shape -> the algorithm, the same weights every time."""
    return lambda shape, **options: seeded(request.param, shape, **options)


@pytest.fixture(params=SHAPES, ids=str)
def shape(request):
    return request.param


@pytest.fixture(params=TYPICAL, ids=lambda shape: f"{len(shape)}D")
def typical(request):
    return request.param


def at_points(algorithm, pair, x):
    return algorithm(*pair)(x)


@pytest.mark.parametrize("training", [True, False])
def test_the_first_map_is_exactly_the_identity(make, shape, training):
    algorithm = make(shape).train(training)
    if isinstance(algorithm, DirectOptimisation):
        pytest.skip("it has no first map: what it returns was optimised")
    moving, fixed = images(shape)
    grid = unit_grid(shape, like=fixed).expand(2, -1, *shape)
    assert_close(on_grid_of(algorithm(moving, fixed), fixed), grid, rtol=0, atol=0)


@pytest.mark.parametrize("batch", [1, 3])
def test_the_result_is_a_map_of_the_images_dimension(make, shape, batch):
    algorithm = trained(make(shape)).eval()
    phi, x = algorithm(*images(shape, batch=batch)), points(len(shape), batch=batch)
    assert isinstance(phi, AbstractMap)
    assert phi(x).shape == x.shape and phi(x).isfinite().all()
    assert phi(x[:1]).shape == x.shape, "one set of points serves the batch"
    assert on_grid_of(phi, images(shape)[0]).shape == (batch, len(shape), *shape)


def test_the_map_depends_on_both_images_and_their_order(make, typical):
    algorithm = alive(trained(make(typical))).eval()
    moving, fixed = images(typical)
    x = points(len(typical))
    result = algorithm(moving, fixed)(x)
    for other in ((fixed, moving), (moving, moving), (fixed, fixed)):
        assert (algorithm(*other)(x) - result).abs().max() > 1e-6


def test_elements_of_a_batch_do_not_mix(make, shape):
    algorithm = trained(make(shape)).eval()
    moving, fixed = images(shape, batch=3)
    x = points(len(shape), batch=3)
    alone = [
        algorithm(*pair)(one) for *pair, one in zip(moving.split(1), fixed.split(1), x.split(1), strict=True)
    ]
    assert_close(algorithm(moving, fixed)(x), torch.cat(alone), rtol=0, atol=1e-9)


def test_two_calls_do_not_disturb_each_other(make, typical):
    algorithm = trained(make(typical)).eval()
    x, pair = points(len(typical)), images(typical)
    phi = algorithm(*pair)
    before = phi(x)
    algorithm(*images(typical, seed=9))
    assert_close(phi(x), before, rtol=0, atol=0)
    assert_close(algorithm(*pair)(x), before, rtol=0, atol=0)


def test_nothing_is_stored(make, typical):
    algorithm = trained(make(typical)).eval()
    before, attributes = copy.deepcopy(algorithm.state_dict()), attributes_of(algorithm)
    algorithm(*images(typical))
    both_directions(algorithm, *images(typical))
    assert attributes_of(algorithm) == attributes
    for name, tensor in algorithm.state_dict().items():
        assert_close(tensor, before[name], rtol=0, atol=0)


def attributes_of(algorithm):
    """What every module holds, beside its weights, buffers and parts, which are compared elsewhere."""
    held = ("_parameters", "_buffers", "_modules")
    return {
        name: {key: repr(value) for key, value in vars(module).items() if key not in held}
        | {key: sorted(vars(module)[key]) for key in held}
        for name, module in algorithm.named_modules()
    }


@pytest.mark.parametrize("training", [True, False])
def test_the_images_are_left_as_they_are(make, typical, training):
    algorithm = trained(make(typical)).train(training)
    pair = images(typical)
    before = [image.clone() for image in pair]
    algorithm(*pair)
    assert all(torch.equal(image, old) for image, old in zip(pair, before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_map_has_the_precision_of_the_images(make, typical, dtype):
    algorithm = trained(make(typical, dtype=dtype)).eval()
    phi = algorithm(*images(typical, dtype=dtype))
    assert {tensor.dtype for tensor in tensors_of(phi)} == {dtype}
    assert phi(points(len(typical), dtype=dtype)).dtype == dtype


def tensors_of(phi):
    """All tensors that a map and its parts hold."""
    for value in vars(phi).values():
        if isinstance(value, torch.Tensor):
            yield value
        else:
            yield from tensors_of(value)


def test_images_in_half_precision_give_maps_of_single_precision(make, typical):
    algorithm = trained(make(typical, dtype=torch.float32), amount=0.02).eval()
    x = points(len(typical), dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        phi = algorithm(*images(typical, dtype=torch.bfloat16))
    assert {tensor.dtype for tensor in tensors_of(phi)} == {torch.float32}
    assert phi(x).dtype == torch.float32 and phi(x).isfinite().all()


def test_gradients_reach_every_weight_that_learns_and_no_other(make, typical):
    # In training mode a bias in front of a batch norm cannot matter.
    algorithm = alive(trained(make(typical))).eval()
    frozen = {
        id(weight)
        for module in algorithm.modules()
        if isinstance(module, Frozen)
        for weight in module.parameters()
    }
    if any(weight.requires_grad for weight in algorithm.parameters()):
        (algorithm(*images(typical))(points(len(typical))) - 1).square().sum().backward()
    for name, weight in algorithm.named_parameters():
        if id(weight) in frozen:
            assert weight.grad is None and not weight.requires_grad, name
        else:
            assert weight.grad is not None, name
            assert weight.grad.abs().max() > 0 or may_cancel(algorithm, name), name


def alive(algorithm):
    """`algorithm` with all biases raised, so that hardly a ReLU is off."""
    with torch.no_grad():
        for name, weight in algorithm.named_parameters():
            weight += 0.5 * name.endswith("bias")
    return algorithm


def may_cancel(algorithm, name):
    """Whether a weight is a bias of a network whose output is subtracted from itself."""
    consistent = isinstance(algorithm, AbstractConsistentRegistration | ConsistentTwoStep)
    return consistent and name.endswith("bias")


def test_gradients_are_right(make):
    """Those by the images, and so those by whatever made the images, as in a step before this one."""
    algorithm = trained(make((3, 4))).eval()
    if isinstance(algorithm, DirectOptimisation):
        pytest.skip("an optimum is not differentiated")
    x = points(2, batch=1, count=2)
    pair = [image.requires_grad_() for image in images((3, 4), batch=1)]
    assert torch.autograd.gradcheck(lambda *pair: algorithm(*pair)(x), pair, fast_mode=True)


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_both_directions_at_once_are_two_single_passes(make, typical, training):
    algorithm = trained(make(typical)).train(training)
    alone = copy.deepcopy(algorithm)
    moving, fixed = images(typical)
    x = points(len(typical))
    phi_AB, phi_BA = both_directions(algorithm, moving, fixed)
    assert_close(phi_AB(x), alone(moving, fixed)(x), rtol=0, atol=1e-9)
    assert_close(phi_BA(x), alone(fixed, moving)(x), rtol=0, atol=1e-9)
    assert_close(algorithm.state_dict(), alone.state_dict())


def test_a_step_of_training_changes_the_running_statistics_of_all_that_learn(make, typical):
    algorithm = trained(make(typical)).train()
    before = copy.deepcopy(algorithm.state_dict())
    both_directions(algorithm, *images(typical))
    standing = {id(m) for f in algorithm.modules() if isinstance(f, Frozen) for m in f.modules()}
    for name, module in algorithm.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            same = torch.equal(module.running_mean, before[f"{name}.running_mean"])
            assert same == (id(module) in standing), name


def test_under_autocast_points_stay_in_single_precision(make, typical):
    algorithm = trained(make(typical, dtype=torch.float32), amount=0.02).eval()
    pair, x = images(typical, dtype=torch.float32), points(len(typical), dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        phi = algorithm(*pair)
        inside = phi(x)
        terms = InverseConsistent(algorithm, weight=1.0)(*pair)
    assert {tensor.dtype for tensor in tensors_of(phi)} == {torch.float32}
    # The map is rough, but where it sends a point is not rounded to 8 bits.
    assert inside.dtype == torch.float32
    assert_close(inside, phi(x), rtol=0, atol=1e-6)
    assert_close(inside, algorithm(*pair)(x), rtol=0, atol=0.05)
    assert all(term.dtype == torch.float32 and term.isfinite() for term in vars(terms).values())


def test_a_description_makes_it_again(make, typical):
    algorithm = make(typical)
    if isinstance(algorithm, DirectOptimisation):
        with pytest.raises(ValueError, match="DirectOptimisation cannot be described"):
            describe(algorithm)
        return
    description = json.loads(json.dumps(describe(algorithm)))
    again = build(description).double()
    assert describe(again) == describe(algorithm)
    again.load_state_dict(algorithm.state_dict())
    pair, x = images(typical), points(len(typical))
    expected = at_points(trained(algorithm).eval(), pair, x)
    assert_close(at_points(trained(again).eval(), pair, x), expected, rtol=0, atol=0)


def test_a_frozen_part_is_described_as_frozen(make, typical):
    algorithm = make(typical)
    frozen = sum(isinstance(module, Frozen) for module in algorithm.modules())
    if frozen:
        assert json.dumps(describe(algorithm)).count('"Frozen"') == frozen


WRONG = {
    "one axis too few": ((5,), {}, "`fixed` has 1"),
    "another grid": ((7, 11), {}, r"fixed` has \(7, 11\).*`moving = rt.warp\(moving, rt.Identity"),
    "another batch": ((7, 12), {"batch": 3}, r"`fixed` 3;.*`fixed.expand\(len\(moving\)"),
    "channels": ((7, 12), {"channels": 2}, r"1 channels but `fixed` 2;.*`moving\[:, :1\]`"),
    "precision": ((7, 12), {"dtype": torch.float32}, r"torch.float32.*`moving = moving.to\(fixed\)`"),
}


@pytest.mark.parametrize(("shape", "options", "says"), WRONG.values(), ids=WRONG.keys())
def test_images_that_do_not_fit_together_say_what_to_do(make, shape, options, says, as_users_see_it):
    moving, fixed = images((7, 12))[0], images(shape, **options)[1]
    with pytest.raises(ValueError, match=says):
        make((7, 12))(moving, fixed)


BAD = {
    "NaN": (lambda image: image.clone().fill_(torch.nan), r"NaN or infinite.*nan_to_num"),
    "integers": (lambda image: image.long(), r"torch.int64; floating point is needed.*`fixed.float\(\)`"),
    "no batch": (lambda image: image[0, 0], r"\(batch, channels, \*grid\).*`fixed\[None, None\]`"),
    "empty": (lambda image: image[:, :, :0], "no axis may be empty"),
    "an array": (lambda image: image.numpy(), r"is a ndarray; .*`torch.as_tensor\(fixed"),
}


@pytest.mark.parametrize(("spoil", "says"), BAD.values(), ids=BAD.keys())
def test_images_that_are_none_say_what_to_do(make, spoil, says, as_users_see_it):
    moving, fixed = images((7, 12))
    with pytest.raises(ValueError, match=says):
        make((7, 12))(moving, spoil(fixed))


def test_networks_in_another_precision_say_what_to_do(make, as_users_see_it):
    algorithm = make((7, 12), dtype=torch.float32)
    if isinstance(algorithm, DirectOptimisation):
        pytest.skip("it has no weights")
    with pytest.raises(ValueError, match=r"are torch.float64 on cpu.*torch.float32 on cpu.*\.to\("):
        algorithm(*images((7, 12)))
