"""One run, from its request to its events: rolls out with the user's agent, scores with the user's functions.

`HostCore` knows no pipe, no process and no pytest; `emit` is its only way out. A failure of user code, a model or time
becomes an event with its boundary and never leaves `perform` or `score`: other runs are not hurt by it.
"""

from __future__ import annotations

import asyncio
import bdb
import json
import math
import os
import random
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host import output
from pytest_osmosis.host.clients import Clients
from pytest_osmosis.host.deadline import Deadline, DeadlineExpired
from pytest_osmosis.host.interrupt import Interrupted, LoopMonitor, MonitoredCode
from pytest_osmosis.host.loading import UserCode
from pytest_osmosis.host.no_debugger import NO_TERMINAL
from pytest_osmosis.host.overload import OverloadDetector
from pytest_osmosis.host.permits import PermitClient, size_of
from pytest_osmosis.host.protocol import BrokenEvent, Emit, Key, RunRequest, ScoreRequest, ScoringFields, Setup
from pytest_osmosis.host.slots import GetPermit, ResizableSemaphore, RolloutSlot, Slots
from pytest_osmosis.models import retry
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage, copied
from pytest_osmosis.record.events import RemovalEvent, RewardErrorFields, RolloutEvent, ScoreEvent
from pytest_osmosis.record.run_record import Boundary
from pytest_osmosis.rewards.functions import NotAScore, score_of
from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.rollouts.function import NotAConversation
from pytest_osmosis.text.json_line import dumps
from pytest_osmosis.text.user_frames import passed_user_code, suspended_stack, user_traceback

Raised = Callable[[Key, BaseException], None]

STUCK_AFTER = 5
"""Code that swallowed so many cancellations will not end by itself."""
MAX_ERROR_CHARS = 4_000
CANCELLED = "user code cancelled its task before it began"
OTHER_LOOP = (
    "ctx.chat must be awaited in its rollout's event loop; from a thread: asyncio.run_coroutine_threadsafe("
    "ctx.chat(...), loop).result(), where loop is asyncio.get_running_loop() of the rollout"
)


@dataclass(slots=True)
class RequestTotals:
    """What a rollout's requests add up to. `open` counts those that are not answered, waits for a retry included."""

    usage: Usage | None = None
    retries: int = 0
    finish_reason: str | None = None
    model: str | None = None
    open: int = 0

    def add(self, reply: ChatReply) -> None:
        """Count one reply."""
        if reply.usage is not None:
            self.usage = reply.usage if self.usage is None else self.usage + reply.usage
        self.finish_reason = reply.finish_reason
        self.model = reply.model or self.model


@dataclass(frozen=True, slots=True)
class Failure:
    """How user code failed: the boundary, one line, and the user's traceback ("" where it says nothing more)."""

    boundary: Boundary
    message: str
    details: str = ""
    systemic: str = "no"


class HostCore:
    """Performs requests on the running event loop. Both methods take a request and give events to `emit`.

    What says that user code is about to run is emitted and flushed before it does, so that it is on its way whatever
    that code does to the process. Once `closing` is set, what ends is not reported any more. `raised` hears of
    each error of user code before it becomes data, and may raise it on.
    """

    def __init__(
        self,
        setup: Setup,
        code: UserCode,
        clients: Clients,
        slots: Slots,
        monitor: LoopMonitor,
        emit: Emit,
        raised: Raised | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._setup = setup
        self._code = code
        self._clients = clients
        self._slots = slots
        self._monitor = monitor
        self._emit = emit
        self._flush = flush or _at_once
        self._raised = raised or _becomes_data
        self._pid = os.getpid()
        self.closing = False
        self._limit = setup.limit
        self._paused = False
        self._held_until = 0.0
        self._overload = OverloadDetector()
        self._requests = ResizableSemaphore(setup.limit)
        self._scorings = ResizableSemaphore(setup.limit)
        self._permits = PermitClient(emit) if setup.permits else None
        self._policy = retry.RetryPolicy(max_retries=setup.target["max_retries"])
        self._jitter = random.Random()

    def resize(self, limit: int) -> None:
        """From now on so many rollouts, requests and scorings at once; what is in flight stays."""
        self._limit = limit
        self._set_limits()

    def pause(self, paused: bool) -> None:
        """Begin no rollout, request or scoring, or do so again. Clocks of rollouts that wait for one stand still."""
        self._paused = paused
        self._set_limits()

    def hold(self, wait_s: float) -> None:
        """Begin no rollout and no request for so long: the server has no room. Scoring goes on."""
        loop = asyncio.get_running_loop()
        self._held_until = max(self._held_until, loop.time() + wait_s)
        loop.call_at(self._held_until, self._let_go, self._held_until)
        self._set_limits()

    def _let_go(self, held_until: float) -> None:
        if held_until == self._held_until:  # and not longer since; the clock is not asked: timers may come early
            self._held_until = 0.0
            self._set_limits()

    def permitted(self, numbers: Sequence[int]) -> None:
        """The engine lets these requests be sent."""
        if self._permits is not None:
            self._permits.grant(numbers)

    def _set_limits(self) -> None:
        limit = 0 if self._paused else self._limit
        self._scorings.resize(limit)
        for bound in (self._slots, self._requests):
            bound.resize(0 if self._held_until else limit)

    async def perform(self, request: RunRequest) -> None:
        """One run: its slot is held already. Emits `start`, `rollout`, and what `score` does."""
        key = Key.of(request)
        deadline = self._deadline(key, self._setup.agent_timeout_s)
        slot = RolloutSlot(self._slots, self._requests, deadline)
        with output.captured() as sink:
            try:
                self._emit({"ev": "start", **key.to_json(), "at": _now()})
                self._flush()
                rollout = await self._rolled(key, request, deadline, slot)
            finally:
                slot.end()
            rollout["output"] = sink.take()
            self._emit(rollout)
        names = self._code.asynchronous
        if rollout.get("boundary") is None and names:
            await self.score(
                {
                    "op": "score",
                    **key.to_json(),
                    "names": names,
                    "messages": rollout["messages"],
                    "ground_truth": request["ground_truth"],
                    "record": request["record"],
                }
            )

    async def score(self, request: ScoreRequest) -> None:
        """Score the conversation in `request` with the scorers that it names. Emits `scoring` and `score` of each."""
        key = Key.of(request)
        await self._scorings.acquire()
        try:
            for name in request["names"]:
                with output.captured() as sink:
                    self._emit({"ev": "scoring", **key.to_json(), "name": name})
                    self._flush()
                    scored = await self._scored(key, request, name)
                    scored["output"] = sink.take()
                    self._emit(scored)
        finally:
            self._scorings.release()

    async def replay(self, request: ScoringFields, name: str) -> float | None:
        """The score that `name` gives the conversation in `request`, None where a Grader takes it out.

        For a debugger: nothing is emitted, no time is kept, and what user code raises is raised.
        """
        key = Key.of(request)
        running = MonitoredCode(key, self._deadline(key, math.inf))
        with self._users_code(running):
            return await self._value(key, request, name, running)

    # -- rolling out -------------------------------------------------------------------------------------

    async def _rolled(self, key: Key, request: RunRequest, deadline: Deadline, slot: RolloutSlot) -> RolloutEvent:
        """The `rollout` event."""
        agent = self._code.agent
        assert agent is not None, "only hosts that roll out are asked to"
        totals = RequestTotals()
        running = MonitoredCode(key, deadline)
        ctx = self._context(key, request, totals, deadline, slot)
        failure: Failure | None = None
        begun = time.perf_counter()
        try:
            async with deadline:
                with self._users_code(running):
                    returned = await agent.roll(ctx)
            messages = _plain(returned)
        except BaseException as error:
            if self.closing:
                raise
            self._raised(key, error)
            failure = self._failure(error, totals, running, "agent")
            messages = _kept(ctx.last_conversation) or request["prompt"]
        event: RolloutEvent = {
            "ev": "rollout",
            **key.to_json(),  # type: ignore[typeddict-item]  # it lacks optional fields
            "at": _now(),
            "ms": _ms(begun),
            "messages": messages,
            "finish_reason": totals.finish_reason,
            "usage": totals.usage.to_json() if totals.usage is not None else None,
            "model": totals.model,
            "retries": totals.retries,
        }
        if failure is not None:
            event |= {"boundary": failure.boundary, "error": failure.message, "details": failure.details}
            event |= {"systemic": failure.systemic} if failure.systemic != "no" else {}
        return event

    @contextmanager
    def _users_code(self, running: MonitoredCode) -> Iterator[None]:
        """User code runs inside. A process that it forked and that comes back out is not the host: it ends here."""
        with self._monitor.running(running):
            try:
                yield
            finally:
                self._end_forks()
        if running.interrupted_stack:
            raise Interrupted  # it may have swallowed it

    def _end_forks(self) -> None:
        if os.getpid() != self._pid:
            os._exit(0)

    def _context(
        self, key: Key, request: RunRequest, totals: RequestTotals, deadline: Deadline, slot: RolloutSlot
    ) -> ChatContext:
        async def chat(
            messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any]
        ) -> ChatReply:
            ask = ChatRequest(
                messages=messages,
                tools=tools,
                sampling={**self._setup.sampling, **sampling},
                seed=request["seed"],
                run=str(key.run),
            )
            return await self._chat(key, ask, totals, deadline, slot)

        return ChatContext(
            prompt=request["prompt"],
            metadata=request["record"],
            row_index=key.run.row,
            run_index=key.run.index,
            model_tag="baseline" if key.run.is_baseline else "primary",
            max_turns=self._setup.max_turns,
            artifacts=self._artifacts(key),
            chat=chat,
        )

    async def _chat(
        self, key: Key, ask: ChatRequest, totals: RequestTotals, deadline: Deadline, slot: RolloutSlot
    ) -> ChatReply:
        """One request with its retries; the rollout gives its slot back while it only waits for them."""
        self._end_forks()
        if asyncio.get_running_loop() is not deadline.loop:
            raise RuntimeError(OTHER_LOOP)
        if slot.over:
            raise RuntimeError("ctx.chat was called after its rollout was over")
        totals.open += 1
        crowded = False

        def heard(error: ModelError | None) -> None:
            nonlocal crowded
            crowded = self._overload.overloaded(error)

        try:
            async with slot.request(self._get_permit(key, ask)) as request:

                @asynccontextmanager
                async def waiting(delay_s: float) -> AsyncIterator[None]:
                    if crowded:
                        self.hold(delay_s)
                        self._emit({"ev": "throttled", "wait_s": delay_s})
                    self._emit({"ev": "retry", **key.to_json(), "waits": True})
                    try:
                        async with request.waiting_for_retry():
                            yield
                    finally:
                        self._emit({"ev": "retry", **key.to_json(), "waits": False})
                    totals.retries += 1

                answered = await retry.chat(
                    self._clients[key.run.model],
                    ask,
                    timeout_s=self._setup.target["timeout_s"],
                    policy=self._policy,
                    remaining_s=deadline.remaining_s,
                    waiting=waiting,
                    rng=self._jitter,
                    on_result=heard,
                    within=lambda seconds: Deadline(seconds, self._monitor.stalls, lambda task, times: None),
                )
                request.answered(answered.reply.usage)
        finally:
            totals.open -= not deadline.expired
        totals.add(answered.reply)
        return answered.reply

    def _get_permit(self, key: Key, ask: ChatRequest) -> GetPermit | None:
        """Asks for a permit to send `ask`; None where none is needed."""
        permits = self._permits
        if permits is None:
            return None
        size = size_of(ask)
        return lambda: permits.get(key, size)

    # -- scoring -----------------------------------------------------------------------------------------

    async def _scored(self, key: Key, request: ScoringFields, name: str) -> ScoreEvent | RemovalEvent:
        """Return what the function `name` gives, under its deadline."""
        begun = time.perf_counter()
        deadline = self._deadline(key, self._setup.grader_timeout_s)
        running = MonitoredCode(key, deadline)
        try:
            async with deadline:
                with self._users_code(running):
                    value = await self._value(key, request, name, running)
        except BaseException as error:
            if self.closing:
                raise
            self._raised(key, error)
            failure = self._failure(error, RequestTotals(), running, "reward")
            errors: dict[str, RewardErrorFields] = {name: {"message": failure.message, "details": failure.details}}
            return _score_event(key, begun, {}, errors)
        if value is None:
            return {**_score_event(key, begun, {}, {}), "removed": True, "name": name}
        return _score_event(key, begun, {name: value}, {})

    async def _value(self, key: Key, request: ScoringFields, name: str, running: MonitoredCode) -> float | None:
        """The score that `name` gives, None where a Grader takes the run out."""
        messages, ground_truth, record = request["messages"], request["ground_truth"], request["record"]
        function = next((function for function in self._code.functions if function.name == name), None)
        if function is not None:
            arguments = function.arguments(messages, ground_truth, record)
            if function.is_async:
                return score_of(await function.function(**arguments))
            with self._monitor.blocking(running):
                value = function.function(**arguments)
            return score_of(value)
        assert self._code.grader is not None
        project, artifacts = Path(self._setup.workspace), Path(self._artifacts(key))
        sample = await self._code.grader.grade(messages, ground_truth, record, project=project, artifacts=artifacts)
        return None if sample.remove_sample else sample.reward

    # -- failures ----------------------------------------------------------------------------------------

    def _failure(self, error: BaseException, totals: RequestTotals, running: MonitoredCode, code: Boundary) -> Failure:
        """What ended user code, as data. `code` is the boundary of the code itself: "agent" or "reward"."""
        timeout: Boundary = "timeout" if code == "agent" else "reward"
        budget_s = running.deadline.budget_s
        if running.interrupted_stack:
            held = "held the event loop until its {:g} s were over" if code == "agent" else "took longer than {:g} s"
            return Failure(timeout, held.format(budget_s), running.interrupted_stack)
        if isinstance(error, DeadlineExpired):
            if totals.open:
                return Failure("provider", f"no answer within the run's {budget_s:g} s ({totals.retries} retries)")
            where = user_traceback(error.__cause__) if error.__cause__ is not None else ""
            return Failure(timeout, f"took longer than {budget_s:g} s", where)
        failed = next((cause for cause in _causes(error) if isinstance(cause, ModelError)), None)
        if failed is not None and code == "agent":
            return Failure(failed.boundary, str(failed), "", failed.systemic)
        if isinstance(error, bdb.BdbQuit):
            return Failure(code, NO_TERMINAL, user_traceback(error))
        if isinstance(error, (NotAConversation, NotAScore)):
            return Failure(code, str(error), user_traceback(error) if passed_user_code(error) else "")
        return Failure(code, _said(error), user_traceback(error))

    def _deadline(self, key: Key, budget_s: float) -> Deadline:
        def stuck(task: asyncio.Task[Any], times: int) -> None:
            if times >= STUCK_AFTER:
                self._emit({"ev": "stalled", **key.to_json(), "stack": suspended_stack(task)})

        return Deadline(budget_s, self._monitor.stalls, stuck)

    def _artifacts(self, key: Key) -> str:
        return f"{self._setup.artifacts}{os.sep}{key.run}"


def _score_event(key: Key, begun: float, scores: dict[str, float], errors: dict[str, RewardErrorFields]) -> ScoreEvent:
    return {"ev": "score", **key.to_json(), "ms": _ms(begun), "scores": scores, "errors": errors, "output": {}}


def broken(key: Key, error: BaseException | None) -> BrokenEvent:
    """The event of a request that ended without its own: by user code that cancelled it (None), or by our fault."""
    if error is None:
        return {"ev": "broken", **key.to_json(), "boundary": "agent", "error": CANCELLED}
    said = "".join(traceback.format_exception(error))
    return {"ev": "broken", **key.to_json(), "boundary": "host", "error": said}


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, and all that led to it: its cause or context, and the members of a group."""
    waiting, seen = [error], set()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        linked = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        waiting += [linked] if linked is not None else []
        waiting += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()


def _said(error: BaseException) -> str:
    """An error in a line or more: its type, and its text where that can be had."""
    try:
        text = str(error)
    except BaseException as worse:
        text = f"(its text raised {type(worse).__name__})"
    return f"{type(error).__name__}: {text[:MAX_ERROR_CHARS]}" if text else type(error).__name__


def _plain(messages: Sequence[Message]) -> list[Message]:
    """`messages` as plain JSON, as whoever scores or reads them gets them.

    What JSON has no shape for becomes its text. `NotAConversation` where that cannot be had, as for a circle.
    """
    try:
        plain: list[Message] = copied(list(messages))
    except (TypeError, RecursionError):
        return _as_json(messages)
    return plain


def _as_json(messages: Sequence[Message]) -> list[Message]:
    try:
        plain: list[Message] = json.loads(dumps({"messages": list(messages)}))["messages"]
    except Exception as error:
        raise NotAConversation(f"its messages cannot be written as JSON: {type(error).__name__}: {error}") from error
    return plain


def _kept(messages: Sequence[Message] | None) -> list[Message] | None:
    """The conversation of a rollout that failed, as far as it can be shown."""
    try:
        return _plain(messages) if messages is not None else None
    except NotAConversation:
        return None


def _at_once() -> None:
    """What is emitted needs no flush."""


def _becomes_data(key: Key, error: BaseException) -> None:
    """In a host every error of user code is data."""


def _ms(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
