"""The argument checks that several rooms share, each with the message a tired stranger needs.

Public functions call these at the door; code inside trusts its arguments. Neighbour: `_shapes.py`.
"""

import torch
from torch import Tensor


def shape_of(x: Tensor) -> str:
    """A shape the way an error message prints it."""
    return "(" + ", ".join(str(size) for size in x.shape) + ")"


def require_image(image: Tensor, name: str) -> None:
    """`image` is floating point, finite, batch x channels x 1, 2 or 3 spatial axes, none of them empty."""
    if not isinstance(image, Tensor):
        raise ValueError(
            f"`{name}` is a {type(image).__name__}; a torch tensor of shape (batch, channels, *grid) is "
            f"needed, e.g. `torch.as_tensor({name}, dtype=torch.float32)[None, None]`."
        )
    if not 3 <= image.ndim <= 5:
        raise ValueError(
            f"`{name}` has shape {shape_of(image)}; needed is (batch, channels, *grid) with 1, 2 or 3 grid "
            f"axes. Add the missing axes in front, e.g. `{name}[None, None]`."
        )
    if 0 in image.shape:
        raise ValueError(
            f"`{name}` has shape {shape_of(image)}, which holds no values; no axis may be empty."
        )
    if not image.is_floating_point():
        raise ValueError(
            f"`{name}` has dtype {image.dtype}; floating point is needed. Convert it: `{name}.float()`."
        )
    if not torch.isfinite(image).all():
        bad = int((~torch.isfinite(image)).sum())
        raise ValueError(
            f"`{name}` holds {bad} values that are NaN or infinite; registration needs finite intensities. "
            f"Fill them first, e.g. `{name}.nan_to_num(0, 0, 0)`."
        )


def require_same_batch(moving: Tensor, fixed: Tensor) -> None:
    """Both hold the same number of images: element i of one is registered to element i of the other."""
    if moving.shape[0] != fixed.shape[0]:
        raise ValueError(
            f"`moving` holds {moving.shape[0]} images but `fixed` {fixed.shape[0]}; they are registered one "
            "to one. Repeat the single one, e.g. `fixed.expand(len(moving), *fixed.shape[1:])`."
        )


def require_same_grid(moving: Tensor, fixed: Tensor) -> None:
    """Both are sampled on one grid."""
    if moving.shape[2:] != fixed.shape[2:]:
        raise ValueError(
            f"`moving` has spatial shape {tuple(moving.shape[2:])} but `fixed` has {tuple(fixed.shape[2:])}. "
            "Registration compares images on one grid: resample first, e.g. "
            "`moving = rt.warp(moving, rt.Identity(), like=fixed)`."
        )


def require_same_kind(moving: Tensor, fixed: Tensor) -> None:
    """Both live on one device in one precision."""
    if moving.dtype != fixed.dtype or moving.device != fixed.device:
        raise ValueError(
            f"`moving` is {moving.dtype} on {moving.device} but `fixed` is {fixed.dtype} on {fixed.device}; "
            "they must agree. Convert one: `moving = moving.to(fixed)`."
        )


def require_pair(moving: Tensor, fixed: Tensor) -> None:
    """All that a registration algorithm asks of its two images."""
    require_image(moving, "moving")
    require_image(fixed, "fixed")
    if moving.ndim != fixed.ndim:
        raise ValueError(
            f"`moving` has {moving.ndim - 2} spatial axes (shape {shape_of(moving)}) but `fixed` has "
            f"{fixed.ndim - 2} (shape {shape_of(fixed)}). Register a slice to a slice, a volume to a volume."
        )
    if moving.shape[1] != fixed.shape[1]:
        raise ValueError(
            f"`moving` has {moving.shape[1]} channels but `fixed` {fixed.shape[1]}; channel i is compared "
            "with channel i. Pick the common ones, e.g. `moving[:, :1]`."
        )
    require_same_batch(moving, fixed)
    require_same_grid(moving, fixed)
    require_same_kind(moving, fixed)


def require_points(x: Tensor, dims: int, name: str = "x") -> None:
    """`x` is a batch of `dims`-dimensional points in any layout."""
    if x.ndim < 2 or x.shape[1] != dims:
        raise ValueError(
            f"`{name}` has shape {shape_of(x)}, but points of {dims} dimensions are needed: "
            f"(batch, {dims}, *layout), one channel per tensor axis. A list of P points of shape (P, {dims}) "
            f"becomes `{name}.mT[None]`."
        )
    if not x.is_floating_point():
        raise ValueError(f"`{name}` has dtype {x.dtype}; points are floating point: `{name}.float()`.")


def require_broadcastable_batch(values: Tensor, x: Tensor) -> None:
    """The batch sizes agree, or one of them is 1."""
    if values.shape[0] != x.shape[0] and 1 not in (values.shape[0], x.shape[0]):
        raise ValueError(
            f"a batch of {values.shape[0]} is evaluated at a batch of {x.shape[0]} sets of points; the sizes "
            "must agree, or one of them be 1. Select the elements that belong together."
        )
