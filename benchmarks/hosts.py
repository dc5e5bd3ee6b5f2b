"""Measure how much faster two hosts score CPU-bound reward functions than one host.

    python -m benchmarks.hosts [--rows 200] [--ms 50] [--reps 3]

It compares the wall time of whole commands, in turns. At least two processors should be free.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from benchmarks.scale import OURS, measure, prepare

MUST = 1.6
HEAVY = """
import time

def exact(solution_str, ground_truth, **kwargs):
    begun = time.thread_time()
    while time.thread_time() - begun < {seconds}:
        pass
    return float(solution_str.endswith(ground_truth))
"""


def main() -> int:
    """Return 1 if two hosts are less than MUST times as fast as one, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--ms", type=float, default=50.0)
    parser.add_argument("--reps", type=int, default=3)
    options = parser.parse_args()
    walls: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, options.rows, 1)
        (folder / "rewards.py").write_text(HEAVY.format(seconds=options.ms / 1000))
        for _ in range(options.reps):
            for hosts, each in walls.items():
                _, wall_s, _ = measure([*OURS, f"--osmosis-set=execution.hosts={hosts}"], folder)
                each.append(wall_s)
    one, two = (statistics.median(each) for each in walls.values())
    state = "holds" if one / two >= MUST else "DOES NOT HOLD"
    print(f"{options.rows} rewards of {options.ms:g} ms of CPU; load {os.getloadavg()[0]:.1f}")
    print(f"{state}: one host {one:.2f} s / two hosts {two:.2f} s = {one / two:.2f} (>= {MUST:g})")
    return int(one / two < MUST)


if __name__ == "__main__":
    raise SystemExit(main())
