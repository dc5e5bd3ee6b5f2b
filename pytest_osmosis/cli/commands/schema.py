"""`pytest-osmosis schema`."""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands
from pytest_osmosis.cli.output import CommandOutput

_DESCRIPTION = "Print a JSON Schema, with which editors complete and check a file, and programs validate it."


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "schema", help="print the JSON Schema of results.json or of a config", description=_DESCRIPTION
    )
    parser.add_argument(
        "of",
        nargs="?",
        choices=["results", "config", "training"],
        default="results",
        help="results (default) for results.json, config for the TOML of an eval, training for that of a training run",
    )
    parser.set_defaults(perform=run)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    output.lines(_schema(options.of).splitlines())
    return 0


def _schema(of: str) -> str:
    if of in ("config", "training"):
        from pytest_osmosis.config.schema import eval_schema, training_schema

        return json.dumps(eval_schema() if of == "config" else training_schema(), indent=2)
    return files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8").rstrip("\n")
