"""The documentation site. `make docs` builds it into build/docs: offline, and with warnings as errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_site"))

import roundtrip

project = "Roundtrip"
release = version = roundtrip.__version__
copyright = "the authors of Roundtrip"

# The last four are in `_site/`, each with a docstring that says what it adds.
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "reference_entries",
    "written_signatures",
    "command_help",
    "mathml",
]
exclude_patterns = ["_site", "results/*.md"]

myst_enable_extensions = ["deflist", "dollarmath", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
add_module_names = False
python_maximum_signature_line_length = 88
maximum_signature_line_length = 88
toc_object_entries = False

pygments_style, pygments_dark_style = "friendly", "github-dark"
highlight_language = "text"
smartquotes = False

html_theme = "furo"
html_title = f"Roundtrip {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = html_logo = "_static/roundtrip.svg"
# The summaries of search results are fetched, which browsers forbid to pages that lie in files.
html_show_sourcelink = html_copy_source = html_show_search_summary = False
html_math_renderer = "mathml"
