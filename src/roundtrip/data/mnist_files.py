"""MNIST's own four files, fetched once from public servers and checked by what is in them.

Nothing is fetched unless asked for. Neighbours: `digits.py` (reads them), `sources.py`.
"""

import gzip
import hashlib
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from roundtrip._files import write_whole

SERVERS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
"""Each has the files packed with gzip; they are tried in turn."""

CHECKSUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""SHA-256 of the files as they are when unpacked."""


def fetch_mnist(
    folder: Path,
    *,
    servers: Sequence[str] = SERVERS,
    checksums: dict[str, str] = CHECKSUMS,
    timeout: float = 30.0,
    on_note: Callable[[str], None] = lambda text: None,
) -> Path:
    """The folder with MNIST's files, of which those that are not there yet, or are not whole, are fetched."""
    for name, checksum in checksums.items():
        path = folder / name
        if path.exists() and _checksum(path.read_bytes()) == checksum:
            continue
        content = _fetched(name, checksum, servers, timeout, on_note)
        write_whole(path, lambda beside, content=content: beside.write_bytes(content))  # type: ignore[misc]
    return folder


def _fetched(
    name: str, checksum: str, servers: Sequence[str], timeout: float, on_note: Callable[[str], None]
) -> bytes:
    """The unpacked file from the first server that has the right one."""
    failures = []
    for server in servers:
        url = f"{server}{name}.gz"
        on_note(f"fetching {url}")
        try:
            with urllib.request.urlopen(url, timeout=timeout) as answer:
                content = gzip.decompress(answer.read())
        except (OSError, EOFError, ValueError, zlib.error) as error:
            failures.append(f"{url}: {error}")
            continue
        if _checksum(content) == checksum:
            return content
        failures.append(f"{url}: another file than expected came, by its checksum")
    raise OSError(
        f"MNIST could not be fetched ({'; '.join(failures)}). If you have it, say where: `--data FOLDER` "
        f"with the files {', '.join(CHECKSUMS)} (also packed, .gz), or an .npz of it."
    )


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
