"""docs/reference/hooks.md, from the hook specifications: their signatures and docstrings."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from docs.pages import markdown
from pytest_osmosis.plugin.hooks import specs

HEAD = """\
# Hooks

{said}

This page is made by `docs/generate.py`.
"""


def page() -> str:
    """The page as Markdown."""
    found = [value for name, value in vars(specs).items() if name.startswith("pytest_osmosis_")]
    head = HEAD.format(said=markdown_of(specs.__doc__ or ""))
    return markdown.page([head, *map(section, found)])


def section(hook: Callable[..., Any]) -> Iterator[str]:
    """One hook."""
    yield from (f"## `{hook.__name__}`", "")
    parameters = ", ".join(inspect.signature(hook).parameters)
    yield from (f"`{hook.__name__}({parameters})`", "", markdown_of(hook.__doc__ or ""))


def markdown_of(docstring: str) -> str:
    """A docstring with its indented examples as blocks of Python."""
    parts: list[str] = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if not paragraph.startswith("    "):
            parts.append(paragraph)
        elif parts and parts[-1].startswith("```"):
            gap = "\n\n" if paragraph.lstrip().startswith("def ") else "\n"  # as Python is formatted
            parts[-1] = f"{parts[-1].removesuffix('```')}{gap}{textwrap.dedent(paragraph)}\n```"
        else:
            parts.append(f"```python run\n{textwrap.dedent(paragraph)}\n```")
    return "\n\n".join(parts)
