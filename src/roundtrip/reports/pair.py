"""`ReportedPair`: all that a report of one pair is made of. Neighbour: `page.py`, which writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roundtrip.pairwise.registration import Registration
from roundtrip.space.resample import require_same_dims
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportedPair:
    """Two images, the transform that was found between them, and what was measured of it.

    `transform` takes points of the fixed world to points of the moving world. `metrics` is the object that
    metrics.json holds; parts it lacks are not shown. What registration has already computed on the fixed grid
    (`warped`, `warped_labels`, `jacobian`, `roundtrip_error` in mm) is taken as it is, the rest is computed.
    """

    fixed: Volume
    moving: Volume
    transform: Transform
    metrics: Mapping[str, Any] = field(default_factory=dict)
    warped: Volume | None = None
    fixed_labels: Volume | None = None
    moving_labels: Volume | None = None
    warped_labels: Volume | None = None
    jacobian: Volume | None = None
    roundtrip_error: Volume | None = None
    fixed_name: str = "fixed"
    moving_name: str = "moving"
    command: str = ""

    @staticmethod
    def of(result: Registration, **names: str) -> "ReportedPair":
        """What `register` gives, nothing computed again; `names` are those of the images, and the command."""
        outcome = result.outcome
        return ReportedPair(
            fixed=result.fixed,
            moving=result.moving,
            transform=result.transform,
            metrics=result.metrics,
            warped=outcome.warped,
            fixed_labels=result.fixed_labels,
            moving_labels=result.moving_labels,
            warped_labels=outcome.warped_labels,
            jacobian=outcome.jacobian,
            roundtrip_error=outcome.roundtrip_error,
            **names,
        )

    def __post_init__(self) -> None:
        require_same_dims(self.fixed, self.moving)
        if self.fixed.dims < 2:
            raise ValueError(
                "a report shows images of two or three axes; these have one. Write their numbers with "
                "`write_json(path, metrics)`."
            )
        on_fixed = ("warped", "fixed_labels", "warped_labels", "jacobian", "roundtrip_error")
        for name in on_fixed:
            self._require_grid(name, self.fixed)
        self._require_grid("moving_labels", self.moving)
        for name in ("fixed_labels", "moving_labels", "warped_labels"):
            labels = getattr(self, name)
            if labels is not None and not labels.is_labels:
                raise ValueError(
                    f"`{name}` holds values of {labels.data.dtype}; labels are whole numbers. Read them "
                    "with `rt.read(path, labels=True)`."
                )

    def _repr_html_(self) -> str:
        """In a notebook: the verdict, and slices through the middle."""
        from roundtrip.reports.notebook import as_html

        return as_html(self)

    def _require_grid(self, name: str, image: Volume) -> None:
        volume = getattr(self, name)
        if volume is not None and not volume.grid.same_as(image.grid):
            which = "fixed" if image is self.fixed else "moving"
            raise ValueError(
                f"`{name}` is on {volume.grid!r}, but the {which} image on {image.grid!r}. Bring it there "
                f"first: `resampled({name}, like={which})`."
            )
