"""A registered pair in a cell of a notebook: the verdict, and a picture. Neighbour: `page.py`, all of it."""

import base64
import html
import io

from roundtrip.reports.content import verdict_of_pair
from roundtrip.reports.pair import ReportedPair
from roundtrip.reports.volume_figures import volume_pair_figure

_SIGNS = {"good": "✓", "look": "!", "bad": "✕"}


def as_html(pair: ReportedPair, *, width: float = 9.0, dpi: int = 100) -> str:
    """A piece of HTML without scripts. Names and numbers are escaped: a file name is never markup."""
    verdict = verdict_of_pair(pair)
    findings = "".join(
        f"<li>{_SIGNS[finding['level']]} {html.escape(finding['text'])}</li>"
        for finding in verdict["findings"]
    )
    names = f"{html.escape(pair.moving_name)} on {html.escape(pair.fixed_name)}"
    return (
        f"<div><p>{names}: <b>{html.escape(verdict['headline'])}</b></p>"
        f'<img alt="Slices of {names}" src="data:image/png;base64,{_picture(pair, width, dpi)}">'
        f'<ul style="list-style: none; padding: 0">{findings}</ul></div>'
    )


def _picture(pair: ReportedPair, width: float, dpi: int) -> str:
    file = io.BytesIO()
    figure = volume_pair_figure(pair.moving, pair.fixed, pair.transform, width=width)
    figure.savefig(file, format="png", dpi=dpi)
    return base64.b64encode(file.getvalue()).decode("ascii")
