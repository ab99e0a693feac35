"""`roundtrip convert` makes a model of a file of weights, and says what it recognised."""

import json

import pytest
import torch

from roundtrip.algorithms.description import describe
from roundtrip.algorithms.from_network import DisplacementRegistration
from roundtrip.algorithms.saved import load, read_card
from roundtrip.cli.convert import convert
from roundtrip.networks.conv_only import ConvOnly


@pytest.fixture
def weights(tmp_path):
    """The package's network of plain convolutions inside its objective, as `torch.save` writes it."""
    inputs = [2, 12, 22, 32, 42, 52]
    state = {}
    for i, features in enumerate(inputs, start=1):
        state[f"regis_net.net.conv{i}.weight"] = torch.full((2 if i == 6 else 10, features, 5, 5), float(i))
        state[f"regis_net.net.conv{i}.bias"] = torch.full((2 if i == 6 else 10,), -float(i))
    state["regis_net.identity_map"] = torch.zeros(1, 2, 28, 30)
    torch.save(state, tmp_path / "weights.trch")
    return tmp_path / "weights.trch"


def test_the_model_holds_the_weights_and_what_was_said(weights, tmp_path, capsys):
    convert(weights, tmp_path / "model", spacing=(1.0, 0.5), data="triangles & circles", licence="Apache-2.0")
    algorithm = load(tmp_path / "model")
    assert describe(algorithm) == describe(DisplacementRegistration(ConvOnly(dims=2)))
    assert algorithm.net.layers[4].weight.unique().tolist() == [5]
    assert algorithm.net.last.bias.tolist() == [-6, -6]
    card = read_card(tmp_path / "model")
    assert (card.preparation.grid, card.preparation.spacing) == ((28, 30), (1.0, 0.5))
    assert (card.data, card.licence) == ("triangles & circles", "Apache-2.0")
    printed = capsys.readouterr().out
    assert "recognised  DisplacementRegistration(ConvOnly(dims=2))" in printed
    assert str(tmp_path / "model") in printed


def test_a_grid_that_is_given_is_the_one_that_is_written(weights, tmp_path):
    convert(weights, tmp_path / "model", grid=(64, 64), quiet=True)
    assert read_card(tmp_path / "model").preparation.grid == (64, 64)


def test_json_stands_alone_and_quiet_says_nothing(weights, tmp_path, capsys):
    convert(weights, tmp_path / "model", json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["architecture"]["net"]["class"] == "ConvOnly"
    assert printed["parameters"] == sum(p.numel() for p in ConvOnly(dims=2).parameters())
    convert(weights, tmp_path / "model", quiet=True)
    assert capsys.readouterr().out == ""


def test_nothing_is_written_when_nothing_is_recognised(tmp_path):
    torch.save({"encoder.weight": torch.ones(3)}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="no algorithm was found for these weights: it holds encoder"):
        convert(tmp_path / "weights.pt", tmp_path / "model")
    assert not (tmp_path / "model").exists()
