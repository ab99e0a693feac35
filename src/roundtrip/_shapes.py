"""Tensor aliases and the shape legend every file uses; neighbours: `_checks.py`.

Legend: `B` batch, `C` channels, `N` spatial dimension, `*S` grid sizes, `*P` any layout of points.
A `#` marks a size that may also be 1 and then serves every element of the other side.

Channel d of a coordinate belongs to tensor axis d. Unit coordinates: 0 is the centre of the first voxel
of an axis, 1 that of the last.
"""

from jaxtyping import Bool, Float, Shaped
from torch import Tensor

Image = Float[Tensor, "B C *S"]
"""Intensities on a grid."""

Field = Float[Tensor, "B N *S"]
"""One vector per voxel, in unit coordinates."""

Points = Float[Tensor, "B N *P"]
"""Unit coordinates: 0 first voxel centre, 1 last."""

Mask = Shaped[Tensor, "#B 1 *S"]
"""Which samples count: boolean, or a weight between 0 and 1."""

Matrices = Float[Tensor, "B N N *P"]
"""One square matrix per point; entry (i, j) is the derivative of component i along axis j."""

Scalar = Float[Tensor, ""]
"""One number, differentiable."""

__all__ = ["Bool", "Field", "Float", "Image", "Mask", "Matrices", "Points", "Scalar", "Tensor"]
