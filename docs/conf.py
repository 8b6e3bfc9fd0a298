"""Sphinx settings; `make docs` builds without network and fails on any warning."""

import json
import re
from pathlib import Path

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

import indelible

project = "Indelible"
author = "The Indelible contributors"
copyright = "2026, The Indelible contributors"
version = release = indelible.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".ipynb": "notebook"}
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Indelible {version}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Attributes stand in the class's docstring; as :ivar: they are not documented twice.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True


class NotebookParser(MystParser):
    """Shows a stored notebook as a page: its text, its code and what it printed. Nothing is run here."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        name = Path(document["source"]).name
        title, *cells = json.loads(inputstring)["cells"]
        parts = ["".join(title["source"]), f"{{download}}`Download this notebook <{name}>`"]
        for cell in cells:
            source = "".join(cell["source"])
            parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
            text = "".join("".join(output["text"]) for output in cell.get("outputs", ()))
            if text:
                parts.append(f"```{{code-block}} text\n:class: printed\n\n{text}```")
        super().parse("\n\n".join(parts), document)


def keep_numbers_whole(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Let no line of a table or sentence end inside a number with its sign, its deviation or its p-value."""
    if source[0].startswith("{"):  # a notebook
        return
    parts = source[0].split("```")  # text, code, text, ...
    for index in range(0, len(parts), 2):
        spaces = r"(?<=\d) (?=[✓✗±%])|(?<=±) (?=\d)|(?<=p ≤) (?=\d)|(?<=p) (?=≤ \d)"
        parts[index] = re.sub(r"(?<=p\u00a0≤\u00a0\de)-", "\u2011", re.sub(spaces, "\u00a0", parts[index]))
    source[0] = "```".join(parts)


def setup(app: Sphinx) -> None:
    app.connect("source-read", keep_numbers_whole)
    app.add_source_parser(NotebookParser)
