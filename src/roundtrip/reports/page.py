"""A registered pair as one page of HTML that needs nothing else: no network, no second file, no WebGL.

The page is put together from `viewer/`, plain HTML, CSS and JavaScript. What comes from files (names,
headers, labels) reaches it as JSON only, and the page shows it as text; its security policy names the one
script and the one style sheet that may run. Neighbours: `content.py`, what it shows; `pair.py`, of what;
`overview.py`, the page of many pairs, put together likewise.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from roundtrip._files import write_whole
from roundtrip.reports.content import Content, content_of
from roundtrip.reports.pair import ReportedPair

# In the order in which they stand in the page: each knows those before it.
_SCRIPTS = (
    "common.js",
    "unpack.js",
    "geometry.js",
    "colours.js",
    "slices.js",
    "grid.js",
    "view.js",
    "controls.js",
    "legend.js",
    "facts.js",
    "main.js",
)


def write_report(path: Path, pair: ReportedPair) -> None:
    """Writes the page of a pair, whole or not at all; under 12 MB, of which a small pair needs a fraction."""
    page = page_of(content_of(pair))
    write_whole(path, lambda beside: beside.write_text(page, encoding="utf-8"))


def page_of(content: Content) -> str:
    """The text of the page."""
    return assembled("report.html", ("common.css", "report.css"), _SCRIPTS, content.facts, content.blocks)


def assembled(
    page: str, styles: Sequence[str], scripts: Sequence[str], facts: Any, blocks: Mapping[str, str]
) -> str:
    """A page that needs nothing else, of files in `viewer/`, what it shows as JSON, and blocks of base64."""
    style, script = "\n".join(map(_viewer, styles)), "\n".join(map(_viewer, scripts))
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
    parts = {
        "policy": _policy(script, style),
        "style": style,
        "facts": safe_json(facts),
        "blocks": "\n".join(
            f'<script type="text/plain" id="block-{name}">{text}</script>' for name, text in blocks.items()
        ),
        "script": script,
    }
    # One pass: what is put in is not searched for places to put more.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _viewer(page))


def safe_json(value: Any) -> str:
    """JSON that ends no script element and opens no comment, whatever its strings hold."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(script: str, style: str) -> str:
    """Nothing is fetched, and no script or style but ours runs."""
    return (
        f"default-src 'none'; script-src {_fingerprint(script)}; style-src {_fingerprint(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _fingerprint(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _viewer(name: str) -> str:
    return files("roundtrip.reports").joinpath("viewer", name).read_text(encoding="utf-8")
