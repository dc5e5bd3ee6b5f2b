"""Generate docs/reference/hooks.md from the signatures and docstrings of the hook specifications."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from docs.pages import markdown
from pytest_osmosis.plugin import hooks as specs

HEAD = """\
# Hooks

{introduction}

[The Python API](api.md#hooks) describes `results`, `record` and `Verdict`.
"""


def page() -> str:
    hooks = [value for name, value in vars(specs).items() if name.startswith("pytest_osmosis_")]
    head = HEAD.format(introduction=markdown_of(specs.__doc__ or ""))
    return markdown.page([head, *map(section, hooks)])


def section(hook: Callable[..., Any]) -> Iterator[str]:
    """Yield the lines about one hook."""
    yield from (f"## `{hook.__name__}`", "")
    parameters = ", ".join(inspect.signature(hook).parameters)
    yield from (f"`{hook.__name__}({parameters})`", "", markdown_of(hook.__doc__ or ""))


def markdown_of(docstring: str) -> str:
    """Return a docstring as Markdown, with its indented examples as Python blocks."""
    parts: list[str] = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if not paragraph.startswith("    "):
            parts.append(paragraph)
        elif parts and parts[-1].startswith("```"):
            gap = "\n\n" if paragraph.lstrip().startswith("def ") else "\n"  # the blank lines that a formatter wants
            parts[-1] = f"{parts[-1].removesuffix('```')}{gap}{textwrap.dedent(paragraph)}\n```"
        else:
            parts.append(f"```python run\n{textwrap.dedent(paragraph)}\n```")
    return "\n\n".join(parts)
