"""Inverse consistent by construction: swapping the images inverts the map, whatever the weights.

A network's output becomes a generator g(A, B) = net(A, B) - net(B, A), which changes sign when the images are
swapped, and the map is its flow exp(g), whose inverse is exp(-g). `ConsistentTwoStep` keeps the property
through several steps. Beyond the paper: Greer et al., "Inverse consistency by construction for multistep deep
registration", MICCAI 2023. Neighbours: `from_network.py`, `multistep.py`.
"""

import abc

import torch
from torch import nn

from roundtrip._checks import require_pair
from roundtrip._shapes import Image, Tensor
from roundtrip.algorithms.from_network import field_from, matrix_from
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.interpolate import warp
from roundtrip.maps.map import AbstractMap, Composition, Map
from roundtrip.maps.velocity import exponential


class AbstractConsistentRegistration(AbstractRegistration):
    """An algorithm whose map is the flow of a generator that changes sign when the images are swapped."""

    @abc.abstractmethod
    def generator(self, moving: Image, fixed: Image) -> Tensor:
        """What flows; generator(B, A) = -generator(A, B)."""

    @abc.abstractmethod
    def flow(self, generator: Tensor) -> AbstractMap:
        """The map after unit time; flow(-g) inverts flow(g), and flow(g / 2) is its root."""

    def forward(self, moving: Image, fixed: Image) -> Map:
        return self.flow(self.generator(moving, fixed))


class ConsistentVelocity(AbstractConsistentRegistration):
    """The flow of a velocity field; the two maps invert each other up to the grid's resolution."""

    def __init__(self, net: nn.Module, *, num_steps: int = 7) -> None:
        super().__init__()
        self.net = net
        self.num_steps = num_steps

    def generator(self, moving: Image, fixed: Image) -> Tensor:
        return field_from(self.net, moving, fixed) - field_from(self.net, fixed, moving)

    def flow(self, generator: Tensor) -> DisplacementMap:
        return exponential(generator, num_steps=self.num_steps)


class ConsistentAffine(AbstractConsistentRegistration):
    """The matrix exponential of an affine generator; the two maps invert each other exactly."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def generator(self, moving: Image, fixed: Image) -> Tensor:
        return matrix_from(self.net, moving, fixed) - matrix_from(self.net, fixed, moving)

    def flow(self, generator: Tensor) -> AffineMap:
        N = generator.shape[1]
        homogeneous = torch.cat([generator, generator.new_zeros(len(generator), 1, N + 1)], dim=1)
        both = torch.linalg.matrix_exp(homogeneous)[:, :N]
        return AffineMap(both[..., :N], both[..., N])


class ConsistentTwoStep(AbstractRegistration):
    """sqrt(phi) o psi o sqrt(phi): `second` registers the images that `first` brought half-way to each other.

    Inverse consistent if `second` is, which may be another `ConsistentTwoStep`.
    """

    def __init__(self, first: AbstractConsistentRegistration, second: AbstractRegistration) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, moving: Image, fixed: Image) -> Composition:
        require_pair(moving, fixed)
        half = self.first.generator(moving, fixed) / 2
        root, root_inverse = self.first.flow(half), self.first.flow(-half)
        psi = self.second(warp(moving, root), warp(fixed, root_inverse))
        return (
            root @ (psi @ root) if isinstance(psi, AbstractMap) else Composition(root, Composition(psi, root))
        )
