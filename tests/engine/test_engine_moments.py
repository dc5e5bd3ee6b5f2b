"""Moments that are hard to produce with real hosts: the test decides what each host sends, and when."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_osmosis.clock import SYSTEM
from pytest_osmosis.datasets import Content, Dataset
from pytest_osmosis.engine import hosts as engine_hosts
from pytest_osmosis.engine import recovery
from pytest_osmosis.engine.actor import Actor, Close
from pytest_osmosis.engine.engine import Engine
from pytest_osmosis.engine.host_connection import Died, Heard, HostEnviron, Post
from pytest_osmosis.engine.host_starts import MOST_LOST
from pytest_osmosis.engine.job import Bounds, EarlyStop, Job, RescoreJob, ResumeJob, ScoreInputs, Transcript
from pytest_osmosis.engine.limits import Limits
from pytest_osmosis.engine.notices import WAIT_S
from pytest_osmosis.engine.probing import shutdown_text
from pytest_osmosis.errors import HostError, JournalError
from pytest_osmosis.host.protocol import JUDGE, HostCode, Key, Setup
from pytest_osmosis.record.journal import Journal, replay
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_lock import holder_of
from pytest_osmosis.record.run_record import UNINTERRUPTIBLE, RunRecord, fold
from pytest_osmosis.record.stop import Stop
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress, StoredRollouts
from pytest_osmosis.report.summary import notice_lines
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, kind_of
from tests.clocks import SteppedClock
from tests.engine.world import Rows

DEADLINE_S = 60.0
USAGE = {"input_tokens": 5, "output_tokens": 2}


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

    def rolls(self, run: RunId, attempt: int = 1) -> None:
        self.say("rollout", run, attempt, ms=1.0, messages=[], n_prompt=0, usage=USAGE)

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
        self.delay_s = 0.0
        self.runs = [RunId(row, 0) for row in range(n_runs)]
        self.path = folder / "journal.jsonl"
        self.scorers = scorers or {"exact": True}
        self.grouped = list(grouped)
        setup = Setup(HostCode("roll", str(folder), (), {"api_key_env": None, "headers": {}}))
        made = Job(
            setup=setup,
            dataset=cast(Dataset, Rows(frozenset(bad))),
            pass_rule=PassRule(()),
            describe=lambda record, pass_rule, transcript: Outcome(kind_of(record, pass_rule)),
            environ=HostEnviron({}),
            host_log=folder / "host.log",
            stop_request=folder / "stop",
            batch_size=4,
            bounds=Bounds(max_errors, "some"),
            n_runs=n_runs,
            probes=(),
            spawn=self._spawn,
            clock=self.clock,
        )
        journal = Journal.reopen(self.path) if self.path.exists() else Journal.create(self.path)
        self.engine = Engine(replace(made, **job), journal, lambda *told: self.told.append(told))

    @property
    def actor(self) -> Actor:
        """The engine's state, whose turns the test takes."""
        return self.engine._actor

    def _spawn(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> ScriptedHost:
        if not self.spawns:
            raise HostError("no memory")
        self.hosts.append(ScriptedHost(name, post, self.delay_s))
        return self.hosts[-1]

    def begin(self) -> None:
        """Start the hosts, make them ready, and submit all runs."""
        self.actor.hosts.start()
        for host in self.hosts:
            self.is_ready(host)
        self.engine.submit(self.runs)
        self.engine.go()
        self.turn()

    def is_ready(self, host: ScriptedHost) -> None:
        sync = [name for name, blocks in self.scorers.items() if blocks]
        digests = dict.fromkeys(self.scorers, "0")
        host.say("ready", scorers=list(self.scorers), sync=sync, digests=digests, grouped=self.grouped)
        self.turn()

    def turn(self) -> None:
        self.actor.turn()

    def host(self, name: str) -> ScriptedHost:
        """Return the newest host of a role."""
        return next(host for host in reversed(self.hosts) if host.name == name)

    def end(self) -> None:
        """Close the engine, and check that each run was reported once."""
        self.actor.inbox.put(Close(0.0))
        self.turn()
        self.actor.end()
        assert Counter(run for run, _ in self.told) == Counter(self.runs)
        notices = "\n".join(self.engine.notices.texts)
        assert "Traceback" not in notices
        assert "internal accounting error" not in notices

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        return [event for event in replay(self.path) if event["ev"] == kind]


def rolls_and_dies(stepped: SteppedEngine) -> None:
    """Let the host roll out the first run and die, so that no other can be started."""
    host = stepped.host("host")
    host.say("start", RunId(0, 0))
    host.rolls(RunId(0, 0))
    stepped.turn()
    stepped.spawns = False
    host.die()


def test_an_unreadable_row_that_stops_the_eval_also_stops_runs_read_with_it(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, bad=[1], max_errors=0)
    stepped.begin()
    assert stepped.host("host").runs() == []
    stepped.end()
    assert Counter(outcome.kind for _, outcome in stepped.told) == {"error": 1, "skipped": 3}


def test_a_run_that_a_dead_quarantine_had_not_begun_does_not_begin_after_a_stop(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 1)
    stepped.begin()
    stepped.host("host").say("start", RunId(0, 0))
    stepped.host("host").die()
    stepped.turn()
    quarantine = stepped.host("quarantine")
    stepped.is_ready(quarantine)
    assert quarantine.runs() == stepped.runs
    stepped.engine.stop("interrupt", "enough")
    quarantine.die()
    stepped.turn()
    assert stepped.host("quarantine") is quarantine
    stepped.end()
    assert [outcome.kind for _, outcome in stepped.told] == ["skipped"]


def test_each_host_keeps_one_slot_however_often_servers_refuse(tmp_path: Path) -> None:
    """A host without a slot would hold the runs that it has begun until another host ends a run."""
    stepped = SteppedEngine(tmp_path, 20, hosts=3)
    stepped.begin()
    for _ in range(5):
        stepped.clock.advance(1.0)
        stepped.hosts[0].say("throttled", wait_s=0.0)
        stepped.turn()
    assert [host.limit for host in stepped.actor.hosts.rolling] == [1, 1, 1]
    stepped.end()


def test_hosts_get_more_within_a_lower_cap_once_none_has_more_than_its_share(tmp_path: Path) -> None:
    """Until then none has more in flight than it had: the rollouts that the first has beyond its share may last."""
    stepped = SteppedEngine(tmp_path, 30, hosts=3, batch_size=6)
    stepped.begin()
    first, second, third = stepped.hosts[:3]
    for host in (first, second, third):
        host.heeds_limits()
    limits = []
    for host, n in ((first, 2), (second, 1)):
        for run in host.runs()[:n]:
            host.say("start", run)
    stepped.actor.hosts.limit(3)
    for ends in (None, None, second.runs()[0], first.runs()[0], None):
        if ends is not None:
            (second if ends in second.runs() else first).rolls(ends)
        stepped.turn()
        limits.append([host.heeds_limits() for host in (first, second, third)])
    assert limits == [[[0]] * 3, [[1], [1], []], [[]] * 3, [[], [], [1]], [[]] * 3]
    stepped.actor.hosts.limit(6)
    stepped.turn()
    assert [host.heeds_limits() for host in (first, second, third)] == [[2]] * 3, "none has more than that"
    stepped.end()


def test_a_host_whose_rollouts_hold_slots_keeps_a_limit_while_shares_settle(tmp_path: Path) -> None:
    """One that waits for its slot may hold what they wait for: without a limit, its host never lets it go on."""
    stepped = SteppedEngine(tmp_path, 30, hosts=2, batch_size=6)
    stepped.begin()
    first, second = stepped.hosts[:2]
    for host, n in ((first, 3), (second, 1)):
        for run in host.runs()[:n]:
            host.say("start", run)
    stepped.actor.hosts.limit(4)
    for _ in range(3):
        stepped.turn()
        for host in (first, second):
            host.heeds_limits()
    assert [host.limit for host in stepped.actor.hosts.rolling] == [2, 1]
    stepped.end()


def test_lost_reasoning_is_said_once_with_the_number_of_answers(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, hosts=2)
    stepped.begin()
    for host in (0, 1, 1):
        stepped.hosts[host].say("reasoning_lost")
    stepped.turn()
    (line,) = notice_lines(stepped.engine.notices.texts)
    assert line.startswith("the model's reasoning in an answer was lost")
    assert line.endswith(" (3 times)")
    assert stepped.engine.notices.alerts == []
    stepped.end()


@pytest.mark.parametrize(("low_latency", "most_s"), [(False, 0.1), (True, 0.02)])
def test_messages_are_gathered_while_a_host_has_enough_to_begin(
    tmp_path: Path, low_latency: bool, most_s: float
) -> None:
    stepped = SteppedEngine(tmp_path, 40, batch_size=12, early_stop=EarlyStop(low_latency=low_latency))
    stepped.begin()
    host = stepped.host("host")
    assert (len(host.runs()), host.gather_s) == (24, 0.0)

    def go_on(runs: Sequence[RunId], after_s: float) -> float:
        stepped.clock.advance(after_s)
        for run in runs:
            host.say("start", run)
            host.rolls(run)
        stepped.turn()
        return host.gather_s

    assert go_on(stepped.runs[:2], after_s=10.0) == most_s
    assert 0.01 <= go_on(stepped.runs[2:10], after_s=0.04) <= most_s
    assert go_on(stepped.runs[10:16], after_s=10.0) == 0.01, "nothing is left to hand out, but to score"
    scorer = stepped.host("scorer")
    while len(scorer.asked("score")) < 16:
        assert host.gather_s == scorer.gather_s == 0.01
        scorer.say("score", RunId.of(scorer.asked("score")[-1]), ms=10.0, scores={"exact": 1.0}, errors={}, output={})
        stepped.turn()
    assert host.gather_s == scorer.gather_s == 0.0, "nothing is left to score"
    stepped.end()


def test_a_scorer_far_away_gets_more_ahead_and_says_less_often(tmp_path: Path) -> None:
    """Each message to it takes a while, and costs as much as several results."""
    asked: list[int] = []
    for delay_s in (0.0, 0.03):
        (folder := tmp_path / str(delay_s)).mkdir()
        stepped = SteppedEngine(folder, 16, batch_size=16)
        stepped.delay_s = delay_s
        stepped.begin()
        for run in stepped.runs:
            stepped.host("host").say("start", run)
            stepped.host("host").rolls(run)
        stepped.turn()
        scorer = stepped.host("scorer")
        assert scorer.gather_s == pytest.approx(0.01 + delay_s)
        asked.append(len(scorer.asked("score")))
        stepped.end()
    assert asked == [3, 9], "20 ms of functions that take 10 ms, and twice the delay; and the one that is scored"


def test_rollouts_that_succeed_after_a_pause_let_more_runs_begin(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 8)
    stepped.begin()
    host = stepped.host("host")
    host.say("throttled", wait_s=0.0)
    stepped.turn()
    failure: dict[str, Any] = {"boundary": "agent", "error": "no", "details": ""}
    limits = []
    for run, fields in zip(stepped.runs, (failure, {}, {}), strict=False):
        host.say("start", run)
        host.say("rollout", run, ms=1.0, messages=[], n_prompt=0, usage=USAGE, **fields)
        stepped.turn()
        limits.append(host.asked("limit")[-1]["limit"])
    assert limits == [2, 2, 3]
    stepped.end()


def test_messages_are_not_gathered_if_requests_need_permits(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 40, batch_size=12, limits=Limits(60))
    stepped.begin()
    host = stepped.host("host")
    for run in stepped.runs[:2]:
        host.say("start", run)
        host.rolls(run)
    stepped.turn()
    assert len(host.runs()) == 26
    assert host.gather_s == 0.0
    stepped.end()


def test_the_pause_for_a_server_does_not_count_as_silence(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, hosts=2)
    stepped.begin()
    first, other = stepped.hosts[:2]
    most_s = stepped.engine.job.setup.agent_timeout_s + engine_hosts.SILENCE_SLACK_S
    first.say("throttled", wait_s=2 * most_s)
    stepped.turn()
    for seconds, killed in ((2 * most_s, False), (most_s - 1.0, False), (2.0, True)):
        stepped.clock.advance(seconds)
        stepped.turn()
        assert (first.killed, other.killed) == (killed, killed)
    stepped.end()


def test_a_host_that_is_held_up_is_found_however_often_servers_refuse(tmp_path: Path) -> None:
    """Each pause lasts for half of the time, and lowers the limit of each host, or lets it be raised again."""
    stepped = SteppedEngine(tmp_path, 400, hosts=2, batch_size=16, scorers={"exact": False})
    stepped.begin()
    works, held_up = stepped.hosts[:2]
    most_s = stepped.engine.job.setup.agent_timeout_s + engine_hosts.SILENCE_SLACK_S
    n_runs, n_limits, begun_at = 0, 0, stepped.clock.now()
    while not held_up.killed:
        works.say("throttled", wait_s=most_s / 16)
        for _ in range(2):
            for run in works.runs()[n_runs:]:
                works.say("start", run)
                works.rolls(run)
                works.say("score", run, ms=1.0, scores={"exact": 1.0}, errors={}, output={})
            n_runs = len(works.runs())
            for _ in works.asked("limit")[n_limits:]:
                works.say("limited")
            n_limits = len(works.asked("limit"))
            stepped.turn()
            stepped.clock.advance(most_s / 16)
        assert stepped.clock.now() - begun_at < 2.3 * most_s
    assert stepped.clock.now() - begun_at >= 2 * most_s
    assert not works.killed
    assert len(held_up.asked("limit")) > 3
    stepped.end()


def test_a_quarantine_that_has_nothing_left_to_do_may_end_as_slowly_as_a_busy_machine_lets_it(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 1)
    stepped.begin()
    stepped.host("host").say("start", stepped.runs[0])
    stepped.host("host").die()
    stepped.turn()
    quarantine = stepped.host("quarantine")
    stepped.is_ready(quarantine)
    quarantine.say("start", stepped.runs[0], 2)
    quarantine.rolls(stepped.runs[0], 2)
    stepped.turn()
    assert quarantine.asked("close")
    for seconds, killed in ((2 * engine_hosts.CLOSE_S, False), (engine_hosts.SILENCE_SLACK_S, True)):
        stepped.clock.advance(seconds)
        stepped.turn()
        assert quarantine.killed == killed
    stepped.end()


@pytest.mark.parametrize("name", ["host", "quarantine"])
def test_a_host_that_starts_during_a_servers_pause_keeps_the_pause(tmp_path: Path, name: str) -> None:
    stepped = SteppedEngine(tmp_path)
    stepped.begin()
    stepped.hosts[0].say("start", RunId(0, 0))
    stepped.hosts[0].say("throttled", wait_s=300.0)
    stepped.hosts[0].die()
    stepped.turn()
    stepped.is_ready(stepped.host(name))
    stepped.turn()
    held, *given = [message for message in stepped.host(name).told if message["op"] in ("hold", "run")]
    assert held["op"] == "hold"
    assert 200 < held["wait_s"] <= 300
    assert given
    stepped.end()


@pytest.mark.parametrize("does", ["rolls out", "scores", "does not answer"])
def test_a_host_that_may_begin_nothing_further_must_end_what_it_does(tmp_path: Path, does: str) -> None:
    stepped = SteppedEngine(tmp_path, 1, scorers={"judge": False})
    stepped.begin()
    host = stepped.host("host")
    host.say("start", RunId(0, 0))
    if does == "scores":
        host.rolls(RunId(0, 0))
        host.say("scoring", RunId(0, 0), name="judge")
    stepped.turn()
    if does == "does not answer":
        host.say("retry", RunId(0, 0), waits=True)
    stepped.actor.hosts.limit(0)
    stepped.turn()
    if does != "does not answer":
        host.say("limited")
    stepped.turn()
    assert stepped.actor.hosts.rolling[0].limit == 0
    stepped.clock.advance(1000.0)
    stepped.turn()
    assert host.killed
    stepped.end()


def test_a_host_that_does_not_become_ready_is_ended_however_often_its_limit_changes(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, hosts=2, batch_size=16)
    stepped.actor.hosts.start()
    ready, loads = stepped.hosts
    stepped.is_ready(ready)
    for in_flight in (4, 8, 12):
        assert not loads.killed
        stepped.clock.advance(engine_hosts.START_S / 2 - 1.0)
        stepped.actor.hosts.limit(in_flight)
        n_limits = len(ready.asked("limit"))
        stepped.turn()
        for _ in ready.asked("limit")[n_limits:]:
            ready.say("limited")
    assert loads.killed
    assert loads.asked("limit")
    stepped.engine.submit(stepped.runs)
    stepped.end()


def test_a_silent_host_that_its_machine_took_along_was_lost_with_that(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path)
    stepped.begin()
    host = stepped.host("host")
    host.say("start", RunId(0, 0))
    stepped.turn()
    stepped.clock.advance(1000.0)
    stepped.turn()
    assert host.killed
    host.is_lost()
    stepped.turn()
    stepped.clock.advance(recovery.REPORT_S)
    stepped.turn()
    assert "node n1 was lost; 1 run that had begun there is rolled out once more" in stepped.engine.notices.texts
    stepped.end()


@pytest.mark.parametrize("probes", [(), (ModelTag.PRIMARY,)], ids=["runs", "probe"])
def test_a_host_that_never_begins_its_runs_is_ended(tmp_path: Path, probes: tuple[ModelTag, ...]) -> None:
    """Code that holds the interpreter from its import on keeps a host silent."""
    stepped = SteppedEngine(tmp_path, probes=probes)
    stepped.begin()
    assert [message["op"] for message in stepped.host("host").told][-1:] == (["probe"] if probes else ["run"])
    stepped.turn()
    assert not stepped.host("host").killed
    stepped.clock.advance(1000.0)
    stepped.turn()
    assert stepped.host("host").killed
    stepped.end()


def test_an_idle_host_may_be_silent(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 1, hosts=2)
    stepped.begin()
    idle = next(host for host in stepped.actor.hosts.rolling if not cast(ScriptedHost, host.connection).runs())
    stepped.clock.advance(1000.0)
    stepped.turn()
    assert not cast(ScriptedHost, idle.connection).killed
    stepped.end()


def test_the_run_that_keeps_its_host_silent_is_found_in_quarantine(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 2)
    stepped.begin()
    most_s = stepped.engine.job.setup.agent_timeout_s + engine_hosts.SILENCE_SLACK_S
    for attempt, name in enumerate(("host", "quarantine"), 1):
        host = stepped.host(name)
        if attempt > 1:
            stepped.is_ready(host)
            stepped.turn()
        for run in host.runs():
            host.say("start", run, attempt)
        stepped.turn()
        for seconds, killed in ((most_s - 1.0, False), (2.0, True)):
            stepped.clock.advance(seconds)
            stepped.turn()
            assert host.killed == killed
        assert not stepped.told
        host.die()
        stepped.turn()
    (rollout,) = stepped.events("rollout")
    told = {"row": 0, "boundary": "agent", "error": f"ended its process twice (it sent nothing for {most_s:.0f} s)"}
    assert {name: rollout[name] for name in told} == told
    stepped.end()


def test_a_group_whose_function_cannot_be_interrupted_gets_no_score_and_its_host_ends(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 1, scorers={"whole": False}, grouped=["whole"])
    stepped.begin()
    host = stepped.host("host")
    host.say("start", RunId(0, 0))
    host.rolls(RunId(0, 0))
    stepped.turn()
    host.say("scoring", RunId(0, 0), name="whole")
    host.say("stalled", RunId(0, 0), stack="File ...")
    stepped.turn()
    assert host.killed
    (score,) = stepped.events("score")
    assert score["errors"]["whole"] == {"message": UNINTERRUPTIBLE, "details": "File ..."}
    stepped.end()


def test_suspects_without_a_host_are_reported_once_if_the_first_of_them_stops_the_eval(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, max_errors=0)
    stepped.begin()
    for run in stepped.runs:
        stepped.host("host").say("start", run)
    stepped.turn()
    stepped.spawns = False
    stepped.host("host").die()
    stepped.turn()
    assert Counter(outcome.kind for _, outcome in stepped.told) == {"error": 1, "skipped": 3}
    stepped.end()


def test_a_function_without_a_host_fails_once(tmp_path: Path) -> None:
    """Its run meanwhile waits for another function, which has its process."""
    stepped = SteppedEngine(tmp_path, 1, scorers={"judge": False, "exact": True})
    stepped.begin()
    stepped.is_ready(stepped.host("scorer"))
    rolls_and_dies(stepped)
    for _ in range(3):
        stepped.turn()
    stepped.host("scorer").say("score", RunId(0, 0), ms=1.0, scores={"exact": 1.0}, errors={}, output={})
    stepped.turn()
    assert [[*event["scores"], *event["errors"]] for event in stepped.events("score")] == [["judge"], ["exact"]]
    stepped.end()


def test_a_host_that_cannot_be_started_and_is_not_needed_stops_nothing(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 1)
    stepped.begin()
    stepped.is_ready(stepped.host("scorer"))
    rolls_and_dies(stepped)
    stepped.turn()
    stepped.host("scorer").say("score", RunId(0, 0), ms=1.0, scores={"exact": 1.0}, errors={}, output={})
    stepped.turn()
    assert stepped.engine.stopped is None
    stepped.end()


def test_quarantines_that_die_before_they_begin_are_given_up_although_other_hosts_begin(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 12)
    stepped.begin()
    stepped.host("host").say("start", RunId(0, 0))
    stepped.host("host").die()
    for row in range(1, 4):
        stepped.turn()
        stepped.is_ready(stepped.host("host"))
        stepped.host("host").say("start", RunId(row, 0))
        stepped.is_ready(stepped.host("quarantine"))
        assert stepped.host("quarantine").runs() == [RunId(0, 0)]
        stepped.host("quarantine").die()
    stepped.turn()
    assert Counter(outcome.kind for _, outcome in stepped.told)["error"] == 1
    assert "before they ran any of your code" in str(stepped.engine.stopped)
    assert stepped.engine.ledger.records[RunId(0, 0)].boundary == "host"
    assert [host.name for host in stepped.hosts].count("quarantine") == 3
    stepped.end()


def test_hosts_killed_between_runs_are_replaced(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 12)
    stepped.begin()
    for row in range(6):
        stepped.host("host").say("start", RunId(row, 0))
        stepped.host("host").rolls(RunId(row, 0))
        stepped.turn()
        for _ in range(2):
            stepped.host("host").die()
            stepped.turn()
            stepped.is_ready(stepped.host("host"))
    assert stepped.engine.stopped is None
    stepped.end()


def test_the_quarantine_takes_its_slot_from_the_newest_host(tmp_path: Path) -> None:
    """The runs of an older host would stay in flight, beyond `batch_size`."""
    stepped = SteppedEngine(tmp_path, 30, hosts=3, batch_size=7)
    stepped.begin()
    first, second, third = stepped.hosts[:3]
    stepped.is_ready(first)
    second.say("start", second.runs()[0])
    second.die()
    stepped.turn()
    assert stepped.host("quarantine")
    assert [host.limit for host in stepped.actor.hosts.rolling] == [3, 2, 1]
    assert [first.asked("limit")[-1:], third.asked("limit")[1:]] == [[], []]
    stepped.end()


def test_a_probe_of_a_dead_host_is_repeated_after_the_pause(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, probes=(ModelTag.PRIMARY,))
    stepped.begin()
    stepped.engine.pause()
    stepped.host("host").die()
    stepped.turn()
    stepped.is_ready(stepped.host("host"))
    assert stepped.host("host").asked("probe") == []
    stepped.engine.resume()
    stepped.turn()
    assert len(stepped.host("host").asked("probe")) == 1
    stepped.end()


def test_a_pause_and_its_end_reach_every_host(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, hosts=2)
    stepped.begin()
    stepped.engine.pause()
    stepped.engine.resume()
    stepped.turn()
    for host in stepped.hosts:
        assert [message["op"] for message in host.told if message["op"] in ("pause", "resume")] == ["pause", "resume"]
    stepped.end()


def test_a_baseline_whose_model_denies_every_request_ends_alone_and_the_user_reads_why(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 4)
    stepped.runs[2:] = [RunId(row, 0, ModelTag.BASELINE) for row in range(2)]
    stepped.begin()
    host = stepped.host("host")
    host.say("denied", model_tag="baseline", error="401")
    stepped.turn()
    assert [message["model_tag"] for message in (*host.asked("deny"), *host.asked("drop"))] == ["baseline", "baseline"]
    assert stepped.engine.notices.alerts == ["no further request is sent to the baseline's model: 401"]
    assert stepped.engine.stopped is None
    stepped.end()


@pytest.mark.parametrize(("before", "reason"), [(None, "closed"), ("agent", "systemic")])
def test_an_error_that_no_run_survives_ends_a_resumed_eval_unless_an_earlier_run_succeeded(
    tmp_path: Path, before: str | None, reason: str
) -> None:
    def rolls(stepped: SteppedEngine, run: RunId, boundary: str | None, **fields: Any) -> None:
        stepped.begin()
        host = stepped.host("host")
        broken = {} if boundary is None else {"boundary": boundary, "error": "503", "details": "", **fields}
        host.say("start", run)
        host.say("rollout", run, ms=1.0, messages=[], n_prompt=0, usage=USAGE, **broken)
        stepped.turn()
        stepped.end()

    inputs = ScoreInputs(dict.fromkeys(range(2), Content("prompt", "row")))
    rolls(SteppedEngine(tmp_path, 2, score_inputs=inputs), RunId(0, 0), before)
    resumption = Resumption(StoredProgress(tmp_path / "journal.jsonl"))
    resume = ResumeJob(resumption, n_kept=1, shows=lambda record, rule: False, on_change=lambda: None)
    second = SteppedEngine(tmp_path, 2, score_inputs=inputs, resume=resume)
    rolls(second, RunId(1, 0), "provider", systemic="until_success")
    assert second.engine.stopped is not None
    assert second.engine.stopped.reason == reason


def test_a_run_without_a_stored_rollout_is_skipped_when_rollouts_are_scored_again(tmp_path: Path) -> None:
    why = {RunId(row, 0): f"row {row} has no rollout" for row in range(2)}
    stepped = SteppedEngine(tmp_path, 2, rescore=RescoreJob(cast(StoredRollouts, {}), why, False, False))
    stepped.begin()
    assert [(event["row"], event["reason"]) for event in stepped.events("skip")] == [
        (0, why[RunId(0, 0)]),
        (1, why[RunId(1, 0)]),
    ]
    stepped.end()


def test_the_end_of_a_model_is_told_once_whoever_asks_it(tmp_path: Path) -> None:
    target: dict[str, Any] = {"api_key_env": None, "headers": {}, "model": "gpt-5-mini"}
    code = HostCode("roll", str(tmp_path), (), target, {**target, "model": "gpt-6-luna"}, {"target": target})
    stepped = SteppedEngine(tmp_path, setup=Setup(code), probes=("primary", "baseline", JUDGE))
    stepped.begin()
    for tag, day in (("primary", "2026-12-11"), ("baseline", None), (JUDGE, "2026-12-11")):
        ends: dict[str, Any] = {} if day is None else {"shutdown_date": day}
        stepped.host("host").say("probed", model_tag=tag, error=None, is_systemic=False, **ends)
    stepped.turn()

    assert stepped.engine.shutdown_dates == {"gpt-5-mini": "2026-12-11"}
    (text,) = stepped.engine.notices.alerts
    assert text.startswith("gpt-5-mini ")
    assert stepped.engine.notices.texts == [text]
    assert stepped.host("host").runs()
    stepped.end()


@pytest.mark.parametrize(
    ("today", "text"),
    [
        ("2026-11-26", "is shut down on 2026-12-11, in 15 days; a baseline made with it cannot be repeated then"),
        ("2026-12-10", "is shut down on 2026-12-11, in 1 day; a baseline made with it cannot be repeated then"),
        ("2026-12-11", "is shut down on 2026-12-11, today; a baseline made with it cannot be repeated then"),
        (
            "2026-12-12",
            "was to be shut down on 2026-12-11, and still answers; a baseline made with it may not be repeatable",
        ),
    ],
)
def test_the_end_of_a_model_in_words(today: str, text: str) -> None:
    assert shutdown_text("m", date(2026, 12, 11), date.fromisoformat(today)) == f"m {text}"


def test_messages_of_a_closing_host_count(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 1)
    stepped.begin()
    host = stepped.host("host")
    host.say("start", RunId(0, 0))
    stepped.turn()
    host.last = lambda: host.rolls(RunId(0, 0))
    stepped.end()
    assert stepped.events("rollout")


@pytest.mark.parametrize("gives_back", [True, False])
def test_what_a_host_has_at_the_end_is_lost_unless_it_gives_it_back(tmp_path: Path, gives_back: bool) -> None:
    stepped = SteppedEngine(tmp_path)
    stepped.begin()
    host = stepped.host("host")
    stepped.turn()
    if gives_back:
        host.last = lambda: host.say("dropped", runs=[Key(run, 1).to_json() for run in stepped.runs])
    stepped.end()
    assert fold(replay(stepped.path)).most_lost == (0 if gives_back else 4)


def test_nothing_is_handed_out_that_the_journal_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Journal, lines: bytes) -> None:
        raise JournalError("no space left")

    stepped = SteppedEngine(tmp_path)
    monkeypatch.setattr(Journal, "append", full)
    stepped.begin()
    assert stepped.host("host").runs() == []
    assert stepped.engine.stopped == Stop("journal", "no space left")
    stepped.end()
    assert {outcome.kind for _, outcome in stepped.told} == {"skipped"}


def test_a_broken_engine_reports_every_run_even_if_submitted_later(tmp_path: Path) -> None:
    def described(record: RunRecord, pass_rule: PassRule, transcript: Transcript) -> Outcome:
        raise ZeroDivisionError

    stepped = SteppedEngine(tmp_path, 3, describe=described, max_errors=0, bad=[0], clock=SYSTEM)
    stepped.engine.submit(stepped.runs[:2])
    stepped.engine.go()
    stepped.engine.start()
    wait_for(lambda: stepped.hosts)
    stepped.hosts[0].say("ready", scorers=["exact"], sync=[], digests={"exact": "0"})
    wait_for(lambda: len(stepped.told) == 2)
    stepped.engine.submit(stepped.runs)
    wait_for(lambda: len(stepped.told) == 3)
    stepped.engine.close()
    assert Counter(run for run, _ in stepped.told) == Counter(stepped.runs)
    assert stepped.engine.stopped is not None
    assert stepped.engine.stopped.text == "pytest-osmosis failed, please report it: ZeroDivisionError: "


def test_an_engine_that_never_started_unlocks_its_journal(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path)
    assert holder_of(RunDirectory(stepped.path.parent)) is not None
    stepped.engine.close()
    assert holder_of(RunDirectory(stepped.path.parent)) is None


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_all_runs_of_a_lost_machine_begin_once_more_at_once_and_the_user_reads_one_line(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 4, hosts=2, scorers={"exact": False})
    stepped.begin()
    first, second = stepped.hosts
    lost = [(host, run) for host in (first, second) for run in host.runs()]
    for host, run in lost:
        host.say("start", run)
    stepped.turn()
    first.is_lost()
    second.is_lost()
    stepped.turn()
    stepped.clock.advance(recovery.REPORT_S)
    others = stepped.hosts[2:]
    for host in others:
        stepped.is_ready(host)
    again = [(RunId.of(each), each["attempt"]) for host in others for each in host.asked("run")]
    assert sorted(again) == [(run, 2) for run in sorted(run for _, run in lost)]
    assert [host.name for host in stepped.hosts] == ["host"] * 4
    line = "node n1 was lost; 4 runs that had begun there are rolled out once more"
    assert stepped.engine.notices.alerts == [line]
    stepped.end()


def test_the_user_reads_one_line_of_each_machine_whose_hosts_end_one_after_the_other(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 6, hosts=3, batch_size=6, scorers={"exact": False})
    stepped.begin()
    for host in stepped.hosts[:3]:
        host.say("start", host.runs()[0])
    stepped.turn()
    one, another, elsewhere = stepped.hosts[:3]
    one.is_lost("the process that runs the hosts ended on node n1")
    stepped.turn()
    another.is_lost()
    elsewhere.is_lost("node n2 was lost", "n2")
    stepped.turn()
    assert stepped.engine.notices.alerts == [], "more hosts of these machines may follow"
    stepped.clock.advance(recovery.REPORT_S)
    stepped.turn()
    stepped.end()
    assert stepped.engine.notices.alerts == [
        "the process that runs the hosts ended on node n1; 2 runs that had begun there are rolled out once more",
        "node n2 was lost; 1 run that had begun there is rolled out once more",
    ]


def test_the_user_reads_of_hosts_that_wait_and_a_stalled_eval_names_them(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 4, hosts=2)
    stepped.begin()
    stepped.turn()
    waits = stepped.hosts[1]
    waits.placed_at, waits.waits_for = None, "a host needs 1 CPU"
    line = f"1 of 2 hosts waits for a place: {waits.waits_for}"
    for _ in range(2):
        stepped.clock.advance(WAIT_S)
        stepped.turn()
    assert stepped.engine.notices.alerts == [line]
    stepped.clock.advance(stepped.actor._job.watchdog_s)
    stepped.turn()
    assert stepped.engine.notices.alerts[1].startswith("nothing has finished for")
    assert stepped.engine.notices.alerts[1].endswith(f"; {line}")
    stepped.end()


def test_machines_that_are_lost_while_code_loads_do_not_end_the_eval(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 4, hosts=3)
    stepped.actor.hosts.start()
    for host in stepped.hosts[:3]:
        host.is_lost()
    stepped.turn()
    assert stepped.actor.refused is None
    for host in stepped.hosts[3:]:
        stepped.is_ready(host)
    stepped.engine.submit(stepped.runs)
    stepped.engine.go()
    stepped.turn()
    assert sorted(run for host in stepped.hosts for run in host.runs()) == stepped.runs
    stepped.end()


def test_an_eval_ends_if_every_machine_is_lost_before_code_runs(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 4)
    stepped.actor.hosts.start()
    for _ in range(MOST_LOST):
        stepped.host("host").is_lost()
        stepped.turn()
    assert stepped.actor.loaded.is_set()
    assert "10 processes in a row were lost with their machines" in str(stepped.actor.refused)
    stepped.engine.submit(stepped.runs)
    stepped.end()


def test_a_host_that_waits_for_a_place_leaves_its_share_to_others(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 20, hosts=2)
    stepped.actor.hosts.start()
    ready, waits = stepped.hosts
    waits.placed_at = None
    stepped.is_ready(ready)
    assert [host.limit for host in stepped.actor.hosts.rolling] == [2, 2]
    stepped.clock.advance(engine_hosts.START_S + engine_hosts.LATE_S)
    ready.say("limited")
    stepped.actor.hosts.look_after(None)
    stepped.turn()
    assert [host.limit for host in stepped.actor.hosts.rolling] == [4, 0]
    assert not waits.killed, "it is not silent: it waits"
    waits.placed_at = stepped.clock.now()
    stepped.is_ready(waits)
    ready.say("limited")
    waits.say("limited")
    stepped.turn()
    stepped.turn()
    assert [host.limit for host in stepped.actor.hosts.rolling] == [2, 2]
    stepped.engine.submit(stepped.runs)
    stepped.end()


def test_many_hosts_that_do_not_end_take_no_longer_to_close_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = SteppedEngine(tmp_path, 40, hosts=40, batch_size=40)

    def join(host: ScriptedHost, timeout_s: float) -> bool:
        stepped.clock.advance(timeout_s)
        return False

    monkeypatch.setattr(ScriptedHost, "join", join)
    begun = stepped.clock.now()
    stepped.actor.hosts.start()
    stepped.actor.hosts.close()
    assert stepped.clock.now() - begun == 2 * engine_hosts.CLOSE_S + stepped.actor._job.setup.teardown_s
    assert [host.killed for host in stepped.hosts] == [True] * 40
    stepped.engine.submit(stepped.runs)
    stepped.end()


def test_an_idle_host_gets_the_runs_that_a_slow_one_has_not_begun(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 8, hosts=2, scorers={"exact": False})
    stepped.begin()
    slow, fast = stepped.hosts
    assert (len(slow.runs()), len(fast.runs())) == (4, 4)
    for host in (slow, fast):
        for run in host.runs()[: 2 if host is slow else 4]:
            host.say("start", run)
    for run in fast.runs():
        fast.rolls(run)
    stepped.turn()
    assert slow.asked("drop") == [], "it may begin them soon"
    stepped.clock.advance(engine_hosts.BEHIND_S + 0.1)
    stepped.turn()
    stepped.turn()
    assert len(slow.asked("drop")) == 1, "it was asked once"
    waiting = slow.runs()[2:]
    slow.say("dropped", runs=[{**run.to_json(), "attempt": 1} for run in waiting])
    stepped.turn()
    assert fast.runs()[4:] == waiting
    stepped.end()


def test_the_last_runs_are_for_hosts_that_can_begin_them(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path, 4, hosts=4, scorers={"exact": False})
    stepped.begin()
    assert [len(host.runs()) for host in stepped.hosts] == [1, 1, 1, 1]
    stepped.end()


def test_runs_that_were_handed_out_are_taken_back_once_the_bound_is_reached(tmp_path: Path) -> None:
    """The first run is cheap, so that more are handed out than fit once runs cost twenty times as much."""
    bounds = Bounds(math.inf, "some", max_tokens=1_000)
    stepped = SteppedEngine(tmp_path, 60, scorers={"exact": False}, batch_size=8, bounds=bounds)
    stepped.begin()
    host = stepped.host("host")

    def rolls(run: RunId, tokens: int) -> None:
        host.say("start", run)
        usage = {"input_tokens": tokens, "output_tokens": 0}
        host.say("rollout", run, ms=1.0, messages=[], n_prompt=0, usage=usage)
        stepped.turn()

    rolls(stepped.runs[0], 10)
    handed = host.runs()
    assert (len(handed), host.asked("drop")) == (1 + 16, [])
    for run in handed[1:5]:
        rolls(run, 200)
    assert (len(host.runs()), host.asked("drop")) == (len(handed), []), "810 are used: no further one fits"
    rolls(handed[5], 200)
    assert len(host.asked("drop")) == 1
    stepped.end()
