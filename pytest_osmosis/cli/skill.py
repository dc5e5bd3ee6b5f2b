"""`pytest-osmosis skill`: what an agent that codes has to know, as a file that such agents look for."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import writing
from pytest_osmosis.text.arguments import filled

DESCRIPTION = """\
Write pytest-osmosis/SKILL.md into a folder of skills: one page, from which an
agent that codes learns to write, run and read evals. An earlier version of the
file is replaced.
"""
EXAMPLES = """\
examples:
  pytest-osmosis skill                   into .agents/skills, which many agents read
  pytest-osmosis skill .claude/skills    for Claude Code
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        type=filled,
        default=".agents/skills",
        metavar="FOLDER",
        help="the folder of skills (default: .agents/skills)",
    )


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    path = Path(options.folder, "pytest-osmosis", "SKILL.md")
    text = files("pytest_osmosis.cli").joinpath("template", "SKILL.md").read_text(encoding="utf-8")
    with writing(str(path)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    output.lines([f"written  {path}"])
    return 0
