"""From files to pairs: what `open_dataset` makes of a manifest, whole and broken."""

import shutil

import pytest
import torch

from data.scans import SHAPE, config_for, labels_of, read_rows, volume, write_rows, write_scans
from roundtrip._problems import ManyProblems
from roundtrip.data.dataset import open_dataset
from roundtrip.space.files import read, write
from roundtrip.space.preparation import prepare
from roundtrip.space.volume import Volume

CPU = torch.device("cpu")


@pytest.fixture
def manifest(tmp_path):
    return write_scans(tmp_path / "scans")


def opened(manifest, **more):
    return open_dataset(config_for(manifest, **more), cache=manifest.parent.parent / "cache")


def lines_of(manifest, **more) -> list[str]:
    with pytest.raises(ManyProblems) as caught:
        opened(manifest, **more)
    lines = str(caught.value).replace(f"{manifest.parent}/", "").splitlines()
    assert lines[0].endswith("wrong with the data:")
    return [line.removeprefix("  ") for line in lines[1:]]


def test_images_labels_and_places_are_those_of_the_files(manifest):
    train = opened(manifest).train
    assert (train.grid, train.channels) == (SHAPE, 1)
    torch.testing.assert_close(torch.tensor(train.spacing), torch.tensor((1.0, 1.0, 2.0)))
    batch = train.load([(0, 2), (1, 5)], CPU)
    for side, labels, indices in (
        (batch.moving, batch.moving_labels, (0, 1)),
        (batch.fixed, batch.fixed_labels, (2, 5)),
    ):
        for row, index in enumerate(indices):
            image = read(manifest.parent / train.names[index])
            assert side[row].equal(image.data) and labels[row].equal(labels_of(image).data.int())
            assert train.place(index).same_as(image.grid)
    assert batch.moving_mask is None and train.landmarks(0) is None


def test_no_subject_is_in_two_parts_and_every_pair_is_across_subjects(manifest):
    data = opened(manifest)
    subjects = [subject for part in data.split.values() for subject in part]
    assert sorted(subjects) == sorted({row["subject"] for row in read_rows(manifest)})
    for part in (data.train, data.validation, data.test):
        assert {name[7:9] for name in part.names} <= set(subjects)
    assert data.train.pairing.count == 8 * 6
    assert all(data.train.names[a][7:9] != data.train.names[b][7:9] for a, b in data.train.pairs(None))


def test_within_a_subject(manifest):
    within = opened(manifest, pairs={"kind": "within_subject", "symmetric": True})
    assert all(within.test.names[a][7:9] == within.test.names[b][7:9] for a, b in within.test.pairs(None))
    assert within.train.pairing.count == 8 and within.test.symmetric


def test_groups_stay_apart(manifest):
    rows = [row | {"group": row["side"]} for row in read_rows(manifest)]
    train = opened(write_rows(manifest, rows)).train
    assert train.pairing.count == 8 * 3
    assert all(train.names[a][9:] == train.names[b][9:] for a, b in train.pairs(None))


SPLIT = {"kind": "column", "column": "part"}


def test_a_column_splits_and_leaves_out(manifest):
    rows = read_rows(manifest)
    rows[0]["part"] = ""
    data = opened(write_rows(manifest, rows), split=SPLIT)
    assert {key: sorted(part) for key, part in data.split.items()} == {
        "train": ["s0", "s1", "s4", "s5"],
        "validation": ["s2", "s6"],
        "test": ["s3", "s7"],
    }
    assert rows[0]["image"] not in data.train.names and len(data.train.names) == 7


def test_fractions_are_counts(manifest):
    for fractions, sizes in (((0.5, 0.2, 0.3), (4, 2, 2)), ((1.0, 0.0, 0.0), (8, 0, 0))):
        split = dict(zip(("train", "validation", "test"), fractions, strict=True))
        data = opened(manifest, split={"kind": "fractions", **split}, pairs={"kind": "within_subject"})
        assert tuple(len(part) for part in data.split.values()) == sizes


def test_pairs_are_those_that_are_listed(manifest):
    pairs = manifest.with_name("pairs.csv")
    names = [row["image"] for row in read_rows(manifest) if row["part"] == "train"]
    write_rows(pairs, [{"moving": names[0], "fixed": names[3]}, {"moving": names[1], "fixed": names[0]}])
    train = opened(manifest, split=SPLIT, pairs={"kind": "listed", "path": pairs}).train
    assert [(train.names[a], train.names[b]) for a, b in train.pairs(None)] == [
        (names[0], names[3]),
        (names[1], names[0]),
    ]


def test_wrong_pairs_are_named_with_their_lines(manifest):
    rows = read_rows(manifest)
    pairs = manifest.with_name("pairs.csv")
    images = {row["part"]: row["image"] for row in rows}
    write_rows(
        pairs,
        [
            {"moving": images["train"], "fixed": images["train"]},
            {"moving": images["train"], "fixed": images["test"]},
            {"moving": "images/nobody.nii.gz", "fixed": images["test"]},
        ],
    )
    first, second, third, *_ = lines_of(manifest, split=SPLIT, pairs={"kind": "listed", "path": pairs})
    assert first.startswith("pairs.csv:2: ") and "with itself" in first
    assert second.startswith("pairs.csv:3: ") and "for train" in second and "for test" in second
    assert third.startswith("pairs.csv:4: images/nobody.nii.gz is none of the images")


def test_those_of_a_column_are_mirrored(manifest):
    preparation = {"mirror": {"column": "side", "value": "left", "axis": 0}}
    train = opened(manifest, preparation=preparation).train
    for index, name in enumerate(train.names):
        image = read(manifest.parent / name)
        left = name.endswith("v0.nii.gz")
        expected = image.data.flip(1) if left else image.data
        batch = train.load([(index, 0)], CPU)
        assert batch.moving[0].equal(expected)
        assert batch.moving_labels[0].equal(labels_of(Volume(expected, image.world_from_voxel)).data.int())


@pytest.mark.parametrize(
    ("mirror", "says"),
    [
        ({"column": "sied", "value": "left", "axis": 0}, "no column `sied`"),
        ({"column": "side", "value": "Left", "axis": 0}, "no image has `side` Left; there are left, right"),
    ],
)
def test_a_mirror_that_mirrors_nothing_is_a_mistake(manifest, mirror, says):
    assert any(says in line for line in lines_of(manifest, preparation={"mirror": mirror}))


def test_masks_and_landmarks_come_along(manifest):
    rows = read_rows(manifest)
    for number, row in enumerate(rows):
        row["mask"], row["landmarks"] = row["labels"], f"landmarks/{number}.csv"
        path = manifest.parent / row["landmarks"]
        path.parent.mkdir(exist_ok=True)
        path.write_text("x,y,z,t\n3,-2,5,0\n8,2,11,0\n")
    train = opened(write_rows(manifest, rows)).train
    batch = train.load([(0, 1)], CPU)
    assert batch.moving_mask.dtype == torch.bool and batch.moving_mask.equal(batch.moving_labels != 0)
    torch.testing.assert_close(
        train.landmarks(0), torch.tensor([[[0.0, 1], [0, 1], [0, 1]]], dtype=torch.float64)
    )


def test_only_some_images_have_labels(manifest):
    rows = read_rows(manifest)
    for row in rows[::2]:
        row["labels"] = ""
    train = opened(write_rows(manifest, rows)).train
    have = [index for index, name in enumerate(train.names) if name.endswith("v1.nii.gz")]
    assert train.load([(have[0], have[1])], CPU).moving_labels is not None
    assert train.load([(have[0], have[1]), (have[0] - 1, have[1])], CPU).moving_labels is None


def test_different_sizes_want_a_grid(manifest):
    write(volume(3, (7, 5, 4)), manifest.parent / "images" / "s0_v0.nii.gz")
    rows = [row | {"labels": ""} for row in read_rows(manifest)]
    manifest = write_rows(manifest, rows)
    (line,) = lines_of(manifest, split={"kind": "counts", "train": 8})
    assert line.startswith("preparation: images differ in size (6x5x4, 7x5x4)")
    assert "`grid: [7, 5, 4]`" in line
    assert opened(manifest, preparation={"grid": [7, 5, 4]}).train.grid == (7, 5, 4)


BROKEN = {
    "garbage": (lambda path: path.write_bytes(b"not an image"), "could not be read"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-60]), "could not be read"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "constant": (lambda path: _rewrite(path, torch.zeros_like), "every voxel of"),
    "NaN": (lambda path: _rewrite(path, lambda data: data * float("nan")), "values are NaN"),
    "a plane": (lambda path: write(_plane(), path), "2 spatial axes"),
    "of two channels": (lambda path: write(_two_channels(), path), "2 channels"),
}


def _rewrite(path, change) -> None:
    image = read(path)
    write(Volume(change(image.data), image.world_from_voxel), path)


def _two_channels() -> Volume:
    return Volume(torch.rand(2, *SHAPE), volume(1).world_from_voxel)


def _plane() -> Volume:
    return Volume(torch.rand(1, 6, 5), torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_image_is_named_with_its_line(manifest, kind):
    damage, says = BROKEN[kind]
    damage(manifest.parent / "images" / "s1_v0.nii.gz")
    rows = [row | {"labels": ""} for row in read_rows(manifest)]
    (line,) = lines_of(write_rows(manifest, rows), split={"kind": "counts", "train": 8})
    assert line.startswith("scans.csv:4: ") and says in line


def test_everything_that_is_wrong_is_said_at_once(manifest):
    images, labels = manifest.parent / "images", manifest.parent / "labels"
    images.joinpath("s0_v0.nii.gz").write_bytes(b"")
    write(volume(2, (5, 5, 5)), labels / "s0_v0.nii.gz")
    write(labels_of(volume(2, (5, 5, 5))), labels / "s1_v1.nii.gz")
    write(volume(2), labels / "s2_v0.nii.gz")
    shutil.rmtree(images / "nothing", ignore_errors=True)
    images.joinpath("s5_v1.nii.gz").unlink()
    rows = read_rows(manifest)
    rows[7]["part"] = "trian"
    rows[9]["part"] = "test"
    lines = lines_of(write_rows(manifest, rows), split=SPLIT)
    expected = {
        "scans.csv:2: images/s0_v0.nii.gz is empty",
        "scans.csv:2: labels/s0_v0.nii.gz: it was asked for as labels",
        "scans.csv:5: labels/s1_v1.nii.gz is not on the grid of its image",
        "scans.csv:6: labels/s2_v0.nii.gz: it was asked for as labels",
        "scans.csv:9: `part` is trian; it may be train, validation, test or empty",
        "scans.csv:11: subject s4 is in test here but in train at scans.csv:10",
        "scans.csv:13: image images/s5_v1.nii.gz does not exist",
    }
    for start in expected:
        assert any(line.startswith(start) for line in lines), (start, lines)
    assert len(lines) == len(expected)


def test_too_few_subjects_and_no_pairs_are_said(manifest):
    assert "split: it asks for 9 subjects, but there are 8." in lines_of(
        manifest, split={"kind": "counts", "train": 9}
    )
    (line,) = lines_of(manifest, split={"kind": "counts", "train": 7, "test": 1})
    assert line == "pairs: the 2 images of `test` make no pair (across subjects)."


def test_preparation_is_that_of_the_card(manifest):
    preparation = {"orientation": "RAS", "spacing": [1.5, 1.5, 1.5], "grid": [5, 4, 6],
                   "intensities": {"unit": "percentiles", "lower": 1, "upper": 99}}  # fmt: skip
    config = config_for(manifest, preparation=preparation)
    train = open_dataset(config, cache=manifest.parent / "cache").train
    expected = prepare(read(manifest.parent / train.names[1]), config.preparation)
    assert train.load([(1, 0)], CPU).moving[0].equal(expected.data)
    assert train.place(1).same_as(expected.grid)
