"""Reads a page as its own scripts do, slowly and plainly: what was put in must come out."""

import base64
import io
import json
import re
import zlib
from typing import Any

import numpy as np


def facts_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)


def block(page: str, name: str) -> bytes:
    (text,) = re.findall(rf'<script type="text/plain" id="block-{re.escape(name)}">([^<]*)</script>', page)
    return base64.b64decode(text)


def array(page: str, packed: dict[str, Any]) -> np.ndarray:
    """With axes X, Y, Z: left, back, head."""
    if packed["kind"] == "jpeg":
        return _sheets(page, packed)
    (name,) = packed["blocks"]
    values = np.frombuffer(zlib.decompress(block(page, name)), packed["kind"]).reshape(packed["shape"])
    if packed["differences"]:
        values = np.cumsum(values, axis=-1, dtype=values.dtype)
    return np.moveaxis(values, (-1, -2, -3), (-3, -2, -1))


def _sheets(page: str, packed: dict[str, Any]) -> np.ndarray:
    from PIL import Image

    _, height, width = packed["shape"]
    slices = []
    for name in packed["blocks"]:
        rows = np.asarray(Image.open(io.BytesIO(block(page, name))))
        assert rows.ndim == 2 and rows.shape[1] == width
        slices += [rows[top : top + packed["rows"]][:height] for top in range(0, len(rows), packed["rows"])]
    values = np.stack(slices)
    assert list(values.shape) == packed["shape"]
    return values.transpose(2, 1, 0)
