"""The manifest of an eval run, `manifest.json`: what was asked for. It is read back to rescore or list the run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.files.shapes import (
    ShapeFault,
    anything,
    check_version,
    flag,
    listing,
    members,
    moment,
    nullable,
    number,
    one_of,
    quoted,
    table,
    text,
    whole,
)
from pytest_osmosis.files.strict_json import parsed
from pytest_osmosis.record.plan import MOST_RUNS, Granularity, Plan, Shard
from pytest_osmosis.text.paths import shown

MANIFEST_VERSION = 1
MOST_BYTES = 1 << 26


def _check_salt(value: object) -> None:
    text(value)
    if not re.fullmatch("([0-9a-f]{2})*", str(value)):
        raise ShapeFault(f"must be hexadecimal digits, got {quoted(value)}")


SPANS = listing(listing(whole(), length=3))
PLAN = members(
    {
        "name": text,
        "path": text,
        "dataset": text,
        "spans": SPANS,
        "n": whole(1),
        "selection": text,
        "named": SPANS,
        "granularity": one_of(*get_args(Granularity)),
        "baseline": flag,
    }
)
PASS_RULE = members(
    {"pass_threshold": number(), "thresholds": table(number()), "decide": text},
    {"score_ranges": table(listing(number(), length=2))},
)
EXTRA = members(
    {
        "path": text,
        "dataset": text,
        "selection": text,
        "batch_size": whole(1),
        "sampling": table(anything),
        "overridden": listing(text),
    },
    {"judge": table(anything), "system_prompt": text},
)
PRICE = members({"source": text, **dict.fromkeys(("input", "output", "cached_input", "cache_write"), number(0))})
SERVER = {"provider": text, "base_url": nullable(text)}
TARGET = members({}, {**SERVER, "replicas": listing(members({}, SERVER))})
ENVIRONMENT = members(
    {},
    {
        "env_id": text,
        "env_args": table(anything),
        "version": nullable(text),
        "framework": nullable(text),
        "state_columns": listing(text),
        "tools": listing(table(anything)),
    },
)
SHAPE = members(
    {
        "schema_version": one_of(MANIFEST_VERSION),
        "eval": text,
        "started_at": moment,
        "folder": text,
        "workspace": text,
        "config_text": nullable(text),
        "typed": listing(
            members({"table": text, "key": text, "value": anything, "below": listing(text), "as_toml": flag})
        ),
        "plan": PLAN,
        "subject": members({"model": text, "n": whole(1), "extra": EXTRA}),
        "target": TARGET,
        "baseline": nullable(members({"model": text, "target": TARGET})),
        "pass_rule": PASS_RULE,
        "gates": listing(text),
        "prices": table(nullable(PRICE)),
        "smoke": flag,
        "shard": nullable(members({"index": whole(1), "of": whole(1)})),
        "inputs": table(table(anything)),
        "cassette": nullable(members({"mode": one_of("record", "new", "replay", "cache"), "path": text})),
        "input_salt": _check_salt,
        "dataset_sha256": text,
        "columns": table(text),
        "timeouts": table(number(0)),
        "versions": table(nullable(text)),
        "entry": nullable(text),
        "plan_digest": text,
    },
    {
        "code": members({"rollouts": nullable(text), "rewards": table(text)}),
        "git": members({"git_commit": nullable(text), "git_dirty": nullable(flag)}),
        "environment": ENVIRONMENT,
        "imported": table(anything),
        "result_facts": table(anything),
    },
)
TEST_EVAL = "-tests"
"""The end of the name of an eval that tests over rollouts need."""


@dataclass(frozen=True, slots=True)
class StoredSubject:
    """The model that an eval run asked, its runs per row, and what else described it."""

    model: str
    n: int
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredBaseline:
    """The second model of an eval run, and its target."""

    model: str
    target: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The request for an eval run. `typed` are the overrides of its command, `target` is that of its model.

    `folder` is where its run directory was, `config_text` is None for an eval that options alone described.

    `pass_rule` holds the thresholds, without the functions. `shard` is the shard to which the eval run was limited; the
    plan is that of the whole all the same.
    `gates` are the gates in words, `prices` those of each model's tokens, None if unknown.

    `inputs` are those of the rollouts, by table and key; `input_salt` is that of digests among them, in hexadecimal
    digits. `timeouts` are in seconds, by their keys, and `versions` those of Python and of the packages that matter,
    None if one is not installed. `code` holds digests: that of all code of `rollouts`, None if there is none, and those
    of `rewards`, by function. `git` is the state of the workspace when the eval run began. Both are None if no code was
    loaded. `cassette` is the `mode` and the `path` of the cassette or the cache that the eval run used, None without.
    `environment` describes that of the eval, if it has one: its `env_id`, `env_args`, `version`, `framework`,
    `state_columns`, and the facts that it told about itself. `imported` says from which files of `prime eval` it began.
    `result_facts` are what only the end of the last session could tell. `entry` is the name of the eval in a config
    with several, None in others. `columns` are the dataset's own names of columns,
    by ours. `plan_digest` identifies the question that it asks (`results.previous_run`).
    """

    eval: str
    started_at: str
    folder: str
    workspace: Path
    config_text: str | None
    typed: Sequence[Mapping[str, Any]]
    plan: Plan
    subject: StoredSubject
    target: Mapping[str, Any]
    baseline: StoredBaseline | None
    pass_rule: Mapping[str, Any]
    gates: Sequence[str]
    prices: Mapping[str, Any]
    smoke: bool
    shard: Shard | None
    cassette: Mapping[str, Any] | None
    inputs: Mapping[str, Mapping[str, Any]]
    input_salt: str
    dataset_sha256: str
    timeouts: Mapping[str, float]
    versions: Mapping[str, str | None]
    entry: str | None
    columns: Mapping[str, str]
    plan_digest: str
    code: Mapping[str, Any] | None = None
    git: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    imported: Mapping[str, Any] = field(default_factory=dict)
    result_facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> str:
        """The name of the eval in node ids: that of its entry, or of its file."""
        return self.entry or Path(self.plan.path).stem

    @property
    def is_of_tests(self) -> bool:
        """True if tests over rollouts requested the runs."""
        return self.eval == self.named + TEST_EVAL

    @property
    def selected(self) -> Plan:
        """The plan, limited to the rows of the shard."""
        return self.plan if self.shard is None else self.plan.of_shard(self.shard)

    @property
    def replays(self) -> bool:
        """True if all answers came from a cassette."""
        return self.cassette is not None and self.cassette["mode"] == "replay"

    @property
    def rollout(self) -> str | None:
        """The code that makes rollouts: `[experiment] rollout`, else `[agent] agent`; None if neither is known."""
        named = (self.inputs.get("experiment", {}).get("rollout"), self.inputs.get("agent", {}).get("agent"))
        return next((name for name in named if isinstance(name, str)), None)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises `OsmosisError` with the place in the file if it is not valid."""
    where = shown(path)
    try:
        data = parsed(read_text(path, most_bytes=MOST_BYTES))
        if isinstance(data, dict):
            check_version(data, MANIFEST_VERSION)
        SHAPE(data)
        plan, shard = _plan(data["plan"]), _shard(data["shard"])
    except ShapeFault as fault:
        raise OsmosisError(f"{where}: {fault}") from None
    except FileFault as fault:
        raise OsmosisError(f"{where}{'' if fault.line is None else f':{fault.line}'}: {fault}") from None
    except ValueError as error:
        raise OsmosisError(f"{where}: is not JSON: {error}") from None
    subject, baseline = data["subject"], data["baseline"]
    known = {each.name: data[each.name] for each in fields(Manifest) if each.name in data}
    known |= {"workspace": Path(data["workspace"]), "plan": plan, "shard": shard}
    known["subject"] = StoredSubject(subject["model"], subject["n"], subject["extra"])
    known["baseline"] = None if baseline is None else StoredBaseline(baseline["model"], baseline["target"])
    return Manifest(**known)


def _shard(data: Mapping[str, Any] | None) -> Shard | None:
    if data is None:
        return None
    if data["index"] > data["of"]:
        raise ShapeFault(f"there is no shard {data['index']} of {data['of']}", ".shard")
    return Shard(data["index"], data["of"])


def _plan(data: Mapping[str, Any]) -> Plan:
    runs = data["n"] * sum(n_rows for _, n_rows, _ in (*data["spans"], *data["named"]))
    if runs > MOST_RUNS:
        raise ShapeFault(f"holds {runs:,} runs; at most {MOST_RUNS:,} are read", ".plan")
    if "\0" in data["path"] + data["dataset"]:
        raise ShapeFault("path, dataset: must be paths, got the character \\x00", ".plan")
    return Plan.from_json(data)
