"""An engine whose turns a test takes, with hosts that send what the test tells them to."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_osmosis.datasets import Content
from pytest_osmosis.engine.engine import Close, Engine, EngineLoop
from pytest_osmosis.engine.host_connection import Died, Heard, HostEnviron, Post
from pytest_osmosis.engine.hosts import SILENCE_SLACK_S
from pytest_osmosis.engine.job import Bounds, ResumeJob, ScoreInputs
from pytest_osmosis.errors import HostError
from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.record.journal import Journal, replay
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.clocks import SteppedClock
from tests.engine.world import USAGE, job_in

RUN = RunId(0, 0)
ROWS = ScoreInputs(dict.fromkeys(range(4), Content("prompt", "row")))


class ScriptedHost:
    """A connection that keeps the requests it gets, and sends the events that a test tells it to."""

    def __init__(self, name: str, post: Post, delay_s: float = 0.0) -> None:
        self.name = name
        self.gather_s = 0.0
        self.delay_s = delay_s
        self.placed_at: float | None = 0.0
        self.waits_for = ""
        self.told: list[Mapping[str, Any]] = []
        self.killed = False
        self.last: Callable[[], None] = lambda: None
        self._post = post
        self._n_heeded = 0

    def send(self, messages: Iterable[Mapping[str, Any]]) -> None:
        self.told += messages

    def kill(self) -> None:
        self.killed = True

    def join(self, timeout_s: float) -> bool:
        self.last()
        return True

    def last_words(self) -> str:
        return ""

    def say(self, ev: str, run: RunId | None = None, attempt: int = 1, **fields: Any) -> None:
        key = {} if run is None else {**run.to_json(), "attempt": attempt}
        event: Any = {"ev": ev, **key, **fields}
        self._post(Heard(self, [(event, json.dumps(event).encode() + b"\n")]))

    def starts(self, *runs: RunId, attempt: int = 1) -> None:
        for run in runs:
            self.say("start", run, attempt)

    def rolls(self, run: RunId, attempt: int = 1, **fields: Any) -> None:
        self.say("rollout", run, attempt, ms=1.0, messages=[], n_prompt=0, **{"usage": USAGE, **fields})

    def rolls_out(self, *runs: RunId, attempt: int = 1) -> None:
        for run in runs:
            self.starts(run, attempt=attempt)
            self.rolls(run, attempt)

    def scores(self, *runs: RunId, name: str = "exact", ms: float = 1.0) -> None:
        for run in runs:
            self.say("score", run, ms=ms, scores={name: 1.0}, errors={}, output={})

    def die(self) -> None:
        self._post(Died(self, "SIGKILL"))

    def is_lost(self, how: str = "node n1 was lost", machine: str = "n1") -> None:
        """End with the machine, as all others on it."""
        self._post(Died(self, how, by="machine", machine=machine))

    def asked(self, op: str) -> list[Mapping[str, Any]]:
        return [message for message in self.told if message["op"] == op]

    def runs(self) -> list[RunId]:
        return [RunId.of(message) for message in self.asked("run")]

    def heeds_limits(self) -> list[int]:
        """Return the limits that it was sent since the last call, and keep the last one from now on."""
        sent = [message["limit"] for message in self.asked("limit")]
        new, self._n_heeded = sent[self._n_heeded :], len(sent)
        for _ in new:
            self.say("limited")
        return new


class SteppedEngine:
    """An engine that takes a turn when a test says so, with scripted hosts."""

    def __init__(
        self,
        folder: Path,
        n_runs: int = 4,
        *,
        scorers: Mapping[str, bool] | None = None,
        grouped: Iterable[str] = (),
        bad: Iterable[int] = (),
        max_errors: float = math.inf,
        **job: Any,
    ) -> None:
        self.hosts: list[ScriptedHost] = []
        self.told: list[tuple[RunId, Outcome]] = []
        self.clock = SteppedClock()
        self.spawns = True
        self._has_ended = False
        self.delay_s = 0.0
        self.runs = [RunId(row, 0) for row in range(n_runs)]
        self.path = folder / "journal.jsonl"
        self.scorers = scorers or {"exact": True}
        self.grouped = list(grouped)
        own = {"batch_size": 4, "bounds": Bounds(max_errors, "some"), "n_runs": n_runs, "clock": self.clock}
        made = job_in(folder, bad, spawn=self._spawn, **{**own, **job})
        journal = Journal.reopen(self.path) if self.path.exists() else Journal.create(self.path)
        self.engine = Engine(made, journal, lambda *told: self.told.append(told))

    @property
    def loop(self) -> EngineLoop:
        return self.engine.loop

    @property
    def most_silent_s(self) -> float:
        return self.engine.job.setup.agent_timeout_s + SILENCE_SLACK_S

    def _spawn(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> ScriptedHost:
        if not self.spawns:
            raise HostError("no memory")
        self.hosts.append(ScriptedHost(name, post, self.delay_s))
        return self.hosts[-1]

    def begin(self) -> SteppedEngine:
        self.loop.hosts.start()
        rolling = list(self.hosts)
        for host in rolling:
            self.is_ready(host)
        self.submit()
        for scorer in self.hosts[len(rolling) :]:
            self.is_ready(scorer)
        return self

    def submit(self) -> None:
        self.engine.submit(self.runs)
        self.engine.go()
        self.turn()

    def is_ready(self, host: ScriptedHost) -> None:
        sync = [name for name, blocks in self.scorers.items() if blocks]
        digests = dict.fromkeys(self.scorers, "0")
        host.say("ready", scorers=list(self.scorers), sync=sync, digests=digests, grouped=self.grouped)
        self.turn()

    def turn(self) -> None:
        self.loop.turn()

    def after(self, act: Callable[..., None], /, *args: Any, **fields: Any) -> None:
        """Take a turn after a host has done something."""
        act(*args, **fields)
        self.turn()

    def host(self, name: str) -> ScriptedHost:
        return next(host for host in reversed(self.hosts) if host.name == name)

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.turn()

    def end(self) -> None:
        """Close the engine, and check that each run was reported once. Idempotent."""
        if self._has_ended:
            return
        self._has_ended = True
        self.loop.inbox.put(Close(0.0))
        self.turn()
        self.loop.end()
        assert Counter(run for run, _ in self.told) == Counter(self.runs)
        notices = "\n".join(self.engine.notices.texts)
        assert "Traceback" not in notices
        assert "internal accounting error" not in notices

    def kinds(self) -> list[str]:
        return [outcome.kind for _, outcome in self.told]

    def limits(self) -> list[int]:
        return [host.limit for host in self.loop.hosts.rolling]

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        return [event for event in replay(self.path) if event["ev"] == kind]


Make = Callable[..., SteppedEngine]


def resuming(journal: Path, *, shows: bool = False) -> ResumeJob:
    """Return the job of an engine that goes on with a journal. `shows` says whether it reports what is kept."""
    resumption = Resumption(StoredProgress(journal))
    return ResumeJob(resumption, n_kept=1, shows=lambda record, rule: shows, on_change=lambda: None)
