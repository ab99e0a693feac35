"""How much two images tell about each other: mutual information, for images of different contrast.

Neighbours: `similarity.py` (what all similarities share), `_histogram_kernel.py` (the counting on a CPU).
"""

from collections.abc import Iterator
from typing import Any

import torch

from roundtrip._shapes import Float, Image, Mask, Scalar, Tensor
from roundtrip.losses._weights import comparable

# Without the kernel volumes are counted in pieces, of this many numbers in the largest intermediate array.
_PIECE = 2**22


def mutual_information(warped: Image, fixed: Image, mask: Mask | None = None, *, bins: int = 32) -> Scalar:
    r"""Minus the mutual information of the intensities, in nats: 0 for unrelated images, else negative.

    $-\sum_{ab} p_{ab} \log (p_{ab} / p_a p_b)$, of a joint histogram in which every voxel spreads over four
    bins of each image with cubic B-spline weights (Parzen windows), so that it has derivatives. Intensities
    are scaled to the bins by their smallest and largest value within the mask, so that linear changes of
    either sign change nothing. Each channel is compared on its own. Memory does not grow as `bins` times the
    number of voxels.
    """
    if bins < 5:
        raise ValueError(f"`bins` is {bins}; at least 5 are needed, because every voxel spreads over 4.")
    warped, fixed, weights = comparable(warped, fixed, mask)
    positions = (_positions(image, weights, bins) for image in (warped, fixed))
    joint = _JointHistogram.apply(*positions, None if weights is None else weights.flatten(2), bins)
    information = _sum_p_log_p(joint) - _sum_p_log_p(joint.sum(2)) - _sum_p_log_p(joint.sum(1))
    return -information.mean()


def _positions(image: Tensor, weights: Tensor | None, bins: int) -> Float[Tensor, "B C V"]:
    """Where each voxel lies among the bins: the smallest intensity at 1, the largest at bins - 2."""
    image = low = high = image.flatten(2)
    if weights is not None:
        counts = (weights > 0).flatten(2)
        low, high = torch.where(counts, image, torch.inf), torch.where(counts, image, -torch.inf)
    low, high = low.amin(dim=2, keepdim=True), high.amax(dim=2, keepdim=True)
    extent = torch.where(high > low, high - low, 1)
    # Of no voxel, the smallest intensity is infinite.
    low = torch.where(low.isfinite(), low, 0)
    return 1 + (bins - 3) * ((image - low) / extent).clamp(0, 1)


class _JointHistogram(torch.autograd.Function):
    """A histogram of sum 1 for every channel of every image. Backward all is counted again, and none kept."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, weights: Tensor | None, bins: int) -> Tensor:
        ctx.save_for_backward(a, b, weights)
        ctx.bins = bins
        if a.device.type == "cpu" and not torch.compiler.is_compiling():
            from roundtrip.losses._histogram_kernel import count

            return count(a, b, weights, bins)
        return count_by_torch(a, b, weights, bins)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b, weights = ctx.saved_tensors
        if torch.is_grad_enabled():
            joint = count_by_torch(a, b, weights, ctx.bins)
            return *torch.autograd.grad(joint, (a, b), grad, create_graph=True), None, None
        if a.device.type == "cpu" and not torch.compiler.is_compiling():
            from roundtrip.losses._histogram_kernel import gradients

            return *gradients(a, b, weights, grad), None, None
        return *gradients_by_torch(a, b, weights, grad), None, None


def count_by_torch(
    a: Float[Tensor, "B C V"], b: Float[Tensor, "B C V"], weights: Float[Tensor, "#B 1 V"] | None, bins: int
) -> Float[Tensor, "G bins bins"]:
    """The joint histograms of the positions a and b in torch's own operations."""
    pieces = _pieces(a, b, weights, bins)
    return sum((_count(*piece, bins=bins) for piece in pieces), start=a.new_zeros(()))


def gradients_by_torch(a: Tensor, b: Tensor, weights: Tensor | None, grad: Tensor) -> tuple[Tensor, Tensor]:
    """What a gradient of the histograms gives to both positions, piece by piece."""
    grads: list[tuple[Tensor, ...]] = []
    for part_a, part_b, share in _pieces(a.detach(), b.detach(), weights, bins=grad.shape[1]):
        pair = part_a.requires_grad_(), part_b.requires_grad_()
        with torch.enable_grad():
            joint = _count(*pair, share, bins=grad.shape[1])
        grads.append(torch.autograd.grad(joint, pair, grad))
    grad_a, grad_b = (torch.cat(part, dim=1).view_as(a) for part in zip(*grads, strict=True))
    return grad_a, grad_b


def _pieces(
    a: Tensor, b: Tensor, weights: Tensor | None, bins: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Positions of both and weights, each (channels of all images) x voxels, cut along the voxels."""
    B, C, V = a.shape
    share = a.new_full((1, 1, 1), 1 / V) if weights is None else weights
    length = max(_PIECE // (B * C * bins), 1)
    a, b, share = (x.expand(B, C, V).reshape(B * C, V) for x in (a, b, share))
    return zip(a.split(length, 1), b.split(length, 1), share.split(length, 1), strict=True)


def _count(a: Tensor, b: Tensor, share: Tensor, *, bins: int) -> Tensor:
    # Half precision would round the shares of single voxels away.
    with torch.autocast(a.device.type, enabled=False):
        return (_spread(a, bins) * share[..., None]).mT @ _spread(b, bins)


def _spread(positions: Float[Tensor, "G V"], bins: int) -> Float[Tensor, "G V bins"]:
    """The weights of all bins for every voxel; four are not zero, and all sum to 1."""
    # The largest intensity, at bins - 2, belongs to the last interval.
    first = positions.detach().floor().clamp(max=bins - 3)
    t = positions - first
    s = 1 - t
    four = torch.stack([s**3, 4 - 6 * t**2 + 3 * t**3, 4 - 6 * s**2 + 3 * s**3, t**3], dim=2) / 6
    index = first.long()[..., None] + torch.arange(-1, 3, device=first.device)
    return four.new_zeros(*positions.shape, bins).scatter(2, index, four)


def _sum_p_log_p(p: Float[Tensor, "G ..."]) -> Float[Tensor, "G"]:
    """0 log 0 is 0, and so is its share in a gradient that no voxel receives."""
    return (p * p.clamp(min=torch.finfo(p.dtype).tiny).log()).flatten(1).sum(dim=1)
