"""Random histories of an eval, one for each seed: hosts and a user who do whatever the protocol allows.

Whatever happens, each run is reported once. It is handed out no more often than deaths of its hosts explain, and never
after its rollout is in the journal or the eval has stopped. The journal leads to the records that the engine has.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytest_osmosis.engine.engine import Engine
from pytest_osmosis.engine.job import Bounds, Limits
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.journal import Journal, replay
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import ENDED_TWICE, UNINTERRUPTIBLE, RunRecord
from pytest_osmosis.results.results import records_of
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.engine.world import USAGE, Climate, StoredNow, World, job_in
from tests.journals import fold

DEADLINE_S = 60.0
OF_USER_CODE = ("ValueError", ENDED_TWICE, UNINTERRUPTIBLE)
ENDS_HERE = ("Traceback", "internal accounting error", "said nothing")

CLIMATES = {
    "calm": Climate(),
    "hosts die": Climate(scorers=("sync", "async"), deaths=5),
    "machines are lost": Climate(scorers=("sync", "async"), machines=12, retries=0.1, permits=True),
    "machines and hosts are lost": Climate(scorers=("sync", "async"), machines=3, deaths=4, stalls=0.01, breaks=0.1),
    "machines are lost with groups": Climate(scorers=("sync", "whole"), grouped=("whole",), machines=4, deaths=1),
    "hosts wait for a place": Climate(scorers=("sync", "async"), waits=0.6, machines=3, retries=0.2, permits=True),
    "hosts wait for a place, and code limits both": Climate(
        scorers=("reward", "sync"), waits=0.6, retries=0.3, machines=1, max_rollouts=2, max_scorings=2
    ),
    "functions in hosts alone": Climate(scorers=("async",), sync=(), deaths=5, stalls=0.02),
    "code that holds its host": Climate(scorers=("sync", "async"), deaths=2, stalls=0.03, breaks=0.1),
    "code in C that never returns": Climate(scorers=("sync", "async"), silences=0.02, deaths=1),
    "code in C and a server without room": Climate(scorers=("async",), silences=0.02, retries=0.3, throttles=0.7),
    "a server without room": Climate(permits=True, retries=0.3, throttles=0.7, fails=0.05, deaths=2),
    "a model that denies all requests": Climate(scorers=("sync", "async"), denies=0.1, deaths=2),
    "a grader": Climate(scorers=("reward", "sync"), deaths=3, removes=0.3, breaks=0.2, fails=0.1),
    "a workflow that runs alone": Climate(scorers=("reward",), sync=(), deaths=3, retries=0.3, max_rollouts=1),
    "code that limits both": Climate(
        scorers=("reward", "sync"), permits=True, retries=0.3, throttles=0.5, deaths=3, max_rollouts=3, max_scorings=2
    ),
    "groups": Climate(scorers=("whole",), sync=(), grouped=("whole",), deaths=5, fails=0.1, breaks=0.1),
    "groups and other functions": Climate(
        scorers=("sync", "async", "whole"), grouped=("whole",), deaths=5, fails=0.1, stalls=0.02, retries=0.1
    ),
    "rows that are gone": Climate(bad_rows=frozenset({1, 2, 5, 6, 7, 9}), deaths=2),
    "hosts that die before they begin": Climate(scorers=("sync", "async"), deaths=3, doomed=0.6),
    "hosts that never begin": Climate(scorers=("sync", "async"), doomed=1.0),
    "no further host": Climate(scorers=("sync", "async"), deaths=6, unloadable=0.5, unspawnable=0.2),
    "code that is saved meanwhile": Climate(scorers=("sync", "async"), deaths=4, waits=0.2, saved=0.3),
    "everything": Climate(
        scorers=("sync", "async", "second"),
        sync=("sync", "second"),
        permits=True,
        deaths=4,
        fails=0.1,
        denies=0.02,
        retries=0.2,
        throttles=0.5,
        stalls=0.01,
        breaks=0.1,
        removes=0.1,
        bad_rows=frozenset({3}),
        unloadable=0.05,
    ),
}


class History:
    """One eval, from its seed to its end."""

    def __init__(self, seed: int, climate: Climate, folder: Path) -> None:
        chance = random.Random(seed)
        n_hosts = chance.choice((1, 1, 2, 3))
        batch_size = chance.randint(n_hosts, n_hosts + 4)
        n_rows, n, with_baseline = chance.randint(1, 12), chance.choice((1, 2)), chance.random() < 0.2
        n += bool(climate.grouped)
        self.runs = [
            RunId(row, index, model)
            for row in range(n_rows)
            for index in range(n)
            for model in (ModelTag if with_baseline else (ModelTag.PRIMARY,))
        ]
        self.climate = climate
        self.world = World(seed, climate, batch_size)
        self.path = folder / f"{seed}.jsonl"
        interleaved = chance.random() < 0.8
        job = job_in(
            folder,
            climate.bad_rows,
            batch_size=batch_size,
            bounds=Bounds(chance.choice((0, 2, math.inf, math.inf)), "some", chance.choice((None, None, None, 40))),
            limits=Limits(requests_per_minute=600 if climate.permits else None),
            n_runs=len(self.runs),
            n=n,
            interleaved=interleaved,
            probes=tuple(ModelTag) if with_baseline else chance.choice(((), (ModelTag.PRIMARY,))),
            hosts=n_hosts,
            watchdog_s=math.inf,
            spawn=self.world.spawn,
            clock=self.world,
        )
        own = {"limit": batch_size, "permits": climate.permits, "eval_fns": tuple(climate.scorers)}
        job = replace(job, setup=replace(job.setup, scores_at_once=interleaved, **own))
        if chance.random() < 0.2:
            enough, n_done = chance.randint(1, len(self.runs)), count(1)
            job = replace(job, decided=lambda *_: "decided" if next(n_done) >= enough else None)
        self.engine = self.world.engine = Engine(job, Journal.create(self.path), self._reported)
        self.world.stored = StoredNow(self.path)
        self.disturbed = self._plan(chance)

    def _reported(self, run: RunId, outcome: Outcome) -> None:
        self.world.n_reports[run] += 1

    def _plan(self, chance: random.Random) -> bool:
        """Plan what the user does, in order; return True if that may end the eval before its runs are done."""
        engine, world = self.engine, self.world
        half = chance.randint(0, len(self.runs))
        parts = [self.runs[:half], self.runs[half:], self.runs[:half]] if chance.random() < 0.3 else [self.runs]
        world.plan += [self._submit(part) for part in parts]
        world.plan.insert(chance.randint(0, 1), engine.go)
        if chance.random() < 0.3:
            for change in (engine.pause, engine.resume):
                world.plan += [world.do_nothing] * chance.randint(0, 6)
                world.plan.append(change)
        if chance.random() < 0.3:
            last = chance.choice((1, world.batch_size))
            for limit in (*chance.choices(range(world.batch_size + 1), k=chance.randint(1, 4)), last):
                world.plan += [world.do_nothing] * chance.randint(0, 6)
                world.plan.append(partial(engine.limit, limit))
        if chance.random() < 0.2:
            world.plan += [world.do_nothing] * chance.randint(0, 6)
            world.plan.append(partial(engine.grow, chance.randint(1, world.batch_size)))
        world.plan += [world.do_nothing] * chance.randint(0, 12)
        ends: list[Callable[[], None]] = [
            lambda: engine.stop("maxfail", "enough"),
            lambda: engine.stop("interrupt", "Ctrl-C"),
            lambda: world.close(chance.choice((0.0, 2.0, 1000.0))),
            engine.kill,
        ]
        if chance.random() < 0.4:
            world.plan += chance.sample(ends, chance.randint(1, 2))
            return True
        return False

    def _submit(self, runs: list[RunId]) -> Callable[[], None]:
        def submit() -> None:
            rows = {(run.row, run.model) for run in runs} if self.climate.grouped else set()
            self.world.submitted.update(runs, (run for run in self.runs if (run.row, run.model) in rows))
            self.engine.submit(runs)

        return submit

    def pass_by(self) -> History:
        self.engine.start()
        assert self.engine.loop.ended.wait(DEADLINE_S), "the engine's thread hangs"
        return self


def wrong(history: History) -> list[str]:
    """Return the invariants that a finished history violates."""
    engine, world = history.engine, history.world
    records = {record.run: record for record in records_of(sorted(world.submitted), engine.ledger.records)}
    world.might_be_killed()
    errors = list(world.violations)
    errors += ["it hung"] if world.hung else []
    errors += [notice for notice in engine.notices.texts if any(words in notice for words in ENDS_HERE)]
    errors += [
        f"{run} was reported {world.n_reports[run]} times" for run in world.submitted if world.n_reports[run] != 1
    ]
    errors += [f"{host.name} is left" for host in world.hosts if not (host.dead or host.killed)]
    said = ("scores", "errors", "removed")
    if any(event["ev"] == "score" and not any(event.get(name) for name in said) for event in replay(history.path)):
        errors.append("the journal holds an empty score")
    if fold(replay(history.path)) != engine.ledger:
        errors.append("the journal leads elsewhere")
    statuses = Counter(record.status for record in records.values())
    if engine.progress.done != statuses.total() - statuses["pending"]:
        errors.append(f"{engine.progress.done} are done, and they are {statuses}")
    bound, used = engine.job.bounds.max_tokens, sum(record.tokens or 0 for record in records.values())
    if bound is not None and used > bound:
        errors.append(f"{used} tokens of {bound} were used")
    never = [run for run, record in records.items() if record.status == "pending"]
    if engine.baseline_stopped is not None:
        never = [run for run in never if not run.is_baseline]
    if engine.stopped is not None and engine.stopped.reason == "closed" and not history.disturbed and never:
        errors.append(f"it was not stopped, and {never} never ran")
    for key in world.written:
        record = records[key.run]
        if not record.rolled and record.attempt == key.attempt:
            errors.append(f"{key} was rolled out, and that is lost")
    for record in records.values():
        errors += misreported(record, history)
    return errors


def misreported(record: RunRecord, history: History) -> list[str]:
    """Return the differences between a record and what its hosts did."""
    world, run = history.world, record.run
    event: dict[str, Any] | None = cast(Any, world.written.get(Key(run, record.attempt)))
    errors = []
    if record.status == "finished":
        if event is None or event.get("boundary") is not None:
            errors.append(f"{run} finished, and no host said so")
        kinds = {name: world.truth(run, name) for name in history.climate.scorers}
        errors += [
            f"{run}: {name} gave {kinds[name]}"
            for name, score in record.scores.items()
            if kinds[name] != ("score", score)
        ]
        if missing := set(kinds) - record.scores.keys() - record.scorer_errors.keys():
            errors.append(f"{run} finished without {missing}")
        errors += [
            f"{run}: {name} failed at {error.boundary}: {error.message}"
            for name, error in record.scorer_errors.items()
            if (error.boundary == "reward") != error.message.startswith(OF_USER_CODE)
        ]
        if record.tokens != sum(USAGE.values()):
            errors.append(f"{run} took {record.tokens} tokens")
    if record.status == "failed" and run not in world.begun and record.boundary != "host":
        errors.append(f"{run} failed at {record.boundary} and was never begun")
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("climate", CLIMATES)
def test_each_run_is_reported_once_and_rolled_out_no_more_often_than_it_must(climate: str, tmp_path: Path) -> None:
    for seed in range(40):
        history = History(seed, CLIMATES[climate], tmp_path).pass_by()
        assert not wrong(history), f"seed {seed}"
