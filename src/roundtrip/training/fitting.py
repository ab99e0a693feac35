"""Whether a configuration fits its data, found out before hours are spent. Neighbour: `run.py`."""

import torch

from roundtrip.data.dataset import Dataset
from roundtrip.data.subset import AbstractSubset
from roundtrip.networks.mlp import MLP
from roundtrip.training.assembly import skeleton
from roundtrip.training.config import TrainingConfig


def require_fitting(config: TrainingConfig, dataset: Dataset) -> None:
    """One `ValueError` that says all in which a stage or the validation cannot work on these images."""
    wrong = [*_too_few(config, dataset), *_other_images(config, dataset.train)]
    if any(stage.label_weight for stage in config.stages) and not _has_labels(dataset.train):
        wrong.append("label_weight needs labels of every training image, but there are none; leave it out.")
    if wrong:
        raise ValueError(" ".join(wrong))


def _too_few(config: TrainingConfig, dataset: Dataset) -> list[str]:
    wrong = []
    if not dataset.train.pairing.count:
        wrong.append(
            f"no two of the {len(dataset.train.names)} training images may be paired; give it more subjects."
        )
    if config.validation is not None and not dataset.validation.pairing.count:
        wrong.append(
            "validation is asked for, but its part of the split has no pair; give it at least two subjects "
            "in `data.split`, or leave `validation` out."
        )
    return wrong


def _other_images(config: TrainingConfig, subset: AbstractSubset) -> list[str]:
    dims, channels, wrong = len(subset.grid), subset.channels, {}
    for number, stage in enumerate(config.stages):
        for module in skeleton(stage.blueprint, config.before(number)).modules():
            if isinstance(module, MLP):
                needs, instead = (len(module.shape), module.channels), "`shape` of the grid"
            else:
                needs = (getattr(module, "dims", dims), getattr(module, "channels", channels))
                instead = f"`dims: {dims}`"
            if needs != (dims, channels):
                wrong[stage.name] = (
                    f"stage {stage.name} holds a {type(module).__name__} for {needs[0]} dimension(s) and "
                    f"{needs[1]} channel(s), but the images have {dims} and {channels}: write {instead} "
                    f"and `channels: {channels}` into its description."
                )
    return list(wrong.values())


def _has_labels(subset: AbstractSubset) -> bool:
    if not subset.pairing.count:
        return True
    return subset.load([subset.pairing.pair(0)], torch.device("cpu")).moving_labels is not None
