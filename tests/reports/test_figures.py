"""What a figure shows is what was computed, and matplotlib is left as it was."""

import io

import matplotlib
import numpy as np
import pytest
import torch

from roundtrip.data.shapes import triangles_and_circles
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.folds import folds_central
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import warp
from roundtrip.maps.map import Identity, on_grid_of
from roundtrip.reports.figures import FOLD, pair_figure
from roundtrip.reports.files import write_figure

MOVING, FIXED = triangles_and_circles(2, size=12, generator=torch.Generator().manual_seed(0)).images.split(1)


def bend(height: float) -> DisplacementMap:
    x = unit_grid((12, 12))
    return DisplacementMap(height * torch.sin(2 * torch.pi * x) * torch.sin(torch.pi * x.flip(1)))


def pixels(ax) -> np.ndarray:
    return np.asarray(ax.get_images()[0].get_array())


def titled(figure, start: str) -> list:
    return [ax for ax in figure.axes if ax.get_title(loc="left").startswith(start)]


def test_the_panels_show_what_was_computed():
    phi_AB, phi_BA = bend(0.03), bend(-0.03)
    figure = pair_figure(MOVING, FIXED, phi_AB, phi_BA)
    warped = warp(MOVING, phi_AB)
    expected = {
        "moving": MOVING,
        "fixed": FIXED,
        "warped": warped,
        "before": MOVING - FIXED,
        "after": warped - FIXED,
    }
    for title, image in expected.items():
        (ax,) = titled(figure, title)
        np.testing.assert_allclose(pixels(ax), image[0, 0].numpy(), atol=1e-6)
    (ax,) = titled(figure, "round trip")
    assert pixels(ax).max() > 0


def test_images_share_a_scale_and_differences_another_around_zero():
    figure = pair_figure(MOVING, FIXED, Identity(), Identity())
    (moving,), (fixed,), (after,) = titled(figure, "moving"), titled(figure, "fixed"), titled(figure, "after")
    assert moving.get_images()[0].get_clim() == fixed.get_images()[0].get_clim()
    low, high = after.get_images()[0].get_clim()
    assert low == -high


def test_the_grid_goes_where_the_map_sends_it():
    """A shift by two pixels to the right moves every vertical line by two."""
    shift = AffineMap(torch.eye(2)[None], torch.tensor([[0.0, 2 / 11]]))
    AB, BA = titled(pair_figure(MOVING, FIXED, shift, shift.inverse()), "grid")
    for ax, offset in ((AB, 2.0), (BA, -2.0)):
        columns = [line[:, 0] for line in ax.collections[0].get_segments() if np.ptp(line[:, 0]) < 1e-4]
        assert min(column[0] for column in columns) == pytest.approx(offset, abs=1e-4)
        assert max(column[0] for column in columns) == pytest.approx(11 + offset, abs=1e-4)


def test_folds_are_marked_and_counted_as_elsewhere():
    rough = bend(0.4)
    count = int(folds_central(on_grid_of(rough, FIXED)).count)
    assert count > 0
    figure = pair_figure(MOVING, FIXED, rough, Identity())
    AB, BA = titled(figure, "grid")
    assert len(AB.collections[1].get_offsets()) == count and len(BA.collections[1].get_offsets()) == 0
    (note,) = figure.texts
    assert note.get_text() == f"{count} folded pixels" and note.get_color() == FOLD


def test_a_map_without_folds_says_so():
    (note,) = pair_figure(MOVING, FIXED, bend(0.02), bend(-0.02)).texts
    assert note.get_text() == "0 folded pixels" and note.get_color() != FOLD


@pytest.mark.parametrize("width", [3.4, 7.0])
@pytest.mark.parametrize("shape", [(12, 12), (9, 20), (20, 9)])
def test_nothing_overlaps_or_leaves_the_page(width, shape):
    image = torch.rand(1, 1, *shape, generator=torch.Generator().manual_seed(0))
    figure = pair_figure(image, image.flip(2), Identity(), Identity(), width=width)
    figure.savefig(io.BytesIO(), dpi=72)
    page = figure.bbox
    boxes = [ax.get_tightbbox() for ax in figure.axes] + [text.get_window_extent() for text in figure.texts]
    for n, box in enumerate(boxes):
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        for other in boxes[:n]:
            assert not box.overlaps(other)


def test_only_the_first_pair_of_a_batch_is_drawn():
    two = torch.cat([MOVING, FIXED])
    figure = pair_figure(two, two.flip(0), Identity(), Identity())
    np.testing.assert_allclose(pixels(titled(figure, "moving")[0]), MOVING[0, 0].numpy())


def test_matplotlib_is_left_as_it_was():
    before, backend = dict(matplotlib.rcParams), matplotlib.get_backend(auto_select=False)
    pair_figure(MOVING, FIXED, Identity(), Identity())
    assert dict(matplotlib.rcParams) == before and matplotlib.get_backend(auto_select=False) == backend


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_name_chooses_the_format(ending, magic, tmp_path):
    path = tmp_path / f"pair.{ending}"
    write_figure(path, pair_figure(MOVING, FIXED, Identity(), Identity()), dpi=30)
    assert path.read_bytes().startswith(magic)


def test_volumes_are_refused():
    volume = torch.rand(1, 1, 4, 5, 6)
    with pytest.raises(ValueError, match="two-dimensional"):
        pair_figure(volume, volume, Identity(), Identity())
