"""The few parts of the HDF5 file format that a transform of ITK needs: groups, strings, arrays of numbers.

Written here, because SimpleITK stores displacements in twice their precision, uncompressed, and does not
survive a full disk. Large arrays are compressed (shuffled, deflated), which every HDF5 library reads. The
format: HDF5 File Format Specification 3.0, superblock of version 0. Reading is left to ITK.
"""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

Node: TypeAlias = "Mapping[str, Node] | str | np.ndarray"
"""A group by the names of what it holds, a string, or an array of one axis of float32 or float64."""

_NOWHERE = 2**64 - 1

# Entries of a node in the trees of groups (leaf, inner) and of chunks; the last is fixed by the format.
_LEAF, _INNER, _CHUNKS = 32, 16, 64

# Numbers in an array from which on it is compressed.
_LARGE = 4096
_LEVEL = 1


def write_hdf5(root: Mapping[str, Node], path: Path) -> None:
    """One file that holds `root`."""
    with path.open("wb") as stream:
        writer = _Writer()
        header = writer.group(root)
        stream.write(writer.superblock(header))
        for block in writer.blocks:
            stream.write(block)


class _Writer:
    """Collects blocks one after the other; each is at a known address as soon as it is added."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.end = 96
        self._trees: dict[int, tuple[int, int]] = {}

    def add(self, block: bytes) -> int:
        address = self.end
        padded = block + bytes(-len(block) % 8)
        self.blocks.append(padded)
        self.end += len(padded)
        return address

    def superblock(self, root: int) -> bytes:
        versions = struct.pack("<8B", 0, 0, 0, 0, 0, 8, 8, 0)
        sizes = struct.pack("<HHI", _LEAF // 2, _INNER, 0)
        addresses = struct.pack("<QQQQ", 0, _NOWHERE, self.end, _NOWHERE)
        return b"\x89HDF\r\n\x1a\n" + versions + sizes + addresses + self._entry(0, root)

    def group(self, members: Mapping[str, Node]) -> int:
        """The names of a group stand in a heap, sorted, and its one leaf says where each object is."""
        names, offsets = b"\0" * 8, {}
        for name in sorted(members):
            offsets[name] = len(names)
            text = name.encode("ascii") + b"\0"
            names += text + bytes(-len(text) % 8)
        entries = b"".join(self._entry(offsets[name], self._node(members[name])) for name in sorted(members))
        leaf = self.add(
            b"SNOD" + struct.pack("<BBH", 1, 0, len(members)) + entries + bytes(40 * (_LEAF - len(members)))
        )
        last = offsets[max(members)] if members else 0
        keys = struct.pack("<QQQ", 0, leaf, last)
        tree = b"TREE" + struct.pack("<BBHQQ", 0, 0, 1, _NOWHERE, _NOWHERE) + keys
        tree_at = self.add(tree + bytes(24 + 8 * (4 * _INNER + 1) - len(tree)))
        names_at = self.add(names)
        heap_at = self.add(b"HEAP" + struct.pack("<IQQQ", 0, len(names), 1, names_at))
        header = self._object([(0x11, struct.pack("<QQ", tree_at, heap_at))])
        self._trees[header] = (tree_at, heap_at)
        return header

    def _node(self, node: Node) -> int:
        if isinstance(node, Mapping):
            return self.group(node)
        return self._string(node) if isinstance(node, str) else self._array(node)

    def _entry(self, name: int, header: int) -> bytes:
        known = self._trees.get(header)
        scratch = struct.pack("<QQ", *known) if known else bytes(16)
        return struct.pack("<QQII", name, header, int(known is not None), 0) + scratch

    def _object(self, messages: list[tuple[int, bytes]]) -> int:
        body = b""
        for kind, data in messages:
            data += bytes(-len(data) % 8)
            body += struct.pack("<HHB3x", kind, len(data), 0) + data
        return self.add(struct.pack("<BBHII4x", 1, 0, len(messages), 1, len(body)) + body)

    def _string(self, text: str) -> int:
        """Of a length of its own: the data set refers to a heap that holds the letters."""
        letters = text.encode("ascii")
        used = struct.pack("<HHIQ", 1, 1, 0, len(letters)) + letters + bytes(-len(letters) % 8)
        size = 4096
        free = struct.pack("<HHIQ", 0, 0, 0, size - 16 - len(used))
        heap = b"GCOL" + struct.pack("<B3xQ", 1, size) + used + free
        heap_at = self.add(heap + bytes(size - len(heap)))
        data_at = self.add(struct.pack("<IQI", len(letters), heap_at, 1))
        letter = struct.pack("<B3BIHH", 0x10, 0, 0, 0, 1, 0, 8)
        kind = struct.pack("<B3BI", 0x19, 1, 0, 0, 16) + letter
        return self._data_set(1, kind, struct.pack("<BBQQ", 3, 1, data_at, 16))

    def _array(self, values: np.ndarray) -> int:
        kind = _FLOATS[values.dtype.itemsize]
        if len(values) < _LARGE:
            data_at = self.add(values.tobytes()) if len(values) else _NOWHERE
            return self._data_set(len(values), kind, struct.pack("<BBQQ", 3, 1, data_at, values.nbytes))
        size, length = values.dtype.itemsize, -(-len(values) // _CHUNKS)
        tree_at = self._chunks(values, length)
        layout = struct.pack("<BBBQII", 3, 2, 2, tree_at, length, size)
        shuffle = struct.pack("<HHHHI4x", 2, 0, 1, 1, size)
        deflate = struct.pack("<HHHHI4x", 1, 0, 1, 1, _LEVEL)
        return self._data_set(
            len(values), kind, layout, [(0x0B, struct.pack("<BB6x", 1, 2) + shuffle + deflate)]
        )

    def _chunks(self, values: np.ndarray, length: int) -> int:
        """Each chunk compressed, and the tree that says where they are."""
        keys, starts = b"", range(0, len(values), length)
        for start in starts:
            chunk = np.zeros(length, values.dtype)
            part = values[start : start + length]
            chunk[: len(part)] = part
            shuffled = chunk.view(np.uint8).reshape(length, -1).T.tobytes()
            packed = zlib.compress(shuffled, _LEVEL)
            keys += struct.pack("<IIQQQ", len(packed), 0, start, 0, self.add(packed))
        keys += struct.pack("<IIQQ", 0, 0, len(starts) * length, 0)
        tree = b"TREE" + struct.pack("<BBHQQ", 1, 0, len(starts), _NOWHERE, _NOWHERE) + keys
        return self.add(tree + bytes(24 + 24 * (_CHUNKS + 1) + 8 * _CHUNKS - len(tree)))

    def _data_set(
        self, length: int, kind: bytes, layout: bytes, more: list[tuple[int, bytes]] | None = None
    ) -> int:
        space = struct.pack("<BBBB4xQ", 1, 1, 0, 0, length)
        fill = struct.pack("<BBBB", 2, 3 if more else 2, 2, 0)
        return self._object([(0x01, space), (0x03, kind), (0x05, fill), (0x08, layout), *(more or [])])


def _float(size: int, sign: int, exponent: tuple[int, int], bias: int) -> bytes:
    """IEEE numbers, the lowest byte first: where the sign, the exponent and the mantissa stand."""
    head = struct.pack("<B3BI", 0x11, 0x20, sign, 0, size)
    return head + struct.pack("<HHBBBBI", 0, 8 * size, *exponent, 0, exponent[0], bias)


_FLOATS = {4: _float(4, 31, (23, 8), 127), 8: _float(8, 63, (52, 11), 1023)}
