"""The code blocks of README and docs, and how each says that it is tested.

The first word after a block's language is its way of being tested, the others are its options:

    ```toml file=configs/eval/x.toml      written into the page's workspace, and loads as a config
    ```toml into=configs/eval/x.toml      its tables take the place of the file's, which then loads
    ```toml fragment                      loads within a config that has what it leaves out
    ```toml pyproject                     parses; its [tool.pytest-osmosis] ... is no config of its own
    ```python file=rewards.py             written into the page's workspace, and runs
    ```python run                         runs
    ```json file=data/x.jsonl             written, and is JSON or JSON lines; also yaml
    ```json parsed                        is JSON or JSON lines
    ```console run exit=1                 runs in the page's workspace, with that exit status (default 0)
    ```console list                       its pytest commands collect something, and run nothing
    ```console check                      its commands, options, extras and targets exist
    ```console foreign                    other programs' commands; none of ours is among them
    ```text output                        what the `console run` before it printed; `...` is any number of lines

A page says what it needs before its first block, in comments that no reader sees:

    <!-- test: workspace=sums -->                     `python -m pytest_osmosis init sums` was typed
    <!-- test: workspace=examples/multiply -->        it begins as a copy of that example; `repository`: of the whole
    <!-- test: server=http://localhost:8000/v1 models=Qwen/Qwen3-8B key=sk-... -->
                                                      the demo server answers there; an environment variable instead of
                                                      the address is set to it
    <!-- test: env NAME=value -->                     a variable is set
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "examples").glob("*/*.md")),
]

WAYS: Mapping[str, frozenset[str]] = {
    "toml": frozenset({"file", "into", "fragment", "pyproject"}),
    "python": frozenset({"file", "run"}),
    "json": frozenset({"file", "parsed"}),
    "yaml": frozenset({"file"}),
    "console": frozenset({"run", "list", "check", "foreign"}),
    "text": frozenset({"output"}),
}
"""Language -> the ways in which its blocks can be tested."""

OPTIONS: Mapping[str, frozenset[str]] = {"run": frozenset({"exit"})}
"""Way -> the options it takes, beside the path of `file` and `into`."""

FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=ticks)$", re.MULTILINE | re.DOTALL
)
NEED = re.compile(r"^<!-- test: (?P<said>.*?) -->$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its page, the line its text starts on, its language, its way and options, its text."""

    page: str
    line: int
    language: str
    way: str
    options: Mapping[str, str]
    text: str

    @property
    def where(self) -> str:
        """The block for a message."""
        return f"{self.page}:{self.line}"

    @property
    def problem(self) -> str | None:
        """Why nobody can test it, None where its info string says how."""
        if self.language not in WAYS:
            return f'no way of testing "{self.language}"; known: {", ".join(WAYS)}'
        if self.way not in WAYS[self.language]:
            return f"say how it is tested: {self.language} and one of {', '.join(sorted(WAYS[self.language]))}"
        unknown = set(self.options) - OPTIONS.get(self.way, frozenset()) - {self.way}
        return f"unknown: {', '.join(sorted(unknown))}" if unknown else None


class Needs(NamedTuple):
    """What a page's comments ask for."""

    workspace: str | None = None
    servers: tuple[Mapping[str, str], ...] = ()
    env: Mapping[str, str] = {}


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    return list(_blocks(page.read_text(encoding="utf-8"), page.relative_to(REPOSITORY).as_posix()))


def _blocks(text: str, page: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        language, *words = found["info"].split() or [""]
        options = dict(word.partition("=")[::2] for word in words)
        indent = found["indent"]
        lines = [line.removeprefix(indent) for line in found["text"].splitlines(keepends=True)]
        line = text[: found.start("text")].count("\n") + 1
        yield Block(page, line, language, next(iter(options), ""), options, "".join(lines))


def needs_of(page: Path) -> Needs:
    """What the comments of a page ask for. ValueError for one that asks for nothing known."""
    workspace, servers = None, []
    env: dict[str, str] = {}
    for found in NEED.finditer(page.read_text(encoding="utf-8")):
        words = shlex.split(found["said"])
        if words[0].startswith("workspace="):
            workspace = words[0].partition("=")[2]
        elif words[0].startswith("server="):
            servers.append(dict(word.partition("=")[::2] for word in words))
        elif words[0] == "env":
            env.update(word.partition("=")[::2] for word in words[1:])
        else:
            raise ValueError(f"{page.name}: <!-- test: {found['said']} -->: unknown")
    return Needs(workspace, tuple(servers), env)
