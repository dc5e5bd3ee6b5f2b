"""Run scenarios with all subjects in turns, and report which bounds hold.

    python -m benchmarks [S1 S2 ...] [--subjects user,light] [--reps 3] [--json FILE]

Each measurement covers a whole process, from start to exit. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.memory import PeakMemory, descendants, resident_mb
from benchmarks.scenarios import FLOOR_OF, SCENARIOS, SUBJECTS, WARM_UP, Bound, Scenario, Subject
from benchmarks.server import Weather

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "case {}. " + "What is six times seven? Think it over, then end with the number alone. " * 10

REWARDS = """
def exact(solution_str, ground_truth):
    return float(solution_str.endswith(ground_truth))
"""
AGENT = """
import os
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url=os.environ.get("SERVED_AT"), api_key=os.environ.get("SERVED_KEY"))


async def rollout(ctx):
    reply = await client.chat.completions.create(model="served", messages=ctx.prompt)
    return [*ctx.prompt, {"role": "assistant", "content": reply.choices[0].message.content}]
"""
CONFIG = """
[experiment]
model_path = "served"
[data]
path = "rows.jsonl"
rows = "all"
[evaluation]
n = {n}
batch_size = {in_flight}
[model]
base_url = "{base_url}"
client = "light"
[agent]
agent = "{agent}"
endpoint = "{endpoint}"
[scoring]
eval_fns = ["rewards:exact"]
[secrets]
required = []
"""
DIRECT = """
[env]
SERVED_AT = "{base_url}"
SERVED_KEY = "none"
"""

PRICES = """
[prices]
served = {{ input = 1.0, output = 1.0 }}
[limits]
max_cost_usd = {usd}
"""
RUN_USD = 200 / 1e6
"""The cost of a rollout at these prices, in dollars."""


class LatencyServer:
    """The model server, in a child process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.server"]
        self._process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.base_url = f"http://127.0.0.1:{self._line()}/v1"

    def reset(self, weather: Weather) -> None:
        """Set all counts to zero and answer with this weather from now on."""
        self._say(json.dumps(asdict(weather)))

    def counts(self) -> dict[str, Any]:
        """Return the counts since the last reset."""
        counts: dict[str, Any] = json.loads(self._say(""))
        return counts

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _say(self, text: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def prepare(folder: Path, scenario: Scenario, base_url: str) -> None:
    """Write a workspace for our subjects."""
    rows = [{"user_prompt": PROMPT.format(row), "ground_truth": "42"} for row in range(scenario.rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "agent.py").write_text(AGENT)
    for subject, agent in {"user": "agent:rollout", "endpoint": "agent:rollout", "light": "chat"}.items():
        endpoint = "env" if subject == "endpoint" else "url"
        text = CONFIG.format(
            n=scenario.n, in_flight=scenario.in_flight, base_url=base_url, agent=agent, endpoint=endpoint
        )
        text += DIRECT.format(base_url=base_url) if subject == "user" else ""
        limit = PRICES.format(usd=scenario.affords * RUN_USD) if scenario.affords is not None else ""
        (folder / f"{subject}.toml").write_text(text + limit)


def command_of(subject: Subject, scenario: Scenario, base_url: str) -> list[str]:
    """Return the command that runs in the workspace and writes results.json there.

    Only our plugin and xdist are loaded, as if no other plugin were installed.
    """
    if subject in ("floor_openai", "floor_aiohttp"):
        client = subject.removeprefix("floor_")
        numbers = [str(scenario.n), str(scenario.in_flight)]
        return [sys.executable, "-m", "benchmarks.floors", client, "rows.jsonl", *numbers, base_url, "results.json"]
    plugins = ["-p", "xdist", "-p", "pytest_osmosis.plugin"]
    named = [f"--osmosis-config={subject}.toml", "--osmosis-output=results.json", "--rootdir=."]
    return [sys.executable, "-m", "pytest", *plugins, *named]


def measure(subject: Subject, scenario: Scenario, server: LatencyServer, folder: Path) -> dict[str, float]:
    """Run one subject once and return its measures."""
    server.reset(scenario.weather)
    with (folder / f"{subject}.out").open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command_of(subject, scenario, server.base_url), cwd=folder, env=environ(), stdout=output, stderr=output
        )
        with PeakMemory(lambda: [process.pid, *descendants(process.pid)], resident_mb) as memory:
            _, _, usage = os.wait4(process.pid, 0)
        ended = time.monotonic()
    process.returncode = 0
    counts = server.counts()
    results = json.loads((folder / "results.json").read_text())
    n_scored = scored(subject, results)
    spent = {"overspent_runs": results["summary"]["cost_usd"] / RUN_USD - scenario.affords} if scenario.affords else {}
    return {
        "wall_s": ended - began,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": memory.peak_mb,
        "first_request_s": counts["first_at"] - began,
        "after_last_s": ended - counts["last_at"],
        "max_in_flight": counts["max_in_flight"],
        "mean_in_flight": counts["mean_in_flight"],
        "n_requests": counts["n_requests"],
        "n_unscored": 0 if scenario.affords else scenario.n_rollouts - n_scored,
        **spent,
    }


def environ() -> dict[str, str]:
    """Return an environment in which Python keeps compiled modules, as in an installed package."""
    ours = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}, **ours}


def scored(subject: Subject, results: Any) -> int:
    """Return the number of rollouts with a score."""
    if subject.startswith("floor"):
        return sum(each["score"] is not None for each in results)
    return sum(bool(run["scores"]) for row in results["rows"] for run in row["runs"])


Medians = dict[Subject, dict[str, float]]


def medians_of(runs: dict[Subject, list[dict[str, float]]], scenario: Scenario) -> Medians:
    """Return the median of each measure, and the CPU time that a rollout costs beyond its client.

    `own_cpu_ms` is in ms, `own_cpu_calls` in calls by AsyncOpenAI; only the second compares between machines.
    """
    medians: Medians = {
        subject: {name: statistics.median(run[name] for run in each) for name in each[0]}
        for subject, each in runs.items()
        if each
    }
    for subject, floor in FLOOR_OF.items():
        if subject in medians and floor in medians:
            own_s = medians[subject]["cpu_s"] - medians[floor]["cpu_s"]
            medians[subject]["own_cpu_ms"] = 1000 * own_s / scenario.n_rollouts
            if "floor_openai" in medians:
                medians[subject]["own_cpu_calls"] = own_s / medians["floor_openai"]["cpu_s"]
    return medians


def verdict(bound: Bound, medians: Medians) -> str | None:
    """Return a line about a bound, or None if it was not measured."""
    if bound.subject not in medians or (bound.over is not None and bound.over not in medians):
        return None
    value = medians[bound.subject].get(bound.measure, math.nan)
    value = value / medians[bound.over][bound.measure] if bound.over is not None else value
    holds = value >= bound.limit if bound.least else value <= bound.limit
    over = f" / {bound.over}" if bound.over is not None else ""
    sign = ">=" if bound.least else "<="
    state = "holds" if holds else "DOES NOT HOLD"
    return f"{state}: {bound.subject} {bound.measure}{over} = {value:.2f} ({sign} {bound.limit:g})"


def main() -> int:
    """Return 1 if a bound does not hold, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), metavar="|".join(SCENARIOS))
    parser.add_argument("--subjects", default=",".join(SUBJECTS))
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    subjects = [subject for subject in SUBJECTS if subject in options.subjects.split(",")]
    server, failed, measured = LatencyServer(), False, {}
    try:
        run_scenario(WARM_UP, subjects, 1, server)
        for scenario in (SCENARIOS[name] for name in options.scenarios):
            runs = run_scenario(
                scenario, [each for each in subjects if each in scenario.subjects], options.reps, server
            )
            measured[scenario.name] = runs
            failed |= report(scenario, runs)
    finally:
        server.close()
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1))
    return int(failed)


def run_scenario(
    scenario: Scenario, subjects: list[Subject], reps: int, server: LatencyServer
) -> dict[Subject, list[dict[str, float]]]:
    """Run all subjects in turns, `reps` times."""
    runs: dict[Subject, list[dict[str, float]]] = {subject: [] for subject in subjects}
    for _ in range(reps):
        for subject in subjects:
            with tempfile.TemporaryDirectory() as folder:
                prepare(Path(folder), scenario, server.base_url)
                runs[subject].append(measure(subject, scenario, server, Path(folder)))
    return runs


def report(scenario: Scenario, runs: dict[Subject, list[dict[str, float]]]) -> bool:
    """Print medians and verdicts; return True if a bound does not hold."""
    medians = medians_of(runs, scenario)
    print(f"\n{scenario.name}: {scenario.n_rollouts:,} rollouts, {scenario.in_flight} in flight, {scenario.weather}")
    for subject, each in medians.items():
        print(f"  {subject:14}" + "  ".join(f"{name} {value:.3g}" for name, value in each.items()))
    verdicts = [text for bound in scenario.bounds if (text := verdict(bound, medians)) is not None]
    for subject, each in medians.items():
        if not subject.startswith("floor") and each["n_unscored"]:
            verdicts.append(f"DOES NOT HOLD: {subject}: {each['n_unscored']:g} rollouts without a score")
    for text in verdicts:
        print(f"  {text}")
    return any(text.startswith("DOES") for text in verdicts)


if __name__ == "__main__":
    sys.exit(main())
