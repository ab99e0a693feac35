"""A small data set in files, whole or broken in any way, for the tests of this room."""

import csv
from pathlib import Path

import torch

from roundtrip.data.config import DataConfig
from roundtrip.space.files import write
from roundtrip.space.volume import Volume

SHAPE = (6, 5, 4)


def volume(seed: int, shape=SHAPE, spacing=(1.0, 1.0, 2.0)) -> Volume:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.diag(torch.tensor([*spacing, 1.0], dtype=torch.float64))
    matrix[:-1, -1] = torch.tensor([3.0, -2.0, 5.0])
    return Volume(torch.rand(1, *shape, generator=generator), matrix)


def labels_of(image: Volume) -> Volume:
    return Volume((image.data > 0.5).to(torch.uint8), image.world_from_voxel)


def write_scans(folder: Path, *, subjects: int = 8, visits: int = 2) -> Path:
    """So many scans of each subject with labels; the manifest."""
    rows = []
    for subject in range(subjects):
        for visit in range(visits):
            image, name = volume(10 * subject + visit), f"s{subject}_v{visit}.nii.gz"
            write(image, folder / "images" / name)
            write(labels_of(image), folder / "labels" / name)
            rows.append(
                {
                    "image": f"images/{name}",
                    "subject": f"s{subject}",
                    "labels": f"labels/{name}",
                    "side": ("left", "right")[visit % 2],
                    "part": ("train", "train", "validation", "test")[subject % 4],
                }
            )
    return write_rows(folder / "scans.csv", rows)


def write_rows(path: Path, rows: list[dict[str, str]]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def config_for(manifest: Path, **more) -> DataConfig:
    values = {
        "source": {"kind": "manifest", "path": manifest},
        "split": {"kind": "counts", "train": 4, "validation": 2, "test": 2},
        **more,
    }
    return DataConfig.model_validate(values)
