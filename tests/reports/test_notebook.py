"""In a notebook a pair shows its verdict and its picture, and names stay names."""

import base64
import io
import re

import pytest
import torch
from pairs import bend, pair
from PIL import Image

import roundtrip as rt
from roundtrip.reports.content import content_of
from roundtrip.reports.notebook import as_html
from roundtrip.reports.pair import ReportedPair


def test_the_verdict_is_that_of_the_page_and_the_picture_is_one():
    registered = pair()
    text = as_html(registered)
    verdict = content_of(registered).facts["verdict"]
    assert verdict["headline"] in text and text.count("<li>") == len(verdict["findings"])
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert Image.open(io.BytesIO(base64.b64decode(data))).width == 900
    assert registered._repr_html_() == text


def test_names_are_never_markup():
    text = as_html(pair(fixed_name='<img src=x onerror="alert(1)">', metrics={"reasons": ["<b>torn</b>"]}))
    assert "&lt;img src=x onerror=&quot;" in text and "&lt;b&gt;torn" in text
    assert text.count("<img") == 1 and "<b>torn" not in text


def test_what_register_gives_shows_itself(small_registration):
    text = small_registration._repr_html_()
    assert text == as_html(ReportedPair.of(small_registration)) and "moving on fixed" in text
    assert len(text) < 400_000 and "<script" not in text


@pytest.fixture(scope="module")
def small_registration():
    registered = pair(shape=(20, 16))
    return rt.register(registered.moving, registered.fixed, effort="fast", linear="none")


def test_a_transform_says_how_far_it_moves_points_and_shows_its_grid():
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[1, 3] = 2.5
    registered = pair()
    text = rt.Transform.from_affine(matrix, registered.fixed, registered.moving)._repr_html_()
    assert "from 20 x 16 x 12 voxels" in text and "2.5 mm on average, 2.5 mm at most" in text
    assert text.count("<img") == 1 and len(text) < 200_000
    nowhere = rt.Transform.from_affine(matrix)._repr_html_()
    assert "<img" not in nowhere and "&lt;" not in nowhere.split("<pre>")[0]


def test_a_map_says_how_far_it_moves_points_and_where_it_folds():
    gentle, torn = bend((30, 40), 0.05), bend((30, 40), 0.6)
    assert "no voxel folds" in gentle._repr_html_() and "voxels fold" in torn._repr_html_()
    shift = rt.DisplacementMap(torch.tensor([0.0, 3 / 39]).view(1, 2, 1, 1).expand(2, 2, 30, 40))
    text = shift._repr_html_()
    assert "on 30 x 40 voxels, the first of 2" in text and "3 voxels on average, 3 at most" in text
    assert "<img" not in rt.DisplacementMap(torch.zeros(1, 1, 9))._repr_html_()
