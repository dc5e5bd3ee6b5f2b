"""`pytest-osmosis schema`, and the JSON Schemas of configs, for editors that check TOML while it is typed.

They are made from the field tables, and know tables, keys, types, choices, bounds of numbers, and required keys. The
contents of strings, files and rules between keys are left to the validator.
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.config.entries import BLOCKS, KEYS, NAME, SWEEP
from pytest_osmosis.config.eval_config import TRAINING_TABLES
from pytest_osmosis.config.kinds import Field, Table, Tables
from pytest_osmosis.config.tables import EVAL_TABLES

DESCRIPTION = """\
Print a JSON Schema, with which editors complete and check a file, and programs
validate it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "of",
        nargs="?",
        choices=["results", "config", "training"],
        default="results",
        help="results (default) for results.json, config for the TOML of an eval, training for that of a training run",
    )


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    if options.of == "results":
        text = files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8")
    else:
        text = json.dumps(eval_schema() if options.of == "config" else training_schema(), indent=2)
    output.lines(text.splitlines())
    return 0


Schema = dict[str, Any]


def eval_schema() -> Schema:
    """Return the schema of an eval config, draft 2020-12."""
    text = "configs/eval/*.toml: the eval config of Osmosis, and the tables that only this plugin has."
    schema = _config("eval", text, EVAL_TABLES)
    also_keys = [name for name in schema["properties"] if name in KEYS]
    for name in also_keys:  # like `model`, which is a key outside of tables where a config has several evals
        schema["properties"][name]["type"] = ["object", "string"]
    single = {
        "properties": {name: {"type": "object"} for name in also_keys},
        "required": schema.pop("required"),
        "propertyNames": {"enum": list(EVAL_TABLES)},
    }
    del schema["additionalProperties"]
    several = {"anyOf": [{"required": [block]} for block in BLOCKS]}
    return {**schema, "if": several, "then": _several(schema["properties"]), "else": single}


def _several(tables: Schema) -> Schema:
    """Return the schema of what a config with several evals has at its top."""
    keys: Schema = {**{key: {} for key in KEYS}, **tables}
    shared: Schema = {"properties": keys, "patternProperties": {"[.]": {}}, "additionalProperties": False}
    name = {"type": "string", "description": "The name of the eval. Default: that of what it evaluates."}
    block: Schema = {"type": "object", **shared, "properties": {NAME: name, **keys}}
    sweep = {"type": "object", "description": "Keys, and the arrays of their values.", "minProperties": 1}
    return {
        **shared,
        "properties": {
            **keys,
            "eval": {"type": "array", "description": "Evals.", "items": block},
            "ablation": {
                "type": "array",
                "description": "Blocks that make an eval for each combination of the values in their sweep.",
                "items": {**block, "properties": {**block["properties"], SWEEP: sweep}, "required": [SWEEP]},
            },
        },
    }


def training_schema() -> Schema:
    """Return the schema of a training config, draft 2020-12."""
    text = "configs/training/*.toml: the training config of Osmosis, and tables of pytest-osmosis."
    return _config("training", text, TRAINING_TABLES)


def _config(kind: str, description: str, tables: Tables) -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytest-osmosis:{kind}-config",
        "title": f"{kind.capitalize()} config of pytest-osmosis",
        "description": description,
        "type": "object",
        "properties": {table.name: _table(table) for table in tables.values()},
        "required": [table.name for table in tables.values() if table.must_be_there],
        "additionalProperties": False,
    }


def _table(table: Table) -> Schema:
    if table.entries is not None:
        entries = table.entries
        return {
            "type": "object",
            "description": f"{table.help} {entries.help}",
            "propertyNames": entries.key.schema,
            "additionalProperties": entries.value.schema,
        }
    return {
        "type": "object",
        "description": table.help,
        "properties": {field.name: _field(field) for field in table.fields},
        "patternProperties": {
            f"^({family.pattern.pattern})$": {**family.kind_of(family.example).schema, "description": family.help}
            for family in table.families
        },
        "required": [field.name for field in table.fields if field.required],
        "additionalProperties": next(
            (family.kind_of(family.example).schema for family in table.families if family.of_tables), False
        ),
    }


def _field(field: Field) -> Schema:
    if not field.supported:
        return {"not": {}, "description": f"{field.help} Not supported yet."}
    if field.fields:
        return _table(Table(field.name, field.help, field.fields))
    default = {} if field.default is None else {"default": field.default}
    return {**field.kind.schema, "description": field.help, **default}
