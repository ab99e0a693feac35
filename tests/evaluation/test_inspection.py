"""What is said of a transform is what is true of it, in millimetres."""

import math

import pytest
import torch

from roundtrip.evaluation.inspection import inspect
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.space.grid import Grid
from roundtrip.space.transform import Transform

GRID = Grid((12, 10, 9), torch.diag(torch.tensor([2.0, 1.0, 3.0, 1.0])).double())


def scaled(factor):
    return Transform.from_affine(torch.diag(torch.tensor([factor, factor, factor, 1.0])).double(), GRID, GRID)


def test_a_scaling_grows_everything_alike():
    result = inspect(scaled(1.2), scaled(1 / 1.2))
    growth = result.jacobian
    for value in (growth.min, growth.p1, growth.median, growth.mean, growth.p99, growth.max):
        assert value == pytest.approx(1.2**3, rel=1e-4)
    assert growth.log_std == pytest.approx(0, abs=1e-4)
    assert result.folds.count == 0 and result.folds.non_diffeomorphic_volume_percent == 0
    assert result.roundtrip_error_mm.max < 1e-4
    corner = torch.tensor([22.0, 9.0, 24.0]).norm().item()
    assert result.moved_mm_max == pytest.approx(0.2 * corner, rel=1e-4)


def test_a_mirror_folds_everywhere_and_has_no_logarithm():
    mirror = Transform.from_affine(torch.diag(torch.tensor([-1.0, 1, 1, 1])).double(), GRID)
    result = inspect(mirror)
    assert result.folds.percent == 100 and result.folds.non_diffeomorphic_volume_percent > 99
    assert result.jacobian.log_std is None and result.roundtrip_error_mm is None


def test_a_fold_in_one_place_is_found():
    x = unit_grid(GRID.shape)
    displacement = torch.zeros_like(x)
    displacement[0, 0] = (
        -0.5 * torch.exp(-((x[0] - 0.5).square().sum(dim=0)) / 0.02) * torch.sign(x[0, 0] - 0.5)
    )
    result = inspect(Transform.from_maps(DisplacementMap(displacement), GRID, GRID))
    assert 0 < result.folds.percent < 20 and 0 < result.folds.non_diffeomorphic_volume_percent < 20
    assert result.jacobian.min < 0 and result.jacobian.log_std is None


def test_round_trips_start_from_both_images():
    there = Transform.from_affine(torch.eye(4).double(), GRID, GRID)
    shift = torch.eye(4).double()
    shift[0, 3] = 3.0
    miss = inspect(there, Transform.from_affine(shift, GRID, GRID)).roundtrip_error_mm
    assert miss.mean == pytest.approx(3, abs=1e-4) and miss.max == pytest.approx(3, abs=1e-4)
    assert math.isclose(miss.p99, 3, abs_tol=1e-4)


def test_an_affine_transform_needs_a_grid():
    with pytest.raises(ValueError, match="--fixed IMAGE"):
        inspect(Transform.from_affine(torch.eye(4)))
    assert inspect(Transform.from_affine(torch.eye(4)), onto=GRID).jacobian.mean == pytest.approx(1, abs=1e-4)
