"""How different two images look around each voxel: local correlation, blind to slow changes of brightness.

`lncc` weighs the surroundings by a Gaussian, `box_lncc` counts a box. Neighbours: `similarity.py` (what all
similarities share), `window.py` (local means), `_local_kernel.py` (the same in one go on a CPU).
"""

import torch

from roundtrip._shapes import Float, Image, Mask, Scalar, Tensor
from roundtrip.losses._weights import centred, comparable, weighted_mean
from roundtrip.losses.window import Voxels, Window, box, gaussian, window_mean

# A window whose standard deviation is below a hundredth of the image's counts as flat, not as structure.
_FLAT = 1e-2**2


def lncc(warped: Image, fixed: Image, mask: Mask | None = None, *, sigma: Voxels = 5.0) -> Scalar:
    r"""One minus the correlation coefficient in a Gaussian window of `sigma` voxels, averaged over its place.

    $1 - E_x \, c(x) / \sqrt{(v_I(x) + e_I) (v_J(x) + e_J)}$ with the covariance c and the variances v in the
    window, and e a ten thousandth of the variance of each whole image: the same up to a a > 0 in a I + b.
    Near 0 for the same structures everywhere, to 2; a flat window correlates with nothing and costs 1.
    The window counts only voxels of the image, and of the mask. `sigma` may differ from axis to axis.
    """
    return _mean_local_dissimilarity(warped, fixed, mask, gaussian(sigma))


def box_lncc(warped: Image, fixed: Image, mask: Mask | None = None, *, radius: Voxels = 4) -> Scalar:
    """As `lncc`, in a box that reaches `radius` voxels to either side."""
    return _mean_local_dissimilarity(warped, fixed, mask, box(radius))


def _mean_local_dissimilarity(warped: Image, fixed: Image, mask: Mask | None, window: Window) -> Scalar:
    warped, fixed, weights = comparable(warped, fixed, mask)
    # Centred, so that the variances below are no small differences of large numbers.
    warped, variance_warped, _ = centred(warped, weights)
    fixed, variance_fixed, _ = centred(fixed, weights)
    floors = _FLAT * variance_warped, _FLAT * variance_fixed
    if warped.device.type == "cpu" and not torch.compiler.is_compiling():
        from roundtrip.losses._local_kernel import mean_local_correlation
    else:
        mean_local_correlation = mean_local_correlation_by_torch
    return (1 - mean_local_correlation(warped, fixed, *floors, weights, window)).mean()


def mean_local_correlation_by_torch(
    warped: Tensor,
    fixed: Tensor,
    floor_warped: Float[Tensor, "B C"],
    floor_fixed: Float[Tensor, "B C"],
    weights: Tensor | None,
    window: Window,
) -> Float[Tensor, "B C"]:
    """The formula in torch's own operations; a floor is what is added to the variance in every window."""
    moments = torch.cat([warped, fixed, warped.square(), fixed.square(), warped * fixed], dim=1)
    A, B, AA, BB, AB = window_mean(moments, window, weights).chunk(5, dim=1)
    ones = [1] * (warped.ndim - 2)
    spread_warped = (AA - A.square()).clamp(min=0) + floor_warped.view(*floor_warped.shape, *ones)
    spread_fixed = (BB - B.square()).clamp(min=0) + floor_fixed.view(*floor_fixed.shape, *ones)
    return weighted_mean((AB - A * B) * spread_warped.rsqrt() * spread_fixed.rsqrt(), weights)
