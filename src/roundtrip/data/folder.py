"""Finds the images of a folder, and what belongs to each of them in other folders, by their names."""

import re
from collections import defaultdict
from pathlib import Path

from roundtrip._problems import Problems
from roundtrip.data.records import Record
from roundtrip.data.sources import FolderSource
from roundtrip.space.files import suffix_of


def find_images(source: FolderSource, problems: Problems) -> list[Record]:
    """An image for every file that the pattern finds, in the order of their names."""
    if not source.path.is_dir():
        problems.add(str(source.path), "there is no such folder.")
        return []
    beside = {"labels": source.labels, "mask": source.masks, "landmarks": source.landmarks}
    folders = {name: folder for name, folder in beside.items() if folder is not None}
    partners = {name: _Names(folder, problems) for name, folder in folders.items()}
    records = []
    for path in sorted(source.path.glob(source.images)):
        name = path.relative_to(source.path)
        if _is_hidden(name) or any(path.is_relative_to(folder) for folder in folders.values()):
            continue
        columns = _columns(name, source, problems)
        if columns is not None:
            found = {kind: names.of(name, kind, path, problems) for kind, names in partners.items()}
            subject = columns.pop("subject")
            records.append(Record(name.as_posix(), str(path), subject, columns, path, **found))
    if not records and not problems:
        problems.add(str(source.path), f'no file in it is called like "{source.images}".')
    return records


class _Names:
    """The files of a folder, to be found by their names whatever these end with."""

    def __init__(self, folder: Path, problems: Problems) -> None:
        self.folder, self.files = folder, defaultdict[str, list[Path]](list)
        if not folder.is_dir():
            problems.add(str(folder), "there is no such folder.")
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            relative = path.relative_to(folder)
            if path.is_file() and not _is_hidden(relative):
                for key in {_stem(relative), relative.parent / _stem(Path(path.name))}:
                    self.files[str(key)].append(path)

    def of(self, name: Path, kind: str, image: Path, problems: Problems) -> Path | None:
        """What belongs to an image: of the same path within the folder, or else of the same name."""
        found = self.files.get(str(name.parent / _stem(name))) or self.files.get(str(_stem(name)), [])
        if len(found) != 1 and self.folder.is_dir():
            several = f"{len(found)} files are" if found else "no file is"
            problems.add(str(image), f"{several} called {_stem(name)} among the {kind} in {self.folder}.")
        return found[0] if len(found) == 1 else None


def _columns(name: Path, source: FolderSource, problems: Problems) -> dict[str, str] | None:
    if source.subject is None:
        return {"subject": name.as_posix()}
    match = re.search(source.subject, name.as_posix())
    if match is None or not match.group("subject" if match.groupdict() else 1):
        problems.add(str(source.path / name), f'its name does not show the subject: "{source.subject}".')
        return None
    named = {group: value for group, value in match.groupdict().items() if value is not None}
    return {"subject": match.group(1), **named}


def _stem(name: Path) -> Path:
    """The name alone, without what tells the format."""
    return Path(name.name[: len(name.name) - len(suffix_of(name))])


def _is_hidden(name: Path) -> bool:
    return any(part.startswith(".") for part in name.parts)
