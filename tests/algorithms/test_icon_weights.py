"""Weights of the published package find their place in ours; what does not fit is named.

The package itself is compared in `benchmarks/parity.py`; here its names and shapes are written out.
"""

import itertools
import pickle

import pytest
import torch
from safetensors.torch import save_file

from roundtrip.algorithms.consistent import ConsistentVelocity
from roundtrip.algorithms.description import describe, outline
from roundtrip.algorithms.from_network import (
    AffineRegistration,
    DisplacementRegistration,
    VelocityRegistration,
)
from roundtrip.algorithms.icon_weights import (
    algorithm_for_icon_weights,
    describe_icon_weights,
    grid_of_icon_weights,
    load_icon_weights,
    read_icon_weights,
)
from roundtrip.algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet

DOWN, UP = (4, 6, 8), (4, 5, 7)
STEPS = {"down_features": DOWN, "up_features": UP}


# State dicts as the package's networks have them, each tensor with other values.


def filled(shapes):
    counter = itertools.count(1)
    return {name: torch.full(shape, float(next(counter))) for name, shape in shapes.items()}


def layer(name, shape, features):
    return {f"{name}.weight": shape, f"{name}.bias": (features,)}


def tall_unet_2(dims=2, channels=1, down=DOWN, up=UP):
    shapes, skipped = {}, (2 * channels, *down)
    for depth in range(len(down)):
        for statistic in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"batchNorms.{depth}.{statistic}"] = (up[depth],)
        shapes[f"batchNorms.{depth}.num_batches_tracked"] = ()
        a, b = skipped[depth], skipped[depth + 1]
        shapes |= layer(f"downConvs.{depth}", (b, a, *[3] * dims), b)
        below = b + (up[depth + 1] if depth + 1 < len(up) else 0)
        shapes |= layer(f"upConvs.{depth}", (below, up[depth], *[4] * dims), up[depth])
    return filled(shapes | layer("lastConv", (dims, up[0] + 2 * channels, *[3] * dims), dims))


def tall_ae():
    shapes, sizes, up = {}, (2, *DOWN), (*UP, DOWN[-1])
    for depth in range(len(DOWN)):
        a, b = sizes[depth : depth + 2]
        shapes |= layer(f"downConvs.{depth}", (b, a, 3, 3), b)
        shapes |= layer(f"upConvs.{depth}", (up[depth + 1], up[depth], 4, 4), up[depth])
    return filled(shapes | layer("lastConv", (2, UP[0], 3, 3), 2))


def regis_net():
    shapes = {}
    for i in range(1, 6):
        shapes |= layer(f"conv{i}", (10, 2 + 10 * (i - 1), 5, 5), 10)
    return filled(shapes | layer("conv6", (2, 52, 5, 5), 2))


def fc_net(voxels=6 * 6, dims=2):
    shapes = layer("dense1", (9, 2 * voxels), 9) | layer("dense2", (7, 9), 7)
    return filled(shapes | layer("dense3", (dims * voxels, 7), dims * voxels))


def convolutional_matrix_net():
    shapes = layer("convs.0", (4, 2, 3, 3, 3), 4) | layer("convs.1", (6, 4, 3, 3, 3), 6)
    return filled(shapes | layer("dense2", (5, 6), 5) | layer("dense3", (12, 5), 12))


def under(level, state):
    return {f"{level}.{name}": tensor for name, tensor in state.items()}


def two_step(first, second):
    return under("netPhi", first) | under("netPsi", second)


def oai_steps():
    """The four networks of the package's GradICON models: quarter, half, and twice full resolution."""
    steps = under("net", tall_unet_2(3))
    for _ in range(2):
        steps = two_step(under("net", steps), under("net", tall_unet_2(3)))
    return two_step(steps, under("net", tall_unet_2(3)))


UNET_3D = f"DisplacementRegistration(UNet(dims=3, down_features={DOWN}, up_features={UP}))"

PUBLISHED = {
    "tallUNet2": (tall_unet_2, "UNet(dims=2, down_features=(4, 6, 8), up_features=(4, 5, 7))"),
    "tallAE": (tall_ae, "EncoderDecoder(dims=2, down_features=(4, 6, 8), up_features=(4, 5, 7))"),
    "RegisNet": (regis_net, "ConvOnly(dims=2)"),
    "FCNet": (fc_net, "MLP((6, 6), hidden_features=(9, 7))"),
    "FCNet1D": (lambda: fc_net(6, 1), "MLP((6,), hidden_features=(9, 7))"),
}


@pytest.fixture(params=PUBLISHED.values(), ids=PUBLISHED.keys())
def published(request):
    make, found = request.param
    return make(), f"DisplacementRegistration({found})"


def values(state):
    """What each tensor is filled with, sorted."""
    return sorted(tensor.flatten()[0].item() for tensor in state.values())


def test_every_network_is_recognised_and_every_weight_used_once(published):
    state, found = published
    algorithm = algorithm_for_icon_weights(under("net", state))
    assert outline(describe(algorithm)) == found
    assert values(algorithm.state_dict()) == values(state)
    assert not algorithm.training


def test_a_network_alone_will_do(published):
    state, found = published
    algorithm = algorithm_for_icon_weights(state)
    assert outline(describe(algorithm)) == found
    load_icon_weights(algorithm.net, state)
    load_icon_weights(algorithm, state)
    assert values(algorithm.state_dict()) == values(state)


def test_published_sizes_are_recognised():
    sizes = {"down": (16, 32, 64, 256, 512), "up": (16, 32, 64, 128, 256)}
    state = tall_unet_2(3, channels=2, **sizes)
    assert outline(describe_icon_weights(state)) == "DisplacementRegistration(UNet(dims=3, channels=2))"


@pytest.mark.parametrize(
    "state, ours, theirs",
    [
        (tall_unet_2(), "net.down.1.convolution.weight", "downConvs.1.weight"),
        (tall_unet_2(), "net.up.0.convolution.bias", "upConvs.0.bias"),
        (tall_unet_2(), "net.up.2.norm.running_var", "batchNorms.2.running_var"),
        (tall_unet_2(), "net.last.bias", "lastConv.bias"),
        (tall_ae(), "net.down.2.bias", "downConvs.2.bias"),
        (tall_ae(), "net.up.1.weight", "upConvs.1.weight"),
        (tall_ae(), "net.last.weight", "lastConv.weight"),
        (regis_net(), "net.layers.0.weight", "conv1.weight"),
        (regis_net(), "net.layers.4.bias", "conv5.bias"),
        (regis_net(), "net.last.bias", "conv6.bias"),
        (fc_net(), "net.hidden.0.weight", "dense1.weight"),
        (fc_net(), "net.hidden.1.bias", "dense2.bias"),
        (fc_net(), "net.last.weight", "dense3.weight"),
        (convolutional_matrix_net(), "net.convolutions.1.weight", "convs.1.weight"),
        (convolutional_matrix_net(), "net.hidden.bias", "dense2.bias"),
        (convolutional_matrix_net(), "net.last.bias", "dense3.bias"),
    ],
)
def test_each_weight_goes_to_its_place(state, ours, theirs):
    assert torch.equal(algorithm_for_icon_weights(state).state_dict()[ours], state[theirs])


def test_any_nesting_is_recognised():
    algorithm = algorithm_for_icon_weights(oai_steps())
    quarter = f"TwoStep(AtHalfResolution({UNET_3D}), {UNET_3D})"
    half = f"TwoStep(AtHalfResolution({quarter}), {UNET_3D})"
    assert outline(describe(algorithm)) == f"TwoStep({half}, {UNET_3D})"


def test_the_steps_keep_their_order():
    state = two_step(under("net", tall_ae()), under("net.net", regis_net()))
    algorithm = algorithm_for_icon_weights(state)
    assert isinstance(algorithm, TwoStep)
    assert isinstance(algorithm.first.net, EncoderDecoder)
    assert isinstance(algorithm.second, AtHalfResolution)
    assert isinstance(algorithm.second.inner.net, ConvOnly)


def test_a_matrix_in_front_of_displacements():
    state = two_step(under("net", convolutional_matrix_net()), under("net", tall_unet_2(3)))
    affine = "AffineRegistration(AffineNetwork(dims=3, features=(4, 6), hidden_features=5))"
    assert outline(describe(algorithm_for_icon_weights(state))) == f"TwoStep({affine}, {UNET_3D})"


@pytest.mark.parametrize(
    "wrapped", ["regis_net", "module.regis_net", "regis_net.module", "module", "_orig_mod"]
)
def test_wrappers_and_grids_around_the_algorithm_are_ignored(wrapped):
    plain = two_step(under("net", regis_net()), under("net", regis_net()))
    state = under(wrapped, plain)
    state[f"{wrapped}.identity_map"] = torch.zeros(1, 2, 5, 6)
    state[f"{wrapped}.netPhi.identity_map"] = torch.zeros(1, 2, 3, 3)
    state["identity_map"], state["spacing"] = torch.zeros(1, 2, 5, 6), torch.ones(2)
    assert values(algorithm_for_icon_weights(state).state_dict()) == values(plain)
    assert grid_of_icon_weights(state) == (5, 6)
    assert grid_of_icon_weights(plain) is None


def test_frozen_steps_and_velocities_load_too():
    state = two_step(under("net", regis_net()), under("net", tall_ae()))
    algorithm = TwoStep(
        Frozen(DisplacementRegistration(ConvOnly(dims=2))),
        VelocityRegistration(EncoderDecoder(dims=2, **STEPS), num_steps=8),
    )
    load_icon_weights(algorithm, state)
    assert values(algorithm.state_dict()) == values(state)
    assert not any(parameter.requires_grad for parameter in algorithm.first.parameters())


def test_the_weights_are_copies():
    state = fc_net()
    algorithm = algorithm_for_icon_weights(state)
    state["dense1.weight"].zero_()
    assert algorithm.net.hidden[0].weight.abs().min() > 0


def test_recognising_draws_no_random_numbers():
    before = torch.get_rng_state()
    algorithm_for_icon_weights(fc_net())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_of_ones_own_keeps_its_names():
    net = torch.nn.Linear(2, 3)
    load_icon_weights(
        DisplacementRegistration(net), {"net.weight": torch.ones(3, 2), "net.bias": torch.ones(3)}
    )
    assert net.weight.sum() == 6


# What does not fit.


def unet_algorithm():
    return DisplacementRegistration(UNet(dims=2, **STEPS))


def test_missing_surplus_and_misshaped_weights_are_named():
    state = under("net", tall_unet_2())
    state["net.extra"] = state.pop("net.lastConv.bias")
    state["net.downConvs.0.weight"] = torch.zeros(4, 6, 3, 3)
    algorithm = unet_algorithm()
    before = {key: tensor.clone() for key, tensor in algorithm.state_dict().items()}
    with pytest.raises(ValueError) as raised:
        load_icon_weights(algorithm, state)
    message = str(raised.value)
    assert "1 missing: net.lastConv.bias" in message
    assert "1 surplus: net.extra" in message
    assert "1 of another shape: net.downConvs.0.weight (is (4, 6, 3, 3), needed (4, 2, 3, 3))" in message
    assert "do not fit DisplacementRegistration(UNet(dims=2," in message
    for key, tensor in algorithm.state_dict().items():
        assert torch.equal(tensor, before[key])


def test_the_message_says_what_the_weights_seem_to_be():
    with pytest.raises(
        ValueError, match=r"seem to be those of TwoStep\(TwoStep\(AtHalfResolution\(.* makes what fits"
    ):
        load_icon_weights(unet_algorithm(), under("module.regis_net", oai_steps()))
    with pytest.raises(ValueError, match=r"seem to be those of nothing we know \(it holds decoder, encoder"):
        load_icon_weights(unet_algorithm(), {"encoder.w": torch.ones(1), "decoder.w": torch.ones(1)})
    with pytest.raises(ValueError, match=r"\d+ missing: .* and \d+ more; "):
        load_icon_weights(unet_algorithm(), regis_net())


@pytest.mark.parametrize(
    "state, message",
    [
        ({}, "it holds nothing, which is none of the published"),
        (
            tall_unet_2(3) | {"middle_dense.0.weight": torch.ones(2, 2)},
            r"dense layers in its middle \(`UNet2Chunky",
        ),
        (tall_unet_2() | {"groupNorms.0.weight": torch.ones(2)}, "tallUNet3"),
        (fc_net() | {"dense4.weight": torch.ones(2, 2)}, "FCNet3D"),
        (fc_net(6 * 7), "from 84 values to 84, which are not two images of equal sides"),
        ({"net.weights": torch.ones(1)}, "it holds weights, which is none of the published networks"),
        (two_step({"conv1.weight": torch.ones(3, 2, 5)}, {}), "it holds netPhi, which"),
        ({"conv2.weight": torch.ones(3, 2, 5)}, "it holds conv2"),
        ({"conv1.bias": torch.ones(3)}, "it lacks conv1.weight"),
        ({k: v for k, v in tall_ae().items() if k != "downConvs.0.weight"}, r"it lacks downConvs\.0\.weight"),
        (tall_ae() | {"downConvs.0.weight": torch.ones(3)}, r"it has a downConvs\.0\.weight of shape \(3,\)"),
    ],
)
def test_what_is_not_recognised_says_why(state, message):
    with pytest.raises(ValueError, match=message) as raised:
        algorithm_for_icon_weights(state)
    assert "no algorithm was found for these weights" in str(raised.value)


def test_a_recognised_network_that_lacks_a_weight_is_refused():
    state = tall_unet_2()
    del state["upConvs.2.bias"]
    with pytest.raises(ValueError, match=r"1 missing: net\.upConvs\.2\.bias\. "):
        algorithm_for_icon_weights(state)


def test_a_training_checkpoint_is_refused():
    with pytest.raises(ValueError, match=r"`state_dict\['model'\]` is a dict, not a tensor"):
        load_icon_weights(unet_algorithm(), {"model": tall_unet_2()})


def test_weights_of_two_networks_are_refused():
    with pytest.raises(ValueError, match=r"holds conv1\.weight twice, once as regis_net\.conv1"):
        describe_icon_weights(regis_net() | under("regis_net", regis_net()))


def test_consistent_algorithms_take_no_published_weights():
    with pytest.raises(ValueError, match="ConsistentVelocity uses its network in another way"):
        load_icon_weights(ConsistentVelocity(ConvOnly(dims=2)), regis_net())


# Files.


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", ["weights.pt", "weights.trch", "weights.pth", "no_suffix"])
@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_torch_are_read(tmp_path, name, zipped):
    torch.save(regis_net(), tmp_path / name, _use_new_zipfile_serialization=zipped)
    assert equal(read_icon_weights(tmp_path / name), regis_net())


def test_safetensors_are_read(tmp_path):
    save_file(regis_net(), tmp_path / "weights.safetensors")
    assert equal(read_icon_weights(tmp_path / "weights.safetensors"), regis_net())


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("write", [torch.save, lambda trap, path: path.write_bytes(pickle.dumps(trap))])
def test_a_pickle_is_never_executed(tmp_path, write):
    write({"conv1.weight": Trap(tmp_path / "sprung")}, tmp_path / "weights.pt")
    with pytest.raises(
        ValueError, match="Python objects beside them, which Roundtrip never executes"
    ) as raised:
        read_icon_weights(tmp_path / "weights.pt")
    assert not (tmp_path / "sprung").exists()
    assert "Re-running" not in str(raised.value)
    if write is torch.save:
        assert "was not read (Unsupported global: GLOBAL io.open)" in str(raised.value)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE html><html>404</html>", b"PK\x03\x04 cut off", b"\x80\x02"]
)
def test_other_files_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"weights.{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"weights\.{suffix} was not read \(.+\)"):
        read_icon_weights(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.pt is not there"):
        read_icon_weights(tmp_path / "nowhere.pt")
    with pytest.raises(ValueError, match="is a folder"):
        read_icon_weights(tmp_path)


def test_a_file_that_holds_something_else(tmp_path):
    torch.save([torch.ones(3)], tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="holds a list; the state dict of a network is needed"):
        read_icon_weights(tmp_path / "weights.pt")


def test_the_affine_and_dense_networks_need_no_wrapper_to_fit():
    load_icon_weights(AffineNetwork(dims=3, features=(4, 6), hidden_features=5), convolutional_matrix_net())
    affine = AffineRegistration(AffineNetwork(dims=3, features=(4, 6), hidden_features=5))
    load_icon_weights(affine, under("net", convolutional_matrix_net()))
    load_icon_weights(MLP((6, 6), hidden_features=(9, 7)), fc_net())
