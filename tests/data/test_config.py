"""The declarations of data: what they accept, and what they say about the rest."""

import pytest
from pydantic import ValidationError

from roundtrip.data.config import Augmentation, ByColumn, DataConfig, Fractions
from roundtrip.data.sources import FolderSource, ManifestSource

SPLIT = {"kind": "fractions", "train": 0.7, "validation": 0.1, "test": 0.2}


def test_a_configuration_is_read_by_its_kinds():
    config = DataConfig.model_validate(
        {
            "source": {"kind": "manifest", "path": "scans.csv"},
            "split": SPLIT,
            "pairs": {"kind": "within_subject"},
            "augmentation": {"flip_axes": [0], "rotation_degrees": 5},
        }
    )
    assert isinstance(config.source, ManifestSource) and isinstance(config.split, Fractions)
    assert DataConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": {"kind": "manifest", "path": "a.csv", "paht": 1}}, "paht"),
        ({"source": {"kind": "folders", "path": "a"}}, "'folder', 'manifest', 'shapes', 'digits'"),
        ({"augmentation": {"flipaxes": [0]}}, "flipaxes"),
        ({"split": {**SPLIT, "test": 0.4}}, "add up to 1.2"),
    ],
)
def test_what_is_misspelt_or_impossible_is_refused(change, says):
    with pytest.raises(ValidationError, match=says):
        DataConfig.model_validate(
            {"source": {"kind": "manifest", "path": "scans.csv"}, "split": SPLIT, **change}
        )


@pytest.mark.parametrize(
    ("pattern", "says"),
    [("sub-(", "not a regular expression"), ("sub-[0-9]+", "which part is the subject"),
     ("(?P<side>left|right)", "which part is the subject")],
)  # fmt: skip
def test_a_pattern_that_finds_no_subject_is_refused(pattern, says):
    with pytest.raises(ValidationError, match=says):
        FolderSource(path="scans", subject=pattern)


def test_a_value_of_a_column_cannot_mean_two_parts():
    with pytest.raises(ValidationError, match="b cannot mean two parts"):
        ByColumn(train=("a", "b"), test=("b",))


def test_nothing_is_augmented_unless_asked_for():
    assert set(Augmentation().model_dump().values()) == {0.0, ()}
