"""Measure the journal: what it costs to write one, and how long it takes to go on with a large eval run.

    python -m benchmarks.journal [--stored 100000]

Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.__main__ import PROMPT, LatencyServer, command_of, environ, prepare
from benchmarks.memory import PeakMemory, descendants, resident_mb
from benchmarks.scenarios import Scenario
from benchmarks.server import Weather
from pytest_osmosis.record.journal import Journal, encode, replay
from pytest_osmosis.record.run_record import Ledger

N_LEFT = 64
"""The number of runs that the stored eval run has not made."""
N_WRITTEN, PER_TURN = 50_000, 8
"""The rollouts of the journal that is written, and how many end in one turn of the engine."""
MOST_MS_PER_ROLLOUT = 0.1
MOST_S_TO_FIRST_REQUEST = 15.0
NAME = "stored"
LOOK_S = 0.1
Event = Mapping[str, Any]


def made(samples: list[Event], rows: range) -> Iterator[Event]:
    """Yield the events of one rollout of each row, like those of the sample."""
    for row in rows:
        for sample in samples:
            event = {**sample, "row": row}
            if "messages" in sample:
                question, *rest = sample["messages"]
                event["messages"] = [{**question, "content": PROMPT.format(row)}, *rest]
            yield event


def cost_of_writing(samples: list[Event], folder: Path) -> float:
    """Return the milliseconds of CPU time, the system's included, that the journal costs for each rollout.

    They are those of making its lines, of writing them to a disk that gets them once a second, and of its record.
    """
    turns = [list(made(samples, range(first, first + PER_TURN))) for first in range(0, N_WRITTEN, PER_TURN)]
    journal, ledger = Journal.create(folder / "journal.jsonl"), Ledger()
    began = time.process_time()
    for events in turns:
        journal.append(b"".join(map(encode, events)))
        for event in events:
            ledger.apply(event)
    journal.close()
    return 1000 * (time.process_time() - began) / N_WRITTEN


def store(scenario: Scenario, server: LatencyServer, folder: Path) -> list[Event]:
    """Make an eval run that has rolled out all rows but the last ones. Return the events of one of its rollouts."""
    prepare(folder, scenario, server.base_url)
    command = [*command_of("light", scenario, server.base_url), f"--osmosis-run={NAME}", "-k", "row0-"]
    subprocess.run(command, cwd=folder, env=environ(), check=True, stdout=subprocess.DEVNULL)
    path = folder / ".osmosis" / "runs" / NAME / "journal.jsonl"
    events = list(replay(path))
    samples = [event for event in events if event["ev"] in ("start", "rollout", "score")]
    with path.open("wb") as journal:
        for event in events:
            if event["ev"] == "ended":
                journal.writelines(map(encode, made(samples, range(1, scenario.rows - N_LEFT))))
            journal.write(encode(event))
    return samples


def go_on(scenario: Scenario, server: LatencyServer, folder: Path) -> Mapping[str, float]:
    """Go on with the stored eval run, and return how long it took and what it asked."""
    server.reset(scenario.weather)
    command = [*command_of("light", scenario, server.base_url), f"--osmosis-run={NAME}"]
    with (folder / "output").open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=environ(), stdout=output, stderr=output)
        with PeakMemory(lambda: [process.pid, *descendants(process.pid)], resident_mb) as memory:
            until_first_s = cpu_s_until_first_request(process.pid, server)
            _, _, usage = os.wait4(process.pid, 0)
        ended = time.monotonic()
    process.returncode = 0
    counts = server.counts()
    results = json.loads((folder / "results.json").read_text())
    return {
        "first_request_s": counts["first_at"] - began,
        "first_request_cpu_s": until_first_s,
        "wall_s": ended - began,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": memory.peak_mb,
        "n_requests": counts["n_requests"],
        "n_scored": sum(bool(run["scores"]) for row in results["rows"] for run in row["runs"]),
    }


def cpu_s_until_first_request(pid: int, server: LatencyServer) -> float:
    """Return the CPU time that a process has taken when a rollout asks for the first time, within `LOOK_S`."""
    while True:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        if fields[0] == "Z" or server.counts()["n_requests"]:
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        time.sleep(LOOK_S)


def main() -> int:
    """Return 1 if a bound does not hold, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal", description=__doc__.partition("\n")[0])
    parser.add_argument("--stored", type=int, default=100_000)
    options = parser.parse_args()
    scenario = Scenario("journal", options.stored + N_LEFT, 1, 64, Weather(latency_ms=5.0))
    server = LatencyServer()
    try:
        with tempfile.TemporaryDirectory() as folder:
            samples = store(scenario, server, Path(folder))
            written_ms = cost_of_writing(samples, Path(tempfile.mkdtemp(dir=folder)))
            measured = go_on(scenario, server, Path(folder))
    finally:
        server.close()
    print(f"writing the journal: {written_ms:.4f} ms of CPU time for each rollout (<= {MOST_MS_PER_ROLLOUT:g})")
    print(f"going on with {options.stored:,} rollouts (first request <= {MOST_S_TO_FIRST_REQUEST:g} s):")
    print("  " + "  ".join(f"{name} {value:.4g}" for name, value in measured.items()))
    right = measured["n_requests"] == N_LEFT and measured["n_scored"] == scenario.rows
    if not right:
        print("  WRONG: other runs were rolled out than those that were left")
    holds = written_ms <= MOST_MS_PER_ROLLOUT and measured["first_request_s"] <= MOST_S_TO_FIRST_REQUEST
    return int(not (right and holds))


if __name__ == "__main__":
    sys.exit(main())
