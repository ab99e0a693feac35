"""`roundtrip register`: what it writes, and that nothing is left of what went wrong."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
import torch

import roundtrip as rt
from roundtrip.algorithms.card import Card, Preparation
from roundtrip.cli import register as command
from roundtrip.cli.main import main
from roundtrip.space.files import read, write
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

FILES = {
    *("warped.nii.gz", "warped_labels.nii.gz", "transform.h5", "inverse.h5", "displacement.nii.gz"),
    *("jacobian.nii.gz", "roundtrip_error.nii.gz", "metrics.json"),
}


def body(shape, matrix, shift=0.0):
    """An ellipsoid with a lighter one beside its middle, drawn in the world."""
    index = torch.stack(torch.meshgrid(*(torch.arange(n).double() for n in shape), indexing="ij"))
    at = torch.einsum("ij,j...->i...", matrix[:-1, :-1], index) + matrix[:-1, -1].view(-1, *[1] * len(shape))
    at = at - shift
    outer = (at / torch.tensor([11.0, 9.0, 8.0][: len(shape)]).view(-1, *[1] * len(shape))).norm(dim=0)
    inner = (at - 3).norm(dim=0)
    image = 100 * torch.sigmoid(8 * (1 - outer)) + 80 * torch.sigmoid(2 * (4 - inner))
    labels = (outer < 1).int() + (inner < 4).int()
    return Volume(image[None].float(), matrix), Volume(labels[None], matrix)


def placed(shape, spacing):
    matrix = torch.diag(torch.tensor([*spacing, 1.0], dtype=torch.float64))
    middle = torch.tensor([(n - 1) / 2 for n in shape], dtype=torch.float64)
    matrix[:-1, -1] = -matrix[:-1, :-1] @ middle
    return matrix


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two bodies 3 mm apart on different grids, and their labels, in files."""
    folder = tmp_path_factory.mktemp("pair")
    for name, shape, spacing, shift in (
        ("fixed", (28, 26, 24), (1.0, 1.1, 1.2), 0.0),
        ("moving", (26, 30, 22), (-1.2, 1.0, 1.3), 3.0),
    ):
        image, labels = body(shape, placed(shape, spacing), shift)
        write(image, folder / f"{name}.nii.gz")
        write(labels, folder / f"{name}_labels.nii.gz")
    return folder


def run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def done(pair):
    """The folder of a whole registration, once for all tests that only look at it."""
    out = pair / "out"
    labels = [f"--{name}-labels={pair / name}_labels.nii.gz" for name in ("fixed", "moving")]
    code = run("register", "-f", pair / "fixed.nii.gz", "-m", pair / "moving.nii.gz", "-o", out, *labels)
    assert code == 0
    return out


def test_everything_is_written_and_nothing_else(done):
    assert {path.name for path in done.iterdir()} >= FILES
    assert not [path for path in done.iterdir() if path.name.startswith(".")]


def test_metrics_have_the_shape_that_was_promised(done):
    metrics = json.loads((done / "metrics.json").read_text())
    assert metrics["ok"] is True and metrics["reasons"] == []
    assert metrics["wall_seconds"] >= metrics["seconds"] > 0
    assert set(metrics["similarity"]) >= {"name", "before", "after"}
    assert metrics["similarity"]["after"] > metrics["similarity"]["before"]
    assert metrics["folds"] == {"count": 0, "percent": 0.0, "non_diffeomorphic_volume_percent": 0.0}
    miss = metrics["roundtrip_error_mm"]
    assert miss["mean"] < 0.2 and miss["mean"] <= miss["p99"] <= miss["max"]
    assert metrics["dice"]["mean"] > 0.9 and set(metrics["dice"]["labels"]) == {"1", "2"}
    assert metrics["settings"]["effort"] == "default" and metrics["version"]


def test_the_body_is_laid_onto_the_other(pair, done):
    fixed, warped = read(pair / "fixed.nii.gz"), read(done / "warped.nii.gz")
    assert warped.grid.same_as(fixed.grid)
    before = Transform.from_affine(torch.eye(4)).warp(pair / "moving.nii.gz", onto=fixed)
    assert (warped.data - fixed.data).abs().mean() < 0.4 * (before.data - fixed.data).abs().mean()


def test_itk_makes_the_same_of_the_transforms_both_ways(pair, done):
    for transform, moving, fixed in (("transform", "moving", "fixed"), ("inverse", "fixed", "moving")):
        images = {
            name: sitk.ReadImage(str(pair / f"{name}.nii.gz"), sitk.sitkFloat32) for name in (moving, fixed)
        }
        itk = sitk.ReadTransform(str(done / f"{transform}.h5"))
        theirs = sitk.GetArrayFromImage(
            sitk.Resample(images[moving], images[fixed], itk, sitk.sitkLinear, 0.0)
        )
        loaded = Transform.load(done / f"{transform}.h5")
        ours = loaded.warp(pair / f"{moving}.nii.gz", onto=read(pair / f"{fixed}.nii.gz")).data[0].numpy()
        apart = np.abs(ours - theirs.transpose()) > 1e-3 * 180
        assert apart.mean() < 1e-3  # where the border is met within rounding noise
        if transform == "transform":
            written = read(done / "warped.nii.gz").data[0].numpy()
            assert (np.abs(written - theirs.transpose()) > 1e-3 * 180).mean() < 1e-3


def test_the_maps_of_growth_and_error_belong_to_the_transform(done):
    transform, inverse = (Transform.load(done / f"{name}.h5") for name in ("transform", "inverse"))
    growth = read(done / "jacobian.nii.gz")
    assert growth.data.allclose(transform.jacobian().data, atol=2e-3)
    error = read(done / "roundtrip_error.nii.gz")
    assert (error.data - transform.round_trip_error(inverse).data).abs().max() < 0.3
    field = nib.load(done / "displacement.nii.gz")
    assert field.header["intent_code"] == 1007 and field.shape == (*transform.fixed.shape, 1, 3)
    moved = torch.from_numpy(np.asarray(field.dataobj)[..., 0, :]).movedim(-1, 0)
    assert moved.allclose(transform.displacement().data, atol=1e-3)


def test_json_alone_on_standard_output(pair, tmp_path, capsys):
    images = (
        "-f",
        pair / "fixed.nii.gz",
        "-m",
        pair / "moving.nii.gz",
        "--linear",
        "rigid",
        "--effort",
        "fast",
    )
    assert run("register", *images, "-o", tmp_path / "out", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert "dice" not in printed and not (tmp_path / "out" / "warped_labels.nii.gz").exists()


def test_planes_and_other_formats(tmp_path):
    for name, shift in (("fixed", 0.0), ("moving", 2.0)):
        image, _ = body((40, 36), placed((40, 36), (1.0, 1.0)), shift)
        write(image, tmp_path / f"{name}.{'png' if name == 'fixed' else 'nrrd'}")
    images = ("-f", tmp_path / "fixed.png", "-m", tmp_path / "moving.nrrd")
    assert run("register", *images, "-o", tmp_path / "out", "--quiet") == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["ok"] and sitk.ReadTransform(str(tmp_path / "out" / "inverse.h5")).GetDimension() == 2


def spoilt(pair, folder):
    """Files nobody can register, by what is wrong with them."""
    image = nib.load(pair / "moving.nii.gz")
    values = image.get_fdata().astype(np.float32)

    def save(name, values, affine=image.affine, codes=None):
        new = nib.Nifti1Image(values, affine)
        if codes is not None:
            new.set_sform(None, code=0)
            new.set_qform(None, code=0)
        nib.save(new, folder / f"{name}.nii.gz")

    holes = values.copy()
    holes[3, 4, 5] = np.nan
    save("nan", holes)
    save("empty", np.zeros_like(values))
    save("constant", np.full_like(values, 7))
    save("series", np.stack([values, values], axis=-1))
    save("nowhere", values, np.diag([1.2, 1.0, 1.3, 1.0]), codes=0)
    save("other_grid", np.ones((5, 5, 5), np.uint8))
    save("no_mask", np.zeros(values.shape, np.uint8))
    content = (pair / "moving.nii.gz").read_bytes()
    (folder / "truncated.nii.gz").write_bytes(content[: len(content) // 2])
    (folder / "text.nii.gz").write_text("this is no image")
    (folder / "nothing.nii.gz").write_bytes(b"")
    (folder / "unknown.xyz").write_text("x")
    (folder / "no_dicom").mkdir()
    write(body((30, 30), placed((30, 30), (1.0, 1.0)))[0], folder / "plane.nii.gz")
    far, _ = body((26, 26, 26), placed((26, 26, 26), (1.0, 1.0, 1.0)))
    matrix = far.world_from_voxel.clone()
    matrix[0, 3] += 500
    write(Volume(far.data, matrix), folder / "far.nii.gz")


@pytest.fixture(scope="module")
def broken(pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    spoilt(pair, folder)
    return folder


@pytest.mark.parametrize(
    ("moving", "options", "says"),
    [
        ("nan", (), "1 of 17160 values are NaN or infinite.*--replace-nan 0"),
        ("empty", (), "every voxel of .* is 0"),
        ("constant", (), "every voxel of .* is 7"),
        ("series", (), "holds 2 volumes.*--moving-volume 0"),
        ("nowhere", (), "header without orientation.*--orientation RAS"),
        ("truncated", (), "truncated.nii.gz could not be read"),
        ("text", (), "text.nii.gz could not be read"),
        ("nothing", (), "nothing.nii.gz is empty"),
        ("plane", (), "one image has 2 axes and the other 3"),
        ("far", ("--linear", "none"), "do not overlap"),
        ("missing", (), "missing.nii.gz does not exist"),
        ("../broken.xyz", (), "does not exist"),
        (None, ("--fixed-mask", "other_grid.nii.gz"), "lies on another grid"),
        (None, ("--moving-labels", "other_grid.nii.gz"), "lies on another grid"),
        (None, ("--moving-mask", "no_mask.nii.gz"), "mask of the moving image is empty"),
        (None, ("--moving-labels", "moving.nii.gz"), "whole numbers"),
        (None, ("--device", "moon"), "--device moon"),
        (None, ("--threads", "0"), "--threads is 0"),
        (None, ("--model", "no_dicom"), "no_dicom"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_left(pair, broken, tmp_path, moving, options, says, capsys):
    image = pair / "moving.nii.gz" if moving is None else broken / f"{moving}.nii.gz"
    named = [broken / o if (broken / o).exists() else pair / o if (pair / o).exists() else o for o in options]
    capsys.readouterr()
    out = tmp_path / "new" / "out"
    assert run("register", "-f", pair / "fixed.nii.gz", "-m", image, "-o", out, *named) == 2
    printed, complaint = capsys.readouterr()
    assert printed == "" and complaint.count("\n") == 1 and complaint.startswith("roundtrip: ")
    assert re.search(says, complaint), complaint
    assert not (tmp_path / "new").exists()


def test_results_are_not_lost_by_a_later_failure(pair, done, broken):
    before = {path: path.read_bytes() for path in done.iterdir()}
    assert run("register", "-f", pair / "fixed.nii.gz", "-m", broken / "empty.nii.gz", "-o", done) == 2
    assert {path: path.read_bytes() for path in done.iterdir()} == before


def test_the_output_is_a_file_or_not_to_be_written(pair, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    images = ("-f", pair / "fixed.nii.gz", "-m", pair / "moving.nii.gz")
    assert run("register", *images, "-o", tmp_path / "file") == 2
    assert "is a file" in capsys.readouterr().err and (tmp_path / "file").read_text() == "mine"
    assert run("register", *images, "-o", tmp_path / "file" / "below") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_a_header_lacks_can_be_said(pair, broken, tmp_path):
    images = ("-f", pair / "fixed.nii.gz", "-m", broken / "nowhere.nii.gz", "--orientation", "RAS")
    assert run("register", *images, "--effort", "fast", "-o", tmp_path / "out", "--quiet") == 0
    images = ("-f", pair / "fixed.nii.gz", "-m", broken / "series.nii.gz", "--moving-volume", "1")
    assert run("register", *images, "--effort", "fast", "-o", tmp_path / "out", "--quiet") == 0


def limited(pair, out, bytes_per_file):
    """The command in a process that may write files of so many bytes only, as on a full disk."""
    code = (
        "import resource, sys; from roundtrip.cli.main import main; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_per_file}, {bytes_per_file})); "
        "sys.exit(main(sys.argv[1:]))"
    )
    images = ["-f", str(pair / "fixed.nii.gz"), "-m", str(pair / "moving.nii.gz"), "-o", str(out)]
    arguments = [sys.executable, "-c", code, "register", *images, "--effort", "fast"]
    return subprocess.run(arguments, capture_output=True, text=True)


def test_a_full_disk_leaves_nothing(pair, tmp_path):
    done = limited(pair, tmp_path / "out", 50_000)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_an_interrupt_leaves_nothing(pair, tmp_path, monkeypatch, capsys):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("roundtrip.reports.files.write_json", interrupted)
    images = ("-f", pair / "fixed.nii.gz", "-m", pair / "moving.nii.gz", "--effort", "fast")
    assert run("register", *images, "-o", tmp_path / "new" / "out") == 130
    assert capsys.readouterr().err == "roundtrip: interrupted\n" and not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_leaves_nothing(pair, tmp_path, how):
    images = [
        "-f",
        str(pair / "fixed.nii.gz"),
        "-m",
        str(pair / "moving.nii.gz"),
        "-o",
        str(tmp_path / "out"),
    ]
    code = "import sys; from roundtrip.cli.main import main; sys.exit(main(sys.argv[1:]))"
    running = subprocess.Popen(
        [sys.executable, "-c", code, "register", *images, "--effort", "best"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while running.poll() is None and not (tmp_path / "out").exists():
        time.sleep(0.02)
    running.send_signal(how)
    _, complaint = running.communicate(timeout=60)
    assert running.returncode == 128 + how, complaint
    assert complaint == "roundtrip: interrupted\n" and not (tmp_path / "out").exists()


def test_a_registration_that_failed_says_so(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("roundtrip.pairwise.outcome.Outcome.reasons", ("the maps disagree.",))
    images = ("-f", pair / "fixed.nii.gz", "-m", pair / "moving.nii.gz", "--effort", "fast")
    assert run("register", *images, "-o", tmp_path / "out", "--quiet") == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["ok"] is False and metrics["reasons"] == ["the maps disagree."]
    assert capsys.readouterr() == ("", "roundtrip: this registration failed: the maps disagree.\n")


def test_the_start_of_this_process_is_known():
    seconds = command._seconds_since_start()
    assert 0 < seconds < 24 * 3600 and math.isfinite(seconds) and os.getpid()


@pytest.fixture(scope="module")
def points(pair):
    """Landmarks of the pair in files: named, those of the moving image in another order and with one more."""
    at = [(4.0, 2.0, -1.0), (-5.0, 3.0, 2.0), (1.0, -4.0, 3.0), (3.0, 3.0, 3.0), (-3.0, -2.0, -4.0)]
    rows = {"fixed": list(enumerate(at)), "moving": [(9, (0.0, 0.0, 0.0)), *enumerate(at)][::-1]}
    for name, shift in (("fixed", 0.0), ("moving", 3.0)):
        lines = [f"p{i},{x + shift},{y + shift},{z + shift}" for i, (x, y, z) in rows[name]]
        (pair / f"{name}.csv").write_text("\n".join(["name,x,y,z", *lines]) + "\n")
        lines = [f"p{i},{-x - shift},{-y - shift},{z + shift}" for i, (x, y, z) in rows[name]]
        (pair / f"{name}_ras.csv").write_text("\n".join(["name,x,y,z", *lines]) + "\n")
    return pair


def of_both(option, folder, ending):
    return [part for name in ("fixed", "moving") for part in (f"--{name}-{option}", folder / (name + ending))]


def registered(pair, out, *options):
    """What metrics.json says of the pair."""
    images = ("-f", pair / "fixed.nii.gz", "-m", pair / "moving.nii.gz", "--effort", "fast", "--json")
    assert run("register", *images, "-o", out, *options) == 0
    return json.loads((out / "metrics.json").read_text())


def test_landmarks_measure(points, tmp_path):
    metrics = registered(points, tmp_path / "out", *of_both("landmarks", points, ".csv"))
    error = metrics["landmark_error_mm"]
    assert error["count"] == 5 and error["before"] == pytest.approx(3 * 3**0.5)
    assert error["mean"] < 2 and "guidance" not in metrics and metrics["settings"]["guides"] == []


def test_labels_and_landmarks_guide(points, tmp_path, capsys):
    options = []
    for name in ("fixed", "moving"):
        options += [f"--{name}-guide", points / f"{name}_labels.nii.gz", points / f"{name}.csv"]
    metrics = registered(points, tmp_path / "out", *options)
    assert metrics["settings"]["guides"] == ["labels", "landmarks"]
    assert metrics["guidance"]["landmark_error_mm"]["max"] < 1
    dice = metrics["guidance"]["dice"]
    assert 1 - dice["mean"] < (1 - dice["before"]["mean"]) / 5 and "dice" not in metrics
    assert metrics["notes"] == ["landmarks that only one image has were left out: p9."]
    assert not (tmp_path / "out" / "warped_labels.nii.gz").exists()


def test_points_may_be_in_ras_which_is_not_guessed(points, tmp_path):
    ras = of_both("guide", points, "_ras.csv")
    found = registered(points, tmp_path / "out", *ras, "--points-world", "RAS")["guidance"]
    plain = registered(points, tmp_path / "lps", *of_both("guide", points, ".csv"))["guidance"]
    assert found["landmark_error_mm"] == pytest.approx(plain["landmark_error_mm"], abs=1e-3)


def test_a_region_stays_rigid(pair, tmp_path, capsys):
    metrics = registered(pair, tmp_path / "out", "--fixed-rigid", pair / "fixed_labels.nii.gz")
    regions = metrics["rigid"]["regions"]
    assert set(regions) == {"1", "2"} and max(one["off_by_mm"]["max"] for one in regions.values()) < 1e-3


def test_several_images_of_one_person(pair, tmp_path):
    """The second channel shows what the first does not."""
    images = []
    for name in ("fixed", "moving"):
        labels = read(pair / f"{name}_labels.nii.gz", labels=True)
        for part, values in (("whole", labels.data > 0), ("inner", labels.data == 2)):
            write(Volume(values.float(), labels.world_from_voxel), tmp_path / f"{name}_{part}.nii.gz")
        images += [f"--{name}", tmp_path / f"{name}_whole.nii.gz", tmp_path / f"{name}_inner.nii.gz"]
    labels = [f"--{name}-labels={pair / name}_labels.nii.gz" for name in ("fixed", "moving")]
    assert run("register", *images, *labels, "-o", tmp_path / "out", "--modality", "same", "--quiet") == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["ok"] and metrics["dice"]["labels"]["2"] > 0.85
    warped = read(tmp_path / "out" / "warped.nii.gz")
    assert len(warped.data) == 2 and (tmp_path / "out" / "report.html").exists()


def test_images_without_partners_or_on_another_grid_are_said(pair, broken, tmp_path, capsys):
    fixed, moving = pair / "fixed.nii.gz", pair / "moving.nii.gz"
    assert run("register", "-f", fixed, fixed, "-m", moving, "-o", tmp_path / "out") == 2
    assert "2 fixed images but 1 moving ones" in capsys.readouterr().err
    assert run("register", "-f", fixed, moving, "-m", moving, moving, "-o", tmp_path / "out") == 2
    assert "lies on another grid than" in capsys.readouterr().err


def model_in(folder, dims):
    """An untrained network, which is one that finds nothing, and how it wants its images."""
    card = Card(
        preparation=Preparation(orientation="LPS"[:dims], spacing=(1.5,) * dims, grid=(24,) * dims),
        data="",
        numbers={},
        licence="",
    )
    with torch.random.fork_rng():
        network = rt.UNet(dims=dims, down_features=(4, 8), up_features=(4, 8)).eval()
    rt.save(rt.DisplacementRegistration(network), folder, card=card)
    return folder


def test_a_model_is_where_it_begins(pair, tmp_path):
    model = model_in(tmp_path / "model", 3)
    metrics = registered(
        pair, tmp_path / "out", "--model", model, "--fixed-rigid", pair / "fixed_labels.nii.gz"
    )
    assert metrics["settings"]["model"] == str(model) and metrics["settings"]["linear"] is None
    assert metrics["reasons"] == [] and metrics["folds"]["count"] == 0 and metrics["rigid"]["regions"]["1"]


def test_a_model_of_planes_is_not_for_volumes(pair, tmp_path, capsys):
    model = model_in(tmp_path / "model", 2)
    images = ("-f", pair / "fixed.nii.gz", "-m", pair / "moving.nii.gz")
    assert run("register", *images, "-o", tmp_path / "out", "--model", model) == 2
    assert "3 spatial axes" in capsys.readouterr().err and not (tmp_path / "out").exists()
