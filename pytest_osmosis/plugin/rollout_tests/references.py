"""Reference solutions in place of rollouts: nothing is asked of a model, and nothing is paid.

A row's reference is its column `solution_str`. What the eval's own functions give it is worked out in this process, as
in any unit test, when a test looks it up.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.inline_host import InlineHost, Loop
from pytest_osmosis.errors import ScoreError
from pytest_osmosis.evals import Prepared, host_setup
from pytest_osmosis.host.protocol import Key, ScoringFields
from pytest_osmosis.plugin.rollout_tests.rollout import Rollout, Scores
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.user_frames import is_ours, is_python

T = TypeVar("T")


class References:
    """The reference solutions of an eval's rows."""

    def __init__(self, prepared: Prepared, environ: Mapping[str, str], pythonpath: Sequence[str]) -> None:
        self.prepared = prepared
        self._scorers = _Scorers(prepared, environ, pythonpath)

    def rollout(self, run: RunId) -> Rollout | None:
        """The reference of a row, None where the row holds none."""
        row = self.prepared.dataset.row(run.row)
        solution = row.solution
        if solution is None:
            return None
        messages = [*row.messages, {"role": "assistant", "content": solution}]
        scores = Scores(self._scorers.names, functools.partial(self._scorers.score, run, row, messages))
        return Rollout(run.row, run.index, "reference", messages, row.ground_truth, row.record, scores)

    def where(self, run: RunId) -> str:
        """The place of a row in its dataset."""
        return f"{self.prepared.dataset.display}:{self.prepared.dataset.line(run.row)}"

    @functools.cached_property
    def holds_any(self) -> bool:
        """True where a planned row holds one."""
        return any(row.solution is not None for row in self._rows())

    def _rows(self) -> Iterator[Row]:
        with self.prepared.dataset.open() as file:
            for index, _ in self.prepared.plan.rows():
                yield self.prepared.dataset.read(file, index)

    def close(self) -> None:
        """Close what the functions left open."""
        self._scorers.close()


class _Scorers:
    """The functions of an eval that score, loaded when they are first needed."""

    def __init__(self, prepared: Prepared, environ: Mapping[str, str], pythonpath: Sequence[str]) -> None:
        self._prepared = prepared
        self._environ = {**environ, **prepared.config.env}
        self._pythonpath = pythonpath
        self._until_closed = ExitStack()

    @functools.cached_property
    def _host(self) -> InlineHost:
        loop = Loop()
        self._until_closed.callback(loop.close)
        host = InlineHost(loop, nullcontext, (KeyboardInterrupt,))
        self._until_closed.callback(host.close)
        return host

    @functools.cached_property
    def _artifacts(self) -> Path:
        """Where a Grader may leave files."""
        return Path(self._until_closed.enter_context(tempfile.TemporaryDirectory(prefix="osmosis-")))

    def names(self) -> Sequence[str]:
        """What scores, in the order of the results. Raises `CodeError` where it does not load."""
        setup = host_setup(self._prepared, self._artifacts, self._pythonpath)
        return self._host.borrow(setup, self._environ).scorers

    def score(self, run: RunId, row: Row, messages: Sequence[Mapping[str, Any]], name: str) -> float:
        """What the function gives a conversation; what it raises is raised."""
        __tracebackhide__ = True
        self.names()
        known: ScoringFields = {
            **Key(run, attempt=1).to_json(),
            "messages": [dict(message) for message in messages],
            "ground_truth": row.ground_truth,
            "record": row.record,
        }
        try:
            score = _beside_a_loop(lambda: self._host.replay(known, name))
        except Exception as error:
            raise error.with_traceback(_users(error.__traceback__))  # noqa: B904 (it is the same error)
        if score is None:
            raise ScoreError(f"{name} took the reference solution out (remove_sample)")
        return score

    def close(self) -> None:
        """Close what they left open."""
        self._until_closed.close()


def _users(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the user's first frame on, all of it where none is the user's."""
    first = trace
    while first is not None and _is_plumbing(first.tb_frame.f_code.co_filename):
        first = first.tb_next
    return first or trace


def _is_plumbing(file: str) -> bool:
    return is_ours(file) or is_python(file)


def _beside_a_loop(work: Callable[[], T]) -> T:
    """What `work` gives or raises. In a test that is a coroutine itself, no other can be run in its thread."""
    if asyncio._get_running_loop() is None:
        return work()
    done: list[T] = []
    raised: list[BaseException] = []

    def apart() -> None:
        try:
            done.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=apart, name="osmosis-scores")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return done[0]
