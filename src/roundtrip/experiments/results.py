"""All results of the paper that can be made again, by name."""

from roundtrip.experiments.architectures import Architectures
from roundtrip.experiments.curves import Curves
from roundtrip.experiments.flips import Flips
from roundtrip.experiments.grids import Grids
from roundtrip.experiments.h1 import H1
from roundtrip.experiments.matching_1d import Matching
from roundtrip.experiments.noise import Noise
from roundtrip.experiments.off_grid import OffGrid
from roundtrip.experiments.result import AbstractResult

RESULTS: tuple[AbstractResult, ...] = (
    Matching(),
    Flips(),
    OffGrid(),
    Noise(),
    Architectures("mnist"),
    Architectures("shapes"),
    Grids(),
    H1(),
    Curves(),
)


def result_named(name: str) -> AbstractResult:
    """One of them."""
    for result in RESULTS:
        if result.name == name:
            return result
    raise ValueError(f"{name} is no result of the paper; these are {', '.join(r.name for r in RESULTS)}.")
