"""A card declares only what can be done."""

import pytest

from roundtrip.algorithms.card import Card, Intensities, Mirror, Preparation


@pytest.mark.parametrize("code", ["RAS", "LPI", "SAR", "PL", "IP"])
def test_an_orientation_names_every_line_once(code):
    assert Preparation(orientation=code).orientation == code


@pytest.mark.parametrize("code", ["RLS", "RAX", "ras", "R", "RASP", "AAS", ""])
def test_what_is_not_an_orientation(code):
    with pytest.raises(ValueError, match=r'is not an orientation; a letter per axis.*"RAS"'):
        Preparation(orientation=code)


def test_all_that_is_said_has_one_dimension():
    with pytest.raises(ValueError, match=r"'orientation': 3, 'grid': 2\} axes were given"):
        Preparation(orientation="RAS", grid=(3, 4))
    with pytest.raises(ValueError, match="axes were given"):
        Preparation(spacing=(1,), grid=(3, 4))
    with pytest.raises(ValueError, match=r"mirror\.axis is 2"):
        Preparation(grid=(3, 4), mirror=Mirror(column="side", value="left", axis=2))


@pytest.mark.parametrize(("lower", "upper"), [(99, 1), (5, 5), (-1, 99), (1, 101)])
def test_percentiles_are_in_order_and_between_0_and_100(lower, upper):
    with pytest.raises(ValueError, match=r"must be smaller|not between 0 and 100"):
        Intensities(unit="percentiles", lower=lower, upper=upper)


def test_values_may_be_negative():
    assert Intensities(unit="values", lower=-1000, upper=400).lower == -1000


def test_a_misspelt_field_is_an_error():
    with pytest.raises(ValueError, match="orientatoin"):
        Preparation(orientatoin="RAS")


def test_a_card_comes_back_from_json():
    preparation = Preparation(
        orientation="RAS",
        mirror=Mirror(column="side", value="left", axis=0),
        mask="background",
        intensities=Intensities(unit="percentiles", lower=1, upper=99),
        spacing=(0.7, 0.7, 1.4),
        grid=(192, 192, 80),
    )
    card = Card(preparation=preparation, data="knees", numbers={}, licence="none", training={"seed": 3})
    assert Card.model_validate_json(card.model_dump_json()) == card
