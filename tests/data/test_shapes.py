"""Triangles and circles against the supplement's formulas, written out for one pixel at a time."""

import math

import pytest
import torch

from roundtrip.data.shapes import triangles_and_circles


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def parameters(count: int, seed: int = 0):
    """The numbers the images are made of, drawn in the same order."""
    g = generator(seed)
    cx, cy, r, theta = (torch.rand(count, generator=g) for _ in range(4))
    return 0.4 + 0.3 * cx, 0.4 + 0.3 * cy, 0.2 + 0.2 * r, 2 * math.pi * theta


def supplement(x: float, y: float, cx: float, cy: float, r: float, theta: float, triangle: bool) -> float:
    edge = r
    if triangle:
        angle = (math.atan2(x - cx, y - cy) + theta) % (2 * math.pi / 3)
        edge = r * math.cos(math.pi / 3) / math.cos(angle - math.pi / 3)
    return math.tanh(-40 * (math.sqrt((x - cx) ** 2 + (y - cy) ** 2) - edge))


def test_every_pixel_is_the_supplements_formula():
    count, size = 6, 9
    shapes = triangles_and_circles(count, size=size, generator=generator())
    columns = [values.tolist() for values in parameters(count)]
    for n, (cx, cy, r, theta) in enumerate(zip(*columns, strict=True)):
        triangle = bool(shapes.is_triangle[n])
        expected = [
            [supplement(i / (size - 1), j / (size - 1), cx, cy, r, theta, triangle) for j in range(size)]
            for i in range(size)
        ]
        torch.testing.assert_close(shapes.images[n, 0], torch.tensor(expected), atol=1e-4, rtol=0)


def test_half_are_triangles_in_random_order():
    shapes = triangles_and_circles(100, size=4, generator=generator())
    assert shapes.is_triangle.sum() == 50
    assert not shapes.is_triangle.equal(shapes.is_triangle.sort().values)


def test_values_lie_between_minus_one_and_one_and_the_inside_is_positive():
    shapes = triangles_and_circles(40, size=32, generator=generator())
    assert shapes.images.shape == shapes.inside.shape == (40, 1, 32, 32)
    assert shapes.images.abs().max() <= 1
    assert shapes.inside.equal(shapes.images > 0)


def test_a_circle_has_its_area():
    shapes = triangles_and_circles(60, size=256, generator=generator())
    cx, cy, r, _ = parameters(60)
    whole = ~shapes.is_triangle & (torch.maximum(cx, cy) + r < 1) & (torch.minimum(cx, cy) > r)
    area = shapes.inside.float().mean(dim=(1, 2, 3))
    assert whole.any()
    torch.testing.assert_close(area[whole], math.pi * r[whole] ** 2, rtol=0.02, atol=0)


def test_a_triangle_has_its_area():
    shapes = triangles_and_circles(60, size=256, generator=generator())
    cx, cy, r, _ = parameters(60)
    whole = shapes.is_triangle & (torch.maximum(cx, cy) + r < 1) & (torch.minimum(cx, cy) > r)
    area = shapes.inside.float().mean(dim=(1, 2, 3))
    assert whole.any()
    # Equilateral with circumradius r.
    torch.testing.assert_close(area[whole], 3 * math.sqrt(3) / 4 * r[whole] ** 2, rtol=0.03, atol=0)


def test_the_seed_decides_everything():
    first, again, other = (triangles_and_circles(5, size=8, generator=generator(s)).images for s in (1, 1, 2))
    assert first.equal(again)
    assert not first.equal(other)


def test_sizes_agree_on_the_shapes():
    """The unit grid includes both ends, so every second pixel of 17 is a pixel of 9."""
    fine = triangles_and_circles(3, size=17, generator=generator()).images
    coarse = triangles_and_circles(3, size=9, generator=generator()).images
    torch.testing.assert_close(fine[..., ::2, ::2], coarse, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("count", "size"), [(0, 8), (3, 1)])
def test_nothing_to_draw_is_an_error(count, size):
    with pytest.raises(ValueError, match="at least one of at least 2x2"):
        triangles_and_circles(count, size=size, generator=generator())
