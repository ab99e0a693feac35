"""In a notebook a pair shows its verdict and its picture, and names stay names."""

import base64
import io
import re

from pairs import pair
from PIL import Image

from roundtrip.reports.content import content_of
from roundtrip.reports.notebook import as_html


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
