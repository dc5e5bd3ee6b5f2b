"""The blocks of README.md and of docs/: configs load, Python compiles, JSON parses, commands exist."""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.config import load_eval_config

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "examples").glob("*/*.md")),
]
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


class Block(NamedTuple):
    """A fenced block: its page, the line that its text starts on, its language, its text."""

    page: str
    line: int
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Every block of a page that is marked by its language."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(REPOSITORY).as_posix()
    return [
        Block(name, text[: found.start("text")].count("\n") + 1, found["language"], found["text"])
        for found in BLOCK.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks(language: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every block in a language."""
    chosen = [block for block in BLOCKS if block.language == language]
    mark: Callable[[Callable[..., None]], Callable[..., None]] = pytest.mark.parametrize(
        "block", [pytest.param(block, id=f"{block.page}-{block.line}") for block in chosen]
    )
    return mark


def test_every_block_is_in_a_language_that_is_checked_here() -> None:
    unchecked = {block.language for block in BLOCKS} - {"toml", "python", "json", "console", "text"}

    assert unchecked == set()


def test_the_readme_has_blocks_to_check() -> None:
    assert {"toml", "python", "console"} <= {block.language for block in BLOCKS if block.page == "README.md"}


# -- configs ----------------------------------------------------------------------------------------------

LEAST = {
    "experiment": 'model_path = "demo/arithmetic"\ndataset = "rows"',
    "scoring": 'eval_fns = ["rewards:score"]',
    "secrets": "required = []",
}
"""What a block must say to be a whole config; a block that shows one table gets the others from here."""


def whole_config(text: str) -> str:
    """The block, with the tables that every config needs where it leaves them out."""
    given = tomllib.loads(text)
    missing = [f"[{table}]\n{keys}" for table, keys in LEAST.items() if table not in given]
    return "\n".join([text, *([] if "experiment" in given else missing)])


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for folder in ("configs/eval", "data", "rollouts/name"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "rollouts/name/main.py").write_text("", encoding="utf-8")
    return tmp_path


@blocks("toml")
def test_a_config_loads(block: Block, workspace: Path) -> None:
    path = workspace / "configs/eval/shown.toml"
    path.write_text(whole_config(block.text), encoding="utf-8")

    assert load_eval_config(path, ()).name == "shown"


# -- code and data ----------------------------------------------------------------------------------------


@blocks("python")
def test_code_compiles(block: Block) -> None:
    compile(block.text, f"{block.page}:{block.line}", "exec")


@blocks("json")
def test_data_is_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError:
        for line in block.text.splitlines():  # JSON lines
            json.loads(line)


# -- commands ---------------------------------------------------------------------------------------------


def commands(block: Block) -> list[list[str]]:
    """The commands of a block as words, continued lines joined, comments left out."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line.removeprefix("$ "), comments=True))]


@functools.cache
def options_of(module: str) -> frozenset[str]:
    """The options that `python -m module --help` lists."""
    words = [sys.executable, "-m", module, "--help"]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60, cwd=REPOSITORY).stdout
    listed = [re.split(r"\s{2,}", line.strip())[0] for line in shown.splitlines() if re.match(r"\s+-", line)]
    return frozenset(option for names in listed for option in OPTION.findall(names))


def unknown_options(module: str, words: list[str]) -> list[str]:
    """Those of a command's options that its program does not have."""
    given = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [option for option in given if option not in options_of(module)]


def problem(words: list[str]) -> str | None:
    """What is wrong with a command, None where it could be typed."""
    match words:
        case ["pytest", *rest]:
            unknown = unknown_options("pytest", rest)
            return f"pytest has no {', '.join(unknown)}" if unknown else None
        case ["python", "-m", module, *rest]:
            unknown = unknown_options(module, rest)
            return f"{module} has no {', '.join(unknown)}" if unknown else None
        case ["make", target]:
            makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
            return None if re.search(rf"^{target}:", makefile, re.MULTILINE) else f"no target {target}"
        case ["pip", "install", package]:
            with (REPOSITORY / "pyproject.toml").open("rb") as file:
                extras = tomllib.load(file)["project"]["optional-dependencies"]
            known = {"pytest-osmosis", *(f"pytest-osmosis[{extra}]" for extra in extras)}
            return None if package in known else f"no such package: {package}"
        case ["cd" | "export", _]:
            return None
        case _:
            return "a kind of command that is not checked here"


@blocks("console")
def test_commands_exist(block: Block) -> None:
    problems = [f"{shlex.join(words)}: {found}" for words in commands(block) if (found := problem(words))]

    assert problems == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("pytest --osmosis-confg=x.toml", "pytest has no --osmosis-confg"),
        ("pytest --osmosis-n=5 -k 'row3-' -x", None),
        ("python -m pytest_osmosis.demo --prot 0", "pytest_osmosis.demo has no --prot"),
        ("python -m pytest_osmosis.demo --port 0", None),
        ("make dmeo", "no target dmeo"),
        ("rm -rf x", "a kind of command that is not checked here"),
    ],
)
def test_a_command_that_cannot_be_typed_is_found(command: str, said: str | None) -> None:
    assert problem(shlex.split(command)) == said
