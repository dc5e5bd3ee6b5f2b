"""The model: what an eval's exit status, results, verdicts and tests must be, from what the server answered.

It follows docs/reference/outcomes.md and the guides, in plain Python, and imports nothing of the package. Who was asked
is an observation, as the moment of a stop is not determined; what follows from it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import product
from math import comb, isclose
from typing import NamedTuple

Run = tuple[int, int]
"""A row and the number of its run."""
Baseline = Mapping[tuple[int, int], Sequence[bool | None]]
"""For each row and version of its prompt the runs of a file of a baseline: if they passed; None if not measured."""
RETRIES = 1
TOKENS = 10
"""The tokens of each answer of the server."""
UNMEASURED = ("provider", "host", "reward")
BY_STATUS = {400: "model", 422: "model"}
"""Statuses that end a rollout; all others are retried, and then say nothing about the model."""


class Said(NamedTuple):
    """The answer or error with which the server answered a request."""

    status: int
    text: str


class Outcome(NamedTuple):
    """The end of a run: at a boundary without a score, or scored."""

    boundary: str | None
    score: float = 0.0

    @property
    def measured(self) -> bool:
        return self.boundary not in UNMEASURED

    @property
    def passed(self) -> bool:
        return self.boundary is None and self.score >= 1.0

    @property
    def test(self) -> str:
        """The outcome of its test if no gate decides."""
        return "error" if self.boundary else "passed" if self.passed else "failure"


def ended(said: Sequence[Said]) -> Said | None:
    """Return the last word on a rollout, None if it did not end. Raises ValueError if it asked too often."""
    finals = [each for each in said if each.status == 200 or each.status in BY_STATUS]
    if len(finals) > 1 or (finals and said[-1] != finals[0]) or len(said) > RETRIES + 1:
        raise ValueError(f"asked too often: {[each.status for each in said]}")
    return said[-1] if finals or len(said) == RETRIES + 1 else None


def outcome(said: Said, rewards: str) -> Outcome:
    """Return how a run ends whose rollout the server ended so, scored by a version of the reward function."""
    if said.status != 200:
        return Outcome(BY_STATUS.get(said.status, "provider"))
    if said.text.startswith("crash"):
        return Outcome("agent")
    if said.text.startswith("unscorable"):
        return Outcome("reward") if rewards != "lenient" else Outcome(None, 0.0)
    score = float(said.text)
    return Outcome(None, {"plain": score, "lenient": max(score, 0.5), "strict": float(score >= 1.0)}[rewards])


@dataclass
class Session:
    """One command, and what the model says about it. A run without an outcome is pending."""

    outcomes: Mapping[Run, Outcome | None]
    gates: Mapping[str, float]
    whole: bool = True
    """True if every planned run was selected; only then gates decide."""
    shard: bool = False
    updates: bool = False
    """True if the command writes the baseline."""
    stopped: str | None = None
    """The limit that stopped it."""
    max_errors: float = 1.0
    """The largest share of the runs that may stay unmeasured."""
    unrecorded: bool = False
    """True if a replay asked something else than was recorded."""
    baseline: Baseline | None = None
    content: Mapping[int, int] = field(default_factory=dict)
    """The version of each row's prompt."""
    may_lack: frozenset[Run] = frozenset()
    """Runs that may be pending, as the stored run was not to make them either."""
    answered: Set[Run] = frozenset()
    """Runs whose stored rollout the server answered. Its tokens were paid, whether it can be scored now or not."""

    @property
    def ended(self) -> Mapping[Run, Outcome]:
        return {run: each for run, each in self.outcomes.items() if each is not None}

    @property
    def unmeasured(self) -> int:
        return sum(not each.measured for each in self.ended.values())

    @property
    def too_many(self) -> bool:
        return self.unmeasured > round(self.max_errors * len(self.outcomes), 6)

    @property
    def counts(self) -> dict[str, object]:
        """The members of a summary that the model knows."""
        ended = self.ended.values()
        boundaries: dict[str, int] = {}
        for each in ended:
            if each.boundary:
                boundaries[each.boundary] = boundaries.get(each.boundary, 0) + 1
        return {
            "measured": sum(each.measured for each in ended),
            "boundaries": boundaries,
            "rolled_out_again": 0,
            "pass_rate": sum(each.passed for each in ended) / len(ended) if ended else None,
            "mean": sum(each.score for each in ended) / len(ended) if ended else None,
        }

    @property
    def decides(self) -> bool:
        """True if gates decide in place of single runs."""
        return self.whole and bool(self.gates)

    def verdicts(self) -> dict[str, str]:
        if not self.whole or self.shard:
            return dict.fromkeys(self.gates, "partial")
        return {gate: self._verdict(gate, minimum) for gate, minimum in self.gates.items()}

    def _verdict(self, gate: str, minimum: float) -> str:
        if gate == "max_regression":
            return "not decided" if self.updates else self._regression(minimum)
        if not any(each.measured for each in self.ended.values()):
            return "not measured"
        worst, best = (_metric(gate, self._by_row(unmeasured)) for unmeasured in (0.0, 1.0))
        if worst is None or best is None:
            return "not measured"
        return "holds" if _reaches(worst, minimum) else "not measured" if _reaches(best, minimum) else "fails"

    def _by_row(self, unmeasured: float) -> list[list[tuple[float, bool]]]:
        """Return score and pass of each run by row, with what was not measured at its best or worst."""
        rows: dict[int, list[tuple[float, bool]]] = {}
        for (row, _), each in self.outcomes.items():
            known = each is not None and each.measured
            value = (each.score, each.passed) if each is not None and known else (unmeasured, unmeasured == 1.0)
            rows.setdefault(row, []).append(value)
        return list(rows.values())

    def _regression(self, allowed: float) -> str:
        assert self.baseline is not None
        here: dict[int, list[bool | None]] = {}
        for (row, _), each in self.outcomes.items():
            here.setdefault(row, []).append(each.passed if each is not None and each.measured else None)
        there = self.baseline
        pairs = [(here[row], there[row, self.content[row]]) for row in here if (row, self.content[row]) in there]
        seen = [(_share(new), _share(old)) for new, old in pairs if _share(new) is not None and _share(old) is not None]
        if not seen:
            return "not measured"
        lost = _regressed([float(new or 0) - float(old or 0) for new, old in seen], allowed)
        for fill in (False, True):
            filled = [(_share(new, fill) or 0.0) - (_share(old, not fill) or 0.0) for new, old in pairs]
            if _regressed(filled, allowed) != lost:
                return "not measured"
        return "fails" if lost else "not measured" if len(seen) <= 5 else "holds"

    def status(self, *, merged: bool = False) -> int:
        """Return the exit status. That of a merge is that of one run of all rows."""
        if self.unrecorded:
            return 1
        verdicts = set(self.verdicts().values())
        decided = self.decides and verdicts & {"holds", "fails"} and "not measured" not in verdicts
        lacks = any(each is None and run not in self.may_lack for run, each in self.outcomes.items())
        measured = any(each.measured for each in self.ended.values())
        if (merged and not self.whole) or not measured or self.too_many or "not measured" in verdicts:
            return 9
        if (lacks or self.stopped) and not decided:
            return 9
        if "fails" in verdicts or (self.updates and not self.becomes_baseline):
            return 1
        return int(not self.decides and any(not each.passed for each in self.ended.values()))

    @property
    def becomes_baseline(self) -> bool:
        return self.whole and not self.stopped and all(each and each.measured for each in self.outcomes.values())

    def tests(self) -> dict[str, str]:
        """Return the outcome of each test, as a JUnit file names it; xfailed counts as skipped there."""
        expected = {}
        for (row, run), each in self.outcomes.items():
            seen = "skipped" if each is None else each.test
            expected[f"row{row}-run{run}"] = "skipped" if self.decides and seen != "passed" else seen
        as_test = {"holds": "passed", "fails": "failure", "not measured": "error"}
        for gate, verdict in self.verdicts().items():
            expected[f"gate {gate}"] = as_test.get(verdict, "skipped")
        return expected


def _share(runs: Iterable[bool | None], fill: bool | None = None) -> float | None:
    counted = [fill if passed is None else passed for passed in runs if passed is not None or fill is not None]
    return sum(map(bool, counted)) / len(counted) if counted else None


def _regressed(differences: Sequence[float], allowed: float) -> bool:
    """Return True for a loss beyond what is allowed, with p below 0.05 by the exact sign-flip test.

    With one run for each row, that is McNemar's exact test.
    """
    loss = -sum(differences) / len(differences)
    changed = [abs(each) for each in differences if each]
    extreme = sum(
        abs(sum(signs)) >= abs(sum(differences)) - 1e-9 for signs in product(*((each, -each) for each in changed))
    )
    return loss > allowed and not isclose(loss, allowed, abs_tol=1e-12) and extreme / 2 ** len(changed) < 0.05


def _metric(gate: str, rows: Sequence[Sequence[tuple[float, bool]]]) -> float | None:
    runs = [run for row in rows for run in row]
    if gate == "mean":
        return sum(score for score, _ in runs) / len(runs)
    if gate == "pass_rate":
        return sum(passed for _, passed in runs) / len(runs)
    k = int(gate.rpartition("_")[2])
    found = [(len(row), sum(passed for _, passed in row)) for row in rows if len(row) >= k]
    if not found:
        return None
    any_of, all_of = (
        sum(1 - comb(n - passed, k) / comb(n, k) for n, passed in found) / len(found),
        sum(comb(passed, k) / comb(n, k) for n, passed in found) / len(found),
    )
    return any_of if gate.startswith("pass_at") else all_of


def _reaches(value: float, minimum: float) -> bool:
    return value >= minimum or isclose(value, minimum, rel_tol=1e-12)
