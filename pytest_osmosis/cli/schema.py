"""The JSON Schemas that the package publishes."""

from __future__ import annotations

import json
from importlib.resources import files

from pytest_osmosis.config.schema import eval_schema


def schema_text(of: str) -> str:
    """Return the schema of results.json or of an eval config, as JSON text."""
    if of == "config":
        return json.dumps(eval_schema(), indent=2)
    return files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8").rstrip("\n")
