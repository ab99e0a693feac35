"""Algorithms made of algorithms: `TwoStep`, `AtHalfResolution`, `Frozen`. They nest to any depth.

Neighbours: `registration.py` (the contract), `from_network.py` (what they are made of).
"""

from roundtrip._checks import require_pair
from roundtrip._shapes import Image
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.maps.interpolate import warp
from roundtrip.maps.map import Composition, Map
from roundtrip.networks.layers import half_size


class TwoStep(AbstractRegistration):
    """`second` registers what `first` left over -- supplement, "Composition of transforms"."""

    def __init__(self, first: AbstractRegistration, second: AbstractRegistration) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, moving: Image, fixed: Image) -> Composition:
        require_pair(moving, fixed)
        phi = self.first(moving, fixed)
        psi = self.second(warp(moving, phi).to(moving.dtype), fixed)
        return Composition(outer=phi, inner=psi)  # moving(phi(psi(x))) ~ fixed(x)


class AtHalfResolution(AbstractRegistration):
    """`inner` sees the images averaged over 2 x 2 (x 2) voxels; its map is handed up unchanged.

    The pooled grid and the full grid both call their end voxels 0 and 1, so the map is off by up to half a
    voxel at the border. Published weights have learned to live with that.
    """

    def __init__(self, inner: AbstractRegistration) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, moving: Image, fixed: Image) -> Map:
        require_pair(moving, fixed)
        return self.inner(half_size(moving), half_size(fixed))


class Frozen(AbstractRegistration):
    """`inner`, no longer learning: its weights get no gradient and its batch statistics stand still.

    Gradients still pass through it to what made its images, such as a step before it. Freezing marks the
    weights themselves. To train `inner` again: `inner.requires_grad_(True).train()`.
    """

    def __init__(self, inner: AbstractRegistration) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        self.inner.eval()
        return self

    def forward(self, moving: Image, fixed: Image) -> Map:
        return self.inner(moving, fixed)
