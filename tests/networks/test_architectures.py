"""What distinguishes the networks: the sizes of the paper's supplement, and what each of them can see."""

import pytest
import torch
import torch.nn.functional as F

from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.layers import half_size, with_channels
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet


def rand(*shape, seed=0):
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sizes(network, kind):
    """(input, output) features of all layers of one kind, in the order of the modules."""
    return [
        (layer.weight.shape[1], layer.weight.shape[0])
        for layer in network.modules()
        if type(layer).__name__.startswith(kind)
    ]


def test_unet_has_the_published_sizes():
    net = UNet(dims=3)
    assert sizes(net, "Conv3d") == [(2, 16), (16, 32), (32, 64), (64, 256), (256, 512), (18, 3)]
    # Transpose convolutions keep their input features first.
    up = [(48, 16), (96, 32), (192, 64), (512, 128), (512, 256)]
    assert [pair[::-1] for pair in sizes(net, "ConvTranspose3d")] == up


def test_encoder_decoder_has_the_published_sizes():
    net = EncoderDecoder(dims=2)
    assert sizes(net, "Conv2d") == [(2, 16), (16, 32), (32, 64), (64, 256), (256, 512), (16, 2)]
    up = [(32, 16), (64, 32), (128, 64), (256, 128), (512, 256)]
    assert [pair[::-1] for pair in sizes(net, "ConvTranspose2d")] == up


def test_conv_only_has_the_published_sizes():
    assert sizes(ConvOnly(dims=2), "Conv2d") == [(2, 10), (12, 10), (22, 10), (32, 10), (42, 10), (52, 2)]


def test_mlp_has_the_published_sizes():
    with torch.device("meta"):
        net = MLP((28, 28))
    assert sizes(net, "Linear") == [(2 * 28 * 28, 8000), (8000, 3000), (3000, 2 * 28 * 28)]


def test_unet_of_one_level_is_the_formula_written_out():
    net = UNet(dims=1, down_features=(5,), up_features=(3,)).double().eval()
    for seed, parameter in enumerate(net.parameters()):
        parameter.data = rand(*parameter.shape, seed=seed) - 0.5
    moving, fixed = rand(1, 1, 7), rand(1, 1, 7, seed=1)
    (down,), (up,) = net.down, net.up

    x = torch.cat([moving, fixed], dim=1)
    low = F.conv1d(F.leaky_relu(x, 0.01), down.convolution.weight, down.convolution.bias, stride=2, padding=1)
    low[:, 3:] += F.avg_pool1d(x, 2, ceil_mode=True)  # three channels of zeros in front
    high = F.conv_transpose1d(
        F.leaky_relu(low, 0.01), up.convolution.weight, up.convolution.bias, stride=2, padding=1
    )
    high = high + F.interpolate(low[:, :3], scale_factor=2, mode="linear", align_corners=False)
    high = high / (1 + up.norm.eps) ** 0.5 * up.norm.weight[:, None] + up.norm.bias[:, None]
    both = torch.cat([high[..., :7], x], dim=1)
    expected = F.conv1d(both, net.last.weight, net.last.bias, padding=1) / 10
    torch.testing.assert_close(net(moving, fixed), expected)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unet_trains_on_a_single_voxel(dims):
    # A batch norm refuses one value per channel; it sees the grid that was just doubled, before cropping.
    net = UNet(dims=dims, down_features=(4, 6), up_features=(4, 5)).double().train()
    before = net.up[0].norm.running_mean.clone()
    net(rand(1, 1, *[1] * dims), rand(1, 1, *[1] * dims, seed=1)).sum().backward()
    assert (net.up[0].norm.running_mean - before).abs().max() > 0


def test_conv_only_sees_twelve_voxels_far():
    net = ConvOnly(dims=1).double()
    for parameter in net.parameters():
        # No ReLU is ever dead, whatever was drawn before.
        torch.nn.init.constant_(parameter, 0.01)
    image = rand(1, 1, 41).requires_grad_()
    net(image, rand(1, 1, 41, seed=1))[0, 0, 20].backward()
    seen = image.grad[0, 0].nonzero().flatten().tolist()
    assert seen == list(range(8, 33))


def test_mlp_is_bound_to_its_grid():
    net = MLP((4, 5), hidden_features=(3,)).double()
    with pytest.raises(
        ValueError, match=r"grid \(5, 4\), but this MLP was made for \(4, 5\).*`MLP\(\(5, 4\)\)`"
    ):
        net(rand(1, 1, 5, 4), rand(1, 1, 5, 4))


def test_mlp_has_one_output_per_voxel_and_axis():
    net = MLP((2, 3), hidden_features=(4,)).double()
    net.last.bias.data = torch.arange(12.0, dtype=torch.float64)
    torch.testing.assert_close(net(rand(1, 1, 2, 3), rand(1, 1, 2, 3)), net.last.bias.reshape(1, 2, 2, 3))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_affine_network_turns_about_the_centre_of_the_image(dims):
    net = AffineNetwork(dims=dims, features=(4, 6), hidden_features=5).double()
    torch.nn.init.normal_(net.last.weight, generator=torch.Generator().manual_seed(0))
    net.last.bias.data = rand(dims * (dims + 1))
    net.last.bias.data.view(dims, dims + 1)[:, -1] = 0
    net.last.weight.data.view(dims, dims + 1, -1)[:, -1] = 0
    both = net(rand(2, 1, *[6] * dims), rand(2, 1, *[6] * dims, seed=1))
    matrix, offset = both[..., :-1], both[..., -1]
    centre = torch.full((dims,), 0.5, dtype=torch.float64)
    torch.testing.assert_close(matrix @ centre + offset, centre.expand(2, -1))
    assert (matrix - torch.eye(dims)).abs().max() > 1e-3


def test_affine_network_sees_negative_intensities():
    net = AffineNetwork(dims=2, features=(4, 6), hidden_features=5).double()
    torch.nn.init.normal_(net.last.weight, generator=torch.Generator().manual_seed(0))
    moving, fixed = -rand(1, 1, 6, 6), rand(1, 1, 6, 6, seed=1)
    assert (net(moving, fixed) - net(2 * moving, fixed)).abs().max() > 1e-6


def test_an_odd_axis_ends_with_a_block_of_one():
    x = torch.tensor([[[1.0, 3.0, 5.0, 7.0, 9.0]]])
    assert half_size(x).tolist() == [[[2.0, 6.0, 9.0]]]


def test_an_axis_of_one_voxel_is_not_halved():
    x = rand(1, 2, 4, 1, 3)
    assert half_size(x).shape == (1, 2, 2, 1, 2)
    torch.testing.assert_close(half_size(x)[..., 0], x[..., :2].unflatten(2, (2, 2)).mean(dim=(3, 5)))


def test_missing_channels_are_zeros_in_front():
    x = torch.tensor([[[1.0], [2.0]]])
    assert with_channels(x, 3).flatten().tolist() == [0, 1, 2]
    assert with_channels(x, 1).flatten().tolist() == [1]


@pytest.mark.parametrize("network", [UNet, EncoderDecoder])
def test_each_step_down_needs_its_step_up(network):
    with pytest.raises(ValueError, match=r"makes 2 steps down but .* makes 1 up"):
        network(dims=2, down_features=(4, 6), up_features=(4,))
