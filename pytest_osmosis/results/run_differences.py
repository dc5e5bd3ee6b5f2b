"""The settings, code and data in which two eval runs differ."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pytest_osmosis.record.run_record import NOTHING, Event
from pytest_osmosis.results.compared_runs import Side
from pytest_osmosis.text.names import listed

Area = Literal["question", "scoring", "code", "throughput", "versions"]
"""The part of an eval: what is asked of the model, how answers are scored, the code and data, the rest."""


class RunDifference(NamedTuple):
    """One difference, with the value in A and in B, None for one that is not there; both are None for code."""

    what: str
    area: Area
    a: str | None
    b: str | None


_SETTINGS: Mapping[str, tuple[Area, str]] = {
    "name": ("question", "eval"),
    "path": ("question", "config"),
    "model": ("question", "model"),
    "baseline_model": ("question", "baseline's model"),
    "dataset": ("question", "dataset"),
    "selection": ("question", "rows"),
    "n_runs": ("question", "n"),
    "system_prompt": ("question", "system prompt"),
    "eval_fns": ("scoring", "functions"),
    "thresholds": ("scoring", "thresholds"),
    "pass_threshold": ("scoring", "pass_threshold"),
    "decide": ("scoring", "decide"),
    "score_ranges": ("scoring", "score ranges"),
    "batch_size": ("throughput", "batch_size"),
    "price": ("throughput", "price"),
}
"""Keys of published settings, with their areas and names. Others belong to the question."""
_TABLES: Mapping[str, Area] = {"sampling": "question", "judge": "scoring"}
_LEFT_OUT = frozenset({"overridden"})
_SAID = frozenset({"model", "sampling", "baseline"})
"""Tables of the inputs of rollouts that the settings and the address tell."""
_BY_NAME = frozenset({"env", "model.headers"})
"""Tables whose values each manifest hides in its own way."""
_PROVENANCE: Mapping[str, tuple[Area, str]] = {
    "dataset_sha256": ("code", "digest of the dataset"),
    "pytest_osmosis": ("versions", "pytest-osmosis"),
    "python": ("versions", "Python"),
    "platform": ("versions", "platform"),
}
_SHORT = 12
_MOST_FILES = 5


def run_differences(a: Side, b: Side) -> list[RunDifference]:
    """Return the differences, those of the question first. What only one side knows is no difference."""
    found = [*_settings(a.config, b.config), *_inputs(a, b), *_code(a, b), *_provenance(a, b)]
    order = ("question", "scoring", "code", "throughput", "versions")
    return sorted(found, key=lambda difference: order.index(difference.area))


def config_diff(a: Side, b: Side) -> list[str]:
    """Return the lines by which the TOML of both differ, marked - and +; none if one is unknown."""
    texts = [None if side.manifest is None else side.manifest.config_text for side in (a, b)]
    then, now = ([] if text is None else text.splitlines() for text in texts)
    if None in texts or then == now:
        return []
    lines = list(difflib.unified_diff(then, now, n=0, lineterm=""))[2:]
    return [line for line in lines if not line.startswith("@@")]


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[RunDifference]:
    for key in dict.fromkeys((*_SETTINGS, *a, *b)):
        then, now = a.get(key), b.get(key)
        if key in _LEFT_OUT or then == now:
            continue
        if key in _TABLES:
            then, now = then or {}, now or {}
            for name in dict.fromkeys((*then, *now)):
                yield from _differing(f"[{key}] {name}", _TABLES[key], then.get(name), now.get(name))
            continue
        area, what = _SETTINGS.get(key, ("question", key))
        if key == "thresholds":
            then, now = _of_both(then or {}, now or {}), _of_both(now or {}, then or {})
        yield from _differing(what, area, then, now)


def _of_both(thresholds: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    """Return the thresholds of functions that both have; the difference of the functions says the rest."""
    return {name: threshold for name, threshold in thresholds.items() if name in others}


def _inputs(a: Side, b: Side) -> Iterator[RunDifference]:
    """Yield the differences of what rollouts depend on, as far as both manifests hold it and no setting says it."""
    if a.manifest is None or b.manifest is None:
        return
    yield from _differing("address", "question", *(side.target.get("base_url") for side in (a.manifest, b.manifest)))
    for key in a.manifest.timeouts.keys() & b.manifest.timeouts.keys() - {"agent_workflow_timeout_s"}:
        yield from _differing(key, "throughput", a.manifest.timeouts[key], b.manifest.timeouts[key])
    then, now = a.manifest.inputs, b.manifest.inputs
    for table in dict.fromkeys((*then, *now)):
        here, there = then.get(table, {}), now.get(table, {})
        if table in _BY_NAME:
            yield from _differing(f"names in [{table}]", "question", sorted(here), sorted(there))
        elif table not in _SAID:
            for key in dict.fromkeys((*here, *there)):
                if (table, key) != ("experiment", "model_path"):
                    yield from _differing(f"[{table}] {key}", "question", here.get(key), there.get(key))


def _code(a: Side, b: Side) -> Iterator[RunDifference]:
    loaded_a, loaded_b = _loaded(a), _loaded(b)
    then, now = loaded_a.get("digests", {}), loaded_b.get("digests", {})
    for name in then:
        if name in now and then[name] != now[name]:
            yield RunDifference(f"code of {name}", "scoring", None, None)
    then, now = loaded_a.get("rollout_code"), loaded_b.get("rollout_code")
    if then and now and then != now:
        files = [path for path in sorted({*then, *now}) if then.get(path) != now.get(path)]
        yield RunDifference(f"code of rollouts ({listed(files, _MOST_FILES)})", "code", None, None)
    commits = [_commit(side) for side in (a, b)]
    if None not in commits:
        yield from _differing("git commit", "code", *commits)


def _loaded(side: Side) -> Event:
    return NOTHING if side.stored is None else side.stored.replayed.loaded


def _commit(side: Side) -> str | None:
    state: Mapping[str, Any] = side.provenance
    if side.manifest is not None and state.get("git_commit") is None:  # it did not end
        state = side.manifest.git or state
    commit = state.get("git_commit")
    return (
        None if commit is None else f"{commit[:_SHORT]}{' with uncommitted changes' if state.get('git_dirty') else ''}"
    )


def _provenance(a: Side, b: Side) -> Iterator[RunDifference]:
    for key, (area, what) in _PROVENANCE.items():
        then, now = a.provenance.get(key), b.provenance.get(key)
        if then is not None and now is not None:
            short = _SHORT if key == "dataset_sha256" else None
            yield from _differing(what, area, then[:short], now[:short])
    if a.manifest is not None and b.manifest is not None:
        packages = a.manifest.versions.keys() & b.manifest.versions.keys()
        for name in sorted(packages - {"python", "pytest-osmosis"}):
            yield from _differing(name, "versions", a.manifest.versions[name], b.manifest.versions[name])


def _differing(what: str, area: Area, a: Any, b: Any) -> Iterator[RunDifference]:
    if a != b:
        yield RunDifference(what, area, _written(a), _written(b))


def _written(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
