"""Moments that real hosts are hard to bring about: here a test says what each host says, and when."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_osmosis.datasets import Dataset
from pytest_osmosis.engine.actor import Actor, Close
from pytest_osmosis.engine.engine import Engine
from pytest_osmosis.engine.host_connection import Died, Heard, Post
from pytest_osmosis.engine.job import Bounds, EarlyStop, Job, Transcript
from pytest_osmosis.engine.limits import Limits
from pytest_osmosis.errors import HostError
from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.record.journal import Journal, in_use, replay
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, kind_of
from tests.engine.world import Rows

DEADLINE_S = 60.0
USAGE = {"input_tokens": 5, "output_tokens": 2}


class Host:
    """A line that keeps what it is told, and says what a test has it say."""

    def __init__(self, name: str, post: Post) -> None:
        self.name = name
        self.gather_s = 0.0
        self.told: list[Mapping[str, Any]] = []
        self.killed = False
        self.last: Callable[[], None] = lambda: None
        self._post = post

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
        self.say("rollout", run, attempt, ms=1.0, messages=[], usage=USAGE)

    def die(self) -> None:
        self._post(Died(self, -9))

    def asked(self, op: str) -> list[Mapping[str, Any]]:
        return [message for message in self.told if message["op"] == op]

    def runs(self) -> list[RunId]:
        return [RunId.of(message) for message in self.asked("run")]


class Stage:
    """An engine that takes a turn when a test says so, and its hosts, the first ones ready."""

    def __init__(
        self,
        folder: Path,
        n_runs: int = 4,
        *,
        scorers: Mapping[str, bool] | None = None,
        bad: Iterable[int] = (),
        max_errors: float = math.inf,
        **job: Any,
    ) -> None:
        self.hosts: list[Host] = []
        self.told: list[tuple[RunId, Outcome]] = []
        self.spawns = True
        self.runs = [RunId(row, 0) for row in range(n_runs)]
        self.path = folder / "journal.jsonl"
        self.scorers = scorers or {"exact": True}
        setup = Setup("roll", str(folder), (), {"api_key_env": None, "headers": {}})
        made = Job(
            setup=setup,
            dataset=cast(Dataset, Rows(frozenset(bad))),
            pass_rule=PassRule(()),
            describe=lambda record, judging, transcript: Outcome(kind_of(record, judging)),
            environ={},
            run_dir=folder,
            batch_size=4,
            bounds=Bounds(max_errors, "some"),
            n_runs=n_runs,
            probes=(),
            spawn=self._spawn,
        )
        self.engine = Engine(replace(made, **job), Journal.create(self.path), lambda *told: self.told.append(told))

    @property
    def actor(self) -> Actor:
        """The engine's state, whose turns the test takes."""
        return self.engine._actor

    def _spawn(self, name: str, setup: Setup, *, environ: Mapping[str, str], log: Path, post: Post) -> Host:
        if not self.spawns:
            raise HostError("no memory")
        self.hosts.append(Host(name, post))
        return self.hosts[-1]

    def begin(self) -> None:
        """The hosts are ready, all runs are submitted."""
        self.actor.hosts.start()
        for host in self.hosts:
            self.is_ready(host)
        self.engine.submit(self.runs)
        self.engine.go()
        self.turn()

    def is_ready(self, host: Host) -> None:
        sync = [name for name, blocks in self.scorers.items() if blocks]
        host.say("ready", scorers=list(self.scorers), sync=sync, digests=dict.fromkeys(self.scorers, "0"))
        self.turn()

    def turn(self) -> None:
        self.actor.turn()

    def host(self, name: str) -> Host:
        """The newest of that name."""
        return next(host for host in reversed(self.hosts) if host.name == name)

    def end(self) -> None:
        """Close it; each run was told once."""
        self.actor.inbox.put(Close(0.0))
        self.turn()
        self.actor.end()
        assert Counter(run for run, _ in self.told) == Counter(self.runs)
        notices = "\n".join(self.engine.notices.texts)
        assert "Traceback" not in notices
        assert "internal accounting error" not in notices

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        return [event for event in replay(self.path) if event["ev"] == kind]


def rolls_and_dies(stage: Stage) -> None:
    """The host rolls out the first run and dies, and no other can be had."""
    host = stage.host("host")
    host.say("start", RunId(0, 0))
    host.rolls(RunId(0, 0))
    stage.turn()
    stage.spawns = False
    host.die()


def test_rows_that_are_gone_and_end_the_eval_end_it_for_what_was_read_with_them(tmp_path: Path) -> None:
    stage = Stage(tmp_path, bad=[1], max_errors=0)
    stage.begin()
    assert stage.host("host").runs() == []
    stage.end()
    assert Counter(outcome.kind for _, outcome in stage.told) == {"error": 1, "skipped": 3}


def test_what_a_quarantine_had_not_begun_when_it_died_is_not_begun_after_a_stop(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1)
    stage.begin()
    stage.host("host").say("start", RunId(0, 0))
    stage.host("host").die()
    stage.turn()
    quarantine = stage.host("quarantine")
    stage.is_ready(quarantine)
    assert quarantine.runs() == stage.runs
    stage.engine.stop("interrupt", "enough")
    quarantine.die()
    stage.turn()
    assert stage.host("quarantine") is quarantine
    stage.end()
    assert [outcome.kind for _, outcome in stage.told] == ["skipped"]


def test_each_host_may_go_on_however_often_servers_refuse(tmp_path: Path) -> None:
    """A host that may have none in flight would hold what it has begun until others ended something."""
    stage = Stage(tmp_path, 20, hosts=3)
    stage.begin()
    for _ in range(5):
        stage.actor.hosts.throttle.until = 0.0
        stage.hosts[0].say("throttled", wait_s=0.0)
        stage.turn()
    assert [host.limit for host in stage.actor.hosts.rolling] == [1, 1, 1]
    stage.end()


@pytest.mark.parametrize(("low_latency", "most_s"), [(False, 0.1), (True, 0.02)])
def test_what_a_host_says_waits_while_it_has_enough_to_begin(tmp_path: Path, low_latency: bool, most_s: float) -> None:
    stage = Stage(tmp_path, 40, batch_size=12, early_stop=EarlyStop(low_latency=low_latency))
    stage.begin()
    host, rolling = stage.host("host"), stage.actor.hosts.rolling[0]
    assert (len(host.runs()), host.gather_s) == (24, 0.0)

    def go_on(runs: Sequence[RunId], after_s: float) -> float:
        rolling.handed_at -= after_s
        for run in runs:
            host.say("start", run)
            host.rolls(run)
        stage.turn()
        return host.gather_s

    assert go_on(stage.runs[:2], after_s=10.0) == most_s
    assert 0.01 <= go_on(stage.runs[2:10], after_s=0.04) <= most_s
    assert go_on(stage.runs[10:16], after_s=10.0) == 0.0, "nothing is left to hand out"
    stage.end()


def test_who_asks_for_a_permit_is_heard_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 40, batch_size=12, limits=Limits(60))
    stage.begin()
    host = stage.host("host")
    for run in stage.runs[:2]:
        host.say("start", run)
        host.rolls(run)
    stage.turn()
    assert len(host.runs()) == 26
    assert host.gather_s == 0.0
    stage.end()


def test_a_host_that_is_told_to_wait_is_not_silent(tmp_path: Path) -> None:
    stage = Stage(tmp_path, hosts=2)
    stage.begin()
    other = stage.actor.hosts.rolling[1]
    other.heard_at = 0.0
    stage.hosts[0].say("throttled", wait_s=300.0)
    stage.turn()
    assert other.heard_at > 0.0
    stage.end()


@pytest.mark.parametrize("name", ["host", "quarantine"])
def test_a_host_that_comes_in_a_servers_pause_keeps_it(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    stage.begin()
    stage.hosts[0].say("start", RunId(0, 0))
    stage.hosts[0].say("throttled", wait_s=300.0)
    stage.hosts[0].die()
    stage.turn()
    stage.is_ready(stage.host(name))
    stage.turn()
    held, *given = [message for message in stage.host(name).told if message["op"] in ("hold", "run")]
    assert held["op"] == "hold"
    assert 200 < held["wait_s"] <= 300
    assert given
    stage.end()


@pytest.mark.parametrize("probes", [(), (ModelTag.PRIMARY,)], ids=["runs", "probe"])
def test_a_host_that_never_begins_what_it_was_given_is_ended(tmp_path: Path, probes: tuple[ModelTag, ...]) -> None:
    """Code that holds the interpreter from its import on lets it say nothing at all."""
    stage = Stage(tmp_path, probes=probes)
    stage.begin()
    assert [message["op"] for message in stage.host("host").told][-1:] == (["probe"] if probes else ["run"])
    stage.turn()
    assert not stage.host("host").killed
    stage.actor.hosts.rolling[0].heard_at -= 1000
    stage.turn()
    assert stage.host("host").killed
    stage.end()


def test_a_host_that_has_nothing_to_do_may_be_silent(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1, hosts=2)
    stage.begin()
    idle = next(host for host in stage.actor.hosts.rolling if not cast(Host, host.line).runs())
    idle.heard_at -= 1000
    stage.turn()
    assert not cast(Host, idle.line).killed
    stage.end()


def test_suspects_without_a_host_are_told_once_where_the_first_of_them_is_one_too_many(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_errors=0)
    stage.begin()
    for run in stage.runs:
        stage.host("host").say("start", run)
    stage.turn()
    stage.spawns = False
    stage.host("host").die()
    stage.turn()
    assert Counter(outcome.kind for _, outcome in stage.told) == {"error": 1, "skipped": 3}
    stage.end()


def test_a_function_without_a_host_is_given_up_once(tmp_path: Path) -> None:
    """Its run waits for another function meanwhile, which has its process."""
    stage = Stage(tmp_path, 1, scorers={"judge": False, "exact": True})
    stage.begin()
    stage.is_ready(stage.host("scorer"))
    rolls_and_dies(stage)
    for _ in range(3):
        stage.turn()
    stage.host("scorer").say("score", RunId(0, 0), ms=1.0, scores={"exact": 1.0}, errors={}, output={})
    stage.turn()
    assert [[*event["scores"], *event["errors"]] for event in stage.events("score")] == [["judge"], ["exact"]]
    stage.end()


def test_a_host_that_is_needed_no_more_and_cannot_be_had_stops_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1)
    stage.begin()
    stage.is_ready(stage.host("scorer"))
    rolls_and_dies(stage)
    stage.turn()
    stage.host("scorer").say("score", RunId(0, 0), ms=1.0, scores={"exact": 1.0}, errors={}, output={})
    stage.turn()
    assert stage.engine.stopped is None
    stage.end()


def test_quarantines_that_never_begin_anything_are_given_up_though_others_begin(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 12)
    stage.begin()
    stage.host("host").say("start", RunId(0, 0))
    stage.host("host").die()
    for row in range(1, 4):
        stage.turn()
        stage.is_ready(stage.host("host"))
        stage.host("host").say("start", RunId(row, 0))
        stage.is_ready(stage.host("quarantine"))
        assert stage.host("quarantine").runs() == [RunId(0, 0)]
        stage.host("quarantine").die()
    stage.turn()
    assert Counter(outcome.kind for _, outcome in stage.told)["error"] == 1
    assert "before they had begun anything" in str(stage.engine.stopped)
    assert stage.engine.ledger.records[RunId(0, 0)].boundary == "host"
    assert [host.name for host in stage.hosts].count("quarantine") == 3
    stage.end()


def test_a_host_killed_now_and_then_between_its_runs_is_replaced(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 12)
    stage.begin()
    for row in range(6):
        stage.host("host").say("start", RunId(row, 0))
        stage.host("host").rolls(RunId(row, 0))
        stage.turn()
        for _ in range(2):
            stage.host("host").die()
            stage.turn()
            stage.is_ready(stage.host("host"))
    assert stage.engine.stopped is None
    stage.end()


def test_the_quarantine_takes_its_place_from_the_newest_host(tmp_path: Path) -> None:
    """What another one has in flight would stay so, beyond `batch_size`."""
    stage = Stage(tmp_path, 30, hosts=3, batch_size=7)
    stage.begin()
    first, second, third = stage.hosts[:3]
    stage.is_ready(first)
    second.say("start", second.runs()[0])
    second.die()
    stage.turn()
    assert stage.host("quarantine")
    assert [host.limit for host in stage.actor.hosts.rolling] == [3, 2, 1]
    assert [first.asked("limit")[-1:], third.asked("limit")[1:]] == [[], []]
    stage.end()


def test_a_probe_that_its_host_took_along_is_repeated_after_the_pause(tmp_path: Path) -> None:
    stage = Stage(tmp_path, probes=(ModelTag.PRIMARY,))
    stage.begin()
    stage.engine.pause()
    stage.host("host").die()
    stage.turn()
    stage.is_ready(stage.host("host"))
    assert stage.host("host").asked("probe") == []
    stage.engine.resume()
    stage.turn()
    assert len(stage.host("host").asked("probe")) == 1
    stage.end()


def test_what_a_host_says_while_it_closes_is_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1)
    stage.begin()
    host = stage.host("host")
    host.say("start", RunId(0, 0))
    stage.turn()
    host.last = lambda: host.rolls(RunId(0, 0))
    stage.end()
    assert stage.events("rollout")


def test_a_broken_engine_tells_everyone_also_of_what_is_submitted_later(tmp_path: Path) -> None:
    def described(record: RunRecord, judging: PassRule, transcript: Transcript) -> Outcome:
        raise ZeroDivisionError

    stage = Stage(tmp_path, 3, describe=described, max_errors=0, bad=[0])
    stage.engine.submit(stage.runs[:2])
    stage.engine.go()
    stage.engine.start()
    wait_for(lambda: stage.hosts)
    stage.hosts[0].say("ready", scorers=["exact"], sync=[], digests={"exact": "0"})
    wait_for(lambda: len(stage.told) == 2)
    stage.engine.submit(stage.runs)
    wait_for(lambda: len(stage.told) == 3)
    stage.engine.close()
    assert Counter(run for run, _ in stage.told) == Counter(stage.runs)
    assert stage.engine.stopped is not None
    assert stage.engine.stopped.text == "the engine failed: ZeroDivisionError: "


def test_an_engine_that_never_started_leaves_its_journal(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert in_use(stage.path)
    stage.engine.close()
    assert not in_use(stage.path)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
