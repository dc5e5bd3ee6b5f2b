"""Sphinx's settings: Markdown by MyST, the furo theme. `make docs` builds into dist/docs; a warning is an error."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

import pytest_osmosis

project = "pytest-osmosis"
author = "the authors of pytest-osmosis"
copyright = author
version = release = pytest_osmosis.__version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["pages"]
myst_heading_anchors = 3
nitpicky = True
smartquotes = False  # "primary" in a text is a value, quotes included

html_theme = "furo"
html_title = f"pytest-osmosis {version}"
html_copy_source = False
html_show_sourcelink = False

SECTION = re.compile(r"^## (?P<title>[^\n]+)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"^- \[[^\]]+\]\((?P<page>[\w/-]+)\.md\)", re.MULTILINE)


def toctrees(index: str) -> str:
    """Return Sphinx's tables of contents, made from the lists of links in index.md, which GitHub shows too."""
    sections = {section["title"]: LINK.findall(section["text"]) for section in SECTION.finditer(index)}
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{chr(10).join(pages)}\n```\n"
        for title, pages in sections.items()
        if pages
    )


def add_toctrees(_app: Sphinx, name: str, source: list[str]) -> None:
    """Append the tables of contents when Sphinx reads index.md."""
    if name == "index":
        source[0] += toctrees(source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_toctrees)
