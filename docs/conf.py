"""Sphinx settings; `make docs` builds without network and fails on any warning."""

import indelible

project = "Indelible"
author = "The Indelible contributors"
copyright = "2026, The Indelible contributors"
version = release = indelible.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Indelible {version}"
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Attributes stand in the class's docstring; as :ivar: they are not documented twice.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
