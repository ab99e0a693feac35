"""A saved model is the same model; a broken, foreign or hostile folder is an error that helps."""

import inspect
import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from roundtrip.algorithms.card import Card, Intensities, Mirror, Preparation
from roundtrip.algorithms.consistent import ConsistentAffine, ConsistentTwoStep, ConsistentVelocity
from roundtrip.algorithms.description import DESCRIBABLE, build, describe, outline
from roundtrip.algorithms.from_network import (
    AffineRegistration,
    DisplacementRegistration,
    VelocityRegistration,
)
from roundtrip.algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from roundtrip.algorithms.saved import CARD, WEIGHTS, load, read_card, save
from roundtrip.maps.map import on_grid_of
from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet

THE_CARD = Card(
    preparation=Preparation(
        orientation="LA",
        mirror=Mirror(column="side", value="left", axis=0),
        mask="background",
        intensities=Intensities(unit="percentiles", lower=1, upper=99),
        spacing=(0.7, 1.5),
        grid=(9, 8),
    ),
    data="Fünf Kreise",
    numbers={"dice": 0.69},
    licence="CC-BY-4.0",
    training={"seed": 0, "stages": [{"steps": 3}]},
)

STEPS = {"down_features": (4, 6), "up_features": (4, 5)}


def unet():
    return UNet(dims=2, **STEPS)


def affine():
    return AffineNetwork(dims=2, features=(4, 6), hidden_features=5)


def conv_only():
    return ConvOnly(dims=2, num_layers=2, growth=3)


ALGORITHMS = {
    "displacement": lambda: DisplacementRegistration(unet()),
    "velocity": lambda: VelocityRegistration(conv_only(), num_steps=3),
    "affine": lambda: AffineRegistration(affine()),
    "two step": lambda: TwoStep(
        Frozen(AtHalfResolution(DisplacementRegistration(EncoderDecoder(dims=2, **STEPS)))),
        DisplacementRegistration(MLP((9, 8), hidden_features=(7, 5))),
    ),
    "consistent": lambda: ConsistentTwoStep(ConsistentAffine(affine()), ConsistentVelocity(conv_only())),
}


@pytest.fixture(params=ALGORITHMS.values(), ids=ALGORITHMS.keys())
def algorithm(request):
    return trained(request.param())


@pytest.fixture
def folder(tmp_path):
    """A saved model."""
    save(trained(ALGORITHMS["displacement"]()), tmp_path / "model", card=THE_CARD)
    return tmp_path / "model"


def trained(algorithm, seed=0):
    """`algorithm` with no weight and no batch statistic as it was made."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in algorithm.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=generator))
    return algorithm


def pair():
    return torch.rand((2, 3, 1, 9, 8), generator=torch.Generator().manual_seed(5))


def change_card(folder, **changes):
    content = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(content | changes))


def test_a_loaded_model_is_the_saved_one_bit_for_bit(algorithm, tmp_path):
    save(algorithm, tmp_path / "model", card=THE_CARD)
    again = load(tmp_path / "model")

    before, after = algorithm.state_dict(), again.state_dict()
    assert list(before) == list(after)
    for key in before:
        assert before[key].dtype == after[key].dtype
        assert torch.equal(before[key], after[key])
    moving, fixed = pair()
    expected, found = (on_grid_of(a(moving, fixed), moving) for a in (algorithm.eval(), again))
    assert torch.equal(expected, found)
    assert describe(again) == describe(algorithm)


def test_a_loaded_model_is_in_eval_mode_and_can_be_trained(algorithm, tmp_path):
    save(algorithm.train(), tmp_path / "model", card=THE_CARD)
    again = load(tmp_path / "model")
    assert not any(module.training for module in again.modules())
    learning = [parameter.requires_grad for parameter in again.parameters()]
    assert learning == [parameter.requires_grad for parameter in algorithm.parameters()]
    moving, fixed = pair()
    on_grid_of(again(moving, fixed), moving).square().sum().backward()
    assert any(parameter.grad is not None for parameter in again.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_precision_is_kept(dtype, tmp_path):
    save(ALGORITHMS["displacement"]().to(dtype), tmp_path / "model", card=THE_CARD)
    assert {parameter.dtype for parameter in load(tmp_path / "model").parameters()} == {dtype}


def test_loading_draws_no_random_numbers(folder):
    before = torch.get_rng_state()
    load(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_any_memory_layout_and_shared_networks_can_be_saved(tmp_path):
    net = unet().to(memory_format=torch.channels_last)
    algorithm = trained(TwoStep(DisplacementRegistration(net), DisplacementRegistration(net)))
    save(algorithm, tmp_path / "model", card=THE_CARD)
    again = load(tmp_path / "model").state_dict()
    for key, tensor in algorithm.state_dict().items():
        assert torch.equal(again[key], tensor)


def test_the_card_says_everything(folder):
    content = json.loads((folder / CARD).read_text(encoding="utf-8"))
    assert content["architecture"] == {
        "class": "DisplacementRegistration",
        "net": {"class": "UNet", "dims": 2, "channels": 1, "down_features": [4, 6], "up_features": [4, 5]},
    }
    assert content["data"] == "Fünf Kreise" and content["format"] == 1
    assert content["preparation"]["spacing"] == [0.7, 1.5]
    assert read_card(folder) == THE_CARD
    assert sorted(os.listdir(folder)) == [CARD, WEIGHTS]


def test_an_outline_reads_as_one_would_type_it():
    assert outline(describe(ALGORITHMS["two step"]())) == (
        "TwoStep(Frozen(AtHalfResolution(DisplacementRegistration(EncoderDecoder("
        "dims=2, down_features=(4, 6), up_features=(4, 5))))), "
        "DisplacementRegistration(MLP((9, 8), hidden_features=(7, 5))))"
    )
    assert outline(describe(UNet(dims=3))) == "UNet(dims=3)"
    assert outline({"class": "UNet", "dims": 3}) == "UNet(dims=3)"


@pytest.mark.parametrize("kind", DESCRIBABLE.values(), ids=DESCRIBABLE.keys())
def test_every_describable_class_is_tried_here_and_keeps_its_arguments(kind):
    modules = [module for make in ALGORITHMS.values() for module in make().modules()]
    (one, *_) = [module for module in modules if type(module) is kind]
    for name in inspect.signature(kind).parameters:
        assert hasattr(one, name)
    assert describe(build(describe(one))) == describe(one)


# Whole or not at all.


def test_a_model_replaces_a_model(folder):
    other = trained(ALGORITHMS["displacement"](), seed=1)
    save(other, folder, card=THE_CARD.model_copy(update={"data": "other"}))
    assert read_card(folder).data == "other"
    assert torch.equal(load(folder).state_dict()["net.last.bias"], other.state_dict()["net.last.bias"])
    assert os.listdir(folder.parent) == [folder.name]


@pytest.mark.parametrize("step", ["save_file", "_put_in_place"])
def test_a_failure_leaves_what_was_there(folder, step, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(f"roundtrip.algorithms.saved.{step}", fail)
    with pytest.raises(OSError, match="no space left"):
        save(ALGORITHMS["affine"](), folder, card=THE_CARD)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert os.listdir(folder.parent) == [folder.name]


def test_a_failing_rename_puts_the_old_model_back(folder, monkeypatch):
    before = (folder / WEIGHTS).read_bytes()
    rename = type(folder).rename

    def fail_for_the_new_one(self, target):
        if self.name == "new":
            raise OSError("cannot rename")
        return rename(self, target)

    monkeypatch.setattr(type(folder), "rename", fail_for_the_new_one)
    with pytest.raises(OSError, match="cannot rename"):
        save(ALGORITHMS["affine"](), folder, card=THE_CARD)
    assert (folder / WEIGHTS).read_bytes() == before


def test_what_is_not_a_model_is_never_replaced(folder):
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="exists and is not a saved model"):
        save(ALGORITHMS["affine"](), folder, card=THE_CARD)
    with pytest.raises(ValueError, match="exists and is not a saved model"):
        save(ALGORITHMS["affine"](), folder / "thesis.tex", card=THE_CARD)
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_what_cannot_be_loaded_again_is_not_saved(tmp_path):
    class Mine(nn.Module):
        pass

    with pytest.raises(ValueError, match="Mine cannot be described, so not be saved"):
        save(DisplacementRegistration(Mine()), tmp_path / "model", card=THE_CARD)
    UNet_of_another = type("UNet", (nn.Module,), {})
    with pytest.raises(ValueError, match="UNet cannot be described"):
        save(DisplacementRegistration(UNet_of_another()), tmp_path / "model", card=THE_CARD)
    assert os.listdir(tmp_path) == []


# Broken, foreign and hostile folders.


def test_missing_files(folder, tmp_path):
    with pytest.raises(ValueError, match=r"nowhere is not a saved model: it has no card\.json"):
        load(tmp_path / "nowhere")
    (folder / WEIGHTS).unlink()
    with pytest.raises(ValueError, match=r"it has no model\.safetensors"):
        load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        "{}",
        '{"format": 1}',
        "\xff\xfe",
        "[" * 5000,
        '{"architecture": {}, "licence": "MIT"}',
    ],
)
def test_a_foreign_card(folder, text):
    (folder / CARD).write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"card\.json is not the card of a Roundtrip model"):
        load(folder)


def test_a_card_with_wrong_fields(folder):
    change_card(folder, temperature=37)
    with pytest.raises(ValueError, match="temperature: Extra inputs are not permitted"):
        load(folder)
    change_card(folder, temperature=37, preparation={"spacing": ["wide", 1]})
    with pytest.raises(ValueError, match=r"preparation\.spacing\.0: Input should be a valid number"):
        read_card(folder)


def test_a_card_of_a_later_format(folder):
    change_card(folder, format=2)
    with pytest.raises(ValueError, match=r"format 2; this version reads 1\. Update Roundtrip"):
        load(folder)


@pytest.mark.parametrize(
    "name",
    ["os.system", "builtins.eval", "torch.nn.Linear", "Linear", "__class__", "Card", 3, None, ["UNet"]],
)
def test_only_our_classes_are_ever_made(folder, name):
    change_card(folder, architecture={"class": name, "net": "echo hacked"})
    with pytest.raises(ValueError, match="is not one that a model may be made of: DisplacementRegistration,"):
        load(folder)


NET = {"class": "UNet", "dims": 2}


@pytest.mark.parametrize(
    "architecture, message",
    [
        ("UNet", "describes none of our classes"),
        (["UNet"], "describes none of our classes"),
        ({"class": "DisplacementRegistration", "net": 5}, "5 describes none of our classes"),
        (
            {"class": "DisplacementRegistration"},
            "described with nothing; its arguments are net, of which net",
        ),
        (
            {"class": "DisplacementRegistration", "net": NET, "depth": 2},
            "with depth, net; its arguments are net",
        ),
        ({"class": "TwoStep", "first": NET, "second": NET}, "needs a AbstractRegistration, not UNet"),
        ({"class": "DisplacementRegistration", "net": {"class": "UNet", "dims": 4}}, "dims=4: networks are"),
        ({"class": "DisplacementRegistration", "net": NET | {"down_features": "many"}}, "UNet"),
        (NET, "is the network UNet alone"),
    ],
)
def test_an_architecture_that_cannot_be_built(folder, architecture, message):
    change_card(folder, architecture=architecture)
    with pytest.raises(ValueError, match=message) as raised:
        load(folder)
    assert CARD in str(raised.value)


def test_an_architecture_nested_beyond_reason(folder):
    nested = '{"class": "AtHalfResolution", "inner": ' * 400 + "{}" + "}" * 400
    change_card(folder, architecture="nested")
    (folder / CARD).write_text((folder / CARD).read_text().replace('"nested"', nested))
    with pytest.raises(ValueError, match=r"card\.json"):
        load(folder)


def test_weights_of_another_model(folder):
    change_card(folder, architecture={"class": "DisplacementRegistration", "net": NET})
    with pytest.raises(ValueError, match=r"does not fit the architecture in card\.json(.|\n)*size mismatch"):
        load(folder)


def test_a_missing_and_a_surplus_weight(folder):
    weights = load_file(folder / WEIGHTS)
    weights["net.extra"] = weights.pop("net.last.bias")
    save_file(weights, folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"does not fit(.|\n)*Missing(.|\n)*last\.bias(.|\n)*extra"):
        load(folder)


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"PK" * 99]
)
def test_damaged_weights(folder, damage):
    (folder / WEIGHTS).write_bytes(damage((folder / WEIGHTS).read_bytes()))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load(folder)


@pytest.mark.parametrize(
    "wrong", [{"numbers": {"dice": float("nan")}}, {"preparation": 3}, {"licence": None}]
)
def test_a_card_says_what_can_be_true(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Card(**(dict(THE_CARD) | wrong))
