"""Measure how many rollouts pytest's process takes from a cluster, and so how many hosts it can feed.

    python -m benchmarks.cluster_feed [--hosts 1000] [--in-flight 4] [--rollouts 20000] [--bytes 0,20000]

The cluster is simulated by a program in the bridge's place (`bridge`). It answers each rollout at once, with the frames
and events of a real one and an answer of so many bytes. All else is what a user's session does: pytest's items, the
engine, the journal, results. The figure is the CPU of pytest's process for a rollout, by the difference of a long and a
short session: one core takes at most so many a second, and feeds as many hosts as roll out slower than that together.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.__main__ import ROOT
from benchmarks.scale import OURS, prepare
from pytest_osmosis.addons.ray.frames import ClusterFacts, Frame, Kind, read_frame

PLACES = 10_000
BYTES = "OSMOSIS_BENCHMARK_BYTES"
RUNS = 5
"""The runs of each row."""
EVENTS = 4
"""The events of each rollout."""
CONFTEST = """
import json, pathlib, time
from pytest_osmosis.addons.ray import clusters as hosts

hosts.BOOT = "import sys; sys.path.append(sys.argv.pop()); from benchmarks.cluster_feed import bridge; bridge()"
begun = time.monotonic()

def pytest_unconfigure():
    figures = {"cpu_s": time.process_time(), "wall_s": time.monotonic() - begun}
    pathlib.Path("figures.json").write_text(json.dumps(figures))
"""
EXECUTION = """
[execution]
engine = "ray"
hosts = {hosts}
[execution.ray]
address = "127.0.0.1:6379"
"""


class Figures(NamedTuple):
    """The CPU seconds of pytest's process, and the seconds that it took."""

    cpu_s: float
    wall_s: float


def bridge() -> None:
    """Be a bridge whose hosts answer at once."""
    text = "42 " * (int(os.environ.get(BYTES, "0")) // 3)
    answer = json.dumps({"role": "assistant", "content": text + "#### 42"}).encode()
    while (frame := read_frame(sys.stdin.buffer.read)) is not None and frame.kind is not Kind.CLOSE:
        match frame.kind:
            case Kind.CONNECT:
                facts = ClusterFacts("127.0.0.1:6379", "0", n_nodes=100, n_places=PLACES)
                say(Frame(Kind.FACTS, 0, json.dumps(facts._asdict()).encode()))
            case Kind.OPEN:
                names = json.loads(frame.first)["work"]["eval_fns"]
                ready = {"ev": "ready", "scorers": names, "sync": [], "digests": dict.fromkeys(names, "digest")}
                say(Frame(Kind.PLACED, frame.number, b"simulated"))
                say(Frame(Kind.SAID, frame.number, json.dumps(ready).encode() + b"\n"))
            case Kind.SEND:
                lines = b"".join(lines_for(json.loads(line), answer) for line in frame.first.splitlines())
                if lines:
                    say(Frame(Kind.SAID, frame.number, lines))
            case Kind.KILL:
                say(Frame(Kind.DIED, frame.number, b'{"how": "it was ended", "by": "host"}'))


def lines_for(message: dict[str, Any], answer: bytes) -> bytes:
    """Return what a host says to a message: of a rollout all at once."""
    if message["op"] == "limit":
        return b'{"ev": "limited"}\n'
    if message["op"] == "probe":
        tag = json.dumps(message["model_tag"]).encode()
        return b'{"ev": "probed", "model_tag": %s, "error": null, "is_systemic": false}\n' % tag
    if message["op"] != "run":
        return b""
    key = b'"row": %d, "run": %d, "attempt": %d' % (message["row"], message["run"], message["attempt"])
    prompt = json.dumps(message["prompt"]).encode().strip(b"[]")
    return (
        b'{"ev": "start", %s, "at": "2026-01-01T00:00:00.000Z"}\n'
        b'{"ev": "rollout", %s, "ms": 1.0, "messages": [%s, %s], "n_prompt": 1, '
        b'"usage": {"input_tokens": 5, "output_tokens": 2}}\n'
        b'{"ev": "scoring", %s, "name": "rewards:exact"}\n'
        b'{"ev": "score", %s, "ms": 0.1, "scores": {"rewards:exact": 1.0}, "errors": {}, "output": {}, '
        b'"ground_truth": "42"}\n'
    ) % (key, key, prompt, answer, key, key)


def say(frame: Frame) -> None:
    data = memoryview(frame.encode())
    while data:
        data = data[os.write(1, data) :]


def session(folder: Path, n_rows: int, n_bytes: int, *arguments: str) -> Figures:
    """Return the figures of a session over the first rows."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", BYTES: str(n_bytes)}
    options = ["-q", "-o", f"cache_dir={tempfile.mkdtemp(dir=folder)}", f"--osmosis-limit={n_rows}", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OURS, *options], cwd=folder, env=environ, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit((done.stdout + done.stderr)[-2000:])
    return Figures(**json.loads((folder / "figures.json").read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster_feed", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=20_000)
    parser.add_argument("--bytes", default="0,20000")
    options = parser.parse_args()
    n_in_flight = options.hosts * options.in_flight
    few, many = max(n_in_flight, RUNS), max(n_in_flight, RUNS) + options.rollouts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, many // RUNS + 1, RUNS)
        config = (folder / "eval.toml").read_text() + EXECUTION.format(hosts=options.hosts)
        (folder / "eval.toml").write_text(re.sub("batch_size = .*", f"batch_size = {n_in_flight}", config))
        (folder / "conftest.py").write_text(CONFTEST)
        print(f"{options.hosts:,} hosts x {options.in_flight} in flight; load {os.getloadavg()[0]:.1f}")
        for n_bytes in map(int, options.bytes.split(",")):
            for granularity in ("run", "row"):
                short, long = (
                    session(folder, n_runs // RUNS, n_bytes, f"--osmosis-granularity={granularity}")
                    for n_runs in (few, many)
                )
                ms = 1000 * (long.cpu_s - short.cpu_s) / options.rollouts
                per_s = 1000 / ms
                print(
                    f"  answers of {n_bytes:,} bytes, a test for each {granularity}: {ms:.3f} ms of CPU a rollout, at "
                    f"most {per_s:,.0f} a second ({EVENTS * per_s:,.0f} events, {per_s * n_bytes / 1e6:.0f} MB); "
                    f"{options.hosts:,} hosts are busy from {options.hosts / per_s:.1f} s a rollout on; "
                    f"{(long.wall_s - short.wall_s) / options.rollouts * 1000:.3f} ms on the clock",
                    flush=True,
                )


if __name__ == "__main__":
    main()
