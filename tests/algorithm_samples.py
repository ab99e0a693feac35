"""A small algorithm of every kind, and images to try it on: what several test files and the GPU checks share.

Without pytest, so that a plain script can use it too. Adding an algorithm to all of them is adding one line
to `ALGORITHMS`.
"""

import torch
from torch import nn

from roundtrip.algorithms.consistent import ConsistentAffine, ConsistentTwoStep, ConsistentVelocity
from roundtrip.algorithms.direct import DirectOptimisation
from roundtrip.algorithms.from_network import (
    AffineRegistration,
    DisplacementRegistration,
    VelocityRegistration,
)
from roundtrip.algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from roundtrip.algorithms.objective import PairObjective
from roundtrip.losses.regularity import points_on_grid
from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet

STEPS = {"down_features": (4, 6), "up_features": (4, 5)}


def unet(shape):
    return UNet(dims=len(shape), **STEPS)


def encoder_decoder(shape):
    return EncoderDecoder(dims=len(shape), **STEPS)


def conv_only(shape):
    return ConvOnly(dims=len(shape), num_layers=2, growth=3)


def mlp(shape):
    return MLP(shape, hidden_features=(9, 7))


def affine_network(shape):
    return AffineNetwork(dims=len(shape), features=(4, 6), hidden_features=5)


def displacement(shape):
    return DisplacementRegistration(unet(shape))


def affine(shape):
    return AffineRegistration(affine_network(shape))


def four_steps(shape):
    """The nesting of the paper's runs on knees, without its first stage's training."""
    low = AtHalfResolution(TwoStep(displacement(shape), displacement(shape)))
    return TwoStep(TwoStep(low, displacement(shape)), displacement(shape))


def consistent_steps(shape):
    return ConsistentTwoStep(
        ConsistentAffine(affine_network(shape)),
        ConsistentTwoStep(ConsistentVelocity(unet(shape)), ConsistentVelocity(conv_only(shape))),
    )


ALGORITHMS = {
    "displacement, U-Net": displacement,
    "displacement, encoder-decoder": lambda shape: DisplacementRegistration(encoder_decoder(shape)),
    "displacement, ConvOnly": lambda shape: DisplacementRegistration(conv_only(shape)),
    "displacement, MLP": lambda shape: DisplacementRegistration(mlp(shape)),
    "velocity": lambda shape: VelocityRegistration(unet(shape), num_steps=3),
    "affine": affine,
    "two steps": lambda shape: TwoStep(affine(shape), displacement(shape)),
    "half resolution": lambda shape: AtHalfResolution(displacement(shape)),
    "frozen": lambda shape: TwoStep(Frozen(displacement(shape)), displacement(shape)),
    "frozen last": lambda shape: TwoStep(displacement(shape), Frozen(displacement(shape))),
    "four steps": four_steps,
    "consistent velocity": lambda shape: ConsistentVelocity(unet(shape)),
    "consistent affine": lambda shape: ConsistentAffine(affine_network(shape)),
    "consistent steps": consistent_steps,
    # On the grid, because random points depend on how many pairs there are.
    "direct": lambda shape: DirectOptimisation(PairObjective(weight=1.0, points=points_on_grid), steps=3),
}
"""The shape of a grid -> an algorithm for it."""


def seeded(make, shape, *, dtype=torch.float64):
    """What `make(shape)` makes, with the same weights every time, and torch's own seed left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make(shape).to(dtype)


def trained(algorithm: nn.Module, *, amount=0.1, seed=2):
    """`algorithm` with random weights everywhere, the last layers included, as after training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in algorithm.parameters():
            weight += amount * torch.randn(weight.shape, dtype=weight.dtype, generator=generator)
    return algorithm


def images(shape, *, batch=2, channels=1, dtype=torch.float64, seed=0):
    """A pair of noise between -1 and 1."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(2 * torch.rand(2, batch, channels, *shape, dtype=dtype, generator=generator) - 1)


def points(N, *, batch=2, count=7, dtype=torch.float64):
    """In the image and a little around it."""
    generator = torch.Generator().manual_seed(3)
    return 1.4 * torch.rand(batch, N, count, generator=generator, dtype=dtype) - 0.2
