"""Arrays as text in a page: deflated, or as pictures where that is too much, and then in base64.

What is written here is read by `viewer/unpack.js`. A stack of slices `(Z, Y, X)` is one tall picture of all
its rows, cut into sheets that every browser can hold.
"""

import binascii
import io
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Twice as fast as the level after it, and one part in twenty larger, as measured on brains.
_LEVEL = 1

# What browsers on small telephones still decode: pixels, and rows.
_SHEET_PIXELS, _SHEET_ROWS = 2**21, 8192

# JPEG works in squares of this side; slices that begin with one do not smear into each other.
_SQUARE = 8


@dataclass
class Packed:
    """The blocks of text of a page, and for each array how its blocks are read."""

    blocks: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Characters of all blocks together."""
        return sum(map(len, self.blocks.values()))

    def add(self, name: str, array: np.ndarray, *, differences: bool = False) -> dict[str, Any]:
        """Deflates an array; `differences` of neighbours along the last axis are smaller if it is smooth."""
        return self._add_deflated(name, array, _deflated(array, differences), differences)

    def add_stacks(self, stacks: dict[str, np.ndarray], *, budget: int) -> dict[str, dict[str, Any]]:
        """Stacks of slices of bytes, all together in about `budget` characters of text.

        Exact where that is small enough; as JPEG otherwise, as good as fits.
        """
        if sum(map(_deflated_estimate, stacks.values())) <= 0.7 * budget:
            with ThreadPoolExecutor(2) as pool:
                values = list(pool.map(_deflated, stacks.values()))
            return {
                name: self._add_deflated(name, stacks[name], value)
                for name, value in zip(stacks, values, strict=True)
            }
        for quality in (90, 80, 65, 45, 25):
            sheets = {name: _sheets(stack, quality) for name, stack in stacks.items()}
            if sum(len(sheet) for some in sheets.values() for sheet in some) <= 0.75 * budget:
                break
        return {name: self._add_sheets(name, sheets[name], stacks[name].shape) for name in stacks}

    def _add_deflated(
        self, name: str, array: np.ndarray, values: bytes, differences: bool = False
    ) -> dict[str, Any]:
        self._put(name, values)
        kind, shape = str(array.dtype), list(array.shape)
        return {"blocks": [name], "kind": kind, "shape": shape, "differences": differences}

    def _add_sheets(self, name: str, sheets: Sequence[bytes], shape: Sequence[int]) -> dict[str, Any]:
        names = [f"{name}-{number}" for number in range(len(sheets))]
        for one, sheet in zip(names, sheets, strict=True):
            self._put(one, sheet)
        return {"blocks": names, "kind": "jpeg", "shape": list(shape), "rows": _padded(shape[1])}

    def _put(self, name: str, values: bytes) -> None:
        assert name not in self.blocks
        self.blocks[name] = binascii.b2a_base64(values, newline=False).decode("ascii")


def _deflated(array: np.ndarray, differences: bool = False) -> bytes:
    if differences:
        # Bytes and short numbers wrap around, here and when they are summed again.
        array = np.diff(array, axis=-1, prepend=array.dtype.type(0))
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return zlib.compress(little.data, _LEVEL)


def _deflated_estimate(stack: np.ndarray) -> float:
    """How many bytes a stack is when deflated, from a few slices in its middle half."""
    depth = len(stack)
    some = stack[depth // 4 : depth - depth // 4 : max(1, depth // 16)]
    return len(zlib.compress(np.ascontiguousarray(some).data, _LEVEL)) * stack.size / some.size


def _sheets(stack: np.ndarray, quality: int) -> list[bytes]:
    padded = np.pad(stack, ((0, 0), (0, _padded(stack.shape[1]) - stack.shape[1]), (0, 0)), mode="edge")
    height, width = padded.shape[1:]
    slices = max(1, min(_SHEET_PIXELS // (height * width), _SHEET_ROWS // height))
    starts = range(0, len(padded), slices)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda z: _jpeg(padded[z : z + slices].reshape(-1, width), quality), starts))


def _jpeg(picture: np.ndarray, quality: int) -> bytes:
    # Pillow comes with matplotlib.
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=quality)
    return file.getvalue()


def _padded(rows: int) -> int:
    return -(-rows // _SQUARE) * _SQUARE
