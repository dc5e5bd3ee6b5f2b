"""The question if results files hold shards of one eval: complaints about those that do not, and about differences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.errors import Problem
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.results.read import PublishedResults
from pytest_osmosis.results.shards import ShardFacts, max_errors_text
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, plural

_PER_MACHINE = ("batch_size", "overridden", "baseline_model")
"""Keys of the published config that may differ between the shards of an eval: one without rows has no baseline."""


def problems_of(files: Sequence[PublishedResults]) -> Iterator[Problem]:
    """Yield why the results of one eval cannot be merged."""
    first, name = files[0], files[0].eval
    if len(files) == 1 and first.shard is None:
        return
    for whole in (each for each in files if each.shard is None):
        fix = "merge only the results of shards (--osmosis-shard), or this file alone"
        yield Problem(shown(whole.path), f"holds no shard, but other files of the eval {name} are there; {fix}")
    shards = [each for each in files if each.shard is not None]
    found: dict[Shard, Path] = {}
    repeated = [each for each in shards if found.setdefault(facts_of(each).shard, each.path) is not each.path]
    for each in repeated:
        shard = facts_of(each).shard
        yield Problem(
            shown(each.path), f"holds {shard} of {name} again, as {shown(found[shard])} does; name one of them"
        )
    differing = [(each, difference) for each in shards[1:] for difference in _differences(shards[0], each)]
    for each, (what, here, there) in differing:
        yield Problem(shown(each.path), f"{what}: {here}, but {there} in {shown(shards[0].path)}; {_ONE_PLAN}")
    if not (repeated or differing):
        yield from _missing_rows(shards)
        yield from _shared_rows(shards)


def _missing_rows(shards: Sequence[PublishedResults]) -> Iterator[Problem]:
    """Yield the files that lack rows of their shard, so that a whole made of them would be a part."""
    for each in shards:
        facts, n_rows = facts_of(each), len(_rows_of(each))
        if facts.shard.index > facts.shard.of:
            yield Problem(shown(each.path), f"there is no {facts.shard}")
        elif facts.whole and n_rows < facts.rows:
            text = f"holds {plural(n_rows, 'row')}, but {facts.shard} has {count(facts.rows)}"
            yield Problem(shown(each.path), f"{text}; the file was changed, so take that of the run directory")


def _rows_of(each: PublishedResults) -> set[int]:
    return {row.index for row in each.rows} | {run["row_index"] for run in each.document["pending"]}


def _shared_rows(shards: Sequence[PublishedResults]) -> Iterator[Problem]:
    rows: dict[int, Path] = {}
    for each in shards:
        own = _rows_of(each)
        if shared := sorted(own & rows.keys()):
            other = shown(rows[shared[0]])
            yield Problem(shown(each.path), f"row {shared[0]} is also in {other}; shards have no row in common")
        rows.update(dict.fromkeys(own, each.path))


_ONE_PLAN = "the shards of an eval have one config, one dataset and one version of its code"


class _Difference(NamedTuple):
    """A thing that two shards should have in common: its value in one file, and in the first file."""

    name: str
    here: str
    there: str


def _differences(first: PublishedResults, other: PublishedResults) -> Iterator[_Difference]:
    one, two = facts_of(first), facts_of(other)
    if two.shard.of != one.shard.of:
        yield _Difference("number of shards", str(two.shard.of), str(one.shard.of))
        return
    settings = [key for key in (*first.config, *other.config) if key not in _PER_MACHINE]
    named = [key for key in dict.fromkeys(settings) if first.config.get(key) != other.config.get(key)]
    for key in named:
        yield _Difference(f"config.{key}", _written(other.config.get(key)), _written(first.config.get(key)))
    if not named and other.plan_digest != first.plan_digest:
        yield _Difference("plan_digest", other.plan_digest, first.plan_digest)
    datasets = [read.document["provenance"].get("dataset_sha256") for read in (first, other)]
    if None not in datasets and datasets[0] != datasets[1]:  # the rows may stand in another order
        yield _Difference("SHA-256 of the dataset", datasets[1][:12], datasets[0][:12])
    for key, value in _counted(one).items():
        if _counted(two)[key] != value:
            yield _Difference(f"shard.{key}", str(_counted(two)[key]), str(value))
    for name in sorted(one.code.keys() & two.code.keys()):
        if one.code[name] != two.code[name]:
            yield _Difference(f"digest of the code of {name}", two.code[name], one.code[name])
    if _gates(other) != _gates(first):
        yield _Difference("gates", _written(_titles(other)), _written(_titles(first)))
    if two.baseline != one.baseline:
        yield _Difference("baseline", _written_baseline(two), _written_baseline(one))


def _counted(facts: ShardFacts) -> Mapping[str, object]:
    """Return the facts that all shards of an eval have in common."""
    limit = max_errors_text(facts.max_errors, is_share=facts.max_errors_is_share)
    return {"planned_rows": facts.planned_rows, "planned_runs": facts.planned_runs, "max_errors": limit}


def _written(value: object) -> str:
    return json.dumps(value, default=str)


def _written_baseline(facts: ShardFacts) -> str:
    return "none" if facts.baseline is None else f"{facts.baseline.path} ({facts.baseline.sha256[:12]})"


def facts_of(read: PublishedResults) -> ShardFacts:
    return ShardFacts.from_json(read.document["shard"])


def _gates(read: PublishedResults) -> list[Any]:
    keys = ("gate", "metric", "function", "minimum", "rule")
    return [[gate[key] for key in keys] for gate in read.document["gates"]]


def _titles(read: PublishedResults) -> list[str]:
    return [gate["gate"] for gate in read.document["gates"]]
