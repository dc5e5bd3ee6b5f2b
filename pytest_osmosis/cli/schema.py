"""`pytest-osmosis schema`."""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.config.eval_config import eval_schema, training_schema

DESCRIPTION = """\
Print a JSON Schema, with which editors complete and check a file, and programs
validate it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "schema",
        nargs="?",
        choices=["results", "config", "training"],
        default="results",
        help="results (default) for results.json, config for the TOML of an eval, training for that of a training run",
    )


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    if options.schema == "results":
        text = files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8")
    else:
        text = json.dumps(eval_schema() if options.schema == "config" else training_schema(), indent=2)
    output.lines(text.splitlines())
    return 0
