"""An eval that is killed again and again makes no rollout again that is stored, and says how many are lost at most.

The server's own list of requests is compared with the journal as it was before and after each session. The moments are
random; a failure names the seed that repeats the choices.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.plan import run_seed
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE
from tests.journals import fold
from tests.plugin.in_process import DEADLINE_S
from tests.plugin.workspaces import PYTEST, hosts_under, read_json, wait_until
from tests.weather import kill_choices

N, SEED = 2, 7
UNBOUNDED = 10**9
AHEAD = 3
"""Hosts have at most this many times `batch_size` runs that they have not begun."""
WHOLE_S = 300.0
"""The time that a session may take which nobody kills."""
CONFIG = """
[experiment]
model_path = "demo/arithmetic"
dataset = "x"
[model]
base_url = "{base_url}"
[data]
rows = "all"
[evaluation]
n = {n}
batch_size = {batch}
[sampling]
seed = {seed}
extra_body = {{accuracy = 0.7}}
[scoring]
eval_fns = ["rewards:score"]
[execution]
hosts = 2
[gate]
pass_rate = ">= 0.5"
[secrets]
required = []
"""
REWARDS = """
def score(solution_str, ground_truth, **kwargs):
    return float(solution_str.strip().endswith(ground_truth))
"""
OF_SESSIONS = {
    "duration_ms", "total_duration_ms", "scoring_ms",
    "attempt", "repeated", "rolled_out_again", "throttling", "provenance", "last_run",
}  # fmt: skip
"""Members of results that differ between runs: times, attempts, and where the results came from."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of an eval, and the kills that it survives in their order."""

    rows: int
    batch: int
    most_requests: int
    """A session is killed after 0 to this many requests, so that the run lasts for more than all kills."""
    few_bytes: int
    """A disk is full after at most this much of the events of runs."""
    kills: Sequence[str]
    chance: Callable[[], random.Random]

    @property
    def runs(self) -> set[RunId]:
        return {RunId(row, index) for row in range(self.rows) for index in range(N)}


class Server:
    """The counting server in its own process."""

    def __init__(self, folder: Path, runs: Iterable[RunId]) -> None:
        self._log = folder / "requests.jsonl"
        self._allowed = folder / "allowed"
        self.allow(UNBOUNDED)
        words = [sys.executable, "-m", "tests.durability.counting_server", str(self._log), str(self._allowed)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        printed = iter(self._process.stdout)
        address = next(found for line in printed if (found := re.search(r"http://[0-9.:]+", line)))
        self.base_url = f"{address[0]}/v1"
        self._runs = {(prompt(run.row), run_seed(SEED, run)): run for run in runs}

    @property
    def requested(self) -> list[RunId]:
        """The runs of all requests until now, in order. Probes are none."""
        asked = (tuple(json.loads(line)) for line in self._lines())
        return [self._runs[request] for request in asked if request in self._runs]

    def allow(self, n: int) -> None:
        """Have this many further requests answered, and no more, however late a session is killed."""
        new = self._allowed.with_suffix(".new")
        new.write_text(str(len(self._lines()) + n), encoding="ascii")
        new.replace(self._allowed)

    def _lines(self) -> list[str]:
        """Return the whole lines of the log, which the server may be writing."""
        text = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def server(tmp_path: Path, plan: Plan) -> Iterator[Server]:
    running = Server(tmp_path, plan.runs)
    yield running
    running.close()


def prompt(row: int) -> str:
    return f"What is {row} * {row + 3}?"


@dataclass(frozen=True, slots=True)
class Eval:
    """A workspace with one eval, whose runs have the names that a test gives them."""

    root: Path

    def start(self, name: str, *, most_bytes: int | None = None) -> subprocess.Popen[str]:
        """Begin a run, or go on with it; with `most_bytes`, no file may become larger."""

        def begin() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if most_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

        words = [*PYTEST, "-pno:cacheprovider", "--osmosis-config=x.toml", f"--osmosis-run={name}"]
        with (self.root / "output.txt").open("w") as output:
            return subprocess.Popen(
                words, cwd=self.root, stdout=output, stderr=output, text=True, start_new_session=True, preexec_fn=begin
            )

    @property
    def output(self) -> str:
        return (self.root / "output.txt").read_text(encoding="utf-8", errors="replace")

    def directory(self, name: str) -> Path:
        return self.root / ".osmosis" / "runs" / name

    def journal_bytes(self, name: str) -> int:
        journal = self.directory(name) / "journal.jsonl"
        return journal.stat().st_size if journal.exists() else 0

    def _events(self, name: str) -> Sequence[Mapping[str, Any]]:
        journal = self.directory(name) / "journal.jsonl"
        return list(replay(journal)) if journal.exists() else []

    def rolled(self, name: str) -> Counter[RunId]:
        """Return how often the journal holds a rollout of each run that no infrastructure broke."""
        rollouts = (event for event in self._events(name) if event["ev"] == "rollout")
        return Counter(RunId.of(event) for event in rollouts if event.get("boundary") not in INFRASTRUCTURE)

    def lost(self, name: str) -> tuple[int, int]:
        """Return how many rollouts are lost at most, as the journal says, and how many it holds."""
        events = self._events(name)
        return fold(events).most_lost, sum(event["ev"] == "rollout" for event in events)


@pytest.fixture
def eval_(tmp_path: Path, server: Server, plan: Plan) -> Eval:
    root = tmp_path / "workspace"
    (root / "data").mkdir(parents=True)
    rows = [{"user_prompt": prompt(row), "ground_truth": str(row * (row + 3))} for row in range(plan.rows)]
    (root / "data/x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (root / "rewards.py").write_text(REWARDS, encoding="utf-8")
    (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    config = CONFIG.format(base_url=server.base_url, n=N, batch=plan.batch, seed=SEED)
    (root / "x.toml").write_text(config, encoding="utf-8")
    return Eval(root)


class Killer:
    """Sessions of one run, each of which is killed. `chance` decides when."""

    def __init__(self, plan: Plan, eval_: Eval, server: Server, name: str, chance: random.Random) -> None:
        self._plan = plan
        self._eval = eval_
        self._server = server
        self._name = name
        self._chance = chance

    def session(self, kind: str) -> bool:
        """Kill one session. Return False if it had ended before."""
        most_bytes: int | None = None
        if kind == "full disk":
            most_bytes = (
                max(self._eval.journal_bytes(self._name), 1) + self._rows_bytes() + self._some(self._plan.few_bytes)
            )
        self._server.allow({"full disk": UNBOUNDED, "wave": 0}.get(kind, self._plan.batch))
        process = self._eval.start(self._name, most_bytes=most_bytes)
        try:
            return self._killed(kind, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(DEADLINE_S)
            wait_until(lambda: not hosts_under(self._eval.root), "the end of all hosts")

    def _killed(self, kind: str, process: subprocess.Popen[str]) -> bool:
        match kind:
            case "full disk":
                ended_well = process.wait(WHOLE_S) in (0, 1)
                return not ended_well
            case "start":
                time.sleep(self._chance.uniform(0.0, 1.5))
            case "wave":
                self._wait_for_requests(process, self._plan.batch - 1, answered=0)
                self._wait_for_requests(process, self._some(self._plan.batch))
            case _:
                self._wait_for_requests(process, self._some(self._plan.most_requests))
        if process.poll() is not None:
            return False
        if kind == "host":
            for pid in hosts_under(self._eval.root)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait_for_requests(process, self._some(self._plan.most_requests) // 2)
            process.kill()
        elif kind in ("SIGINT", "SIGTERM"):
            send = os.killpg if kind == "SIGINT" else os.kill
            send(process.pid, signal.Signals[kind])
            process.wait(DEADLINE_S)
        else:
            process.kill()
        process.wait(DEADLINE_S)
        return True

    def _some(self, most: int) -> int:
        return self._chance.randrange(most)

    def _rows_bytes(self) -> int:
        """Return the size of the events with which a session begins, which the digests of rows are most of."""
        return 60 * self._plan.rows

    def _wait_for_requests(self, process: subprocess.Popen[str], n: int, *, answered: int | None = None) -> None:
        """Wait until the server got more than `n` further requests, or the session is over."""
        before = len(self._server.requested)
        self._server.allow(n + self._plan.batch if answered is None else answered)
        wait_until(
            lambda: process.poll() is not None or len(self._server.requested) > before + n, f"request {n} of a session"
        )


KINDS = {"SIGKILL": 5, "wave": 4, "SIGTERM": 3, "SIGINT": 3, "host": 3, "full disk": 2, "start": 2}
FEW = Plan(100, 8, 20, 10_000, ("full disk", "host", "wave"), lambda: random.Random(SEED))
MANY = Plan(1000, 32, 70, 40_000, [kind for kind, n in KINDS.items() for _ in range(n)], kill_choices)


@pytest.fixture(
    params=[
        pytest.param(FEW, id="few", marks=pytest.mark.slow),
        pytest.param(MANY, id="many", marks=pytest.mark.nightly),
    ]
)
def plan(request: pytest.FixtureRequest) -> Plan:
    found: Plan = request.param
    return found


def test_a_run_that_is_killed_at_random_moments_goes_on_and_knows_what_it_lost(
    plan: Plan, eval_: Eval, server: Server
) -> None:
    chance = plan.chance()
    kinds = chance.sample(plan.kills, k=len(plan.kills))
    killer = Killer(plan, eval_, server, "killed", chance)
    twice: list[str] = []
    said_lost = 0

    for turn, kind in enumerate(kinds):
        stored, n_before = eval_.rolled("killed"), len(server.requested)
        assert killer.session(kind), f"session {turn} ({kind}) ended before it was killed:\n{eval_.output[-3000:]}"
        again = stored.keys() & set(server.requested[n_before:])
        twice += [f"session {turn} ({kind}): {run}" for run in again]
        said_lost += "possibly billed" in eval_.output
        most_lost, n_ended = eval_.lost("killed")
        n_lost, n_ahead = len(server.requested) - n_ended, (turn + 1) * AHEAD * plan.batch
        assert n_lost <= most_lost <= n_lost + n_ahead, f"session {turn} ({kind})"

    stored, n_before = eval_.rolled("killed"), len(server.requested)
    server.allow(UNBOUNDED)
    last = eval_.start("killed")
    status = last.wait(WHOLE_S)
    twice += [f"the last session: {run}" for run in stored.keys() & set(server.requested[n_before:])]
    requested, rolled = server.requested, eval_.rolled("killed")
    assert status == 0, eval_.output[-3000:]
    assert twice == []
    assert set(requested) == plan.runs
    assert rolled == dict.fromkeys(plan.runs, 1)
    assert said_lost > 0
    assert len(requested) - eval_.lost("killed")[1] <= most_lost == eval_.lost("killed")[0]
    assert read_json(eval_.directory("killed") / "results.json")["provenance"]["lost_in_flight"] == most_lost
    assert "possibly billed" in eval_.output
    calm = eval_.start("calm")
    assert calm.wait(WHOLE_S) == status, eval_.output[-3000:]
    results = [comparable(read_json(eval_.directory(name) / "results.json")) for name in ("killed", "calm")]
    assert results[0] == results[1]


def comparable(value: Any) -> Any:
    """Return a part of results without what belongs to sessions."""
    if isinstance(value, Mapping):
        return {key: comparable(item) for key, item in value.items() if key not in OF_SESSIONS}
    return [comparable(item) for item in value] if isinstance(value, list) else value
