"""What shows itself in a cell of a notebook: a registered pair, a transform, a map.

HTML without scripts. Names and numbers are escaped: a file name is never markup.
"""

import base64
import html
import io
from typing import TYPE_CHECKING

import torch

from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.folds import folds_central
from roundtrip.pairwise.registration import Registration
from roundtrip.reports.content import verdict_of_pair
from roundtrip.reports.display import nodes_over
from roundtrip.reports.pair import ReportedPair
from roundtrip.reports.plots import grid
from roundtrip.reports.volume_figures import volume_pair_figure
from roundtrip.space.transform import Transform

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIGNS = {"good": "✓", "look": "!", "bad": "✕"}

# Of the displacements of a transform, so many say how far it moves points.
_PROBES = 50_000


def as_html(pair: ReportedPair, *, width: float = 9.0, dpi: int = 100) -> str:
    """The verdict with its reasons, and slices through the middle."""
    verdict = verdict_of_pair(pair)
    findings = "".join(
        f"<li>{_SIGNS[finding['level']]} {html.escape(finding['text'])}</li>"
        for finding in verdict["findings"]
    )
    names = f"{html.escape(pair.moving_name)} on {html.escape(pair.fixed_name)}"
    figure = volume_pair_figure(pair.moving, pair.fixed, pair.transform, width=width)
    return (
        f"<div><p>{names}: <b>{html.escape(verdict['headline'])}</b></p>"
        f"{_picture(figure, f'Slices of {names}', dpi)}"
        f'<ul style="list-style: none; padding: 0">{findings}</ul></div>'
    )


def registration_as_html(result: Registration) -> str:
    """As the pair of `as_html`; what it measures is kept, and not measured again."""
    return as_html(ReportedPair.of(result))


@torch.no_grad()
def transform_as_html(transform: Transform) -> str:
    """How far it moves points, where its fixed image is known, and the grid there without its linear part."""
    text = f"<b>Transform</b> of {transform.dims} dimensions"
    if transform.fixed is None:
        return f"<div><p>{text}</p><pre>{html.escape(repr(transform))}</pre></div>"
    moved = transform.displacement(nodes_over(transform.fixed, _PROBES)).data.square().sum(dim=0).sqrt()
    text += f", from {_sizes(transform.fixed.shape)} voxels"
    text += "" if transform.moving is None else f" to {_sizes(transform.moving.shape)}"
    text += f": moves points by {moved.mean():.3g} mm on average, {moved.max():.3g} mm at most."
    return f"<div><p>{text}</p>{_grid_of(transform)}</div>"


@torch.no_grad()
def map_as_html(phi: DisplacementMap) -> str:
    """How far it moves points, how many voxels fold, and the grid; of a batch, that of the first."""
    B, N, *shape = phi.displacement.shape
    first = phi[:1].detach()
    voxels = first.displacement * torch.tensor([n - 1 for n in shape]).view(-1, *[1] * N).to(phi.displacement)
    moved = voxels.square().sum(dim=1).sqrt()
    folds = int(folds_central(first.on_grid_of(first.displacement[:, :1])).count)
    text = f"<b>DisplacementMap</b> on {_sizes(shape)} voxels"
    text += f", the first of {B}" if B > 1 else ""
    text += f": moves points by {moved.mean():.3g} voxels on average, {moved.max():.3g} at most; "
    text += "no voxel folds." if not folds else f"{folds:,} voxel{'s fold' if folds > 1 else ' folds'}."
    return f"<div><p>{text}</p>{_grid_of(first)}</div>"


def _grid_of(phi: Transform | DisplacementMap) -> str:
    dims = phi.dims if isinstance(phi, Transform) else phi.displacement.shape[1]
    return "" if dims < 2 else _picture(grid(phi, width=2.4 if dims == 2 else 5.0), "deformed grid", 90)


def _sizes(shape: "tuple[int, ...] | list[int] | torch.Size") -> str:
    return " x ".join(map(str, shape))


def _picture(figure: "Figure", alternative: str, dpi: int) -> str:
    """`alternative` is escaped already. In 256 colours, which is a third of the size."""
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    Image.open(drawn).convert("RGB").quantize(256).save(small, "PNG", optimize=True)
    data = base64.b64encode(small.getvalue()).decode("ascii")
    return f'<img alt="{alternative}" src="data:image/png;base64,{data}">'
