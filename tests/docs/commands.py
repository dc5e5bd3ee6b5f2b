"""Checks of commands that pages show and tests do not run: the programs and their options exist."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
import tomllib

from pytest_osmosis.plugin import options
from tests.docs.blocks import REPOSITORY

OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
OURS = re.compile(r"\b(pytest|pytest_osmosis)\b")
UNLISTED = frozenset({"--junitxml"})
"""Alternative names of options, which --help does not list, as it does not most of ours."""


def commands(text: str) -> list[list[str]]:
    """Split a block into commands and these into words; join continued lines and drop comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def without_environment(words: list[str]) -> list[str]:
    """Return a command without the variable assignments in front of it."""
    while words and re.match(r"[A-Z_][A-Z0-9_]*=", words[0]):
        words = words[1:]
    return words


def problem(words: list[str]) -> str | None:
    """Return why a command would not work, or None."""
    match without_environment(words):
        case ["pytest", *rest]:
            return _lacks("pytest", unknown_options("pytest", rest))
        case ["pytest-osmosis", "demo", *rest]:
            return _lacks("pytest-osmosis demo", unknown_options("pytest_osmosis.demo", rest))
        case ["pytest-osmosis", "submit", *rest]:
            end = rest.index("--") if "--" in rest else len(rest)
            of_pytest = [*(word for word in rest[:end] if word.startswith("--osmosis-")), *rest[end + 1 :]]
            own = unknown_options("pytest_osmosis", [word for word in rest[:end] if word not in of_pytest], "submit")
            further = [option for option in unknown_options("pytest", of_pytest) if option != "-n"]  # of xdist
            return _lacks("pytest-osmosis submit", own + further)
        case ["pytest-osmosis", "runs", command, *rest] if not command.startswith("-"):
            return _lacks(f"pytest-osmosis runs {command}", unknown_options("pytest_osmosis", rest, "runs", command))
        case ["pytest-osmosis", *rest]:
            named = [word for word in rest[:1] if not word.startswith("-")]
            return _lacks("pytest-osmosis", unknown_options("pytest_osmosis", rest, *named))
        case ["python", "-m", module, *rest]:
            return _lacks(module, unknown_options(module, rest))
        case ["make", target]:
            makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
            return None if re.search(rf"^{target}:", makefile, re.MULTILINE) else f"no target {target}"
        case ["pip", "install", *packages]:
            unknown = [package for package in packages if package.startswith("pytest-osmosis") and not known(package)]
            return f"no such package: {', '.join(unknown)}" if unknown else None
        case ["cd", _] | ["export", _] | ["git", "clone", _]:
            return None
        case _:
            return "a kind of command that is not checked here"


def _lacks(program: str, unknown: list[str]) -> str | None:
    return f"{program} has no {', '.join(unknown)}" if unknown else None


def known(package: str) -> bool:
    """Return True for this package with existing extras."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    name, _, wanted = package.partition("[")
    return name == "pytest-osmosis" and all(extra in extras for extra in filter(None, wanted.rstrip("]").split(",")))


@functools.cache
def options_of(module: str, *command: str) -> frozenset[str]:
    """Return the options that `python -m module --help` lists, or its help on one of its commands."""
    words = [sys.executable, "-m", module, *command, "--help"]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300, cwd=REPOSITORY).stdout
    listed = [re.split(r"\s{2,}", line.strip())[0] for line in shown.splitlines() if re.match(r"\s+-", line)]
    ours = [option.flag for option in options.every_option()] if module == "pytest" else []
    return UNLISTED.union(ours, (option for names in listed for option in OPTION.findall(names)))


def unknown_options(module: str, words: list[str], *command: str) -> list[str]:
    """Return the options of a command that its program does not have."""
    typed = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [option for option in typed if option not in options_of(module, *command)]
