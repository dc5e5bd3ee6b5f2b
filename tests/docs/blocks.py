"""The code blocks of README and docs. The info string of each block says how it is tested.

The first word after a block's language is the test, the others are its options:

    ```toml file=configs/eval/x.toml      write it into the page's workspace, and load it as a config
    ```toml into=configs/eval/x.toml      replace the file's tables of the same names, and load the file
    ```toml fragment                      load it with the tables that every config needs
    ```toml pyproject                     parse it
    ```toml registry                      load it as a registry of endpoints
    ```python file=rewards.py             write it into the page's workspace, and run it
    ```python run                         run it
    ```python signature                   parse it
    ```json file=data/x.jsonl             write it, and parse it as JSON or JSON lines; also yaml
    ```json parsed                        parse it as JSON or JSON lines
    ```console run exit=1                 run it in the page's workspace, with this exit status (default 0)
    ```console list                       collect the tests of its pytest commands, and run nothing
    ```console check                      check that its commands, options, extras and targets exist
    ```console foreign                    only check that no command is ours
    ```text output                        compare it with the output of the `console run` before; `...` is any lines
    ```text drawing                       check that its modules and rooms exist

Comments before the first block describe the page's workspace and environment:

    <!-- test: workspace=sums -->                     the files that `pytest-osmosis init sums` writes
    <!-- test: workspace=examples/multiply -->        a copy of that example; `repository`: of the whole repository
    <!-- test: server=http://localhost:8000/v1 models=Qwen/Qwen3-8B key=sk-... -->
                                                      a demo server at this address; if it is a variable's name instead,
                                                      the variable holds the address
    <!-- test: env NAME=value -->                     an environment variable
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
    "toml": frozenset({"file", "into", "fragment", "pyproject", "registry"}),
    "python": frozenset({"file", "run", "signature"}),
    "json": frozenset({"file", "parsed"}),
    "yaml": frozenset({"file"}),
    "console": frozenset({"run", "list", "check", "foreign"}),
    "text": frozenset({"output", "drawing"}),
}
"""The tests that blocks of each language can name."""

OPTIONS: Mapping[str, frozenset[str]] = {"run": frozenset({"exit"})}
"""The options of each test, apart from the path of `file` and `into`."""

FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=ticks)$", re.MULTILINE | re.DOTALL
)
NEED = re.compile(r"^<!-- test: (?P<need>.*?) -->$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its page, the first line of its text, its language, its test (`way`) with options, its text."""

    page: str
    line: int
    language: str
    way: str
    options: Mapping[str, str]
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def problem(self) -> str | None:
        """Return why the block cannot be tested, or None."""
        if self.language not in WAYS:
            return f'no test for "{self.language}"; valid: {", ".join(WAYS)}'
        if self.way not in WAYS[self.language]:
            return f"name a test: {self.language} and one of {', '.join(sorted(WAYS[self.language]))}"
        unknown = set(self.options) - OPTIONS.get(self.way, frozenset()) - {self.way}
        return f"unknown: {', '.join(sorted(unknown))}" if unknown else None


class Needs(NamedTuple):
    """The workspace, servers and variables that a page's comments request."""

    workspace: str | None = None
    servers: tuple[Mapping[str, str], ...] = ()
    env: Mapping[str, str] = {}


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return list(_blocks(page.read_text(encoding="utf-8"), page.relative_to(REPOSITORY).as_posix()))


def _blocks(text: str, page: str) -> Iterator[Block]:
    for fence in FENCE.finditer(text):
        language, *words = fence["info"].split() or [""]
        options = dict(word.partition("=")[::2] for word in words)
        indent = fence["indent"]
        lines = [line.removeprefix(indent) for line in fence["text"].splitlines(keepends=True)]
        line = text[: fence.start("text")].count("\n") + 1
        yield Block(page, line, language, next(iter(options), ""), options, "".join(lines))


def needs_of(page: Path) -> Needs:
    """Read a page's comments. Raise ValueError for an unknown one."""
    workspace, servers = None, []
    env: dict[str, str] = {}
    for comment in NEED.finditer(page.read_text(encoding="utf-8")):
        words = shlex.split(comment["need"])
        if words[0].startswith("workspace="):
            workspace = words[0].partition("=")[2]
        elif words[0].startswith("server="):
            servers.append(dict(word.partition("=")[::2] for word in words))
        elif words[0] == "env":
            env.update(word.partition("=")[::2] for word in words[1:])
        else:
            raise ValueError(f"{page.name}: <!-- test: {comment['need']} -->: unknown")
    return Needs(workspace, tuple(servers), env)
