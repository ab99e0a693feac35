"""What a few voxels say of an image."""

import torch

from roundtrip.pairwise.regular import regular_sample


def test_a_sample_is_spread_over_all_columns():
    # Every 16th voxel would be in one and the same column of this image, which is empty.
    image = torch.zeros(1, 2, 32, 32, 16)
    image[..., 1:] = torch.rand(1, 2, 32, 32, 15, generator=torch.Generator().manual_seed(0))
    sample = regular_sample(image, 1024)
    assert sample.shape[:2] == (1, 2) and 512 < sample.shape[2] <= 1024
    assert abs((sample > 0).double().mean() - 15 / 16) < 0.02


def test_a_small_image_is_taken_whole():
    image = torch.rand(1, 1, 4, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(regular_sample(image, 1024), image.flatten(2))
