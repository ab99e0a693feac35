"""What every network promises: any grid, zero at first, batch elements apart, all weights learn."""

import pytest
import torch

from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet

SMALL = {"down_features": (4, 6, 8), "up_features": (4, 5, 6)}

NETWORKS = {
    "UNet": lambda shape, channels=1: UNet(dims=len(shape), channels=channels, **SMALL),
    "EncoderDecoder": lambda shape, channels=1: EncoderDecoder(dims=len(shape), channels=channels, **SMALL),
    "ConvOnly": lambda shape, channels=1: ConvOnly(
        dims=len(shape), channels=channels, num_layers=2, growth=3
    ),
    "MLP": lambda shape, channels=1: MLP(shape, channels=channels, hidden_features=(9, 7)),
    "AffineNetwork": lambda shape, channels=1: AffineNetwork(
        dims=len(shape), channels=channels, features=(4, 6), hidden_features=5
    ),
}

SHAPES = [(1,), (2,), (23,), (1, 1), (7, 12), (5, 1), (1, 1, 1), (3, 7, 4), (6, 1, 5)]


@pytest.fixture(params=NETWORKS.values(), ids=NETWORKS.keys())
def make(request):
    """shape, channels -> a network, the same weights every time."""

    def seeded(*args, **kwargs):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return request.param(*args, **kwargs).double()

    return seeded


@pytest.fixture(params=SHAPES, ids=str)
def shape(request):
    return request.param


def images(shape, *, batch=2, channels=1, dtype=torch.float64, seed=0):
    """Intensities between -1 and 1."""
    generator = torch.Generator().manual_seed(seed)
    size = (2, batch, channels, *shape)
    return tuple(2 * torch.rand(size, dtype=dtype, generator=generator) - 1)


def first_output(net, batch, shape):
    """What a network must give before it learned anything."""
    N = len(shape)
    if not isinstance(net, AffineNetwork):
        return torch.zeros(batch, N, *shape, dtype=torch.float64)
    return torch.cat([torch.eye(N), torch.zeros(N, 1)], dim=1).double().expand(batch, -1, -1)


def scrambled(net, seed=2):
    """`net` with random weights everywhere, the last layer included, as after training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
    return net


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("training", [True, False])
def test_the_first_map_is_exactly_the_identity(make, shape, batch, training):
    net = make(shape).train(training)
    output = net(*images(shape, batch=batch))
    torch.testing.assert_close(output, first_output(net, batch, shape), rtol=0, atol=0)


def test_elements_of_a_batch_do_not_mix(make, shape):
    net = scrambled(make(shape)).eval()
    moving, fixed = images(shape, batch=3)
    one_by_one = [net(a, b) for a, b in zip(moving.split(1), fixed.split(1), strict=True)]
    torch.testing.assert_close(net(moving, fixed), torch.cat(one_by_one))


def test_the_output_depends_on_both_images_and_their_order(make):
    net = scrambled(make((7, 12))).eval()
    moving, fixed = images((7, 12))
    output = net(moving, fixed)
    for other in (net(fixed, moving), net(moving, moving), net(fixed, fixed)):
        assert (output - other).abs().max() > 1e-6


def test_every_weight_learns_once_the_last_layer_moved(make):
    # In training mode a bias in front of a batch norm cannot matter: in eval mode it must.
    shape = (7, 12)
    net = make(shape).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for _ in range(2):
        optimizer.zero_grad()
        (net(*images(shape)) - 1).square().sum().backward()
        optimizer.step()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_output_has_the_precision_of_the_images(make, dtype):
    net = make((7, 12)).to(dtype)
    assert net(*images((7, 12), dtype=dtype)).dtype == dtype


def test_images_may_have_several_channels(make):
    net = scrambled(make((5, 6), channels=3)).eval()
    moving, fixed = images((5, 6), channels=3)
    output = net(moving, fixed)
    assert output.shape == first_output(net, 2, (5, 6)).shape
    changed = moving.clone()
    changed[:, 2] += 1
    assert (net(changed, fixed) - output).abs().max() > 1e-6


@pytest.mark.parametrize(
    "wrong", [images((7,)), images((7, 12, 3)), images((7, 12), channels=2)], ids=["1D", "3D", "channels"]
)
def test_images_it_was_not_made_for_are_refused(make, wrong):
    with pytest.raises(ValueError, match=r"`moving` has shape .* made for images of 1 channel\(s\) and 2"):
        make((7, 12))(*wrong)


def test_gradients_reach_the_images(make):
    net = scrambled(make((3, 4))).eval()
    moving, fixed = (image.requires_grad_() for image in images((3, 4), batch=1))
    torch.autograd.gradcheck(net, (moving, fixed))


@pytest.mark.parametrize("network", [UNet, EncoderDecoder, ConvOnly, AffineNetwork])
def test_dimensions_and_channels_are_checked(network):
    with pytest.raises(ValueError, match="dims=4: networks are made for 1, 2 or 3"):
        network(dims=4)
    with pytest.raises(ValueError, match="channels=0: each image needs at least one"):
        network(dims=2, channels=0)
