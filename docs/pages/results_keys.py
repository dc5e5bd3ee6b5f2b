"""Generate docs/reference/results.md from the JSON Schema of results.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from docs.pages import markdown
from docs.pages.markdown import cell

Schema = dict[str, Any]

HEAD = """\
# results.json

Every eval run writes a results file into its folder under `.osmosis/runs/`. `--osmosis-output=results.json` writes a
copy elsewhere: a partial run to `results.partial.json`. An existing file there is replaced only if it is empty or a
results file (a JSON object with `schema_version`, `status`, `config`, `summary` and `provenance`), and a page of
`--osmosis-markdown` only if it begins with our comment. `--osmosis-overwrite` replaces other files too, but never one
that the command reads.

The file is strict JSON (no NaN), written atomically, and valid against the JSON Schema in the package:

```console check
pytest-osmosis schema results
```

`config`, `summary` and `rows` hold the keys of Osmosis' eval mode, with the same meaning. The other keys are ours.
Rates lie between 0 and 1, and indices start at 0. Durations end in `_ms` and are in milliseconds; dates are in UTC.

`docs/generate.py` generates this page.
"""

OBJECTS = ("config", "summary", "statistics", "row", "run", "pending", "gate", "provenance")
"""The objects whose sections come first, in this order."""


def page() -> str:
    schema: Schema = json.loads(files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8"))
    definitions: dict[str, Schema] = schema["$defs"]
    objects = {name: each for name, each in definitions.items() if each.get("type") == "object"}
    order = [name for name in OBJECTS if name in objects] + [name for name in objects if name not in OBJECTS]
    parts = [HEAD, section("The file", schema, definitions)]
    parts += [section(f"`{name}`", objects[name], definitions) for name in order]
    return markdown.page(parts)


def section(title: str, schema: Schema, definitions: dict[str, Schema]) -> Iterator[str]:
    """Yield the lines about one object and its keys."""
    yield from (f"## {title}", "")
    if title.startswith("`"):
        yield from (schema.get("description", ""), "")
    required = schema.get("required", [])
    keys = [(f"`{key}`", key in required, value) for key, value in schema.get("properties", {}).items()]
    keys += [
        (f"`{_readable(pattern)}`", False, value) for pattern, value in schema.get("patternProperties", {}).items()
    ]
    rows = (
        (name, kind(value, definitions), cell(description(value, definitions)) + ("" if always else " *Optional.*"))
        for name, always, value in keys
    )
    yield from markdown.table(("key", "holds", ""), rows)


def description(schema: Schema, definitions: dict[str, Schema]) -> str:
    return str(schema.get("description") or definitions.get(_reference(schema), {}).get("description", ""))


def kind(schema: Schema, definitions: dict[str, Schema]) -> str:
    """Return the type of a value in words."""
    if reference := _reference(schema):
        target = definitions[reference]
        return f"[`{reference}`](#{reference})" if target.get("type") == "object" else kind(target, definitions)
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {kind(schema.get('items', {}), definitions)}"
    if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        return f"object of {kind(schema['additionalProperties'], definitions)}"
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(kind(each, definitions) for each in alternatives)
    types = schema.get("type", "anything")
    return " or ".join(types) if isinstance(types, list) else str(types)


def _reference(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _readable(pattern: str) -> str:
    """Return a pattern of keys in a readable form, like `pass_at_K`."""
    prefix = pattern.removeprefix("^")
    return next((f"{name}_K" for name in ("pass_at", "pass_hat") if prefix.startswith(name)), prefix.rstrip("$"))
