"""Measure a large eval on the embedded model, with a test per run and with a test per row, against plain pytest tests.

    python -m benchmarks.scale [--rows 20000] [--n 5]

The figures are CPU and memory of all processes of one command, with empty pytest caches. The floor is an empty
parametrized test for each run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.__main__ import ROOT
from benchmarks.memory import PeakMemory, descendants, resident_mb

CONFIG = """
[experiment]
model_path = "demo/arithmetic"
[data]
path = "rows.jsonl"
rows = "all"
[evaluation]
n = {n}
batch_size = 64
[scoring]
eval_fns = ["rewards:exact"]
[gate]
pass_rate = ">= 0.5"
[secrets]
required = []
"""
REWARDS = """
def exact(solution_str, ground_truth, **kwargs):
    return float(solution_str.endswith(ground_truth))
"""
FLOOR = """
import pytest

@pytest.mark.parametrize("run", range({n_runs}))
def test_run(run):
    pass
"""
OURS = ["-p", "xdist", "-p", "pytest_osmosis.plugin", "--osmosis-config=eval.toml", "--rootdir=."]
COMMANDS = {
    "pytest alone": ["floor_test.py"],
    "a test for each run": OURS,
    "a test for each row": [*OURS, "--osmosis-granularity=row"],
}


def prepare(folder: Path, n_rows: int, n: int) -> None:
    """Write an eval of `n_rows` multiplications with n runs each, and as many empty tests."""
    rows = ({"user_prompt": f"What is {row} * 7?", "ground_truth": str(row * 7)} for row in range(n_rows))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "eval.toml").write_text(CONFIG.format(n=n))
    (folder / "floor_test.py").write_text(FLOOR.format(n_runs=n_rows * n))


def measure(arguments: list[str], folder: Path) -> tuple[float, float, float]:
    """Return CPU seconds, wall seconds and peak megabytes of one pytest command."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={tempfile.mkdtemp(dir=folder)}", *arguments]
    with (folder / "output").open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=output, stderr=output)
        with PeakMemory(lambda: [process.pid, *descendants(process.pid)], resident_mb) as memory:
            _, status, usage = os.wait4(process.pid, 0)
        took_s = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit((folder / "output").read_text()[-2000:])
    return usage.ru_utime + usage.ru_stime, took_s, memory.peak_mb


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--n", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{options.rows:,} rows x {options.n} runs = {options.rows * options.n:,} rollouts; load {os.getloadavg()[0]}"
    )
    floor_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), options.rows, options.n)
        for name, arguments in COMMANDS.items():
            cpu_s, took_s, peak_mb = measure(arguments, Path(folder))
            floor_s = floor_s or cpu_s
            print(
                f"  {name:20} {cpu_s:7.1f} s CPU ({cpu_s / floor_s:.2f}) {took_s:7.1f} s {peak_mb:6.0f} MB", flush=True
            )


if __name__ == "__main__":
    main()
