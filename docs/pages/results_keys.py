"""Generate docs/reference/results.md from the JSON Schema of results.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from itertools import groupby
from typing import Any

from docs.pages import markdown
from docs.pages.markdown import concise, escape

Schema = dict[str, Any]

HEAD = """\
# results.json

Every eval run writes a results file into its folder under `.osmosis/runs/`. `--osmosis-output=results.json` writes a
copy elsewhere: a partial run to `results.partial.json`. It replaces only an empty file or a results file, and
`--osmosis-markdown` only a page that begins with our comment. `--osmosis-overwrite` replaces other files too, but never
one that the command reads.

The file is strict JSON (no NaN), written atomically, and valid against the JSON Schema in the package:

```console check
pytest-osmosis schema results
```

`config`, `summary` and `rows` hold the keys of Osmosis' eval mode, with the same meaning. The other keys are ours.
Rates lie between 0 and 1, and indices start at 0. Durations end in `_ms` and are in milliseconds; dates are in UTC, ISO
8601. `[x]` is an array, and `{x}` an object with values of type x. A key without a type here holds a text, a count, or
true or false, as its sentence says. A value of type `number?` is null without runs, or if it is unknown, unless another
case is named. An *optional* key is left out where there is nothing to say.
"""

SAID = re.compile(
    r"; (null (without (runs|rows)|if (it is unknown|none is known|the server reported none|there is none|undefined))"
    r"|only if (there (are|were) any|there is one|it (ran|did|ended)|some gave none|one ran)|only then"
    r"|left out (without any|otherwise))(?=[.;])| Left out otherwise[.]"
)
"""Ends of descriptions that the head of the page gives for all keys."""

UNNAMED = frozenset({"string", "boolean", "integer"})
"""The types that the description of a key tells."""

OBJECTS = ("config", "summary", "statistics", "row", "run", "pending", "gate", "provenance")
"""The objects whose sections come first, in this order."""


def page() -> str:
    schema: Schema = json.loads(files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8"))
    definitions: dict[str, Schema] = schema["$defs"]
    objects = {name: each for name, each in definitions.items() if each.get("type") == "object"}
    order = [name for name in OBJECTS if name in objects] + [name for name in objects if name not in OBJECTS]
    parts: list[Iterable[str] | str] = [HEAD, ["## The file", "", *items(schema, definitions).values()]]
    shown: dict[str, str] = {}
    for name in order:
        own = items(objects[name], definitions)
        repeated = {key: shown[text] for key, text in own.items() if text in shown}
        shown |= {text: name for text in own.values() if text not in shown}
        parts.append(section(name, objects[name], own, repeated))
    return markdown.page(parts)


def section(name: str, schema: Schema, own: Mapping[str, str], repeated: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines about one object: its keys, and those that another section has too, with its name."""
    yield from (f"## `{name}`", "", schema.get("description", ""), "")
    if name == "shard":  # which only `pytest-osmosis merge` reads
        yield f"Keys: {', '.join(f'`{key}`' for key in own)}."
        return
    rest = ((key, text.removeprefix(f"- `{key}`")) for key, text in own.items() if key not in repeated)
    for text, group in groupby(rest, key=lambda each: each[1]):
        yield f"- {', '.join(f'`{key}`' for key, _ in group)}{text}"
    for other in dict.fromkeys(repeated.values()):
        keys = ", ".join(f"`{key}`" for key, place in repeated.items() if place == other)
        yield f"- As in [`{other}`](#{other}): {keys}."


def items(schema: Schema, definitions: dict[str, Schema]) -> dict[str, str]:
    """Return the item of each key of an object. An object with a section of its own is described there."""
    required = schema.get("required", [])
    keys = {**schema.get("properties", {}), **schema.get("patternProperties", {})}
    made = {}
    for key, value in keys.items():
        name = _readable(key) if key in schema.get("patternProperties", {}) else key
        text = SAID.sub("", escape(concise(description(value, definitions))))
        type_ = kind(value, definitions)
        types = (type_ if type_ not in UNNAMED else "", "" if key in required else "optional")
        shown = ", ".join(filter(None, types))
        made[name] = f"- `{name}`{shown and f' ({shown})'}: {text}".removesuffix(": ")
    return made


def description(schema: Schema, definitions: dict[str, Schema]) -> str:
    target = definitions.get(_reference(schema), {})
    return str(schema.get("description") or ("" if target.get("type") == "object" else target.get("description", "")))


def kind(schema: Schema, definitions: dict[str, Schema]) -> str:
    """Return the type of a value in words."""
    if reference := _reference(schema):
        target = definitions[reference]
        return f"[`{reference}`](#{reference})" if target.get("type") == "object" else kind(target, definitions)
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        inner = kind(schema.get("items", {}), definitions)
        return f"[{inner}]" if inner.isalpha() else f"array of {inner}"
    if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        inner = kind(schema["additionalProperties"], definitions)
        return f"{{{inner}}}" if inner.isalpha() else f"object of {inner}"
    types = schema.get("type", "anything")
    words = [kind(each, definitions) for each in schema.get("anyOf") or schema.get("oneOf") or []]
    words = words or (types if isinstance(types, list) else [str(types)])
    if words == ["null"]:
        return "null"
    return " or ".join(word for word in words if word != "null") + ("?" if "null" in words else "")


def _reference(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _readable(pattern: str) -> str:
    """Return a pattern of keys in a readable form, like `pass_at_K`."""
    prefix = pattern.removeprefix("^")
    return next((f"{name}_K" for name in ("pass_at", "pass_hat") if prefix.startswith(name)), prefix.rstrip("$"))
