"""A network's tensor becomes a map: displacements, a stationary velocity, or an affine matrix.

Neighbours: `registration.py` (the contract), `consistent.py` (the same, inverse consistent by construction).
"""

import torch
from torch import nn

from roundtrip._checks import require_pair, shape_of
from roundtrip._shapes import Image, Tensor
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import point_dtype
from roundtrip.maps.velocity import exponential


class DisplacementRegistration(AbstractRegistration):
    """The network's output is the displacement field -- ICON, Eq. (11)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, moving: Image, fixed: Image) -> DisplacementMap:
        return DisplacementMap(field_from(self.net, moving, fixed))


class VelocityRegistration(AbstractRegistration):
    """The network's output is a stationary velocity, integrated over unit time by scaling and squaring.

    The map is a diffeomorphism up to discretisation: what Sec. 5 of ICON proposes as future work.
    """

    def __init__(self, net: nn.Module, *, num_steps: int = 7) -> None:
        super().__init__()
        self.net = net
        self.num_steps = num_steps

    def forward(self, moving: Image, fixed: Image) -> DisplacementMap:
        return exponential(field_from(self.net, moving, fixed), num_steps=self.num_steps)


class AffineRegistration(AbstractRegistration):
    """The network's output `(B, N, N + 1)` is [A | b] of the map x -> A x + b."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, moving: Image, fixed: Image) -> AffineMap:
        both = matrix_from(self.net, moving, fixed)
        return AffineMap(both[..., :-1], both[..., -1])


def field_from(net: nn.Module, moving: Image, fixed: Image) -> Tensor:
    """The network's vector field, checked, in the precision of points even under autocast."""
    N, field = moving.ndim - 2, _output(net, moving, fixed)
    if field.ndim != moving.ndim or field.shape[:2] != (len(moving), N):
        raise ValueError(
            f"the network {type(net).__name__} returned shape {shape_of(field)} for images of shape "
            f"{shape_of(moving)}; one vector of {N} components per voxel is needed: "
            f"({len(moving)}, {N}, *grid). "
            f"Build the network for this dimension, e.g. `UNet(dims={N})`."
        )
    return field.to(point_dtype(moving))


def matrix_from(net: nn.Module, moving: Image, fixed: Image) -> Tensor:
    """The network's matrix [A | b], checked, in the precision of points even under autocast."""
    N, both = moving.ndim - 2, _output(net, moving, fixed)
    if both.shape != (len(moving), N, N + 1):
        raise ValueError(
            f"the network {type(net).__name__} returned shape {shape_of(both)} for images of shape "
            f"{shape_of(moving)}; one matrix [A | b] per pair is needed, ({len(moving)}, {N}, {N + 1})."
        )
    return both.to(point_dtype(moving))


def _output(net: nn.Module, moving: Image, fixed: Image) -> Tensor:
    require_pair(moving, fixed)
    _require_same_kind(net, moving)
    output: Tensor = net(moving, fixed)
    return output


def _require_same_kind(net: nn.Module, image: Image) -> None:
    weight = next(net.parameters(), image)
    # Autocast converts what a layer is given, but moves nothing.
    converted = torch.is_autocast_enabled(image.device.type) and weight.device == image.device
    if (weight.dtype, weight.device) != (image.dtype, image.device) and not converted:
        raise ValueError(
            f"the images are {image.dtype} on {image.device}, but the weights of {type(net).__name__} "
            f"{weight.dtype} on {weight.device}; they must agree. Convert one: `algorithm.to(moving)`."
        )
