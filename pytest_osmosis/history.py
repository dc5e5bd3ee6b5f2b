"""Earlier runs of the same plan: what the last one took, and which rows flipped since.

Two runs have the same plan where they ask the same question: this eval, these rows (by their content), so many runs of
each, this model, this agent, these scorers and thresholds. What one changes to see what it does (prompts and code,
sampling, timeouts, environment) is no part of it.

Only whole runs count, on either side: what `-k` or `--lf` selects is selected by its outcome, and a run that was
stopped is not what was planned. Rows are matched by content, so that a dataset whose rows moved is still compared.
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

NOISE = 0.05
"""A p from here on is noise."""
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

    folder: Path
    started_at: str
    n_runs: int
    total_tokens: int
    cost_usd: float | None
    duration_s: float
    n_cost_unknown: int = 0

    def shares(self) -> list[Share]:
        """How often each row passed then. Reads all of its results."""
        return list(_shares(json.loads((self.folder / "results.json").read_text(encoding="utf-8"))))


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
        return self.p >= NOISE

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


def plan_digest(identity: Mapping[str, Any]) -> str:
    """The digest of what makes a plan the same, as plain JSON; key order is nothing."""
    return blake2b(json.dumps(identity, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def last_run(runs: Path, digest: str) -> LastRun | None:
    """The last whole run of a plan in a folder of runs, None where there is none.

    Manifests are looked at for the digest, the newest results first, and of results only what stands before the rows:
    hundreds of runs cost some milliseconds. What cannot be read is passed over.
    """
    for folder in _newest_first(runs):
        try:
            if digest.encode() in (folder / "manifest.json").read_bytes():
                found = _whole(folder, _head(folder / "results.json"))
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
        run=last.folder.name,
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
    """The folders of runs that have results, by when those were written."""
    written = []
    for results in runs.glob("*/results.json"):
        try:
            written.append((results.stat().st_mtime_ns, results.parent))
        except OSError:  # removed meanwhile
            continue
    return [folder for _, folder in sorted(written, reverse=True)]


def _head(path: Path) -> Mapping[str, Any]:
    """The results without their rows, where they are written as we write them; else the whole."""
    lines: list[str] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(ROWS):
                lines = ["".join(lines).rstrip().rstrip(","), "}"]
                break
            lines.append(line)
    head: Mapping[str, Any] = json.loads("".join(lines))
    return head


def _whole(folder: Path, results: Mapping[str, Any]) -> LastRun | None:
    """The run with these results, None where it was cut short or measured nothing."""
    summary = results["summary"]
    if results["partial"] or results["status"] != "finished" or summary["pending"] or not summary["measured"]:
        return None
    return LastRun(
        folder=folder,
        started_at=results["provenance"]["started_at"],
        n_runs=summary["total_runs"],
        total_tokens=summary["total_tokens"],
        cost_usd=summary["cost_usd"],
        duration_s=summary["total_duration_ms"] / 1000,
        n_cost_unknown=summary["cost_unknown"],
    )


def _shares(results: Mapping[str, Any]) -> Iterator[Share]:
    for row in results["rows"]:
        passed = [run["passed"] for run in row["runs"] if is_measured(run)]
        if passed:
            yield Share(row["row_digest"], sum(passed) / len(passed))


def is_measured(run: Mapping[str, Any]) -> bool:
    """True where a published run counts as an answer."""
    return run["status"] != "skipped" and run.get("boundary") not in ("provider", "host", "reward")


def by_content(rows: Iterable[R]) -> dict[tuple[str, int], R]:
    """Rows by their content; of rows with the same content the first is matched with the first, and so on."""
    seen: Counter[str] = Counter()
    matched = {}
    for row in rows:
        matched[row.digest, seen[row.digest]] = row
        seen[row.digest] += 1
    return matched
