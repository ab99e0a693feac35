"""Every result of the paper, at quick scale, shows what it must show."""

import numpy as np
import pytest
import torch

from roundtrip.data.shapes import triangles_and_circles
from roundtrip.experiments.flips import flat, swapped
from roundtrip.experiments.matching_1d import pair_of_functions
from roundtrip.experiments.noise import pair_of_shapes
from roundtrip.experiments.off_grid import POINTS, swap
from roundtrip.experiments.reproduce import reproduce
from roundtrip.experiments.results import RESULTS, result_named
from roundtrip.experiments.table1 import LAMBDAS, NETWORKS, TABLE_1
from roundtrip.experiments.workplace import Workplace
from roundtrip.maps.grid import unit_grid
from training_samples import alone

IN_SECONDS = ("off-grid", "h1")


@pytest.fixture
def place(tmp_path):
    """Where MNIST is a few drawn images of its size."""
    shapes = triangles_and_circles(80, size=28, generator=torch.Generator().manual_seed(0)).images
    images = (127.5 * (shapes[:, 0] + 1)).round().to(torch.uint8).numpy()
    np.savez(tmp_path / "digits.npz", train=images[:60], test=images[60:])
    return Workplace(tmp_path / "made", alone(), tmp_path / "digits.npz")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(result.name, marks=[] if result.name in IN_SECONDS else pytest.mark.slow)
        for result in RESULTS
    ],
)
def test_it_shows_what_it_must(name, place):
    made = reproduce(result_named(name), "quick", place)
    assert made.table.rows and made.table.claims and not made.table.not_run
    for one in made.table.claims:
        # Two lambdas make no curve: at equal folds there is nothing to compare.
        told = one.holds is not False if one.says.startswith("at equal folds") else one.holds
        assert told, f"{one.says}: {one.numbers}"
    assert all(row["scale"] == "quick" for row in made.table.rows)
    files = {path.name for path in made.folder.iterdir()}
    assert files == {"cells", "figure.png", "settings.json", "table.csv", "table.json", "table.md"}
    text = (made.folder / "table.md").read_text()
    assert "scale `quick`" in text and "nan" not in text
    assert (made.folder / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_all_of_the_papers_results_are_there():
    names = [result.name for result in RESULTS]
    assert names == [
        "matching-1d",
        "flips",
        "off-grid",
        "noise",
        "architectures-mnist",
        "architectures-shapes",
        "grids",
        "h1",
        "curves",
    ]
    with pytest.raises(ValueError, match="these are matching-1d, flips"):
        result_named("table-2")


def test_the_full_scale_is_the_papers_protocol():
    """18750 steps of 128 pairs by Adam at 1e-4, lambda in the convention of the published package."""
    cells = {cell.name: cell.settings for cell in result_named("architectures-shapes").cells("full")}
    assert set(cells) == {f"{network}-{lambda_}" for network in NETWORKS for lambda_ in LAMBDAS}
    for name, settings in cells.items():
        stage = settings["stages"][0]
        assert (stage["steps"], stage["batch"]) == (18750, 128)
        assert stage["learning_rate"] == {"start": 1e-4, "decay": "constant", "warmup": 0}
        assert stage["lambda"]["start"] == int(name.rsplit("-", 1)[1]) / 2
        assert settings["data"]["source"]["size"] == 128
        assert settings["data"]["split"]["train"] == settings["data"]["split"]["test"] == 6000
    knees = result_named("curves").cells("full")[0].settings
    assert [stage["steps"] for stage in knees["stages"]] == [16000, 75000, 75000]


def test_table_1_is_copied_right():
    assert TABLE_1["mnist"]["unet", 2048] == (0.73, 0.09)
    assert TABLE_1["mnist"]["mlp", 64] == (0.92, 26.61)
    assert TABLE_1["mnist"]["encoder-decoder", 512] == (0.66, 0.03)
    assert TABLE_1["shapes"]["conv-only", 1024] == (0.92, 3.91)
    assert all(len(table) == 24 for table in TABLE_1.values())
    for network in NETWORKS:
        for table in TABLE_1.values():
            assert table[network, 2048].folds < table[network, 64].folds


def test_a_swap_is_counted_and_nothing_else():
    grid = unit_grid((5, 6)).double()
    assert not swapped(grid).any()
    points = grid.clone()
    points[..., 2, 3], points[..., 2, 4] = grid[..., 2, 4], grid[..., 2, 3]
    assert swapped(points).nonzero().tolist() == [[0, 0, 2, 3], [0, 0, 2, 4]]
    # Three that go round in a circle swap with none, nor does who leaves the image.
    points = grid.clone()
    points[..., 0, 0], points[..., 0, 1], points[..., 0, 2] = (
        grid[..., 0, 1],
        grid[..., 0, 2],
        grid[..., 0, 0],
    )
    points[..., 4, 5] += 1
    assert not swapped(points).any()


def test_flat_is_where_nothing_is_to_be_seen():
    image = torch.zeros(1, 1, 7, 7)
    image[..., 3, 3] = 1.0
    expected = torch.ones(7, 7, dtype=torch.bool)
    expected[2:5, 2:5] = False
    assert (flat(image)[0, 0] == expected).all()


def test_the_pairs_are_what_they_are_called():
    phi = swap()
    x = unit_grid((POINTS,)).double()
    torch.testing.assert_close(phi(phi(x)), x)
    triangle, circle = pair_of_shapes(32)
    assert triangle.shape == circle.shape == (1, 1, 32, 32) and (triangle > 0).sum() < (circle > 0).sum()
    moving, fixed = pair_of_functions()
    assert moving.shape == fixed.shape and moving.argmax() < fixed.argmax()
