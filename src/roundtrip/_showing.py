"""How results show themselves in a notebook: by the room of reports, which lies above those that compute.

It is named as text and imported when something is shown, as the public names are in `__init__.pyi`: no room
that computes knows it.
"""

import importlib
from typing import Any


def shown(thing: Any, by: str) -> str:
    """HTML of a thing, by a function of `reports/notebook.py`."""
    drawing = importlib.import_module("roundtrip.reports.notebook")
    html: str = getattr(drawing, by)(thing)
    return html
