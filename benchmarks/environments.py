"""Compare our time for an environment of verifiers with that of `vf-eval`: same rows, same server, 32 in flight.

    make test-verifiers
    PYTHONPATH=$PWD/.venv/verifiers python -m benchmarks.environments [--rows 500] [--ms 50] [--reps 3]

The commands take turns. The server says how long its requests took, from the first to the last answer, and how many
were in flight at most; whole commands and their CPU time include all child processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.server import Weather

ROOT = Path(__file__).parents[1]
IN_FLIGHT = 32
ENVIRONMENT = """
import verifiers as vf
from datasets import Dataset


def exact(completion, answer) -> float:
    return float(completion[-1].content.endswith(answer))


def load_environment(n: int):
    def rows():
        return Dataset.from_list([{"question": f"case %d: what is 6 * 7?" % i, "answer": "42"} for i in range(n)])

    return vf.SingleTurnEnv(eval_dataset=rows, rubric=vf.Rubric(funcs=[exact]))
"""
VF_EVAL = "import sys; from verifiers.scripts.eval import main; sys.argv[0] = 'vf-eval'; main()"


class Measured(NamedTuple):
    """Seconds of the requests, of the whole command, and of CPU; the most requests in flight."""

    requests_s: float
    whole_s: float
    cpu_s: float
    most: int


def commands(rows: int, url: str) -> Mapping[str, Sequence[str]]:
    """Return the commands by name: ours, and those of vf-eval without and with its server process."""
    args = json.dumps({"n": rows})
    theirs = [
        *("-c", VF_EVAL, "bench-env", "-m", "served", "-b", url, "-k", "NOKEY", "-n", str(rows), "-r", "1"),
        *("-c", str(IN_FLIGHT), "-a", args, "-s", "-d", "-o", "out"),
    ]
    ours = [
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", "-p", "pytest_osmosis.plugin", "--rootdir=."),
        *("--osmosis-env=bench-env", "--osmosis-model=served", f"--osmosis-base-url={url}"),
        *(f"--osmosis-env-args={args}", f"--osmosis-num-examples={rows}", "--osmosis-rollouts-per-example=1"),
        *(f"--osmosis-max-concurrent={IN_FLIGHT}", "--osmosis-save-results", "--osmosis-output-dir=out"),
    ]
    return {"ours": ours, "vf-eval --disable-env-server": [*theirs, "--disable-env-server"], "vf-eval": theirs}


def measured(command: Sequence[str], folder: Path, server: subprocess.Popen[str]) -> Measured:
    """Run a command and return its figures."""
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder), str(ROOT)])
    own = {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "HF_HUB_OFFLINE": "1", "NOKEY": "none"}
    with (folder / "output").open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env={**environ, **own}, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        whole_s = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit((folder / "output").read_text()[-2000:])
    report = asked(server, "")
    return Measured(report["span_s"], whole_s, usage.ru_utime + usage.ru_stime, report["max_in_flight"])


def asked(server: subprocess.Popen[str], line: str) -> dict[str, Any]:
    """Send a line to the server and return its answer."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(line + "\n")
    server.stdin.flush()
    answer: dict[str, Any] = json.loads(server.stdout.readline())
    return answer


def main() -> int:
    """Return 1 if vf-eval is faster, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.environments", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--ms", type=float, default=50.0)
    parser.add_argument("--reps", type=int, default=3)
    options = parser.parse_args()
    if find_spec("verifiers") is None:
        parser.error("verifiers is not installed: run `make test-verifiers`, and set PYTHONPATH as the module says")
    figures: dict[str, list[Measured]] = {}
    serving = [sys.executable, "-m", "benchmarks.server"]
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen(serving, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        folder = Path(name)
        (folder / "bench_env.py").write_text(ENVIRONMENT)
        for _ in range(options.reps):
            for title, command in commands(options.rows, url).items():
                asked(server, json.dumps(asdict(Weather(latency_ms=options.ms))))
                figures.setdefault(title, []).append(measured(command, folder, server))
        assert server.stdin is not None
        server.stdin.close()
    ideal_s = options.rows / IN_FLIGHT * options.ms / 1000
    print(f"{options.rows} rollouts, {options.ms:g} ms an answer, {IN_FLIGHT} in flight; load {os.getloadavg()[0]:.1f}")
    print(f"requests take at least {ideal_s:.2f} s")
    for title, each in figures.items():
        best = Measured(*map(min, zip(*each, strict=True)))
        whole = statistics.median(one.whole_s for one in each)
        print(
            f"{title:28} requests {best.requests_s:.2f} s, whole {best.whole_s:.2f} s (median {whole:.2f}), "
            f"CPU {best.cpu_s:.2f} s, at most {max(one.most for one in each)} in flight"
        )
    ours, *theirs = (min(one.requests_s for one in each) for each in figures.values())
    ours_whole, *theirs_whole = (min(one.whole_s for one in each) for each in figures.values())
    holds = ours <= min(theirs) and ours_whole <= min(theirs_whole)
    print(f"{'holds' if holds else 'DOES NOT HOLD'}: at least as fast as vf-eval")
    return int(not holds)


if __name__ == "__main__":
    raise SystemExit(main())
