"""Overlap of labels and distance of landmarks, counted by hand."""

import math

import pytest
import torch
from torch.testing import assert_close

from roundtrip.losses.supervision import landmark_distance, soft_dice
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.map import Identity


def one_hot(labels, count=3):
    """Channels for the labels 1 to `count`, from labels `(B, *S)`."""
    return torch.stack([labels == label for label in range(1, count + 1)], dim=1).double()


def test_dice_counted_by_hand():
    warped, fixed = torch.tensor([[0, 1, 1, 2, 2, 2]]), torch.tensor([[1, 1, 0, 0, 2, 0]])
    # Label 1: 2 * 1 / (2 + 2); label 2: 2 * 1 / (3 + 1); label 3 is nowhere.
    assert_close(soft_dice(one_hot(warped), one_hot(fixed)), torch.tensor(0.5).double())


def test_equal_labels_cost_nothing_and_disjoint_ones_1():
    labels = torch.tensor([[0, 1, 1, 2, 3, 2]])
    assert soft_dice(one_hot(labels), one_hot(labels)) == 0
    assert soft_dice(one_hot(labels), one_hot(labels.roll(3))) == 1
    soft = 0.3 * one_hot(labels)
    assert abs(soft_dice(soft, soft)) < 1e-15


def test_a_label_that_only_one_image_has_costs_1():
    assert_close(
        soft_dice(one_hot(torch.tensor([[1, 1, 2]])), one_hot(torch.tensor([[1, 1, 0]]))),
        torch.tensor(0.5).double(),
    )


def test_without_any_label_there_is_nothing_to_miss():
    warped = one_hot(torch.zeros(1, 5, dtype=torch.int64)).requires_grad_()
    loss = soft_dice(warped, warped.detach())
    assert loss == 0
    assert (torch.autograd.grad(loss, warped)[0] == 0).all()


def test_images_weigh_alike_however_many_labels_they_have():
    warped = one_hot(torch.tensor([[1, 2, 3], [1, 0, 0]]))
    fixed = one_hot(torch.tensor([[1, 2, 3], [0, 1, 0]]))
    assert_close(soft_dice(warped, fixed), torch.tensor(0.5).double())


def points(N, seed=0):
    return torch.rand(2, N, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shift(*vector):
    vector = torch.tensor([vector], dtype=torch.float64)
    return AffineMap(torch.eye(vector.shape[1], dtype=torch.float64)[None], vector)


def test_distance_of_landmarks_moved_by_a_known_vector():
    x = points(2)
    assert_close(landmark_distance(shift(0.3, 0.4), x, x), torch.tensor(0.5).double())
    assert landmark_distance(shift(0.3, 0.4), x, shift(0.3, 0.4)(x)) == 0
    # 101 voxels of 0.5 mm and 51 of 2 mm: 15 and 40 mm.
    distance = landmark_distance(shift(0.3, 0.4), x, x, scale=[100 * 0.5, 50 * 2.0])
    assert float(distance) == pytest.approx(math.hypot(15, 40))


def test_landmarks_of_one_image_serve_a_batch_of_maps():
    both = AffineMap(torch.eye(2).expand(2, 2, 2), torch.tensor([[0.0, 0.0], [0.0, 2.0]]))
    x = points(2)[:1].float()
    assert_close(landmark_distance(both, x, x), torch.tensor(1.0))


@pytest.mark.parametrize("N", [1, 2, 3])
def test_gradients_of_the_distance(N):
    moving = points(N, seed=1)
    assert torch.autograd.gradcheck(
        lambda x: landmark_distance(Identity(), x, moving, scale=[2.0] * N), points(N).requires_grad_()
    )


def test_a_perfect_hit_has_a_finite_gradient():
    x = points(3).requires_grad_()
    (gradient,) = torch.autograd.grad(landmark_distance(Identity(), x, x.detach()), x)
    assert (gradient == 0).all()


@pytest.mark.usefixtures("as_users_see_it")
def test_wrong_landmarks_say_what_is_needed():
    x = points(3)
    with pytest.raises(
        ValueError, match=r"`fixed_points` has shape \(2, 3, 5\) but `moving_points` \(2, 3, 4"
    ):
        landmark_distance(Identity(), x, x[..., :4])
    with pytest.raises(ValueError, match=r"`moving_points` has dtype torch\.int64"):
        landmark_distance(Identity(), x, x.long())
    with pytest.raises(ValueError, match=r"`scale` has shape \(2\); points of 3 dimensions"):
        landmark_distance(Identity(), x, x, scale=[1.0, 2.0])
