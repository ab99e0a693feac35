"""A report is one whole file, small enough for a mail; it holds what was found, and nothing else runs."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from pairs import LAS, ball, grid, pair
from unpacking import array, facts_of

from roundtrip.reports.content import content_of
from roundtrip.reports.display import linear_part
from roundtrip.reports.packing import Packed
from roundtrip.reports.page import page_of, safe_json, write_report
from roundtrip.space.grid import Grid
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume


def page(registered) -> str:
    return page_of(content_of(registered))


def shown(text: str, name: str) -> np.ndarray:
    """An image in its own intensities, axes to the left, back and head."""
    facts = facts_of(text)
    low, high = facts["windows"]["fixed" if name == "fixed" else "moving"]
    return low + (high - low) * array(text, facts["images"][name]).astype(float) / 255


def test_the_file_is_whole_and_small(tmp_path):
    path = tmp_path / "out" / "report.html"
    write_report(path, pair())
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "{{" not in text and len(text) < 150_000
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_images_decode_to_the_voxels_they_were_in_canonical_order():
    """The second axis of these files runs to the front, so it is turned around; the others stay."""
    registered = pair()
    text = page(registered)
    for name, volume in (("fixed", registered.fixed), ("moving", registered.moving)):
        expected = volume.data[0].flip(1).numpy()
        facts = facts_of(text)
        low, high = facts["windows"][name]
        np.testing.assert_allclose(shown(text, name), expected.clip(low, high), atol=(high - low) / 500)
    warped = registered.transform.warp(registered.moving).data[0].flip(1).numpy()
    low, high = facts["windows"]["moving"]
    np.testing.assert_allclose(shown(text, "warped"), warped.clip(low, high), atol=(high - low) / 500)


@pytest.mark.parametrize(
    ("axes", "signs"), [((0, 1, 2), (1, 1, 1)), ((2, 0, 1), (-1, 1, -1)), ((1, 2, 0), (-1, -1, 1))]
)
def test_any_orientation_shows_every_point_of_the_world_where_it_is(axes, signs):
    """A bright voxel of the file is bright at the same millimetres on the page."""
    shape, bright = (7, 9, 11), (1, 6, 8)
    matrix = torch.zeros(4, 4, dtype=torch.float64)
    matrix[-1, -1] = 1
    for axis, (world, sign) in enumerate(zip(axes, signs, strict=True)):
        matrix[world, axis] = sign * (1 + 0.5 * axis)
        matrix[world, -1] = 5.0 * axis
    data = torch.zeros(1, *shape)
    data[(0, *bright)] = 1
    volume = Volume(data, matrix)
    text = page(pair_of(volume))
    packed = facts_of(text)["images"]["fixed"]
    (found,) = np.argwhere(array(text, packed) > 0)
    world = np.array(packed["world_from_voxel"]) @ [*found, 1]
    np.testing.assert_allclose(world, matrix.numpy() @ [*bright, 1], atol=1e-9)
    assert (np.diag(np.array(packed["world_from_voxel"]))[:3] > 0).all()


def pair_of(volume: Volume, **changes):
    transform = Transform.from_affine(torch.eye(volume.dims + 1), volume, volume)
    nothing = {"fixed_labels": None, "moving_labels": None}
    return dataclasses.replace(
        pair(), **{"fixed": volume, "moving": volume, "transform": transform, **nothing, **changes}
    )


def test_labels_decode_whatever_their_numbers_are():
    registered = pair()
    text = page(registered)
    labels = facts_of(text)["labels"]
    assert labels["values"] == [0, 3, 70_000]
    decoded = np.array(labels["values"])[array(text, labels["fixed"])]
    np.testing.assert_array_equal(decoded, registered.fixed_labels.data[0].flip(1).numpy())


def test_many_labels_do_not_wrap_around():
    place = grid((10, 10, 10))
    labels = Volume(torch.arange(1000, dtype=torch.int32).view(1, 10, 10, 10), place.world_from_voxel)
    text = page(pair_of(ball(place), fixed_labels=labels, moving_labels=labels))
    facts = facts_of(text)["labels"]
    decoded = np.array(facts["values"])[array(text, facts["fixed"])]
    np.testing.assert_array_equal(decoded, labels.data[0].flip(1).numpy())


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_the_displacement_on_the_page_is_that_of_the_transform(way):
    registered = pair()
    text = page(registered)
    packed = facts_of(text)["transform"][way]
    nodes = array(text, packed) * packed["step"]
    index = np.stack(np.meshgrid(*map(np.arange, nodes.shape[1:]), indexing="ij"), axis=-1).reshape(-1, 3)
    matrix = np.array(packed["world_from_voxel"])
    places = torch.from_numpy(index @ matrix[:3, :3].T + matrix[:3, 3])
    transform = registered.transform if way == "forward" else registered.transform.inverse()
    expected = (transform.points(places) - places).T.numpy().reshape(nodes.shape)
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(nodes, expected, atol=0.6 * packed["step"] + 1e-4)


def test_the_linear_part_of_an_affine_transform_is_all_of_it():
    matrix = torch.tensor(
        [[1.1, 0.1, 0, 5], [0, 0.9, 0.2, -30], [0.05, 0, 1, 2], [0, 0, 0, 1]], dtype=torch.float64
    )
    for shape in ((9, 8, 7), (9, 8, 1)):
        place = grid(shape)
        x = Transform.from_affine(matrix).displacement(place)
        corners = torch.tensor([[0.0, 0, 0, 1], [8, 7, shape[2] - 1, 1]], dtype=torch.float64).mT
        corners = place.world_from_voxel @ corners
        torch.testing.assert_close(linear_part(x) @ corners, matrix @ corners, atol=1e-4, rtol=0)


def test_the_jacobian_and_the_round_trip_are_those_of_the_transform():
    registered = pair()
    text = page(registered)
    maps = facts_of(text)["maps"]
    growth = registered.transform.jacobian().data[0].flip(1).numpy()
    exponent = (array(text, maps["jacobian"]).astype(float) - 128) / 127 * maps["jacobian"]["exponent"]
    np.testing.assert_allclose(exponent, np.log2(growth), atol=0.02)
    missed = registered.transform.round_trip_error().data[0].flip(1).numpy()
    decoded = maps["error"]["top"] * (array(text, maps["error"]) / 255) ** 2
    assert maps["error"]["top"] == pytest.approx(missed.max(), rel=1e-5)
    np.testing.assert_allclose(decoded, missed, atol=0.01 * missed.max())


def test_no_fold_and_no_miss_is_lost_when_maps_are_shown_coarser(monkeypatch):
    from roundtrip.reports import content

    growth = torch.ones(1, 20, 16, 12)
    growth[0, 7, 3, 9] = -0.1
    missed = torch.full((1, 20, 16, 12), 0.1)
    missed[0, 7, 3, 9] = 5.0
    registered = pair(jacobian=Volume(growth, LAS), roundtrip_error=Volume(missed, LAS))
    for most in (2**20, 300):
        monkeypatch.setattr(content, "_MAP_VOXELS", most)
        text = page(registered)
        maps = facts_of(text)["maps"]
        (place,) = np.argwhere(array(text, maps["jacobian"]) == 0)
        assert np.argwhere(array(text, maps["error"]) == 255).tolist() == [place.tolist()]
        assert maps["error"]["top"] == 5 and maps["jacobian"]["folded"] == 1
        world = np.array(maps["world_from_voxel"]) @ [*place, 1]
        expected = LAS.numpy() @ [7, 3, 9, 1]
        assert (np.abs(world - expected)[:3] <= np.array([1, 1.5, 2]) * maps["binned"] / 2).all()


def test_large_images_are_shown_coarser_in_the_same_place(monkeypatch):
    from roundtrip.reports import content

    monkeypatch.setattr(content, "_IMAGE_VOXELS", 500)
    registered = pair()
    text = page(registered)
    packed = facts_of(text)["images"]["fixed"]
    values = array(text, packed)
    assert values.size <= 500
    matrix = np.array(packed["world_from_voxel"])
    centres = np.argwhere(values > 100) @ matrix[:3, :3].T + matrix[:3, 3]
    bright = (registered.fixed.data[0] > 400).nonzero().double() @ LAS[:3, :3].mT + LAS[:3, 3]
    np.testing.assert_allclose(centres.mean(axis=0), bright.mean(dim=0).numpy(), atol=0.6)


def test_what_is_too_large_becomes_pictures_within_the_budget():
    noise = np.random.default_rng(0).integers(0, 256, (40, 61, 83), dtype=np.uint8)
    packed = Packed()
    described = packed.add_stacks({"noise": noise}, budget=150_000)["noise"]
    assert described["kind"] == "jpeg" and 0 < packed.size <= 150_000
    smooth = (127 + 100 * np.sin(np.linspace(0, 9, 40 * 61 * 83))).reshape(40, 61, 83).astype(np.uint8)
    smooth += noise // 32
    packed = Packed()
    described = packed.add_stacks({"smooth": smooth}, budget=70_000)["smooth"]
    assert described["kind"] == "jpeg" and packed.size <= 70_000
    text = "".join(f'<script type="text/plain" id="block-{n}">{b}</script>' for n, b in packed.blocks.items())
    decoded = array(text, described).transpose(2, 1, 0).astype(int)
    assert np.abs(decoded - smooth).mean() < 3


def test_a_plane_is_shown_as_one_slice():
    flat = pair(shape=(20, 16))
    text = page(flat)
    facts = facts_of(text)
    assert facts["dims"] == 2 and facts["images"]["fixed"]["shape"] == [1, 16, 20]
    values = shown(text, "fixed")[:, :, 0]
    expected = flat.fixed.data[0].flip(1).numpy()
    np.testing.assert_allclose(values, expected.clip(*facts["windows"]["fixed"]), atol=5)


NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{script}}\u2028.nii.gz"


def test_names_are_data_and_nothing_else():
    registered = pair(fixed_name=NASTY, command=NASTY)
    registered = dataclasses.replace(registered, metrics={NASTY: NASTY, "settings": {NASTY: [NASTY]}})
    text = page(registered)
    assert "alert(1)" in text and "<script>alert" not in text and "onerror=alert(2)>" not in text
    facts = facts_of(text)
    assert facts["names"]["fixed"] == facts["command"] == facts["metrics"][NASTY] == NASTY
    # What our own page says of scripts: the facts, the blocks, and one that runs.
    assert text.count("<script") == text.count("</script") == page(pair()).count("<script")


def test_the_policy_lets_only_our_script_run_and_nothing_be_fetched():
    import base64
    import hashlib

    text = page(pair())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert not re.findall(r"""\s(?:src|href|on\w+)\s*=\s*["'](?!data:,|#)""", text)


def test_what_is_not_a_number_is_null():
    registered = pair(metrics={"dice": {"mean": float("nan"), "labels": {"3": float("inf")}}})
    facts = facts_of(page(registered))
    assert facts["metrics"]["dice"] == {"mean": None, "labels": {"3": None}}
    assert safe_json({"a": "<&>"}) == '{"a":"\\u003c\\u0026\\u003e"}'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_images_that_are_not_numbers_everywhere_are_still_shown(value):
    place = grid()
    image = ball(place)
    image.data[0, :3] = value
    text = page(pair(fixed=image))
    np.testing.assert_allclose(shown(text, "fixed")[5:], shown(page(pair()), "fixed")[5:], atol=20)


def test_a_constant_image_is_shown():
    place = grid()
    constant = Volume(torch.full((1, *place.shape), 7.0), place.world_from_voxel)
    assert facts_of(page(pair(fixed=constant)))["verdict"]["findings"]


def test_what_lies_elsewhere_is_refused():
    with pytest.raises(ValueError, match=r"`fixed_labels` is on .* Bring it there"):
        pair(fixed_labels=ball(grid((20, 16, 11)), dtype=torch.int32))
    with pytest.raises(ValueError, match="labels are whole numbers"):
        pair(fixed_labels=ball(grid()))
    line = Volume(torch.rand(1, 9), torch.eye(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="two or three axes"):
        pair_of(line)


def test_what_registration_has_computed_is_not_computed_again(monkeypatch):
    registered = pair()
    ready = {
        "warped": registered.transform.warp(registered.moving),
        "warped_labels": registered.transform.warp(registered.moving_labels),
        "jacobian": registered.transform.jacobian(),
        "roundtrip_error": registered.transform.round_trip_error(),
    }
    expected = page(registered)

    def refuse(*_, **__):
        raise AssertionError("computed again")

    for name in ("warp", "jacobian", "round_trip_error"):
        monkeypatch.setattr(Transform, name, refuse)
    assert page(dataclasses.replace(registered, **ready)) == expected


def test_same_pair_same_page():
    assert page(pair()) == page(pair())


def test_oblique_images_say_how_oblique_they_are():
    turn = torch.eye(4, dtype=torch.float64)
    turn[:2, :2] = torch.tensor([[0.8, -0.6], [0.6, 0.8]])
    volume = ball(Grid((20, 16, 12), turn))
    assert facts_of(page(pair_of(volume)))["places"]["fixed"]["oblique_degrees"] == pytest.approx(
        36.87, abs=0.01
    )
