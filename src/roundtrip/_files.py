"""Files that appear whole or not at all. Used by every room that writes: `space/`, `reports/` and others."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path` and moves it there when it is complete.

    Whoever reads `path` sees the old file or the new one, never half of it; an error leaves no trace.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as beside:
        # The name ends as `path` does: libraries choose the format by it.
        complete = Path(beside) / path.name
        write(complete)
        os.replace(complete, path)


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, whose files are moved into `folder` together when the block ends well.

    After an error nothing has changed in `folder`, and if it was made here, it is gone again. Whether one can
    write there at all is known at once.
    """
    made = [part for part in (folder, *folder.parents) if not part.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as beside:
            yield Path(beside)
            for complete in sorted(Path(beside).iterdir()):
                os.replace(complete, folder / complete.name)
    except BaseException:
        for part in made:
            with contextlib.suppress(OSError):
                part.rmdir()
        raise
