"""How far landmarks miss each other: the target registration error. Neighbour: `judge.py`, which asks."""

import torch

from roundtrip._checks import require_points, shape_of
from roundtrip._shapes import Float, Points, Tensor
from roundtrip.evaluation.lengths import lengths
from roundtrip.maps.jacobian import Frame
from roundtrip.maps.map import Map


@torch.no_grad()
def target_registration_error(
    phi: Map, fixed_landmarks: Points, moving_landmarks: Points, *, moving_frame: Frame
) -> Float[Tensor, "B 1 *P"]:
    """|phi(x) - y| of every landmark x of the fixed image and its partner y in the moving one.

    Landmarks are in unit coordinates; distances in the unit of `moving_frame`, the linear part of
    world-from-unit of the moving image (`frame_of(moving, spacing)`).
    """
    require_points(fixed_landmarks, moving_frame.shape[0], "fixed_landmarks")
    require_points(moving_landmarks, moving_frame.shape[0], "moving_landmarks")
    if fixed_landmarks.shape != moving_landmarks.shape:
        raise ValueError(
            f"`fixed_landmarks` has shape {shape_of(fixed_landmarks)} but `moving_landmarks` "
            f"{shape_of(moving_landmarks)}; landmark i of one belongs to landmark i of the other. Give both "
            "in one order, and leave out those that only one image has."
        )
    return lengths(phi(fixed_landmarks) - moving_landmarks, moving_frame)
