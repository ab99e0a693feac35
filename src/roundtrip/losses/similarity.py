"""How different two images look, voxel by voxel or as a whole: `mse` and `ncc`.

All similarities share one signature, `(warped, fixed, mask=None, *, options) -> Scalar`: lower is better, the
mean over the batch, and a mask says which voxels count (see `_weights.py`). They are symmetric in the two
images. Options are set with `functools.partial`. Neighbours: `local.py`, `information.py`, `mind.py`.
"""

import torch

from roundtrip._shapes import Image, Mask, Scalar
from roundtrip.losses._weights import centred, comparable, weighted_mean


def mse(warped: Image, fixed: Image, mask: Mask | None = None) -> Scalar:
    r"""Mean squared difference: $\|I - J\|_2^2$ with the mean for the integral -- ICON, Eq. (14).

    To compare only samples inside the image, give `mask=inside_image(points)` of the points it was read at.
    """
    warped, fixed, weights = comparable(warped, fixed, mask)
    return weighted_mean((warped - fixed).square(), weights).mean()


def ncc(warped: Image, fixed: Image, mask: Mask | None = None) -> Scalar:
    """One minus the correlation coefficient of the intensities: 0 for the same up to a I + b, a > 0; to 2.

    Each channel of each image is correlated on its own. A constant image correlates with nothing: it costs 1
    and pulls nowhere.
    """
    warped, fixed, weights = comparable(warped, fixed, mask)
    warped, variance_warped, warped_varies = centred(warped, weights)
    fixed, variance_fixed, fixed_varies = centred(fixed, weights)
    # The square root of each alone: their product may leave the range of float32.
    correlation = weighted_mean(warped * fixed, weights) / variance_warped.sqrt() / variance_fixed.sqrt()
    return (1 - torch.where(warped_varies & fixed_varies, correlation, 0)).mean()
