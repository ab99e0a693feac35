"""`roundtrip warp` and `roundtrip inspect`: files in, files out, and what is said of the wrong ones."""

import json

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from roundtrip.cli.main import main
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.velocity import exponential
from roundtrip.space.files import read, write
from roundtrip.space.grid import Grid
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

FIXED = Grid((14, 12, 10), torch.diag(torch.tensor([1.0, 1.5, 2.0, 1.0])).double())
MOVING = Grid(
    (16, 13, 11), torch.diag(torch.tensor([-1.0, 1.2, 1.8, 1.0])).double() + torch.eye(4).double() * 0
)


@pytest.fixture
def folder(tmp_path):
    """A registered pair in files."""
    matrix = MOVING.world_from_voxel.clone()
    matrix[0, 3] = 15.0
    moving = Grid(MOVING.shape, matrix)
    x = unit_grid(FIXED.shape)
    velocity = 0.04 * torch.sin(3 * x).flip(1)
    shift = torch.eye(4).double()
    shift[:3, 3] = torch.tensor([1.0, -2.0, 0.5])
    transform = Transform.from_maps(
        exponential(velocity), FIXED, moving, inverse=exponential(-velocity), affine=shift
    )
    image = torch.rand(1, *moving.shape, generator=torch.Generator().manual_seed(0))
    write(Volume(image, moving.world_from_voxel), tmp_path / "image.nii.gz")
    write(Volume((4 * image).int(), moving.world_from_voxel), tmp_path / "labels.nii.gz")
    write(Volume(torch.rand(1, *FIXED.shape), FIXED.world_from_voxel), tmp_path / "fixed.nii.gz")
    transform.save(tmp_path / "there.h5")
    transform.inverse().save(tmp_path / "back.h5")
    (tmp_path / "points.csv").write_text("name,x,y,z\na,3,4,5\nb,8,6,11\n")
    return tmp_path


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_one_image_is_laid_onto_the_grid_of_the_transform(folder):
    assert run("warp", folder / "image.nii.gz", "-t", folder / "there.h5", "-o", folder / "w.mha") == 0
    warped = read(folder / "w.mha")
    expected = Transform.load(folder / "there.h5").warp(folder / "image.nii.gz")
    assert warped.grid.same_as(FIXED) and warped.data.allclose(expected.data, atol=1e-5)
    assert sitk.ReadImage(str(folder / "w.mha")).GetSize() == FIXED.shape


def test_many_files_of_all_kinds_at_once(folder, capsys):
    done = run(
        *("warp", folder / "image.nii.gz", "--labels", folder / "labels.nii.gz", "-p", folder / "points.csv"),
        *("-t", folder / "there.h5", "-o", folder / "out", "--json"),
    )
    assert done == 0
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == ["image.nii.gz", "labels.nii.gz", "points.csv"]
    assert sorted(json.loads(capsys.readouterr().out)["written"]) == [str(folder / "out" / n) for n in names]
    labels = read(folder / "out" / "labels.nii.gz", labels=True)
    assert set(labels.data.unique().tolist()) == {0, 1, 2, 3}
    rows = (folder / "out" / "points.csv").read_text().splitlines()
    expected = Transform.load(folder / "there.h5").points([[3.0, 4, 5], [8.0, 6, 11]])
    assert rows[0] == "name,x,y,z" and rows[2].startswith("b,")
    moved = np.array([row.split(",")[1:] for row in rows[1:]], dtype=float)
    assert torch.from_numpy(moved).allclose(expected, atol=1e-5)


def test_a_chain_is_met_in_its_order_and_inverses_undo(folder):
    shift = torch.eye(4).double()
    shift[0, 3] = 2.0
    Transform.from_affine(shift).save(folder / "shift.tfm")
    (folder / "p.csv").write_text("6,5,9\n")
    chain = ["-t", folder / "shift.tfm", folder / "there.h5"]
    assert run("warp", "-p", folder / "p.csv", *chain, "-o", folder / "q.csv") == 0
    expected = Transform.load(folder / "there.h5").points([[8.0, 5, 9]])
    moved = [float(cell) for cell in (folder / "q.csv").read_text().split(",")]
    assert torch.tensor([moved]).double().allclose(expected, atol=1e-5)
    undo = ["-t", f"inverse:{folder / 'there.h5'}", f"inverse:{folder / 'shift.tfm'}"]
    assert run("warp", "-p", folder / "q.csv", *undo, "-o", folder / "r.csv") == 0
    back = [float(cell) for cell in (folder / "r.csv").read_text().split(",")]
    assert back == pytest.approx([6, 5, 9], abs=1e-3)


@pytest.mark.parametrize("rule", ["linear", "cubic", "nearest"])
def test_onto_another_grid_with_another_interpolation(folder, rule):
    out = folder / "w.nii.gz"
    arguments = (
        "-t",
        f"inverse:{folder / 'back.h5'}",
        "-r",
        folder / "fixed.nii.gz",
        "--interpolation",
        rule,
    )
    assert run("warp", folder / "image.nii.gz", *arguments, "-o", out, "--fill", "-5") == 0
    warped = read(out)
    assert warped.grid.same_as(FIXED)
    values = read(folder / "image.nii.gz").data
    inside = warped.data[warped.data > -4]
    if rule == "nearest":
        assert torch.isin(inside, values).all()
    assert (warped.data == -5).any() and len(inside) > 100


def test_labels_may_be_interpolated_as_weights(folder):
    arguments = ("-t", folder / "there.h5", "-l", folder / "labels.nii.gz")
    assert run("warp", *arguments, "-o", folder / "one.nii.gz", "--label-interpolation", "one-hot") == 0
    assert run("warp", *arguments, "-o", folder / "near.nii.gz") == 0
    one, near = (read(folder / f"{name}.nii.gz", labels=True).data for name in ("one", "near"))
    assert 0 < (one != near).double().mean() < 0.6


def test_inspect_says_how_regular_a_transform_is(folder, capsys):
    pair = (folder / "there.h5", "--inverse", folder / "back.h5")
    assert run("inspect", *pair, "-m", folder / "image.nii.gz", "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert values["folds"] == {"count": 0, "percent": 0.0, "non_diffeomorphic_volume_percent": 0.0}
    assert values["roundtrip_error_mm"]["mean"] < 0.5 and 0.5 < values["jacobian"]["mean"] < 2
    assert run("inspect", *pair) == 0
    assert "folded voxels" in capsys.readouterr().out
    assert run("inspect", folder / "there.h5", f"inverse:{folder / 'there.h5'}", "--json") == 0
    assert json.loads(capsys.readouterr().out)["moved_mm"]["max"] < 1e-2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-t", "there.h5", "-o", "out"), "nothing to warp"),
        (("image.nii.gz", "-t", "none.h5", "-o", "w.nii.gz"), "none.h5 does not exist"),
        (("image.nii.gz", "-t", "image.nii.gz", "-o", "w.nii.gz"), "Is it an image?"),
        (("none.nii.gz", "-t", "there.h5", "-o", "w.nii.gz"), "none.nii.gz does not exist"),
        (("image.nii.gz", "none.nii.gz", "-t", "there.h5", "-o", "out"), "none.nii.gz does not exist"),
        (("image.nii.gz", "-t", "there.h5", "-o", "image.nii.gz"), "would overwrite"),
        (("image.nii.gz", "-t", "there.h5", "-o", "."), "would overwrite"),
        (("image.nii.gz", "labels.nii.gz", "-t", "there.h5", "-o", "points.csv"), "is a file"),
        (("image.nii.gz", "-t", "there.h5", "-o", "w.jpg"), "cannot be written"),
        (("-l", "image.nii.gz", "-t", "there.h5", "-o", "w.nii.gz"), "whole numbers"),
        (("image.nii.gz", "-t", "shift.tfm", "-o", "w.nii.gz"), "say onto which grid"),
        (("image.nii.gz", "-t", "there.h5", "-o", "w.nii.gz", "--device", "moon"), "--device moon"),
        (("image.nii.gz", "-t", "there.h5", "-o", "w.nii.gz", "--threads", "0"), "--threads is 0"),
    ],
)
def test_what_does_not_fit_is_one_line_and_leaves_nothing(folder, arguments, says, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    Transform.from_affine(torch.eye(4)).save("shift.tfm")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run("warp", *arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
