"""The facts that the results of a shard hold besides those of any eval run, so that they can be merged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_osmosis.files.reading import open_file
from pytest_osmosis.record.plan import Shard
from pytest_osmosis.text.numbers import count


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """The file of the baseline: its path, as the session showed it, and the SHA-256 of its content."""

    path: str
    sha256: str

    @classmethod
    def of(cls, path: Path, shown_path: str) -> BaselineFile:
        with open_file(path) as file:
            return cls(shown_path, sha256(file.read()).hexdigest())


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """A shard of an eval. `whole` says that every run of its rows was selected, `missing` what was not, in words.

    It has `rows` of the `planned_rows`. `max_errors` is the limit as a share of all runs or as a number of them,
    and `decides` is True if gates decide in place of single runs. `code` holds digests: those of the
    reward functions by name, and those of the files that rollouts run by path.
    """

    shard: Shard
    rows: int
    planned_rows: int
    planned_runs: int
    whole: bool
    missing: str | None
    decides: bool
    max_errors: float
    max_errors_is_share: bool
    baseline: BaselineFile | None = None
    baseline_stopped: str | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["shard"]
        return {**self.shard.to_json(), **facts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ShardFacts:
        """Return the facts of a published shard, which the schema has checked."""
        known = {each.name: data[each.name] for each in fields(cls) if each.name != "shard"}
        if (baseline := known["baseline"]) is not None:
            known["baseline"] = BaselineFile(baseline["path"], baseline["sha256"])
        return cls(Shard(data["index"], data["of"]), **known)


def most_errors(limit: float, n_runs: int, *, is_share: bool) -> int:
    """Return how many runs may stay unmeasured: 29% of 100 are 29, though 0.29 * 100 is a little less in floats."""
    return math.floor(round(limit * n_runs, 6)) if is_share else int(limit)


def max_errors_text(limit: float, *, is_share: bool) -> str:
    """Return the bound as the user wrote it: "10%" or "12"."""
    return f"{100 * limit:.12g}%" if is_share else count(int(limit))
