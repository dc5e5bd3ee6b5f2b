"""`python -m tests.mutation [ROOM ...]`: plant small errors in rooms, and count those that the tests of a room notice.

`figures.toml` says which modules and tests make a room, how many mutants are tried, which survivors change nothing that
can be seen, and the last score. The exit status is 1 if a score is lower than that. Each mutant is written into a copy
of the repository, where the tests of its room run until one fails; there are as many copies as cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.mutation.mutants import Mutant, sample

REPOSITORY = Path(__file__).resolve().parents[2]
PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow and not nightly and not journey"),
    *("--assert=plain", "-pno:cacheprovider", "--tb=no", "--no-header", "-rfE"),
)
LATE = "no end in time"
TIMES, SPARE_S = 5, 60
"""The tests of a mutant may take so many times what they take without one, and so much more: the machine may be busy.
"""


def copied(folder: Path) -> Path:
    """Copy what git knows of the repository."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def failure(room: Mapping[str, Any], folder: Path, most_s: float | None = None) -> str:
    """Return the first test of a room that fails in a copy of the repository, "" if all pass."""
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    command = ["bash", "-c", 'ulimit -v 16000000; exec "$@"', "bash", *PYTEST, *room["tests"], *room["modules"]]
    with tempfile.TemporaryDirectory(prefix="mutation-") as temporary:
        try:
            done = subprocess.run(
                [*command, f"--basetemp={temporary}/tests"],
                cwd=folder, env=environ, capture_output=True, text=True, timeout=most_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return LATE
    said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return said[0] if said else f"exit status {done.returncode}" if done.returncode else ""


def score_of(name: str, room: Mapping[str, Any], size: int, seed: int, copies: Sequence[Path], verbose: bool) -> float:
    """Try a sample of mutants of a room, print the survivors and the figures, and return the share that is killed."""
    began = time.monotonic()
    if failed := failure(room, copies[0]):
        sys.exit(f"a test fails without a mutant: {failed}")
    most_s = TIMES * (time.monotonic() - began) + SPARE_S
    equivalent = {known["mutant"] for known in room.get("equivalent", ())}
    free: SimpleQueue[Path] = SimpleQueue()
    for each in copies:
        free.put(each)

    def tried(mutant: Mutant, source: str) -> str:
        folder = free.get()
        path = folder / mutant.path
        before = path.read_bytes()
        path.write_text(source, encoding="utf-8")
        failed = failure(room, folder, most_s)
        path.write_bytes(before)
        free.put(folder)
        if verbose or not (failed or mutant.name in equivalent):
            how = failed or ("equivalent" if mutant.name in equivalent else "survived")
            print(f"{mutant.path}:{mutant.line}: {how}: {mutant.name}", flush=True)
        return failed

    mutants = sample(modules_of(room), size, seed)
    with ThreadPoolExecutor(len(copies)) as pool:
        found = list(pool.map(tried, mutants, [mutant.source() for mutant in mutants]))
    left = [mutant.name for mutant, failed in zip(mutants, found, strict=True) if not failed]
    n_equivalent = len(equivalent.intersection(left))
    n_killed, n = len(mutants) - len(left), len(mutants) - n_equivalent
    print(
        f"{name}: {len(mutants)} mutants, {n_equivalent} equivalent, {n_killed} of {n} killed "
        f"({found.count(LATE)} by time): score {n_killed / n:.3f}, was {room['score']}",
        flush=True,
    )
    return n_killed / n


def modules_of(room: Mapping[str, Any]) -> Iterator[Path]:
    for module in map(Path, room["modules"]):
        yield from sorted(module.rglob("*.py")) if module.is_dir() else [module]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="the rooms; all by default")
    parser.add_argument("--sample", type=int, help="the number of mutants of each room")
    parser.add_argument("--seed", type=int, default=30, help="another sample")
    parser.add_argument("--verbose", action="store_true", help="also list what is killed, with the test that fails")
    given = parser.parse_args(arguments)
    rooms = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))
    if unknown := set(given.rooms) - set(rooms):
        parser.error(f"no such room: {', '.join(sorted(unknown))} (rooms: {', '.join(rooms)})")
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copies = [copied(Path(folder, str(number))) for number in range(os.cpu_count() or 1)]
        scores = {
            name: score_of(name, rooms[name], given.sample or rooms[name]["sample"], given.seed, copies, given.verbose)
            for name in given.rooms or rooms
        }
    return int(any(score < rooms[name]["score"] for name, score in scores.items()))


if __name__ == "__main__":
    sys.exit(main())
