"""Real hippocampi, one of each pair in a simulated second contrast; and noise in place of one."""

from pathlib import Path

import pytest
import torch

import roundtrip as rt

DATA = Path(__file__).parents[3] / "shared" / "data" / "hippocampus"
PAIRS = (("053", "229"), ("033", "105"), ("014", "162"))

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the hippocampi of ../shared are not here")


def image(number):
    return rt.read(DATA / "images" / f"hippocampus_{number}.nii.gz")


def second_contrast(volume, seed=0):
    """Brightness rises and falls, shaded by 30 % and noisy."""
    generator = torch.Generator().manual_seed(seed)
    values = (volume.data / volume.data.quantile(0.99)).clamp(0, 1)
    remapped = 0.6 * torch.sin(torch.pi * (1 - values).pow(1.3)) + 0.4 * (1 - values)
    coarse = torch.rand(1, 1, 4, 4, 4, generator=generator)
    shading = torch.nn.functional.interpolate(
        coarse, size=volume.shape, mode="trilinear", align_corners=True
    )[0]
    noise = 0.03 * torch.randn(volume.data.shape, generator=generator)
    return rt.Volume(remapped * (0.7 + 0.6 * shading) + noise, volume.world_from_voxel)


def test_another_contrast_costs_little_and_is_noticed():
    scores = {"same": [], "different": []}
    for moving, fixed in PAIRS:
        labels = {
            f"{name}_labels": DATA / "labels" / f"hippocampus_{number}.nii.gz"
            for name, number in (("moving", moving), ("fixed", fixed))
        }
        for contrast, source in (("same", image(moving)), ("different", second_contrast(image(moving)))):
            result = rt.register(source, image(fixed), **labels)
            assert result.contrast == contrast and result.ok
            assert result.metrics["folds"]["count"] == 0
            scores[contrast].append(result.metrics["dice"]["mean"])
    same, different = (sum(values) / len(values) for values in scores.values())
    assert different > same - 0.05


def test_noise_in_place_of_an_image_is_told():
    fixed = image("053")
    generator = torch.Generator().manual_seed(0)
    noise = rt.Volume(torch.rand(fixed.data.shape, generator=generator), fixed.world_from_voxel)
    for modality in ("auto", "different"):
        assert not rt.register(noise, fixed, modality=modality, effort="fast").ok
