"""A checkpoint is whole or not there, and an optimizer that was restored goes on as if it had not stopped."""

import pytest
import torch

from roundtrip.training.checkpoint import (
    Checkpoint,
    Checkpoints,
    Place,
    UnreadableCheckpoint,
    optimizer_tensors,
    read,
    restore_optimizer,
    write,
)
from roundtrip.training.control import Lambda


def checkpoint(stage: int = 0, step: int = 1, value: float = 1.0) -> Checkpoint:
    return Checkpoint(
        place=Place(stage, step),
        stage_name=f"s{stage}",
        weights={"net.weight": torch.full((2, 3), value)},
        optimizer={"0.exp_avg": torch.ones(2, 3), "0.step": torch.tensor(4.0)},
        lambda_=Lambda(2.5, {"running": -0.5}),
        config={"seed": 0, "stages": [{"name": "s0"}]},
        best=0.7,
        scaler={"scale": 65536.0},
    )


def test_it_is_read_as_it_was_written(tmp_path):
    written = checkpoint()
    write(tmp_path / "c", written)
    found = read(tmp_path / "c")
    for name in ("place", "stage_name", "lambda_", "config", "best", "scaler"):
        assert getattr(found, name) == getattr(written, name)
    assert found.weights["net.weight"].equal(written.weights["net.weight"])
    assert found.optimizer.keys() == written.optimizer.keys()


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, -1])
def test_any_part_of_one_is_recognised_as_a_part(keep, tmp_path):
    write(tmp_path / "c", checkpoint())
    whole = (tmp_path / "c").read_bytes()
    (tmp_path / "c").write_bytes(whole[:keep])
    with pytest.raises(UnreadableCheckpoint, match="c is no whole checkpoint"):
        read(tmp_path / "c")


def test_newest_first_by_stage_and_step(tmp_path):
    store = Checkpoints(tmp_path, keep=3)
    for stage, step in ((0, 5), (0, 20), (0, 100)):
        store.write(checkpoint(stage, step))
    assert [read(path).place.step for path in store.newest_first()] == [100, 20, 5]
    store.write(checkpoint(1, 2))
    assert [read(path).place for path in store.newest_first()] == [Place(1, 2)]


def test_the_result_of_a_stage_is_its_end_or_its_best(tmp_path):
    store = Checkpoints(tmp_path, keep=1)
    store.write_best(checkpoint(0, 1, value=1.0))
    store.write(checkpoint(0, 2, value=2.0), is_end=True)
    for best, value in ((True, 1.0), (False, 2.0)):
        assert store.result(0, "s0", best=best)["net.weight"][0, 0] == value


def test_a_restored_optimizer_goes_on_bit_for_bit():
    def trained(steps: int, again_after: int | None = None) -> torch.Tensor:
        torch.manual_seed(0)
        net = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01, fused=True)
        for step in range(steps):
            if step == again_after:
                state = {
                    name: value.clone().contiguous() for name, value in optimizer_tensors(optimizer).items()
                }
                optimizer = torch.optim.Adam(net.parameters(), lr=0.01, fused=True)
                restore_optimizer(optimizer, state)
            x = torch.rand((1, 3, 8, 8), generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        return net.weight.detach()

    assert trained(6).equal(trained(6, again_after=3))
