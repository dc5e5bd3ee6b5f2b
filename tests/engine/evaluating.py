"""A workspace with user code, and an eval run in it without pytest: real hosts, real servers, real files.

`running` starts an eval, and checks when it ends what must hold after every eval, whatever the user's code did:
each selected run was reported once, the counts are consistent, the journal leads to the same records,
and no thread and no process is left.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from pytest_osmosis.clock import SYSTEM, Clock
from pytest_osmosis.engine.engine import EngineLoop
from pytest_osmosis.engine.host_connection import HostConnection, Spawn
from pytest_osmosis.engine.hosts import Hosts
from pytest_osmosis.evals import EvalRun, FinishedEval, RunSettings, SelectedRuns, finish
from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.results import Results
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.journals import fold
from tests.plugin.workspaces import processes_with, toml
from tests.preparing import prepare
from tests.servers import ChatServer

DEADLINE_S = 180.0
MARK = "OSMOSIS_TEST_MARK"

EXACT = """
def exact(solution_str, ground_truth, extra_info):
    return float(solution_str == ground_truth)
"""


class Workspace:
    """A folder with `rows` prompts "row 0", "row 1", ... whose ground truth is 42, and an eval over all of them."""

    def __init__(self, root: Path, rows: int = 4) -> None:
        self.root = root
        self.write("rewards.py", EXACT)
        self.rows({"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(rows))

    def rows(self, rows: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> None:
        self.write("data/rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
        return file

    def agent(self, code: str) -> None:
        """Write the module `agent`, whose `rollout` is the agent of every eval from now on."""
        self.write("agent.py", "import asyncio, os, signal, subprocess, sys, time\n" + dedent(code))

    def config(self, server: ChatServer | str | None, **tables: Mapping[str, Any]) -> Path:
        """Write configs/eval/x.toml: every row, on `server` (None: the embedded model), with the keys of `tables`."""
        base_url = server.base_url if isinstance(server, ChatServer) else server
        base: dict[str, dict[str, Any]] = {
            "experiment": {"model_path": "served" if base_url else "demo/arithmetic", "dataset": None},
            "data": {"path": "data/rows.jsonl", "rows": "all"},
            "evaluation": {"batch_size": 4},
            "scoring": {"eval_fns": ["rewards:exact"]},
            "limits": {"max_errors": 10_000},
            "secrets": {"required": []},
        }
        if base_url:
            base["model"] = {"base_url": base_url}
        if "rollout" not in tables.get("experiment", {}):
            base["agent"] = {"agent": "agent:rollout" if (self.root / "agent.py").exists() else "chat"}
        merged = {name: {**base.get(name, {}), **tables.get(name, {})} for name in (*base, *tables)}
        return self.write("configs/eval/x.toml", toml("x", merged))


class Live:
    """An eval that runs: the outcomes reported so far, and its hosts. With `replay` its cassette answers."""

    def __init__(
        self,
        config: Path,
        *,
        environ: Mapping[str, str] | None = None,
        probe: bool = False,
        spawn: Spawn = HostConnection,
        replay: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        self.told: list[tuple[RunId, Outcome]] = []
        self.mark = uuid.uuid4().hex
        self._others = set(threading.enumerate())
        clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        own = {**clean, **(environ or {})}
        self.prepared = prepare(config, environ=own, replay=replay)
        self.run = EvalRun.start(
            self.prepared,
            SelectedRuns.of(self.prepared, list(self.prepared.plan.runs())),
            RunSettings({**own, MARK: self.mark}, probe=probe, spawn=spawn, clock=clock),
            rerun=lambda run: f"again {run}",
            on_done=lambda run, outcome: self.told.append((run, outcome)),
        )
        self.finished: FinishedEval | None = None

    @property
    def loop(self) -> EngineLoop:
        return self.run.engine.loop

    @property
    def hosts(self) -> Hosts:
        return self.loop.hosts

    def wait_for(self, condition: Callable[[], object], what: str = "") -> Any:
        """Return the value of the condition once it holds; fails after a deadline."""
        end = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert time.monotonic() < end, f"waited in vain {what}: {self.run.engine.progress} {self.run_files()}"
            time.sleep(0.005)
        return value

    def wait(self) -> Live:
        self.wait_for(lambda: len(self.told) >= len(self.run.selected.runs), "for every run")
        return self

    def host(self, name: str) -> HostConnection:
        """Wait for a ready host of the role "host", "scorer" or "quarantine", and return its connection."""

        def there() -> list[HostConnection]:
            connections = [host.connection for host in self.hosts if host.role == name and host.ready]
            return [each for each in connections if isinstance(each, HostConnection)]

        found: list[HostConnection] = self.wait_for(there, f"for {name}")
        return found[0]

    def record(self, row: int, run: int = 0) -> RunRecord:
        return self.run.engine.ledger.records[RunId(row, run)]

    def outcome(self, row: int, run: int = 0) -> Outcome:
        return dict(self.told)[RunId(row, run)]

    def kinds(self) -> list[str]:
        return [outcome.kind for _, outcome in sorted(self.told, key=lambda told: told[0])]

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        return [event for event in replay(self.run.directory.journal) if event["ev"] == kind]

    def run_files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.run.directory.path)): path.read_text(encoding="utf-8", errors="replace")
            for path in self.run.directory.path.rglob("*")
            if path.is_file()
        }

    @property
    def stop(self) -> Stop:
        assert self.run.engine.stopped is not None
        return self.run.engine.stopped

    @property
    def results(self) -> Results:
        assert self.finished is not None
        return self.finished.results

    def finish(self) -> None:
        """Close it, and check what holds after every eval."""
        (self.finished,) = finish([self.run])
        self.finished.write()
        self._check_nothing_is_lost()
        self._check_nothing_is_left()

    def _check_nothing_is_lost(self) -> None:
        ledger = self.run.engine.ledger
        assert Counter(run for run, _ in self.told) == Counter(self.run.selected.runs)
        statuses = Counter(record.status for record in self.results.records)
        assert statuses.total() == len(self.run.selected.own)
        assert fold(replay(self.run.directory.journal)) == ledger
        assert self.run.engine.progress.in_flight == 0

    def _check_nothing_is_left(self) -> None:
        self.wait_for(lambda: not processes_with(self.mark), "for processes to end")

        def has_threads() -> bool:
            return any(each.name.startswith("osmosis") for each in {*threading.enumerate()} - self._others)

        self.wait_for(lambda: not has_threads(), "for threads")


@contextmanager
def running(config: Path, **options: Any) -> Iterator[Live]:
    """The eval in `config`, begun; finished and checked on leaving. `options` are those of `Live`.

    The engine goes by `clock`; hosts, which are other processes, go by their own.
    """
    live = Live(config, **options)
    try:
        live.run.engine.loaded()
        live.run.go()
        yield live
    except BaseException:
        live.run.engine.kill()
        live.run.close()
        raise
    live.finish()


def evaluated(config: Path, **options: Any) -> Live:
    with running(config, **options) as live:
        live.wait()
    return live


def asked_rows(server: ChatServer) -> Counter[int]:
    """Count the requests of each row N, by their "row N" prompts."""
    prompts = [message["content"] for body in server.bodies for message in body["messages"]]
    return Counter(
        int(prompt.split()[1]) for prompt in prompts if isinstance(prompt, str) and prompt.startswith("row ")
    )
