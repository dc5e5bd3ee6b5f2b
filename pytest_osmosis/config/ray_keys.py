"""The keys of `[execution.ray]`: what each holds, and what Ray would refuse only when it is connected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_osmosis.config.eval_kinds import AT_LEAST_0, json_table
from pytest_osmosis.config.kinds import (
    TEXT,
    Fault,
    Field,
    Unfit,
    ValueKind,
    array_of,
    choice,
    faults_of,
    integer,
    record_of,
    refuse,
    string,
    table_of,
    typed_toml,
)
from pytest_osmosis.config.tables import A_CPU

_ADDRESS = re.compile(r"[^\s/]+:[0-9]{1,5}")
_OTHER_PLACES = {
    "env_vars": "put them in [env]: Ray would write them to its logs",
    "working_dir": 'workspace = "upload" does that',
    "py_modules": 'workspace = "upload" does that',
    "excludes": "put them in [execution.ray] exclude",
}
"""The keys of Ray's runtime_env that have another place here."""
_BUILT_IN = ("CPU", "GPU", "memory", "object_store_memory")


def address() -> ValueKind:
    """The address of a cluster that runs, or "auto", kept as None."""
    expects = '"auto" or the address of the head, like "10.0.0.1:6379"'

    def read(value: Any) -> str | None:
        if isinstance(value, str) and value.startswith("ray://"):
            raise refuse(
                f"must be {expects}: Ray Client (ray://) is not supported; run pytest on a node of the cluster"
            )
        if value == "auto":
            return None
        if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
            raise refuse(f"must be {expects}")
        return value

    return ValueKind(expects, read, schema={"type": "string"})


def resources() -> ValueKind:
    """The resources of a host, as options of `ray.remote`, kept as a dict. One that names no `num_cpus` takes a CPU."""
    name = string(
        f"the name of a custom resource, not {', '.join(_BUILT_IN)}",
        lambda value: bool(value.strip()) and value not in _BUILT_IN,
    )
    label = string("the name of a label", lambda value: bool(value.strip()))
    amount = _as_written(AT_LEAST_0)
    kinds = {
        "num_cpus": amount,
        "num_gpus": amount,
        "memory": integer(0),
        "resources": table_of("a table of custom resources and their amounts", name, amount),
        "label_selector": table_of("a table of labels and their values", label, TEXT),
        "accelerator_type": TEXT,
    }
    table = record_of(f"a table with any of {', '.join(kinds)}, as in ray.remote", kinds, ())
    return replace(table, read=lambda value: {**A_CPU, **table.read(value)})


def _as_written(kind: ValueKind) -> ValueKind:
    """Return a kind of number that keeps 1 as 1, as texts about resources show it."""

    def read(value: Any) -> Any:
        kind.read(value)
        return value

    return replace(kind, read=read)


def runtime_env() -> ValueKind:
    """The part of Ray's runtime_env that installs packages, kept as a dict."""
    kinds = {"pip": _packages(), "uv": _packages(), "conda": _conda(), "image_uri": TEXT}
    expects = f"a table with one of {', '.join(kinds)}"
    table = record_of(expects, kinds, ())

    def read(value: Any) -> dict[str, Any]:
        elsewhere = [key for key in _OTHER_PLACES if key in value] if isinstance(value, dict) else []
        faults = [Fault(_OTHER_PLACES[key], (key,), "") for key in elsewhere]
        known = {key: item for key, item in value.items() if key not in elsewhere} if elsewhere else value
        faults += faults_of(table, known)
        if not faults:
            first, *others = known or [""]
            faults = [Fault(f"cannot be used with {first}; keep one of them", (key,), "") for key in others]
        if faults:
            raise Unfit(faults)
        return dict(known)

    return ValueKind(expects, read, typed_toml, table.schema)


def _packages() -> ValueKind:
    expects = "an array of packages, the path of a requirements file, or a table with packages"
    names = array_of(TEXT, "packages", unique=False)

    def read(value: Any) -> Any:
        fits = isinstance(value, Mapping) and not faults_of(json_table(), value) and "packages" in value
        if not fits and faults_of(names, value) and faults_of(TEXT, value):
            raise refuse(f"must be {expects}")
        return value

    schema = {"anyOf": [{"type": "string"}, names.schema, {"type": "object", "required": ["packages"]}]}
    return ValueKind(expects, read, typed_toml, schema)


def _conda() -> ValueKind:
    expects = "the name of an environment, the path of its YAML file, or a table with what such a file holds"

    def read(value: Any) -> Any:
        if faults_of(json_table(), value) and faults_of(TEXT, value):
            raise refuse(f"must be {expects}")
        return value

    return ValueKind(expects, read, typed_toml, {"type": ["string", "object"]})


def requirements_files(runtime_env: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the files that a runtime_env names, each with its key. They are relative to the workspace."""
    for key in ("pip", "uv"):
        packages = runtime_env.get(key)
        file = packages.get("packages") if isinstance(packages, Mapping) else packages
        if isinstance(file, str):
            yield key, file
    conda = runtime_env.get("conda")
    if isinstance(conda, str) and conda.endswith((".yml", ".yaml")):
        yield "conda", conda


def with_absolute_files(runtime_env: Mapping[str, Any], workspace: Path) -> dict[str, Any]:
    """Return a runtime_env with the paths of its files made absolute, as the bridge has another current folder."""
    found = dict(runtime_env)
    for key, file in requirements_files(runtime_env):
        path = str(workspace / file)
        found[key] = {**found[key], "packages": path} if isinstance(found[key], Mapping) else path
    return found


RAY_FIELDS = (
    Field(
        "address",
        address(),
        'Address of a running cluster. "auto", the default: the address in RAY_ADDRESS, or else the cluster on this '
        "machine.",
    ),
    Field(
        "resources",
        resources(),
        "What each host needs, together with its scorer, as options of ray.remote. memory is in bytes. Without "
        "num_cpus, a host takes one CPU.",
        default={**A_CPU},
    ),
    Field(
        "workspace",
        choice("shared", "upload"),
        'How nodes get the workspace. "shared": it has the same path on all of them. "upload": Ray copies it, without '
        "what .gitignore and exclude name.",
        default="shared",
    ),
    Field(
        "exclude",
        array_of(TEXT, 'distinct patterns, like "data/big/*"'),
        'What workspace = "upload" leaves out besides, as in .gitignore.',
        default=[],
    ),
    Field(
        "runtime_env",
        runtime_env(),
        "Packages that Ray installs on the nodes. Paths are relative to the workspace. Variables belong in [env].",
        default={},
    ),
)
