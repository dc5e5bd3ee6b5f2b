"""Moments that are hard to produce with real hosts: the test decides what each host sends, and when."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.clock import SYSTEM
from pytest_osmosis.engine import hosts as engine_hosts
from pytest_osmosis.engine import recovery
from pytest_osmosis.engine.engine import Close
from pytest_osmosis.engine.hosts import MOST_LOST
from pytest_osmosis.engine.job import Bounds, Limits, RescoreJob
from pytest_osmosis.engine.notices import WAIT_S
from pytest_osmosis.errors import JournalError
from pytest_osmosis.host.protocol import TEARDOWN_S, HostCode, Key, Setup
from pytest_osmosis.record.journal import Journal, replay
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_directory import RunDirectory, holder_of
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import UNINTERRUPTIBLE, RunRecord
from pytest_osmosis.record.stored_rollouts import StoredRollouts
from pytest_osmosis.rollouts.environment import EnvironmentSource
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, Transcript
from tests.engine.stepped import ROWS, RUN, Make, ScriptedHost, SteppedEngine, resuming
from tests.journals import fold
from tests.plugin.workspaces import wait_until

CLIENT: dict[str, Any] = {"api_key_env": None, "headers": {}}


def full(self: Journal, lines: bytes) -> None:
    raise JournalError("no space left")


def rolls_and_dies(stepped: SteppedEngine) -> None:
    """Let the host roll out the first run and die, so that no other can be started."""
    host = stepped.host("host")
    stepped.after(host.rolls_out, RUN)
    stepped.spawns = False
    host.die()


def test_a_run_that_a_dead_quarantine_had_not_begun_does_not_begin_after_a_stop(make: Make) -> None:
    stepped = make(1).begin()
    stepped.host("host").starts(RUN)
    stepped.after(stepped.host("host").die)
    quarantine = stepped.host("quarantine")
    stepped.is_ready(quarantine)
    assert quarantine.runs() == stepped.runs
    stepped.engine.stop("interrupt", "enough")
    stepped.after(quarantine.die)
    assert stepped.host("quarantine") is quarantine
    stepped.end()
    assert stepped.kinds() == ["skipped"]


def test_each_host_keeps_one_slot_however_often_servers_refuse(make: Make) -> None:
    """A host without a slot would hold the runs that it has begun until another host ends a run."""
    stepped = make(20, hosts=3).begin()
    for _ in range(5):
        stepped.clock.advance(1.0)
        stepped.after(stepped.hosts[0].say, "throttled", wait_s=0.0)
    assert stepped.limits() == [1, 1, 1]


def test_hosts_get_more_within_a_lower_cap_once_none_has_more_than_its_share(make: Make) -> None:
    """Until then none has more in flight than it had: the rollouts that the first has beyond its share may last."""
    stepped = make(30, hosts=3, batch_size=6).begin()
    first, second, third = stepped.hosts[:3]
    for host in (first, second, third):
        host.heeds_limits()
    limits = []
    for host, n in ((first, 2), (second, 1)):
        host.starts(*host.runs()[:n])
    stepped.loop.hosts.shares.limit(3)
    for ends in (None, None, second.runs()[0], first.runs()[0], None):
        if ends is not None:
            (second if ends in second.runs() else first).rolls(ends)
        stepped.turn()
        limits.append([host.heeds_limits() for host in (first, second, third)])
    assert limits == [[[0]] * 3, [[1], [1], []], [[]] * 3, [[], [], [1]], [[]] * 3]
    stepped.loop.hosts.shares.limit(6)
    stepped.turn()
    assert [host.heeds_limits() for host in (first, second, third)] == [[2]] * 3, "none has more than that"


def test_a_host_whose_rollouts_hold_slots_keeps_a_limit_while_shares_settle(make: Make) -> None:
    """One that waits for its slot may hold what they wait for: without a limit, its host never lets it go on."""
    stepped = make(30, hosts=2, batch_size=6).begin()
    first, second = stepped.hosts[:2]
    for host, n in ((first, 3), (second, 1)):
        host.starts(*host.runs()[:n])
    stepped.loop.hosts.shares.limit(4)
    for _ in range(3):
        stepped.turn()
        for host in (first, second):
            host.heeds_limits()
    assert stepped.limits() == [2, 1]


@pytest.mark.parametrize(("low_latency", "most_s"), [(False, 0.1), (True, 0.02)])
def test_messages_are_gathered_while_a_host_has_enough_to_begin(make: Make, low_latency: bool, most_s: float) -> None:
    stepped = make(40, batch_size=12, low_latency=low_latency).begin()
    host = stepped.host("host")
    assert (len(host.runs()), host.gather_s) == (24, 0.0)

    def go_on(runs: Sequence[RunId], after_s: float) -> float:
        stepped.clock.advance(after_s)
        stepped.after(host.rolls_out, *runs)
        return host.gather_s

    assert go_on(stepped.runs[:2], after_s=10.0) == most_s
    assert 0.01 <= go_on(stepped.runs[2:10], after_s=0.04) <= most_s
    assert go_on(stepped.runs[10:16], after_s=10.0) == 0.01, "nothing is left to hand out, but to score"
    scorer = stepped.host("scorer")
    while len(scorer.asked("score")) < 16:
        assert host.gather_s == scorer.gather_s == 0.01
        stepped.after(scorer.scores, RunId.of(scorer.asked("score")[-1]), ms=10.0)
    assert host.gather_s == scorer.gather_s == 0.0, "nothing is left to score"


def test_a_scorer_far_away_gets_more_ahead_and_says_less_often(tmp_path: Path) -> None:
    """Each message to it takes a while, and costs as much as several results."""
    asked: list[int] = []
    for delay_s in (0.0, 0.03):
        (folder := tmp_path / str(delay_s)).mkdir()
        stepped = SteppedEngine(folder, 16, batch_size=16)
        stepped.delay_s = delay_s
        stepped.begin()
        stepped.after(stepped.host("host").rolls_out, *stepped.runs)
        scorer = stepped.host("scorer")
        assert scorer.gather_s == pytest.approx(0.01 + delay_s)
        asked.append(len(scorer.asked("score")))
        stepped.end()
    assert asked == [3, 9], "20 ms of functions that take 10 ms, and twice the delay; and the one that is scored"


def test_rollouts_that_succeed_after_a_pause_let_more_runs_begin(make: Make) -> None:
    stepped = make(8).begin()
    host = stepped.host("host")
    stepped.after(host.say, "throttled", wait_s=0.0)
    failure: dict[str, Any] = {"boundary": "agent", "error": "no", "details": ""}
    limits = []
    for run, fields in zip(stepped.runs, (failure, {}, {}), strict=False):
        host.starts(run)
        stepped.after(host.rolls, run, **fields)
        limits.append(host.asked("limit")[-1]["limit"])
    assert limits == [2, 2, 3]


def test_messages_are_not_gathered_if_requests_need_permits(make: Make) -> None:
    stepped = make(40, batch_size=12, limits=Limits(60)).begin()
    host = stepped.host("host")
    stepped.after(host.rolls_out, *stepped.runs[:2])
    assert len(host.runs()) == 26
    assert host.gather_s == 0.0


def test_the_pause_for_a_server_does_not_count_as_silence(make: Make) -> None:
    stepped = make(hosts=2).begin()
    first, other = stepped.hosts[:2]
    most_s = stepped.most_silent_s
    stepped.after(first.say, "throttled", wait_s=2 * most_s)
    assert [host.asked("hold") for host in (first, other)] == [[], [{"op": "hold", "wait_s": 2 * most_s}]]
    for seconds, killed in ((2 * most_s, False), (most_s - 1.0, False), (2.0, True)):
        stepped.later(seconds)
        assert (first.killed, other.killed) == (killed, killed)


def test_a_host_that_is_held_up_is_found_however_often_servers_refuse(make: Make) -> None:
    """Each pause lasts for half of the time, and lowers the limit of each host, or lets it be raised again."""
    stepped = make(400, hosts=2, batch_size=16, scorers={"exact": False}).begin()
    works, held_up = stepped.hosts[:2]
    most_s = stepped.most_silent_s
    n_runs, begun_at = 0, stepped.clock.now()
    while not held_up.killed:
        works.say("throttled", wait_s=most_s / 16)
        for _ in range(2):
            works.rolls_out(*works.runs()[n_runs:])
            works.scores(*works.runs()[n_runs:])
            n_runs = len(works.runs())
            works.heeds_limits()
            stepped.turn()
            stepped.clock.advance(most_s / 16)
        assert stepped.clock.now() - begun_at < 2.3 * most_s
    assert stepped.clock.now() - begun_at >= 2 * most_s
    assert not works.killed
    assert len(held_up.asked("limit")) > 3


@pytest.mark.parametrize("name", ["host", "quarantine"])
def test_a_host_that_starts_during_a_servers_pause_keeps_the_pause(make: Make, name: str) -> None:
    stepped = make().begin()
    stepped.hosts[0].starts(RUN)
    stepped.hosts[0].say("throttled", wait_s=300.0)
    stepped.after(stepped.hosts[0].die)
    stepped.is_ready(stepped.host(name))
    stepped.turn()
    held, *given = [message for message in stepped.host(name).told if message["op"] in ("hold", "run")]
    assert held["op"] == "hold"
    assert 200 < held["wait_s"] <= 300
    assert given


@pytest.mark.parametrize("does", ["rolls out", "scores", "does not answer"])
def test_a_host_that_may_begin_nothing_further_must_end_what_it_does(make: Make, does: str) -> None:
    stepped = make(1, scorers={"judge": False}).begin()
    host = stepped.host("host")
    host.starts(RUN)
    if does == "scores":
        host.rolls(RUN)
        host.say("scoring", RUN, name="judge")
    stepped.turn()
    if does == "does not answer":
        host.say("retry", RUN, waits=True)
    stepped.loop.hosts.shares.limit(0)
    stepped.turn()
    if does != "does not answer":
        host.say("limited")
    stepped.turn()
    assert stepped.loop.hosts.rolling[0].limit == 0
    stepped.later(1000.0)
    assert host.killed


def test_a_host_that_does_not_become_ready_is_ended_however_often_its_limit_changes(make: Make) -> None:
    stepped = make(hosts=2, batch_size=16)
    stepped.loop.hosts.start()
    ready, loads = stepped.hosts
    stepped.is_ready(ready)
    for in_flight in (4, 8, 12):
        assert not loads.killed
        stepped.clock.advance(engine_hosts.START_S / 2 - 1.0)
        stepped.loop.hosts.shares.limit(in_flight)
        stepped.turn()
        ready.heeds_limits()
    assert loads.killed
    assert loads.asked("limit")
    stepped.engine.submit(stepped.runs)


def test_a_silent_host_that_its_machine_took_along_was_lost_with_that(make: Make) -> None:
    stepped = make().begin()
    host = stepped.host("host")
    stepped.after(host.starts, RUN)
    stepped.later(1000.0)
    assert host.killed
    stepped.after(host.is_lost)
    stepped.later(recovery.REPORT_S)
    assert stepped.engine.notices.texts[-1] == "node n1 was lost"


@pytest.mark.parametrize("probes", [(), (ModelTag.PRIMARY,)], ids=["runs", "probe"])
def test_a_host_that_never_begins_its_runs_is_ended_and_an_idle_one_may_be_silent(
    make: Make, probes: tuple[ModelTag, ...]
) -> None:
    """Code that holds the interpreter from its import on keeps a host silent."""
    stepped = make(1, hosts=2, probes=probes).begin()
    hosts = stepped.hosts[:2]
    [busy] = [host for host in hosts if host.asked("probe") or host.runs()]
    stepped.turn()
    assert not busy.killed
    stepped.later(1000.0)
    assert [host.killed for host in hosts] == [host is busy for host in hosts]


def test_the_run_that_keeps_its_host_silent_is_found_in_quarantine(make: Make) -> None:
    stepped = make(2).begin()
    most_s = stepped.most_silent_s
    for attempt, name in enumerate(("host", "quarantine"), 1):
        host = stepped.host(name)
        if attempt > 1:
            stepped.is_ready(host)
            stepped.turn()
        stepped.after(host.starts, *host.runs(), attempt=attempt)
        for seconds, killed in ((most_s - 1.0, False), (2.0, True)):
            stepped.later(seconds)
            assert host.killed == killed
        assert not stepped.told
        stepped.after(host.die)
    (rollout,) = stepped.events("rollout")
    told = {"row": 0, "boundary": "agent", "error": f"ended its process twice (it sent nothing for {most_s:.0f} s)"}
    assert {name: rollout[name] for name in told} == told


@pytest.mark.parametrize("grouped", [[], ["judge"]], ids=["alone", "of a group"])
def test_a_function_that_cannot_be_interrupted_gives_no_score_and_its_host_ends(make: Make, grouped: list[str]) -> None:
    stepped = make(1, scorers={"judge": False}, grouped=grouped).begin()
    host = stepped.host("host")
    stepped.after(host.rolls_out, RUN)
    host.say("scoring", RUN, name="judge")
    stepped.after(host.say, "stalled", RUN, stack="File ...")
    assert host.killed
    (score,) = stepped.events("score")
    assert score["errors"] == {"judge": {"message": f"{UNINTERRUPTIBLE} (grader_timeout_s)", "details": "File ..."}}


def test_suspects_without_a_host_are_reported_once_if_the_first_of_them_stops_the_eval(make: Make) -> None:
    stepped = make(max_errors=0).begin()
    stepped.after(stepped.host("host").starts, *stepped.runs)
    stepped.spawns = False
    stepped.after(stepped.host("host").die)
    assert Counter(stepped.kinds()) == {"error": 1, "skipped": 3}


def test_a_function_without_a_host_fails_once(make: Make) -> None:
    """Its run meanwhile waits for another function, which has its process."""
    stepped = make(1, scorers={"judge": False, "exact": True}).begin()
    stepped.is_ready(stepped.host("scorer"))
    rolls_and_dies(stepped)
    for _ in range(3):
        stepped.turn()
    stepped.after(stepped.host("scorer").scores, RUN)
    assert [[*event["scores"], *event["errors"]] for event in stepped.events("score")] == [["judge"], ["exact"]]


def test_a_host_that_cannot_be_started_and_is_not_needed_stops_nothing(make: Make) -> None:
    stepped = make(1).begin()
    stepped.is_ready(stepped.host("scorer"))
    rolls_and_dies(stepped)
    stepped.turn()
    stepped.after(stepped.host("scorer").scores, RUN)
    assert stepped.engine.stopped is None


def test_quarantines_that_die_before_they_begin_are_given_up_although_other_hosts_begin(make: Make) -> None:
    stepped = make(12).begin()
    stepped.host("host").starts(RUN)
    stepped.host("host").die()
    for row in range(1, 4):
        stepped.turn()
        stepped.is_ready(stepped.host("host"))
        stepped.host("host").starts(RunId(row, 0))
        stepped.is_ready(stepped.host("quarantine"))
        assert stepped.host("quarantine").runs() == [RUN]
        stepped.host("quarantine").die()
    stepped.turn()
    assert Counter(stepped.kinds())["error"] == 1
    assert "before they ran any of your code" in str(stepped.engine.stopped)
    assert stepped.engine.ledger.records[RUN].boundary == "host"
    assert [host.name for host in stepped.hosts].count("quarantine") == 3


@pytest.mark.parametrize("words", ["", "last words"], ids=["silent", "last words"])
def test_hosts_that_die_before_they_begin_anything_end_the_eval(make: Make, words: str) -> None:
    """They load the code, and die while they probe the model. The message names their log, if there is one."""
    stepped = make(probes=(ModelTag.PRIMARY,)).begin()
    log = stepped.engine.job.host_log
    log.write_text(words)
    for n in range(3):
        assert stepped.host("host").asked("probe")
        stepped.after(stepped.host("host").die)
        if n < 2:
            stepped.is_ready(stepped.host("host"))
    stepped.end()
    text = "3 processes in a row ended before they ran any of your code (SIGKILL)"
    assert stepped.engine.stopped == Stop("systemic", f"{text}; their log is {log}" if words else text)
    assert stepped.kinds() == ["skipped"] * 4


def test_hosts_killed_between_runs_are_replaced(make: Make) -> None:
    stepped = make(12).begin()
    for row in range(6):
        stepped.after(stepped.host("host").rolls_out, RunId(row, 0))
        for _ in range(2):
            stepped.after(stepped.host("host").die)
            stepped.is_ready(stepped.host("host"))
    assert stepped.engine.stopped is None


def test_the_quarantine_takes_its_slot_from_the_newest_host(make: Make) -> None:
    """The runs of an older host would stay in flight, beyond `batch_size`."""
    stepped = make(30, hosts=3, batch_size=7).begin()
    first, second, third = stepped.hosts[:3]
    stepped.is_ready(first)
    second.starts(second.runs()[0])
    stepped.after(second.die)
    assert stepped.host("quarantine")
    assert stepped.limits() == [3, 2, 1]
    assert [first.asked("limit")[-1:], third.asked("limit")[1:]] == [[], []]


def test_a_probe_of_a_dead_host_is_repeated_after_the_pause(make: Make) -> None:
    stepped = make(hosts=2, probes=(ModelTag.PRIMARY,)).begin()
    stepped.engine.pause()
    stepped.after(stepped.hosts[0].die)
    stepped.is_ready(stepped.host("host"))
    others = stepped.hosts[1:]
    assert not any(host.asked("probe") for host in others)
    stepped.engine.resume()
    stepped.turn()
    assert sum(len(host.asked("probe")) for host in others) == 1


def test_a_baseline_whose_model_denies_every_request_ends_alone_and_the_user_reads_why(make: Make) -> None:
    stepped = make(4, hosts=2)
    stepped.runs[2:] = [RunId(row, 0, ModelTag.BASELINE) for row in range(2)]
    stepped.begin()
    stepped.after(stepped.hosts[0].say, "denied", model_tag="baseline", error="401")
    for host in stepped.hosts:
        assert [message["model_tag"] for message in (*host.asked("deny"), *host.asked("drop"))] == ["baseline"] * 2
    assert stepped.engine.notices.alerts == ["no further request is sent to the baseline's model: 401"]
    assert stepped.engine.stopped is None


@pytest.mark.parametrize(("before", "reason"), [(None, "closed"), ("agent", "systemic")])
def test_an_error_that_no_run_survives_ends_a_resumed_eval_unless_an_earlier_run_succeeded(
    make: Make, tmp_path: Path, before: str | None, reason: str
) -> None:
    def rolls(stepped: SteppedEngine, run: RunId, boundary: str | None, **fields: Any) -> None:
        stepped.begin()
        host = stepped.host("host")
        broken = {} if boundary is None else {"boundary": boundary, "error": "503", "details": "", **fields}
        host.starts(run)
        stepped.after(host.rolls, run, **broken)
        stepped.end()

    rolls(make(2, score_inputs=ROWS), RUN, before)
    second = make(2, score_inputs=ROWS, resume=resuming(tmp_path / "journal.jsonl"))
    rolls(second, RunId(1, 0), "provider", systemic="until_success")
    assert second.engine.stopped is not None
    assert second.engine.stopped.reason == reason


def test_a_rescoring_knows_of_each_run_what_its_journal_says(make: Make, tmp_path: Path) -> None:
    first = make(4, score_inputs=ROWS, batch_size=3).begin()
    host, (rolled, failed, cut, unbegun) = first.host("host"), first.runs
    host.starts(rolled, failed, cut)
    host.rolls(failed, boundary="provider", error="503", details="")
    first.after(host.rolls, rolled)
    first.after(host.scores, rolled)
    first.end()
    journal = tmp_path / "journal.jsonl"
    second = make(4, score_inputs=ROWS, resume=resuming(journal))
    second.engine.stop("interrupt", "no time to repeat what failed")
    second.begin().end()
    why = dict.fromkeys((cut, unbegun), "no rollout is stored")
    third = make(4, score_inputs=ROWS, rescore=RescoreJob(StoredRollouts(journal), why, False, True)).begin()
    third.end()

    assert third.engine.recorder.is_rescored
    assert {RunId.of(event): event["reason"] for event in third.events("skip")}.items() >= why.items()
    told = fold(replay(journal)).records
    assert [told[run].started for run in first.runs] == [True, True, True, False]
    assert third.loop.recorder.ledger.records == told


@pytest.mark.parametrize("gives_back", [True, False])
def test_what_a_host_has_at_the_end_is_lost_unless_it_gives_it_back(make: Make, gives_back: bool) -> None:
    stepped = make().begin()
    host = stepped.host("host")
    stepped.turn()
    if gives_back:
        host.last = lambda: host.say("dropped", runs=[Key(run, 1).to_json() for run in stepped.runs])
    stepped.end()
    assert fold(replay(stepped.path)).most_lost == (0 if gives_back else 4)


def test_nothing_is_handed_out_that_the_journal_cannot_hold(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = make()
    monkeypatch.setattr(Journal, "append", full)
    stepped.begin()
    assert stepped.host("host").runs() == []
    assert stepped.engine.stopped == Stop("journal", "no space left")
    stepped.end()
    assert {*stepped.kinds()} == {"skipped"}


def test_a_broken_engine_reports_every_run_even_if_submitted_later(tmp_path: Path) -> None:
    def described(record: RunRecord, pass_rule: PassRule, transcript: Transcript) -> Outcome:
        raise ZeroDivisionError

    stepped = SteppedEngine(tmp_path, 3, describe=described, max_errors=0, bad=[0], clock=SYSTEM)
    stepped.engine.submit(stepped.runs[:2])
    stepped.engine.go()
    stepped.engine.start()
    wait_until(lambda: stepped.hosts, "a host")
    stepped.hosts[0].say("ready", scorers=["exact"], sync=[], digests={"exact": "0"})
    wait_until(lambda: len(stepped.told) == 2, "two runs")
    stepped.engine.submit(stepped.runs)
    wait_until(lambda: len(stepped.told) == 3, "the last run")
    stepped.engine.close()
    assert Counter(run for run, _ in stepped.told) == Counter(stepped.runs)
    assert stepped.engine.stopped is not None
    assert stepped.engine.stopped.text == "pytest-osmosis failed, please report it: ZeroDivisionError: "


def test_an_engine_that_never_started_unlocks_its_journal(tmp_path: Path) -> None:
    stepped = SteppedEngine(tmp_path)
    assert holder_of(RunDirectory(stepped.path.parent)) is not None
    stepped.engine.close()
    assert holder_of(RunDirectory(stepped.path.parent)) is None


def test_all_runs_of_a_lost_machine_begin_once_more_at_once_and_the_user_reads_one_line(make: Make) -> None:
    stepped = make(4, hosts=2, scorers={"exact": False}).begin()
    first, second = stepped.hosts
    lost = [(host, run) for host in (first, second) for run in host.runs()]
    for host in (first, second):
        host.starts(*host.runs())
    stepped.turn()
    first.is_lost()
    stepped.after(second.is_lost)
    others = stepped.hosts[2:]
    for host in others:
        stepped.is_ready(host)
    again = [(RunId.of(each), each["attempt"]) for host in others for each in host.asked("run")]
    assert sorted(again) == [(run, 2) for run in sorted(run for _, run in lost)]
    assert [host.name for host in stepped.hosts] == ["host"] * 4
    assert stepped.engine.notices.alerts == ["node n1 was lost"]


def test_the_user_reads_one_line_of_each_machine_whose_hosts_end_one_after_the_other(make: Make) -> None:
    stepped = make(6, hosts=3, batch_size=6, scorers={"exact": False}).begin()
    for host in stepped.hosts[:3]:
        host.starts(host.runs()[0])
    stepped.turn()
    one, another, elsewhere = stepped.hosts[:3]
    stepped.after(one.is_lost, "the process that runs the hosts ended on node n1")
    another.is_lost()
    stepped.after(elsewhere.is_lost, "node n2 was lost", "n2")
    stepped.end()
    alerts = ["the process that runs the hosts ended on node n1", "node n2 was lost"]
    assert stepped.engine.notices.alerts == stepped.engine.notices.texts == alerts


def test_the_user_reads_of_hosts_that_wait_and_a_stalled_eval_names_them(make: Make) -> None:
    stepped = make(4, hosts=2).begin()
    stepped.turn()
    waits = stepped.hosts[1]
    waits.placed_at, waits.waits_for = None, "a host needs 1 CPU"
    line = f"1 of 2 hosts waits for a place: {waits.waits_for}"
    for _ in range(2):
        stepped.later(WAIT_S)
    assert stepped.engine.notices.alerts == [line]
    stepped.later(stepped.loop._job.watchdog_s)
    assert stepped.engine.notices.alerts[1].startswith("nothing has finished for")
    assert stepped.engine.notices.alerts[1].endswith(f"; {line}")


def test_an_eval_ends_if_every_machine_is_lost_before_code_runs(make: Make) -> None:
    stepped = make(4)
    stepped.loop.hosts.start()
    for _ in range(MOST_LOST):
        stepped.after(stepped.host("host").is_lost)
    assert stepped.loop.loaded.is_set()
    assert "10 processes in a row were lost with their machines" in str(stepped.loop.refused)
    stepped.engine.submit(stepped.runs)


def test_a_host_that_waits_for_a_place_leaves_its_share_to_others(make: Make) -> None:
    stepped = make(20, hosts=2)
    stepped.loop.hosts.start()
    ready, waits = stepped.hosts
    waits.placed_at = None
    stepped.is_ready(ready)
    ready.say("limited")
    for seconds, limits in ((4.9, [2, 2]), (0.2, [4, 0]), (engine_hosts.START_S, [4, 0])):
        stepped.clock.advance(seconds)
        stepped.loop.hosts.look_after(None)
        stepped.turn()
        assert stepped.limits() == limits
    assert not waits.killed, "it is not silent: it waits"
    waits.placed_at = stepped.clock.now()
    stepped.is_ready(waits)
    ready.say("limited")
    stepped.after(waits.say, "limited")
    stepped.turn()
    assert stepped.limits() == [2, 2]
    stepped.engine.submit(stepped.runs)


def test_many_hosts_that_do_not_end_take_no_longer_to_close_than_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = make(40, hosts=40, batch_size=40)

    def join(host: ScriptedHost, timeout_s: float) -> bool:
        stepped.clock.advance(timeout_s)
        return False

    monkeypatch.setattr(ScriptedHost, "join", join)
    begun = stepped.clock.now()
    stepped.loop.hosts.start()
    stepped.loop.hosts.close()
    assert stepped.clock.now() - begun == 2 * engine_hosts.CLOSE_S + stepped.loop._job.setup.teardown_s
    assert [host.killed for host in stepped.hosts] == [True] * 40
    stepped.engine.submit(stepped.runs)


def test_an_idle_host_gets_the_runs_that_a_slow_one_has_not_begun(make: Make) -> None:
    stepped = make(8, hosts=2, scorers={"exact": False}).begin()
    slow, fast = stepped.hosts
    assert (len(slow.runs()), len(fast.runs())) == (4, 4)
    for host in (slow, fast):
        host.starts(*host.runs()[: 2 if host is slow else 4])
    for run in fast.runs():
        fast.rolls(run)
    stepped.turn()
    assert slow.asked("drop") == [], "it may begin them soon"
    stepped.later(engine_hosts.BEHIND_S + 0.1)
    stepped.turn()
    assert len(slow.asked("drop")) == 1, "it was asked once"
    waiting = slow.runs()[2:]
    stepped.after(slow.say, "dropped", runs=[{**run.to_json(), "attempt": 1} for run in waiting])
    assert fast.runs()[4:] == waiting


def test_the_last_runs_are_for_hosts_that_can_begin_them(make: Make) -> None:
    stepped = make(4, hosts=4, scorers={"exact": False}).begin()
    assert [len(host.runs()) for host in stepped.hosts] == [1, 1, 1, 1]


def test_runs_that_were_handed_out_are_taken_back_once_the_bound_is_reached(make: Make) -> None:
    """The first run is cheap, so that more are handed out than fit once runs cost twenty times as much."""
    bounds = Bounds(math.inf, "some", max_tokens=1_000)
    stepped = make(60, scorers={"exact": False}, batch_size=8, bounds=bounds).begin()
    host = stepped.host("host")

    def rolls(run: RunId, tokens: int) -> None:
        host.starts(run)
        stepped.after(host.rolls, run, usage={"input_tokens": tokens, "output_tokens": 0})

    rolls(stepped.runs[0], 10)
    handed = host.runs()
    assert (len(handed), host.asked("drop")) == (1 + 16, [])
    for run in handed[1:5]:
        rolls(run, 200)
    assert (len(host.runs()), host.asked("drop")) == (len(handed), []), "810 are used: no further one fits"
    rolls(handed[5], 200)
    assert len(host.asked("drop")) == 1


def test_whoever_waits_for_the_code_of_an_engine_that_breaks_is_told_why(tmp_path: Path) -> None:
    loop = SteppedEngine(tmp_path).loop
    loop.inbox.put(Close(0.0))
    loop._fail(ValueError("a bug"))
    assert loop.loaded.is_set()
    assert str(loop.refused) == "pytest-osmosis failed, please report it: ValueError: a bug"
    loop.close_journal()


def test_an_engine_that_is_to_end_starts_no_host(make: Make) -> None:
    stepped = make()
    stepped.loop.hosts.release()
    stepped.loop.hosts.start()
    assert stepped.hosts == []
    stepped.engine.submit(stepped.runs)


def test_answers_of_a_store_do_not_count_as_sent(make: Make) -> None:
    stepped = make().begin()
    for fields in ({}, {"stored": True}, {}):
        stepped.host("host").say("exchange", RUN, **fields)
    stepped.turn()
    assert stepped.loop.exchanges.n_sent == 2


def test_a_request_that_has_waited_for_its_retry_waits_no_more(make: Make) -> None:
    stepped = make().begin()
    host = stepped.host("host")
    host.starts(RUN)
    for waits, n_retrying in ((True, 1), (False, 0)):
        stepped.after(host.say, "retry", RUN, waits=waits)
        assert stepped.loop.table.states[RUN].retrying == n_retrying


def test_runs_that_are_scored_together_are_rolled_out_in_one_host(make: Make) -> None:
    stepped = make(4, scorers={"whole": False}, grouped=["whole"], n=2, hosts=2, batch_size=2)
    stepped.runs = [RunId(row, run) for row in range(2) for run in range(2)]
    stepped.begin()
    rows = [{run.row for run in host.runs()} for host in stepped.hosts]
    assert (rows[0] | rows[1], rows[0] & rows[1]) == ({0, 1}, set())


def test_rollouts_that_began_under_a_higher_limit_may_be_in_flight(make: Make) -> None:
    stepped = make(30, batch_size=6).begin()
    host = stepped.host("host")
    host.starts(*host.runs()[:3])
    stepped.loop.hosts.shares.limit(1)
    for _ in range(2):
        stepped.turn()
        host.heeds_limits()
    stepped.turn()
    assert (stepped.limits(), stepped.loop.most_in_flight) == ([1], 3)


def test_the_sum_of_scores_so_far_takes_a_failure_for_the_lowest_and_leaves_out_a_run_that_was_removed(
    make: Make,
) -> None:
    stepped = make().begin()
    failed, removed, high, low = stepped.runs
    stepped.host("host").starts(failed)
    stepped.host("host").rolls(failed, boundary="agent", error="crashed", details="")
    stepped.after(stepped.host("host").rolls_out, removed, high, low)
    scored: dict[str, Any] = {"ms": 1.0, "errors": {}, "output": {}}
    for run, score in ((high, 0.25), (low, -0.5)):
        stepped.after(stepped.host("scorer").say, "score", run, scores={"exact": score}, **scored)
    stepped.after(stepped.host("scorer").say, "score", removed, scores={}, removed=True, name="exact", **scored)
    progress = stepped.loop.recorder.reports.progress
    assert (progress.removed, progress.score) == (1, 0.25 - 0.5 - 0.5)


def test_an_eval_that_is_decided_has_finished_without_a_reason(make: Make) -> None:
    stepped = make().begin()
    stepped.engine.stop("decided", "the gate fails")
    stepped.end()
    [ended] = stepped.events("ended")
    assert (ended["status"], ended["reason"], ended["stop"]["text"]) == ("finished", None, "the gate fails")


def test_rollouts_that_a_full_disk_does_not_take_are_counted_at_the_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = make().begin()
    monkeypatch.setattr(Journal, "append", full)
    stepped.after(stepped.host("host").rolls_out, RUN)
    stepped.end()
    lost = "1 rollout that ended is not stored, so resuming makes it again; free some space"
    assert f"no space left; {lost}" in stepped.engine.notices.texts


def test_a_stored_run_with_its_scores_is_reported_even_if_nothing_was_done_for_it(make: Make, tmp_path: Path) -> None:
    first = make(2, score_inputs=ROWS).begin()
    first.after(first.host("host").rolls_out, RUN)
    first.after(first.host("scorer").scores, RUN)
    first.end()
    second = make(2, score_inputs=ROWS, resume=resuming(tmp_path / "journal.jsonl", shows=True))
    second.engine.submit(second.runs)
    second.end()
    assert {run: outcome.kind for run, outcome in second.told} == {RUN: "passed", RunId(1, 0): "skipped"}


def test_no_further_run_begins_while_judges_may_still_use_what_is_left(make: Make) -> None:
    stepped = make(
        3, batch_size=1, scorers={"rubric": False}, bounds=Bounds(math.inf, "some", 100, judged=True)
    ).begin()
    host = stepped.host("host")
    [first] = host.runs()
    host.starts(first)
    stepped.after(host.rolls, first, usage={"input_tokens": 45, "output_tokens": 0})
    assert host.runs() == [first]


def test_a_limit_that_is_lowered_during_a_pause_reaches_every_host_before_it_goes_on(make: Make) -> None:
    stepped = make(hosts=2).begin()
    stepped.engine.pause()
    stepped.turn()
    stepped.engine.limit(2)
    stepped.turn()
    stepped.engine.resume()
    stepped.turn()
    for host in stepped.hosts[:2]:
        told = [message["op"] for message in host.told]
        assert told[told.index("pause") :][:3] == ["pause", "limit", "resume"]


def test_a_host_that_dies_while_the_session_ends_is_not_replaced(make: Make) -> None:
    stepped = make().begin()
    stepped.after(stepped.host("host").starts, RUN)
    before = list(stepped.hosts)
    stepped.after(stepped.loop.inbox.put, Close(10.0))
    stepped.after(stepped.host("host").die)
    assert stepped.hosts == before


@pytest.mark.addon
def test_the_part_of_an_artifact_that_a_dead_host_has_sent_is_removed_at_once(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    setup = Setup(HostCode("roll", str(tmp_path), (), CLIENT), artifacts=str(folder), sends_artifacts=True)
    stepped = make(1, setup=setup).begin()
    host = stepped.host("host")
    host.starts(RUN)
    piece = {"path": "log", "data": base64.b64encode(b"begun").decode(), "offset": 0, "last": False}
    stepped.after(host.say, "artifact", RUN, **piece)
    assert [path.read_bytes() for path in folder.iterdir()] == [b"begun"]
    stepped.after(host.die)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("teardown_s", [0.0, TEARDOWN_S], ids=["nothing", "environment"])
def test_a_quarantine_may_end_as_slowly_as_a_busy_machine_lets_it_clean_up(
    make: Make, tmp_path: Path, teardown_s: float
) -> None:
    code = HostCode("roll", str(tmp_path), (), CLIENT, environment=EnvironmentSource("e", "e") if teardown_s else None)
    stepped = make(1, setup=Setup(code), scorers={"judge": False}).begin()
    stepped.host("host").starts(RUN)
    stepped.after(stepped.host("host").die)
    quarantine = stepped.host("quarantine")
    stepped.is_ready(quarantine)
    stepped.after(quarantine.rolls_out, RUN, attempt=2)
    stepped.after(quarantine.say, "score", RUN, 2, ms=1.0, scores={"judge": 1.0}, errors={}, output={})
    assert quarantine.asked("close")
    for seconds, killed in ((engine_hosts.SILENCE_SLACK_S + teardown_s - 1.0, False), (2.0, True)):
        stepped.later(seconds)
        assert quarantine.killed == killed


def test_an_error_that_all_runs_of_the_baseline_met_is_why_it_ended(make: Make) -> None:
    stepped = make()
    stepped.runs[2:] = [RunId(row, 0, ModelTag.BASELINE) for row in range(2)]
    host = stepped.begin().host("host")
    host.starts(*stepped.runs)
    failure: dict[str, Any] = {"boundary": "provider", "error": "503", "details": ""}
    for run in stepped.runs:
        host.rolls(run, **(failure if run.is_baseline else {}))
    stepped.turn()
    stepped.end()
    assert stepped.engine.baseline_stopped == "all 2 runs failed the same way: provider: 503"
    assert stepped.events("ended")[0]["baseline_stopped"] == stepped.engine.baseline_stopped


def test_a_run_whose_group_lacks_one_that_never_began_is_skipped_at_once(make: Make) -> None:
    stepped = make(2, scorers={"whole": False}, grouped=["whole"], n=2)
    stepped.runs = [one, other] = [RunId(0, 0), RunId(0, 1)]
    host = stepped.begin().host("host")
    stepped.after(host.rolls_out, one)
    stepped.engine.stop("interrupt", "enough")
    stepped.after(host.say, "dropped", runs=[Key(other, 1).to_json()])
    why = {other: "enough", one: "not every run of its row was rolled out: enough"}
    assert {RunId.of(event): event["reason"] for event in stepped.events("skip")} == why


def test_a_resumed_eval_scores_no_group_again_that_was_scored_without_a_failed_run(make: Make) -> None:
    def grouped(**job: Any) -> tuple[SteppedEngine, ScriptedHost]:
        stepped = make(2, scorers={"whole": False}, grouped=["whole"], n=2, score_inputs=ROWS, **job)
        stepped.runs = [RunId(0, 0), RunId(0, 1)]
        return stepped, stepped.begin().host("host")

    first, host = grouped()
    good, bad = first.runs
    host.starts(good, bad)
    host.rolls(bad, boundary="agent", error="no", details="")
    first.after(host.rolls, good)
    first.after(host.scores, good, name="whole")
    first.end()
    second, host = grouped(resume=resuming(first.path))
    second.turn()
    assert host.asked("score_group") == []
    second.end()
    assert sorted(second.kinds()) == sorted(first.kinds())
