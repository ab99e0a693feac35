"""A whole training: the seed decides it, it goes on as if never stopped, and what goes wrong is said."""

import itertools
import json

import pytest
import torch

from roundtrip.algorithms.saved import load, read_card
from roundtrip.maps.map import on_grid_of
from roundtrip.training import checkpoint as checkpoints
from roundtrip.training import stages as stages_module
from roundtrip.training.records import StepRecord, ValidationRecord
from roundtrip.training.watch import AbstractWatcher
from training_samples import UNET, run, stage

LOG = "log.jsonl"
FOUR = {
    "source": {"kind": "shapes", "count": 5, "size": 8},
    "split": {"kind": "counts", "train": 4},
}


class Stop(Exception):
    """The machine was switched off."""


class Watcher(AbstractWatcher):
    """Remembers what it is told, and stops the run after so many steps of all stages."""

    def __init__(self, stop_after=None):
        self.told, self.notes, self.steps, self.stop_after = [], [], 0, stop_after

    def on_stage(self, stage, *, number, of, done):
        self.told.append(("stage", stage.name, number, of, done))

    def on_step(self, record):
        self.steps += 1
        if self.steps == self.stop_after:
            raise Stop

    def on_validation(self, record, example):
        self.told.append(("validation", record.stage, record.step))
        assert example.phi_AB(torch.rand(1, 2, 5)).shape == (1, 2, 5)

    def on_stage_end(self, stage, *, number, records):
        self.told.append(("end", stage.name, number, len(records)))

    def on_note(self, text):
        self.notes.append(text)


def records(folder):
    """The log without what clocks say."""
    return [without_clocks(json.loads(line)) for line in (folder / LOG).read_text().splitlines()]


def without_clocks(line):
    return {name: value for name, value in line.items() if name not in ("seconds", "pairs_per_second")}


def files(folder):
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "card.json", "split.json")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, run(folder)


def test_it_leaves_a_model(undisturbed):
    folder, trained = undisturbed
    card = read_card(folder)
    assert card == trained.card and {"dice", "dice_before", "folds"} <= card.numbers.keys()
    assert card.training["seed"] == 0 and card.training["subjects"] == {
        "train": 10,
        "validation": 3,
        "test": 3,
    }
    pair = torch.rand((2, 1, 1, 9, 8), generator=torch.Generator().manual_seed(0))
    again, found = (on_grid_of(a(*pair), pair[0]) for a in (load(folder), trained.algorithm))
    torch.testing.assert_close(again, found)
    assert all(weight.requires_grad for weight in trained.algorithm.parameters())
    assert {p.name for p in folder.iterdir()} == {
        *("model.safetensors", "card.json", "config.yaml", "split.json", "log.jsonl", "checkpoints")
    }
    assert (folder / "model.safetensors").stat().st_mode & 0o044 == (
        folder / "card.json"
    ).stat().st_mode & 0o044


def test_the_log_holds_every_step_and_validation(undisturbed):
    _, trained = undisturbed
    steps = [(r.stage, r.step) for r in trained.records if isinstance(r, StepRecord)]
    assert steps == [(name, step) for name in ("low", "high") for step in range(1, 7)]
    judged = [(r.stage, r.step) for r in trained.records if isinstance(r, ValidationRecord)]
    assert judged == [("low", 3), ("low", 6), ("high", 3), ("high", 6)]
    for record in trained.records:
        if isinstance(record, StepRecord):
            total = record.similarity + record.lambda_ * record.inverse_consistency
            assert record.total == pytest.approx(total, rel=1e-5)


def test_lambda_grows_after_the_steps_that_fold(undisturbed):
    _, trained = undisturbed
    steps = [r for r in trained.records if isinstance(r, StepRecord) and r.stage == "high"]
    assert any(step.folds > 0 for step in steps)
    for before, after in itertools.pairwise(steps):
        assert after.lambda_ == before.lambda_ + (5 if before.folds > 0 else 0)


def test_what_is_frozen_stays_as_its_stage_left_it(undisturbed):
    folder, _ = undisturbed
    low = checkpoints.read(folder / "checkpoints" / "00-low-end.safetensors").weights
    high = checkpoints.read(folder / "checkpoints" / "01-high-end.safetensors").weights
    prefix = "first.inner.inner."
    frozen = {k.removeprefix(prefix): v for k, v in high.items() if k.startswith(prefix)}
    assert frozen.keys() == low.keys() and all(frozen[name].equal(low[name]) for name in low)


def test_the_seed_decides_every_bit(undisturbed, tmp_path):
    folder, _ = undisturbed
    run(tmp_path / "again")
    run(tmp_path / "other", seed=1)
    assert files(tmp_path / "again") == files(folder)
    assert records(tmp_path / "again") == records(folder) != records(tmp_path / "other")


@pytest.mark.parametrize("stop_after", [1, 5, 6, 10, 12])
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(stop_after, undisturbed, tmp_path):
    folder, _ = undisturbed
    with pytest.raises(Stop):
        run(tmp_path, watchers=[Watcher(stop_after)])
    # A process that is killed may leave half a line, and half a checkpoint beside its place.
    with (tmp_path / LOG).open("a") as log:
        log.write('{"kind": "step", "sta')
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    (tmp_path / "checkpoints" / ".unfinished-x").write_bytes(b"1234")
    watcher = Watcher()
    run(tmp_path, resume=True, watchers=[watcher])
    assert files(tmp_path) == files(folder)
    assert records(tmp_path) == records(folder)
    assert watcher.steps <= 12 - stop_after + 2
    assert not list((tmp_path / "checkpoints").glob(".*"))


def test_a_finished_run_that_goes_on_stays_as_it_is(undisturbed, tmp_path):
    folder, _ = undisturbed
    run(tmp_path)
    run(tmp_path, resume=True)
    assert files(tmp_path) == files(folder) and records(tmp_path) == records(folder)


def test_to_go_on_where_nothing_is_means_to_begin(undisturbed, tmp_path):
    folder, _ = undisturbed
    run(tmp_path / "new", resume=True)
    assert files(tmp_path / "new") == files(folder)


def test_a_truncated_checkpoint_is_named_and_the_one_before_is_used(undisturbed, tmp_path):
    folder, _ = undisturbed
    with pytest.raises(Stop):
        run(tmp_path, watchers=[Watcher(11)])
    newest = tmp_path / "checkpoints" / "01-high-00000004.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    watcher = Watcher()
    run(tmp_path, resume=True, watchers=[watcher])
    assert len(watcher.notes) == 1 and newest.name in watcher.notes[0] and "skipped" in watcher.notes[0]
    assert ("stage", "high", 2, 2, 2) in watcher.told
    assert files(tmp_path) == files(folder)


def test_nothing_is_overwritten_unasked(undisturbed, tmp_path):
    folder, _ = undisturbed
    with pytest.raises(ValueError, match="--resume"):
        run(folder)
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(ValueError, match="holds a model"):
        run(tmp_path)


def test_another_configuration_or_seed_does_not_go_on(tmp_path):
    run(tmp_path, stage("a", steps=2))
    with pytest.raises(ValueError, match=r"differs in stages\.0\.steps"):
        run(tmp_path, stage("a", steps=3), resume=True)
    with pytest.raises(ValueError, match="differs in seed"):
        run(tmp_path, stage("a", steps=2), resume=True, seed=1)


def test_only_the_last_checkpoints_stay(undisturbed):
    folder, _ = undisturbed
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert names == {
        *("00-low-end.safetensors", "00-low-best.safetensors"),
        *("01-high-00000004.safetensors", "01-high-00000006.safetensors"),
        *("01-high-end.safetensors", "01-high-best.safetensors"),
    }


def test_the_best_weights_are_those_of_the_best_validation(tmp_path):
    trained = run(
        tmp_path,
        stage("a", steps=6, learning_rate=0.3),
        validation={"every": 1, "pairs": 2, "result": "best"},
    )
    scores = {r.step: r.score for r in trained.records if isinstance(r, ValidationRecord)}
    best = checkpoints.read(tmp_path / "checkpoints" / "00-a-best.safetensors")
    assert best.best == max(scores.values()) == scores[best.place.step]
    assert trained.card.numbers["dice"] == pytest.approx(best.best)
    assert load(tmp_path).state_dict()["net.last.weight"].equal(best.weights["net.last.weight"])


def test_accumulated_parts_are_one_batch_where_no_statistics_are_taken(tmp_path):
    """Without batch norms, the mean of the parts' gradients is the gradient of the batch."""
    algorithm = {
        "class": "DisplacementRegistration",
        "net": {"class": "ConvOnly", "dims": 2, "num_layers": 2, "growth": 3},
    }
    one, parts = (
        run(tmp_path / str(n), stage("a", algorithm=algorithm, accumulation=n), validation=None).records
        for n in (1, 4)
    )
    for a, b in zip(one, parts, strict=True):
        assert a.total == pytest.approx(b.total, rel=1e-4)


def test_labels_pull_where_they_have_a_weight(tmp_path):
    trained = run(tmp_path, stage("a", resolution=2, label_weight=2.0), validation=None)
    first = trained.records[0]
    # Two one-hot images under the identity: one minus the soft Dice, both ways.
    assert 0 < first.labels < 2
    assert first.total == pytest.approx(first.similarity + 2 * first.labels, rel=1e-5)


def test_an_exploding_loss_names_step_and_pairs_and_leaves_the_last_checkpoint(tmp_path):
    with pytest.raises(FloatingPointError) as caught:
        run(tmp_path, stage("a", steps=40, learning_rate=1e6), checkpoints={"every": 1, "keep": 1})
    said = str(caught.value)
    assert "of stage a" in said and "shape " in said and "smaller learning rate, e.g. 2.5e+05" in said
    newest = next(checkpoints.Checkpoints(tmp_path / "checkpoints", keep=1).newest_first())
    assert all(w.isfinite().all() for w in checkpoints.read(newest).weights.values())
    assert f"at step {checkpoints.read(newest).place.step + 1} " in said


def test_weights_that_are_no_numbers_are_not_written_down(tmp_path, monkeypatch):
    original = stages_module.StageRun.advance

    def poisoned(self):
        record = original(self)
        if self.step == 3:
            next(iter(self.algorithm.parameters())).data.fill_(float("nan"))
        return record

    monkeypatch.setattr(stages_module.StageRun, "advance", poisoned)
    with pytest.raises(FloatingPointError, match="weights became NaN or infinite by step 3 of stage a"):
        run(tmp_path, stage("a"), checkpoints={"every": 1, "keep": 2}, validation=None)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["00-a-00000001.safetensors", "00-a-00000002.safetensors"]


def test_a_full_disk_is_said_and_the_last_checkpoint_stays(tmp_path, monkeypatch):
    from safetensors import SafetensorError

    original, calls = checkpoints.save_file, []

    def full(tensors, path, metadata):
        calls.append(path)
        if len(calls) == 3:
            original(tensors, path, metadata=metadata)
            path.write_bytes(path.read_bytes()[:100])
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        original(tensors, path, metadata=metadata)

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(OSError, match=r"No space left.*--resume"):
        run(tmp_path, stage("a"), checkpoints={"every": 1, "keep": 2}, validation=None)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["00-a-00000001.safetensors", "00-a-00000002.safetensors"]


@pytest.mark.parametrize(
    ("stages", "changes", "says"),
    [
        ([stage("a", algorithm={**UNET, "net": {**UNET["net"], "dims": 3}})], {}, "3 dimension.*`dims: 2`"),
        ([stage("a", algorithm={**UNET, "net": {"class": "MLP", "shape": [4]}})], {}, "MLP for 1 dimension"),
        ([stage("a", algorithm={**UNET, "net": {**UNET["net"], "channels": 2}})], {}, "2 channel"),
        ([stage("a", algorithm={"class": "Frozen", "inner": UNET})], {}, "no weight to train"),
        ([stage("a")], {"data": FOUR}, "validation.*at least two subjects"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_before_it_begins(stages, changes, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        run(tmp_path, *stages, **changes)
    assert not (tmp_path / "model.safetensors").exists()


def test_two_runs_at_once_do_not_mix(tmp_path):
    class Second(Watcher):
        """Begins another run in the same folder while the first one is in its middle."""

        def on_step(self, record):
            if record.step == 2:
                with pytest.raises(ValueError, match="another run is at work"):
                    run(tmp_path, stage("a"), resume=True)
                self.notes.append("refused")

    watcher = Second()
    run(tmp_path, stage("a"), watchers=[watcher])
    assert watcher.notes == ["refused"]
    steps = [line["step"] for line in records(tmp_path) if line["kind"] == "step"]
    assert steps == sorted(set(steps))


def test_what_is_refused_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="validation"):
        run(tmp_path / "run", stage("a"), data=FOUR)
    assert not (tmp_path / "run").exists()


def test_watchers_are_told_in_order(tmp_path):
    watcher = Watcher()
    run(tmp_path, stage("a", steps=3), watchers=[watcher])
    assert watcher.told == [("stage", "a", 1, 1, 0), ("validation", "a", 3), ("end", "a", 1, 4)]
