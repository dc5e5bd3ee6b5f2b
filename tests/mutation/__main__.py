"""`python -m tests.mutation [ROOM ...]`: plant small errors in rooms, and count those that the tests of a room notice.

`figures.toml` says which modules and tests make a room, how many mutants are tried, which survivors change nothing that
can be seen, and the last score. The exit status is 1 if a score is lower than that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutants import Mutant, sample
from tests.mutation.trial import LATE, Trials

FIGURES = Path(__file__).with_name("figures.toml")
SEED = 30
ARGUMENTS = ("-q", "-s", "--assert=plain", "-p", "no:cacheprovider", "--tb=no", "--no-header", "--no-summary")


@dataclass(frozen=True, slots=True)
class Room:
    """Modules and their tests. `equivalent` are the mutants that no test can notice."""

    name: str
    modules: Sequence[str]
    tests: Sequence[str]
    sample: int
    score: float
    equivalent: frozenset[str]

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Room:
        equivalent = frozenset(known["mutant"] for known in table.get("equivalent", ()))
        return cls(name, table["modules"], table["tests"], table["sample"], table["score"], equivalent)

    def paths(self) -> Iterator[Path]:
        for module in map(Path, self.modules):
            yield from sorted(module.rglob("*.py")) if module.is_dir() else [module]


def score_of(room: Room, size: int, seed: int, *, verbose: bool = False) -> float:
    """Try a sample of mutants of a room, print the survivors and the figures, and return the share that is killed."""
    scores = []

    def try_all(trials: Trials) -> None:
        paths = list(room.paths())
        trials.watch(paths)
        mutants = sample(paths, size, seed)
        found = [(mutant, _tried(room, trials, mutant, verbose=verbose)) for mutant in mutants]
        n_late = sum(failed == LATE for _, failed in found)
        left = [mutant for mutant, failed in found if not failed]
        n_equivalent = sum(mutant.name in room.equivalent for mutant in left)
        n_killed, n = len(mutants) - len(left), len(mutants) - n_equivalent
        scores.append(n_killed / n)
        print(
            f"{room.name}: {len(mutants)} mutants, {n_equivalent} equivalent, {n_killed} of {n} killed "
            f"({n_late} by time): score {n_killed / n:.3f}, was {room.score}",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        pytest.main([*ARGUMENTS, f"--basetemp={folder}/tests", *room.tests, *room.modules], plugins=[Trials(try_all)])
    return scores[0]


def _tried(room: Room, trials: Trials, mutant: Mutant, *, verbose: bool) -> str | None:
    """Print what becomes of a mutant, and return the test that fails."""
    failed = trials.failure(mutant)
    if not failed and mutant.name not in room.equivalent:
        how = "survived" if failed is None else "survived, because no test calls it"
        print(f"{mutant.path}:{mutant.line}: {how}: {mutant.name}", flush=True)
    elif verbose:
        print(f"{mutant.path}:{mutant.line}: {failed or 'equivalent'}: {mutant.name}", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="the rooms; all by default")
    parser.add_argument("--sample", type=int, help="the number of mutants of each room")
    parser.add_argument("--seed", type=int, default=SEED, help="another sample")
    parser.add_argument("--verbose", action="store_true", help="also list what is killed, with the test that fails")
    given = parser.parse_args(arguments)
    tables = tomllib.loads(FIGURES.read_text(encoding="utf-8"))
    rooms = {name: Room.of(name, table) for name, table in tables.items()}
    if unknown := set(given.rooms) - set(rooms):
        parser.error(f"no such room: {', '.join(sorted(unknown))} (rooms: {', '.join(rooms)})")
    chosen = [rooms[name] for name in given.rooms or rooms]
    scores = [score_of(room, given.sample or room.sample, given.seed, verbose=given.verbose) for room in chosen]
    return int(any(score < room.score for room, score in zip(chosen, scores, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
