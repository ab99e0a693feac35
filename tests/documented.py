"""What the tests of the documentation share: blocks of a page, its commands, small files to run them on."""

import glob
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import SimpleITK as sitk
import torch

import roundtrip as rt
from roundtrip.cli.main import main
from roundtrip.data.phantoms import PhantomPair, draw_pair

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_SMALL = (16, 20, 16)


@dataclass(frozen=True)
class Block:
    """A fenced block of code, and the line of the page on which its code begins."""

    language: str
    line: int
    code: str


def blocks(page: Path, languages: str) -> list[Block]:
    """The code blocks of a page in one of the languages, a regular expression, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```({languages})\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(one[1], text.count("\n", 0, one.start(2)), one[2]) for one in found]


def commands(code: str) -> Iterator[list[str]]:
    """The words after `roundtrip` of every call in a shell block, whoever starts it."""
    for line in code.replace("\\\n", " ").splitlines():
        found = re.search(r"(?:^|\s|which )roundtrip\)? ([^|;&>]+)", line)
        if found and not line.lstrip().startswith("#"):
            yield shlex.split(found[1], comments=True)


def run_shell(code: str) -> None:
    """Runs a shell block here: lines that begin with `roundtrip` in this process, all others by bash."""
    others: list[str] = []
    for line in code.replace("\\\n", " ").splitlines():
        if not line.startswith("roundtrip "):
            others.append(line)
            continue
        _run_by_bash(others)
        others.clear()
        words = [
            name for word in shlex.split(line, comments=True) for name in (sorted(glob.glob(word)) or [word])
        ]
        assert main(words[1:]) == 0, f"`{line}` failed."
    _run_by_bash(others)


def _run_by_bash(lines: list[str]) -> None:
    if any(line.strip() for line in lines):
        subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(lines)], check=True, stdout=sys.stderr)


def hippocampi(folder: Path) -> None:
    """Drawn heads under the names of the Decathlon's files."""
    pairs = [draw_pair(shape=_SMALL, seed=seed) for seed in range(3)]
    phantoms = [one for pair in pairs for one in (pair.fixed, pair.moving)]
    for number, phantom in zip((3, 7, 1, 4, 11, 15), phantoms, strict=True):
        rt.write(phantom.image, folder / "imagesTr" / f"hippocampus_{number:03}.nii.gz")
        rt.write(phantom.labels, folder / "labelsTr" / f"hippocampus_{number:03}.nii.gz")


def scans(folder: Path) -> None:
    """A folder of scans with labels, and a template."""
    pair = draw_pair(shape=_SMALL)
    for name, phantom in (("a", pair.fixed), ("b", pair.moving)):
        rt.write(phantom.image, folder / "scans" / f"{name}.nii.gz")
        rt.write(phantom.labels, folder / "labels" / f"{name}.nii.gz")
    rt.write(draw_pair(shape=_SMALL, seed=1).fixed.image, folder / "template.nii.gz")


def two_images(folder: Path) -> PhantomPair:
    """A pair with labels, masks and points."""
    pair = draw_pair(shape=_SMALL)
    for name, phantom in (("fixed", pair.fixed), ("moving", pair.moving)):
        rt.write(phantom.image, folder / f"{name}.nii.gz")
        rt.write(phantom.labels, folder / f"{name}_labels.nii.gz")
        mask = rt.Volume((phantom.labels.data > 0).int(), phantom.image.world_from_voxel)
        rt.write(mask, folder / f"{name}_mask.nii.gz")
    points = torch.tensor([[10.0, -20.0, 5.0], [-12.0, 3.0, 8.0], [30.0, 25.0, -20.0]], dtype=torch.float64)
    for name, places in (("fixed", points), ("moving", pair.truth(points.mT).mT)):
        rows = [",".join(map(str, place)) for place in places.tolist()]
        (folder / f"{name}_points.csv").write_text("\n".join(["x,y,z", *rows]) + "\n", encoding="utf-8")
    return pair


def registered(folder: Path) -> None:
    """A pair, its transforms, and the same in the files that ANTs would leave."""
    pair = two_images(folder)
    result = rt.register(pair.moving.image, pair.fixed.image, effort="fast")
    result.transform.save(folder / "out" / "transform.h5")
    result.inverse.save(folder / "out" / "inverse.h5")
    shift = sitk.AffineTransform(3)
    shift.SetTranslation((2.0, 0.0, 0.0))
    sitk.WriteTransform(shift, str(folder / "0GenericAffine.mat"))
    result.transform.save(folder / "1Warp.nii.gz")
    result.inverse.save(folder / "1InverseWarp.nii.gz")


def modelled(folder: Path) -> None:
    """A pair, a model that has learned nothing, and a table of two scans."""
    two_images(folder)
    net = rt.UNet(dims=3, down_features=(4, 8), up_features=(4, 8))
    preparation = {"grid": [12, 16, 12], "intensities": {"unit": "percentiles", "lower": 1, "upper": 99}}
    trained = {"lambda": 10.0, "config": {"stages": [{"similarity": "mse"}]}}
    card = rt.Card(preparation=preparation, data="nothing", numbers={}, licence="CC0-1.0", training=trained)
    rt.save(rt.DisplacementRegistration(net), folder / "model", card=card)
    rows = [
        "image,subject,labels",
        "fixed.nii.gz,one,fixed_labels.nii.gz",
        "moving.nii.gz,two,moving_labels.nii.gz",
    ]
    (folder / "scans.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


SCENES: dict[str, Callable[[Path], object]] = {
    "README": two_images,
    "tutorial": hippocampi,
    "cohort": scans,
    "masks": two_images,
    "exchange": registered,
    "trust": registered,
    "refine": modelled,
}
"""Pages that speak of files, and what writes them. Their commands are run, but for the README's."""
