"""Measure what hosts on a Ray cluster cost over hosts on this machine, in one session.

    python -m benchmarks.cluster [--reps 3]

The cluster is a head without CPUs and two nodes with two CPUs each, all on this machine. What a rollout takes is the
difference between a long and a short eval, so without the start. The CPU of a cluster is that of all of its processes,
less what they take while nothing runs. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.engine_turns import TARGET_MS, turns_ms
from benchmarks.memory import resident_mb
from benchmarks.scale import OURS, measure, prepare
from tests.cluster.clusters import RayCluster, ray_cluster

HEAVY = """
import time

def exact(solution_str, ground_truth, **kwargs):
    begun = time.thread_time()
    while time.thread_time() - begun < 0.02:
        pass
    return float(solution_str.endswith(ground_truth))
"""
MOST_CPU_MS = 0.7
MOST_LATENCY_MS = 5.0
LEAST_SPEED = 0.9
IDLE_S = 5.0
LOOK_S = 0.1
TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """The seconds of one command: on the clock, and of CPU, the cluster's included."""

    wall_s: float
    cpu_s: float

    def less(self, other: Cost, parts: int = 1) -> Cost:
        """Return one of `parts` of the difference to another."""
        return Cost((self.wall_s - other.wall_s) / parts, (self.cpu_s - other.cpu_s) / parts)


ENGINES = ("local", "ray")
Costs = dict[str, Cost]


class ClusterCpu:
    """The CPU of all processes of a cluster while it is entered, also of those that end meanwhile.

    Processes are looked at now and then, as Ray reaps them without counting what they used.
    """

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._ticks: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ClusterCpu:
        self._look()
        self._before = sum(self._ticks.values())
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    @property
    def seconds(self) -> float:
        return (sum(self._ticks.values()) - self._before) / TICKS

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for pid in self._cluster.pids():
            with contextlib.suppress(OSError):  # it has ended
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
                self._ticks[pid] = int(fields[11]) + int(fields[12])


class Evals:
    """Evals in one folder, here and on a cluster, in turns, so that what else the machine does meets both alike."""

    def __init__(self, cluster: RayCluster, folder: Path, reps: int) -> None:
        self._cluster = cluster
        self._folder = folder
        self._reps = reps
        os.environ["RAY_ADDRESS"] = cluster.address
        with ClusterCpu(cluster) as idle:
            time.sleep(IDLE_S)
        self._idle = idle.seconds / IDLE_S

    def cost(self, n_rows: int, *arguments: str) -> Costs:
        """Return the median cost of an eval of the first rows."""
        return median([self._turn(n_rows, *arguments) for _ in range(self._reps)])

    def a_rollout(self, few: int, many: int, *arguments: str) -> Costs:
        """Return the median cost of one rollout, by the difference of a long and a short eval."""
        turns = []
        for _ in range(self._reps):
            short, long = self._turn(few, *arguments), self._turn(many, *arguments)
            turns.append({engine: long[engine].less(short[engine], many - few) for engine in ENGINES})
        return median(turns)

    def _turn(self, n_rows: int, *arguments: str) -> Costs:
        return {engine: self._cost(engine, f"--osmosis-limit={n_rows}", *arguments) for engine in ENGINES}

    def _cost(self, engine: str, *arguments: str) -> Cost:
        with ClusterCpu(self._cluster) as of_cluster:
            own_s, wall_s, _ = measure([*OURS, f"--osmosis-engine={engine}", *arguments], self._folder)
        busy_s = of_cluster.seconds - self._idle * wall_s if engine == "ray" else 0.0
        return Cost(wall_s, own_s + busy_s)


def median(turns: Sequence[Costs]) -> Costs:
    """Return the medians over all turns: those of this machine, and the cluster's as what they differ by.

    Both of one turn met the same machine, so their difference varies less than they do.
    """
    here = Cost(*(statistics.median(each) for each in zip(*(turn["local"] for turn in turns), strict=True)))
    more = (turn["ray"].less(turn["local"]) for turn in turns)
    wall_s, cpu_s = (statistics.median(each) for each in zip(*more, strict=True))
    return {"local": here, "ray": Cost(here.wall_s + wall_s, here.cpu_s + cpu_s)}


def said(holds: bool, text: str) -> bool:
    print(f"{'holds' if holds else 'DOES NOT HOLD'}: {text}", flush=True)
    return holds


def measured(evals: Evals, cluster: RayCluster, folder: Path) -> Iterable[bool]:
    """Yield for each budget whether it holds."""
    start = evals.cost(1)
    print(f"an eval of one row: {start['local'].wall_s:.2f} s here, {start['ray'].wall_s:.2f} s on the cluster")

    cpu = evals.a_rollout(500, 2500, "--osmosis-hosts=3")
    more = 1000 * (cpu["ray"].cpu_s - cpu["local"].cpu_s)
    both = f"{1000 * cpu['local'].cpu_s:.2f} and {1000 * cpu['ray'].cpu_s:.2f} ms"
    yield said(more <= MOST_CPU_MS, f"CPU of a rollout {both}: {more:.2f} ms more (<= {MOST_CPU_MS:g})")

    one = evals.a_rollout(50, 450, "--osmosis-batch-size=1")
    later = 1000 * (one["ray"].wall_s - one["local"].wall_s)
    both = f"{1000 * one['local'].wall_s:.2f} and {1000 * one['ray'].wall_s:.2f} ms"
    yield said(later <= MOST_LATENCY_MS, f"one in flight takes {both}: {later:.2f} ms more (<= {MOST_LATENCY_MS:g})")

    (folder / "rewards.py").write_text(HEAVY)
    for hosts in (1, 2):
        heavy = evals.a_rollout(50, 650, f"--osmosis-hosts={hosts}")
        here, there = heavy["local"].wall_s, heavy["ray"].wall_s
        text = f"with {hosts} host{'s' * (hosts > 1)}, {1 / here:.0f} and {1 / there:.0f} rewards a second"
        speed = here / there
        yield said(speed >= LEAST_SPEED, f"{text}: {speed:.2f} of the local speed (>= {LEAST_SPEED:g})")

    megabytes = {pid: resident_mb(pid) for pid in cluster.pids()}
    print(f"memory of the idle cluster: {sum(megabytes.values()):.0f} MB in {len(megabytes)} processes")

    turn = statistics.median(turns_ms(1024, 4, 200, folder))
    yield said(turn <= TARGET_MS, f"a turn of the engine with 1,024 hosts x 4 takes {turn:.2f} ms (<= {TARGET_MS:g})")


def main() -> int:
    """Return 1 if a budget does not hold, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--reps", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ray_cluster(2, 2) as cluster:
        folder = Path(name)
        prepare(folder, 3000, 1)
        print(f"{options.reps} of each; load {os.getloadavg()[0]:.1f}")
        return int(not all([*measured(Evals(cluster, folder, options.reps), cluster, folder)]))


if __name__ == "__main__":
    raise SystemExit(main())
