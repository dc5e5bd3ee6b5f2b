"""Measure what a turn of the engine costs, by the number of hosts that it feeds.

    python -m benchmarks.engine_turns [--hosts 1,64,1024] [--in-flight 4] [--turns 200]

The hosts are simulated in the same process, so that only the engine is measured: every host has `in_flight` rollouts in
flight, and before each turn `ENDING` of all rollouts end and are scored. The figure is the CPU time of the engine's
thread in one turn, which handles their events, refills their hosts, and writes the journal.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from pytest_osmosis.datasets import Dataset, Row
from pytest_osmosis.engine.engine import EngineLoop, Submit
from pytest_osmosis.engine.host_connection import Heard, HostEnviron, Post
from pytest_osmosis.engine.job import Bounds, Job
from pytest_osmosis.host.protocol import HostCode, Setup
from pytest_osmosis.record.journal import Journal
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, Transcript, kind_of

ENDING = 8
TARGET_MS = 5.0
USAGE = {"input_tokens": 5, "output_tokens": 2}


class Rows:
    """As many rows as wanted, all alike."""

    def open(self) -> Any:
        return tempfile.TemporaryFile()

    def read(self, file: object, row: int) -> Row:
        return Row(row, [{"role": "user", "content": "6 * 7?"}], "42", {}, row)

    def line(self, row: int) -> int:
        return row


class SimulatedHost:
    """A host that begins as many rollouts as it may, and ends one when told."""

    def __init__(self, name: str, setup: Setup, post: Post) -> None:
        self.name = name
        self.gather_s = 0.0
        self.delay_s = 0.0
        self.placed_at: float | None = 0.0
        self.waits_for = ""
        self._limit = setup.limit
        self._post = post
        self._waiting: list[Mapping[str, Any]] = []
        self.rolling: list[Mapping[str, Any]] = []
        self._say([{"ev": "ready", "scorers": ["reward"], "sync": [], "digests": {"reward": "d"}}])

    def send(self, messages: Iterable[Mapping[str, Any]]) -> None:
        for message in messages:
            if message["op"] == "run":
                self._waiting.append(message)
            elif message["op"] == "limit":
                self._limit = message["limit"]
                self._say([{"ev": "limited"}])

    def begin(self) -> None:
        """Begin what there is room for."""
        begun = self._waiting[: max(0, self._limit - len(self.rolling))]
        del self._waiting[: len(begun)]
        self.rolling += begun
        self._say([{"ev": "start", **key_of(each)} for each in begun])

    def end(self, message: Mapping[str, Any]) -> None:
        """End a rollout and score it."""
        self.rolling.remove(message)
        key = key_of(message)
        messages = [*message["prompt"], {"role": "assistant", "content": "42"}]
        rollout = {"ev": "rollout", **key, "ms": 1.0, "messages": messages, "n_prompt": 1, "usage": USAGE}
        score = {"ev": "score", **key, "ms": 0.1, "scores": {"reward": 1.0}, "errors": {}, "output": {}}
        self._say([rollout, {"ev": "scoring", **key, "name": "reward"}, {**score, "ground_truth": "42"}])
        self.begin()

    def _say(self, events: list[dict[str, Any]]) -> None:
        if events:
            self._post(Heard(self, [(cast(Any, each), json.dumps(each).encode() + b"\n") for each in events]))

    def kill(self) -> None:
        pass

    def join(self, timeout_s: float) -> bool:
        return True

    def last_words(self) -> str:
        return ""


def key_of(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**RunId.of(message).to_json(), "attempt": message["attempt"]}


def described(record: RunRecord, pass_rule: PassRule, transcript: Transcript) -> Outcome:
    return Outcome(kind_of(record, pass_rule))


def turns_ms(n_hosts: int, in_flight: int, n_turns: int, folder: Path) -> list[float]:
    """Return the CPU milliseconds of each turn, once all hosts are busy."""
    hosts: list[SimulatedHost] = []

    def spawn(name: str, setup: Setup, *, environ: object, log: object, post: Post) -> SimulatedHost:
        hosts.append(SimulatedHost(name, setup, post))
        return hosts[-1]

    n_runs = n_hosts * in_flight * 3 + ENDING * (n_turns + 1)
    target: dict[str, Any] = {"api_key_env": None, "headers": {}}
    job = Job(
        setup=Setup(HostCode("roll", str(folder), (), target), limit=in_flight, eval_fns=("reward",)),
        dataset=cast(Dataset, Rows()),
        pass_rule=PassRule(()),
        describe=described,
        environ=HostEnviron({}),
        host_log=folder / "host.log",
        stop_request=folder / "stop",
        batch_size=n_hosts * in_flight,
        bounds=Bounds(math.inf, "all"),
        n_runs=n_runs,
        probes=(),
        hosts=n_hosts,
        watchdog_s=math.inf,
        spawn=spawn,
    )
    loop = EngineLoop(job, Journal.create(folder / f"{n_hosts}.jsonl"), lambda run, outcome: None)
    loop.hosts.start()
    loop.inbox.put(Submit([RunId(row, 0) for row in range(n_runs)]))
    loop.inbox.put(loop.go)
    while sum(len(host.rolling) for host in hosts) < n_hosts * in_flight:
        loop.turn()
        for host in hosts:
            host.begin()
    chance, taken = random.Random(0), []
    for _ in range(n_turns):
        for host in chance.choices(hosts, k=ENDING):
            if host.rolling:
                host.end(host.rolling[0])
        began = time.thread_time()
        loop.turn()
        taken.append(1000 * (time.thread_time() - began))
    loop.close_journal()
    return taken


def main() -> int:
    """Return 1 if a turn takes longer than `TARGET_MS` with any number of hosts, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine_turns", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", default="1,64,1024")
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--turns", type=int, default=200)
    options = parser.parse_args()
    medians = []
    with tempfile.TemporaryDirectory() as name:
        for n_hosts in map(int, options.hosts.split(",")):
            taken = turns_ms(n_hosts, options.in_flight, options.turns, Path(name))
            medians.append(statistics.median(taken))
            at_95 = statistics.quantiles(taken, n=20)[-1]
            print(f"{n_hosts} hosts x {options.in_flight}: {medians[-1]:.2f} ms a turn, 95% below {at_95:.2f} ms")
    holds = max(medians) <= TARGET_MS
    print(f"{'holds' if holds else 'DOES NOT HOLD'}: a turn in which {ENDING} rollouts end (<= {TARGET_MS:g} ms)")
    return int(not holds)


if __name__ == "__main__":
    raise SystemExit(main())
