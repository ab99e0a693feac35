"""`rt.plot`: figures for papers, one column wide. Each function returns a matplotlib figure.

`grid` draws a deformed grid, `jacobian` growth of volume and folds, `pair` a registered pair, `curves` a
training. Nothing global is touched: `figure.savefig("grid.pdf")` is all there is to do.
"""

from roundtrip.reports.curves import curves
from roundtrip.reports.plots import grid, jacobian, pair

__all__ = ["curves", "grid", "jacobian", "pair"]
