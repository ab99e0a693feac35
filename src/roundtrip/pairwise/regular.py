"""`regular_sample`: some voxels of an image, enough to tell the range of its values."""

import math

from roundtrip._shapes import Image, Tensor


def regular_sample(image: Image, at_most: int) -> Tensor:
    """About `at_most` voxels of each channel, evenly spread, as (B, C, samples).

    Every k-th of them, for a k that shares no factor with any axis: all could lie in one column otherwise,
    where there may be nothing to see.
    """
    lines = image.flatten(2)
    count = lines.shape[2]
    step = max(1, count // at_most)
    while math.gcd(step, count) > 1:
        step += 1
    return lines[..., ::step]
