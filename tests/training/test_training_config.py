"""What a configuration may say: it survives a file, and all that is wrong is said at once, by line."""

import pytest
import yaml

from roundtrip._problems import ManyProblems
from roundtrip.experiments.named import EXPERIMENTS
from roundtrip.training.config import TrainingConfig
from roundtrip.training.config_file import as_yaml, checked, differences, read_plain, with_overrides
from training_samples import UNET, plain_config, stage

BOUNDED = {"lambda": {"kind": "augmented_lagrangian", "penalty": 1}}


def refuse(plain) -> str:
    with pytest.raises(ValueError) as caught:
        checked(plain, source="here.yaml")
    return str(caught.value)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_built_in_experiment_survives_a_file(name, tmp_path):
    asked = EXPERIMENTS[name]()
    path = tmp_path / "config.yaml"
    path.write_text(as_yaml(asked.as_plain()))
    plain, lines = read_plain(path)
    assert checked(plain, source=str(path), lines=lines) == asked
    assert differences(plain, asked.as_plain()) == []


def test_a_number_is_a_fixed_lambda_and_a_constant_rate():
    one = checked(plain_config(stage("only", **{"lambda": 7, "learning_rate": "5e-5"})), source="").stages[0]
    assert (one.lambda_.kind, one.lambda_.first().value) == ("fixed", 7)
    assert one.learning_rate.at(1, steps=9) == one.learning_rate.at(9, steps=9) == 5e-5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stagez": []}, "`stagez` is not known; did you mean `stages`?"),
        ({"data": plain_config()["data"] | {"slpit": 1}}, "`data.slpit` is not known; did you mean `split`?"),
        ({"stages": [stage("a", learning_rat=1)]}, "did you mean `learning_rate`?"),
        ({"stages": [stage("a", similarity={"name": "lncc", "sigmma": 1})]}, "did you mean `sigma`?"),
        ({"stages": [stage("a", **{"lambda": {"kind": "growth", "incremnt": 1}})]}, "`increment`?"),
        ({"stages": []}, "`stages`"),
        ({"stages": [stage("a"), stage("a")]}, "two stages are called a"),
        ({"stages": [stage("a", batch=4, accumulation=3)]}, "`accumulation` has to divide `batch`"),
        ({"stages": [stage("a", algorithm={"class": "Unet"})]}, "'Unet' is not one"),
        ({"stages": [stage("a", algorithm=UNET["net"])]}, "UNet is a network"),
        ({"stages": [stage("a", algorithm={"stage": "b"})]}, "{stage: b} is no earlier stage"),
        ({"stages": [stage("a"), stage("b", resolution=2, algorithm={"stage": "a"})]}, "coarse to fine"),
        ({"stages": [stage("a", algorithm={"stage": "a", "frosen": True})]}, "stage a"),
        ({"stages": [stage("a", regularity="gradicon", **BOUNDED)]}, "bounds inverse consistency"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(change, says):
    assert says in refuse(plain_config() | change)


def test_everything_wrong_is_named_at_once_with_its_line(tmp_path):
    path = tmp_path / "wrong.yaml"
    text = yaml.safe_dump(plain_config(), sort_keys=False)
    text = text.replace("  batch: 4\n", "  batch: 0\n", 1).replace(
        "validation:\n  every", "validation:\n  evry"
    )
    path.write_text(text)
    plain, lines = read_plain(path)
    with pytest.raises(ValueError) as caught:
        checked(plain, source="wrong.yaml", lines=lines)
    numbered = {line.strip(): number for number, line in enumerate(text.splitlines(), start=1)}
    said = str(caught.value)
    assert f"Line {numbered['batch: 0']}: `stages.0.batch`" in said
    assert f"Line {numbered['evry: 3']}: `validation.evry` is not known; did you mean `every`?" in said


def test_all_that_is_wrong_has_a_line_of_its_own_and_nothing_else():
    plain = plain_config()
    plain["stages"][0]["batch"], plain["extra"] = 0, 1
    with pytest.raises(ManyProblems) as caught:
        checked(plain, source="wrong.yaml")
    said = str(caught.value).splitlines()
    assert len(said) == 3 and "2 things" in said[0] and "`extra`" in said[2]
    with pytest.raises(ValueError, match="at least 1 item"):
        checked({**plain_config(), "stages": []}, source="wrong.yaml")


def test_a_key_that_stands_twice_is_not_chosen_by_chance(tmp_path):
    (tmp_path / "c.yaml").write_text("stages: []\ndata:\n  source: a\n  source: b\n")
    with pytest.raises(ValueError, match=r"Line 4: `data\.source` stands in line 3 already"):
        read_plain(tmp_path / "c.yaml")


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "just words", "a: &x\n  b: *x"])
def test_what_is_no_configuration_is_said_so(text, tmp_path):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"c\.yaml"):
        read_plain(tmp_path / "c.yaml")


def test_overrides_are_typed_and_reach_everywhere():
    plain = with_overrides(
        plain_config(),
        ["stages.1.batch=8", "checkpoints.every=9", "stages.0.lambda={kind: fixed, start: 2}", "about=a b"],
    )
    asked = TrainingConfig.model_validate(plain)
    assert (asked.stages[1].batch, asked.checkpoints.every, asked.about) == (8, 9, "a b")
    assert asked.stages[0].lambda_.kind == "fixed"
    # Fields that were not there, and the original untouched.
    without = {key: value for key, value in plain_config().items() if key != "validation"}
    assert with_overrides(without, ["validation.every=5"])["validation"] == {"every": 5}
    assert "validation" not in without


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("stages", "no `=`"),
        ("stages.7.batch=1", "numbered from 0"),
        ("about.x=1", "nothing inside"),
        ("about=[", "no YAML"),
    ],
)
def test_an_override_that_leads_nowhere_is_refused(override, says):
    with pytest.raises(ValueError, match=says):
        with_overrides(plain_config(about="text"), [override])


def test_anchors_are_not_changed_together():
    shared = stage("a")
    plain = with_overrides(plain_config(shared, shared), ["stages.1.name=b"])
    assert [one["name"] for one in plain["stages"]] == ["a", "b"]


def test_differences_are_named_as_one_types_them():
    other = plain_config(stage("low", steps=7), stage("high"))
    assert "stages.0.steps" in differences(plain_config(stage("low"), stage("high")), other)
    assert differences(other, other) == []
