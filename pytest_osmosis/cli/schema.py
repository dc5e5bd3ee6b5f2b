"""The JSON Schemas that the package publishes."""

from __future__ import annotations

from importlib.resources import files


def results_schema() -> str:
    """The schema of results.json, as JSON text."""
    return files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8").rstrip("\n")
