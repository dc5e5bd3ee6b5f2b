"""Earlier runs of the same plan: what the last one took, and which rows flipped since.

Two runs have the same plan where they ask the same question: this eval, these rows (by their content), so many runs of
each, this model, this agent, these scorers and thresholds. What one changes to see what it does (prompts and code,
sampling, timeouts, environment) is no part of it.

Only whole runs count, on either side: what `-k` or `--lf` selects is selected by its outcome, and a run that was
stopped is not what was planned. Rows are matched by content, so that a dataset whose rows moved is still compared.

Rollouts that are scored again are held against their own earlier verdicts (`redecided`): there chance has no part.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from pytest_osmosis import stats
from pytest_osmosis.record.run_directory import ALL_RESULTS

UNMEASURED = ("provider", "host", "reward")
"""Boundaries of published runs that are nobody's answer."""
ROWS = '  "rows": '
"""How the line begins with which the rows start in results.json; what stands before it is small."""


class Known(Protocol):
    """A row that is known by its content."""

    @property
    def digest(self) -> str:
        """The digest of its content."""
        ...


R = TypeVar("R", bound=Known)


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last whole run of a plan. `started_at` is UTC, ISO 8601.

    `cost_usd` is None where nobody knew it, and without the `n_cost_unknown` runs whose cost nobody knew.
    """

    results: Path
    started_at: str
    n_runs: int
    total_tokens: int
    cost_usd: float | None
    duration_s: float
    n_cost_unknown: int = 0

    def shares(self) -> list[Share]:
        """How often each row passed then. Reads all of its results."""
        return list(_shares(json.loads(self.results.read_text(encoding="utf-8"))))


class Share(NamedTuple):
    """A row, by the digest of its content, and the share of its measured runs that passed."""

    digest: str
    passed: float


@dataclass(frozen=True, slots=True)
class Flips:
    """Rows that passed more often (`better`) or less often (`worse`) than in the run `run`, of `n_rows` compared.

    `p` is the chance of a difference like this where nothing changed, by `test`; `difference` is the mean of new minus
    old. Rows that only one of the runs measured are in `n_unmatched`.
    """

    run: str
    started_at: str
    n_rows: int
    n_unmatched: int
    better: int
    worse: int
    difference: float
    p: float
    test: str

    @property
    def is_noise(self) -> bool:
        """True where chance alone makes differences as large."""
        return self.p >= stats.ALPHA

    def to_json(self) -> dict[str, Any]:
        """The published object."""
        return {
            "run": self.run,
            "started_at": self.started_at,
            "rows": self.n_rows,
            "unmatched": self.n_unmatched,
            "better": self.better,
            "worse": self.worse,
            "difference": self.difference,
            "p_value": self.p,
            "test": self.test,
        }


@dataclass(frozen=True, slots=True)
class Rescored:
    """Verdicts on stored rollouts of a run that began at `rolled_out_at`, made in `duration_ms`.

    `kept` says how many scores of each function are of before, as its code has not changed. `better` and `worse` are
    rows whose runs pass more or less often than by the verdicts before, of `n_rows` that both have measured; `previous`
    is the file that those verdicts are kept in, None where there are none.
    """

    rolled_out_at: str
    duration_ms: float
    kept: Mapping[str, int]
    previous: str | None = None
    n_rows: int = 0
    better: int = 0
    worse: int = 0

    def to_json(self) -> dict[str, Any]:
        """The published object."""
        return {
            "rolled_out_at": self.rolled_out_at,
            "duration_ms": round(self.duration_ms, 3),
            "kept": dict(self.kept),
            "previous": self.previous,
            "rows": self.n_rows,
            "better": self.better,
            "worse": self.worse,
        }


class Turned(NamedTuple):
    """How many rows were measured both times, and in how many of them more runs pass now, or fewer."""

    n_rows: int
    better: int
    worse: int


def turned(before: Mapping[str, Any], after: Mapping[str, Any]) -> Turned:
    """Two published results on the same rollouts, run by run."""
    old, new = _verdicts(before), _verdicts(after)
    change = Counter[int]()
    for run in old.keys() & new.keys():
        row, *_ = run
        change[row] += new[run] - old[run]
    return Turned(len(change), sum(n > 0 for n in change.values()), sum(n < 0 for n in change.values()))


def _verdicts(results: Mapping[str, Any]) -> dict[tuple[int, int], bool]:
    """Whether each measured run passed."""
    runs = ((row["row_index"], run) for row in results["rows"] for run in row["runs"])
    return {(row, run["run_index"]): run["passed"] for row, run in runs if is_measured(run) and is_own(run)}


def plan_digest(identity: Mapping[str, Any]) -> str:
    """The digest of what makes a plan the same, as plain JSON; key order is nothing."""
    return blake2b(json.dumps(identity, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def last_run(runs: Path, digest: str) -> LastRun | None:
    """The last whole run of a plan in a folder of runs, None where there is none.

    The newest results are looked at first, and of them only what stands before the rows: hundreds of runs cost some
    milliseconds. What cannot be read is passed over.
    """
    for path in _newest_first(runs):
        try:
            head = _head(path, digest)
            found = None if head is None else _whole(path, head)
            if found is not None:
                return found
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def flips(last: LastRun, new: Sequence[Share]) -> Flips | None:
    """What became of the rows that both have measured; None where there are none, or the old ones cannot be read."""
    try:
        before = by_content(last.shares())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    after = by_content(new)
    both = [row for row in after if row in before]
    if not both:
        return None
    found = stats.compare([after[row].passed for row in both], [before[row].passed for row in both])
    return Flips(
        run=last.results.parent.name,
        started_at=last.started_at,
        n_rows=found.n_rows,
        n_unmatched=len(after) + len(before) - 2 * len(both),
        better=found.better,
        worse=found.worse,
        difference=found.difference,
        p=found.p,
        test=found.test,
    )


def _newest_first(runs: Path) -> list[Path]:
    """The results of runs, also those that newer ones took the place of, by when they were written."""
    written = []
    for results in runs.glob(ALL_RESULTS):
        try:
            written.append((results.stat().st_mtime_ns, results))
        except OSError:  # removed meanwhile
            continue
    return [results for _, results in sorted(written, reverse=True)]


def _head(path: Path, digest: str) -> Mapping[str, Any] | None:
    """The results of a plan without their rows, where they are written as we write them; None for another plan's."""
    lines: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(ROWS):
                lines = ["".join(lines).rstrip().rstrip(","), "}"]
                break
            lines.append(line)
    text = "".join(lines)
    if digest not in text:
        return None
    head: Mapping[str, Any] = json.loads(text)
    return head if head["provenance"]["plan_digest"] == digest else None


def _whole(path: Path, results: Mapping[str, Any]) -> LastRun | None:
    """The run with these results, None where it was cut short or measured nothing."""
    summary = results["summary"]
    if results["partial"] or results["status"] != "finished" or summary["pending"] or not summary["measured"]:
        return None
    return LastRun(
        results=path,
        started_at=results["provenance"]["started_at"],
        n_runs=summary["total_runs"],
        total_tokens=summary["total_tokens"],
        cost_usd=summary["cost_usd"],
        duration_s=summary["total_duration_ms"] / 1000,
        n_cost_unknown=summary["cost_unknown"],
    )


def _shares(results: Mapping[str, Any]) -> Iterator[Share]:
    for row in results["rows"]:
        passed = [run["passed"] for run in row["runs"] if is_measured(run) and is_own(run)]
        if passed:
            yield Share(row["row_digest"], sum(passed) / len(passed))


def is_measured(run: Mapping[str, Any]) -> bool:
    """True where a published run counts as an answer."""
    return run["status"] != "skipped" and run.get("boundary") not in UNMEASURED


def is_own(run: Mapping[str, Any]) -> bool:
    """True where a published run is of the eval's model, and not of a baseline's beside it."""
    return run.get("model_tag") != "baseline"


def by_content(rows: Iterable[R]) -> dict[tuple[str, int], R]:
    """Rows by their content; of rows with the same content the first is matched with the first, and so on."""
    seen: Counter[str] = Counter()
    matched = {}
    for row in rows:
        matched[row.digest, seen[row.digest]] = row
        seen[row.digest] += 1
    return matched
