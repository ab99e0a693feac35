"""The built-in experiments by name, as `roundtrip train` knows them: each returns its whole config."""

from collections.abc import Callable

from roundtrip.experiments.hippocampus import hippocampus
from roundtrip.experiments.mnist import mnist
from roundtrip.experiments.oai_knees import oai_knees, oai_knees_drawn
from roundtrip.experiments.triangles import triangles, triangles_tiny
from roundtrip.training.config import TrainingConfig

EXPERIMENTS: dict[str, Callable[[], TrainingConfig]] = {
    "triangles-tiny": triangles_tiny,
    "triangles": triangles,
    "mnist": mnist,
    "hippocampus": hippocampus,
    "oai-knees": oai_knees,
    "oai-knees-drawn": oai_knees_drawn,
}
