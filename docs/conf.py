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
html_copy_source = True  # llms.txt links the sources
html_show_sourcelink = False

SECTION = re.compile(r"^## (?P<title>[^\n]+)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SOURCES = re.compile(r"\]\((?P<page>[\w/-]+\.md)\)")
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


def llms(index: str) -> str:
    """Return llms.txt, the pages for agents that code: index.md in English, with links to the sources of pages."""
    english, _, _ = index.partition("## 中文")
    summarized = english.replace("\nTurns ", "\n> Turns ", 1)
    return SOURCES.sub(r"](_sources/\g<page>.txt)", summarized).rstrip() + "\n"


def write_llms(app: Sphinx, exception: Exception | None) -> None:
    """Write llms.txt beside the pages of HTML."""
    if exception is None and app.builder.format == "html":
        index = (app.srcdir / "index.md").read_text(encoding="utf-8")
        (app.outdir / "llms.txt").write_text(llms(index), encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write_llms)
    app.connect("source-read", add_toctrees)
