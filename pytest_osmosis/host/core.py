"""One run, from its request to its events: rolls out with the user's agent, scores with the user's functions.

`HostCore` knows no pipe, no process and no pytest; `emit` is its only way out. A failure of user code, a model or time
becomes an event with its boundary and never leaves `perform` or `score`: other runs are not hurt by it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host import output
from pytest_osmosis.host.deadline import Deadline, DeadlineExpired, Stalls
from pytest_osmosis.host.loading import Code, user_traceback
from pytest_osmosis.host.protocol import Key, Setup, key_of
from pytest_osmosis.host.slots import Slots
from pytest_osmosis.host.watch import Interrupted, Watch, Watched
from pytest_osmosis.models import retry
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Model, Usage
from pytest_osmosis.records import Boundary, Run
from pytest_osmosis.rewards.functions import score_of
from pytest_osmosis.rollouts.context import ChatContext

Emit = Callable[[Mapping[str, Any]], None]
Request = Mapping[str, Any]


@dataclass(slots=True)
class Talk:
    """What a rollout's requests add up to.

    `open` counts requests that are under way or wait for their retry, `waiting` only the latter: while there is one,
    the rollout holds no slot. `over` is set when the rollout has ended.
    """

    usage: Usage | None = None
    retries: int = 0
    finish_reason: str | None = None
    model: str | None = None
    open: int = 0
    waiting: int = 0
    over: bool = False

    def add(self, reply: ChatReply) -> None:
        """Count one reply."""
        if reply.usage is not None:
            self.usage = reply.usage if self.usage is None else self.usage + reply.usage
        self.finish_reason = reply.finish_reason
        self.model = reply.model or self.model


class Right:
    """The right to have one request under way, out of a bounded number."""

    def __init__(self, rights: asyncio.Semaphore) -> None:
        self._rights = rights
        self._held = False

    async def take(self) -> None:
        """Wait for it."""
        await self._rights.acquire()
        self._held = True

    def give_back(self) -> None:
        """Free it, where it is held."""
        if self._held:
            self._held = False
            self._rights.release()


@dataclass(frozen=True, slots=True)
class Failure:
    """How user code failed: the boundary, one line, and the user's traceback ("" where it says nothing more)."""

    boundary: Boundary
    message: str
    details: str = ""
    systemic: str = "no"


class HostCore:
    """Performs requests on the running event loop. Both methods take a request and give events to `emit`."""

    def __init__(
        self, setup: Setup, code: Code, model: Model | None, slots: Slots, stalls: Stalls, watch: Watch, emit: Emit
    ) -> None:
        self._setup = setup
        self._code = code
        self._model = model
        self._slots = slots
        self._stalls = stalls
        self._watch = watch
        self._emit = emit
        self._requests = asyncio.Semaphore(setup.limit)
        self._scorings = asyncio.Semaphore(setup.limit if setup.role == "roll" else 1)
        self._policy = retry.RetryPolicy(max_retries=setup.target["max_retries"])
        self._jitter = random.Random()
        self._async_names = code.asynchronous

    async def perform(self, request: Request) -> None:
        """One run: its slot is held already. Emits `start`, `rollout`, and `score` for what scores asynchronously."""
        key = key_of(request)
        with output.captured() as sink:
            holding = True
            try:
                self._emit({"ev": "start", **key._asdict(), "at": _now()})
                rollout, holding = await self._rolled(key, request)
            finally:
                self._slots.end(holding=holding)
            self._emit({**rollout, "output": sink.take()})
        if rollout.get("boundary") is None and self._async_names:
            await self.score({**request, "messages": rollout["messages"], "names": self._async_names})

    async def score(self, request: Request) -> None:
        """Score the conversation in `request` with the scorers that it names. Emits one `score` for each."""
        key = key_of(request)
        async with self._scorings:
            for name in request["names"]:
                with output.captured() as sink:
                    self._emit({"ev": "scoring", **key._asdict(), "name": name})
                    begun = time.perf_counter()
                    scored = await self._scored(key, request, name)
                    self._emit({"ev": "score", **key._asdict(), "ms": _ms(begun), **scored, "output": sink.take()})

    # -- rolling out -------------------------------------------------------------------------------------

    async def _rolled(self, key: Key, request: Request) -> tuple[dict[str, Any], bool]:
        """The `rollout` event, and whether the run still holds its slot."""
        talk = Talk()
        deadline = Deadline(self._setup.agent_timeout_s, self._stalls, self._stuck(key))
        ctx = self._context(key, request, talk, deadline)
        messages: Sequence[Message] = ()
        failure: Failure | None = None
        begun = time.perf_counter()
        try:
            async with deadline:
                self._watch.own(Watched(key, deadline))
                messages = await self._code.agent.roll(ctx)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _being_cancelled():
                raise
            failure = self._failure(error, talk, self._setup.agent_timeout_s, "agent")
            messages = ctx.last_conversation or ctx.prompt
        talk.over = True
        event = {
            "ev": "rollout",
            **key._asdict(),
            "at": _now(),
            "ms": _ms(begun),
            "messages": list(messages),
            "finish_reason": talk.finish_reason,
            "usage": talk.usage.to_json() if talk.usage is not None else None,
            "model": talk.model,
            "retries": talk.retries,
        }
        if failure is not None:
            event |= {"boundary": failure.boundary, "error": failure.message, "details": failure.details}
            event |= {"systemic": failure.systemic} if failure.systemic != "no" else {}
        return event, talk.waiting == 0

    def _context(self, key: Key, request: Request, talk: Talk, deadline: Deadline) -> ChatContext:
        async def chat(
            messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any]
        ) -> ChatReply:
            ask = ChatRequest(
                messages=messages,
                tools=tools,
                sampling={**self._setup.sampling, **sampling},
                seed=request["seed"],
                timeout_s=self._setup.target["timeout_s"],
                run=str(Run(key.row, key.run)),
            )
            return await self._chat(ask, talk, deadline)

        return ChatContext(
            prompt=request["prompt"],
            metadata=request["record"],
            row_index=key.row,
            run_index=key.run,
            max_turns=self._setup.max_turns,
            artifacts=self._artifacts(key),
            chat=chat,
        )

    async def _chat(self, ask: ChatRequest, talk: Talk, deadline: Deadline) -> ChatReply:
        """One request with its retries; the rollout gives its slot back while it waits for one."""
        if talk.over:
            raise RuntimeError("ctx.chat was called after its rollout was over")
        right = Right(self._requests)

        @asynccontextmanager
        async def waiting(_delay_s: float) -> AsyncIterator[None]:
            right.give_back()
            self._pause(talk)
            try:
                yield
            except BaseException:
                self._go_on_at_once(talk)
                raise
            await self._go_on(talk, deadline)
            await right.take()

        assert self._model is not None, "only hosts that roll out are asked to"
        await right.take()
        talk.open += 1
        try:
            answered = await retry.chat(
                self._model,
                ask,
                policy=self._policy,
                remaining_s=deadline.remaining_s,
                waiting=waiting,
                rng=self._jitter,
            )
        except ModelError as error:
            talk.retries += error.retries
            raise
        finally:
            right.give_back()
            if not deadline.expired:
                talk.open -= 1
        talk.retries += answered.retries
        talk.add(answered.reply)
        return answered.reply

    def _pause(self, talk: Talk) -> None:
        talk.waiting += 1
        if talk.waiting == 1 and not talk.over:
            self._slots.give_back()

    def _go_on_at_once(self, talk: Talk) -> None:
        """The wait was given up: the slot is taken again without a turn, as the rollout goes on now."""
        talk.waiting -= 1
        if talk.waiting == 0 and not talk.over:
            self._slots.take()

    async def _go_on(self, talk: Talk, deadline: Deadline) -> None:
        """Wait for a slot, on time that does not count."""
        if talk.waiting > 1 or talk.over:
            talk.waiting -= 1
            return
        deadline.pause()
        try:
            await self._slots.resume()
        except BaseException:
            self._go_on_at_once(talk)
            raise
        finally:
            deadline.resume()
        talk.waiting -= 1

    # -- scoring -----------------------------------------------------------------------------------------

    async def _scored(self, key: Key, request: Request, name: str) -> dict[str, Any]:
        """What one scorer gave, under its deadline: the fields of a `score` event."""
        deadline = Deadline(self._setup.grader_timeout_s, self._stalls, self._stuck(key))
        try:
            async with deadline:
                self._watch.own(Watched(key, deadline))
                value = await self._value(key, request, name)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _being_cancelled():
                raise
            failure = self._failure(error, Talk(), self._setup.grader_timeout_s, "reward")
            return {"scores": {}, "errors": {name: {"message": failure.message, "details": failure.details}}}
        if value is None:
            return {"scores": {}, "errors": {}, "removed": True}
        return {"scores": {name: value}, "errors": {}}

    async def _value(self, key: Key, request: Request, name: str) -> float | None:
        """The score that `name` gives, None where a Grader takes the run out."""
        messages, ground_truth, record = request["messages"], request["ground_truth"], request["record"]
        function = next((function for function in self._code.functions if function.name == name), None)
        if function is not None:
            value = function.function(**function.arguments(messages, ground_truth, record))
            return score_of(await value if function.is_async else value)
        assert self._code.grader is not None
        project, artifacts = Path(self._setup.workspace), self._artifacts(key)
        sample = await self._code.grader.grade(messages, ground_truth, record, project=project, artifacts=artifacts)
        return None if sample.remove_sample else sample.reward

    # -- failures ----------------------------------------------------------------------------------------

    def _failure(self, error: BaseException, talk: Talk, budget_s: float, code: Boundary) -> Failure:
        """What ended user code, as data. `code` is the boundary of the code itself: "agent" or "reward"."""
        timeout: Boundary = "timeout" if code == "agent" else "reward"
        if isinstance(error, DeadlineExpired):
            if talk.open:
                return Failure("provider", f"no answer within the run's {budget_s:g} s ({talk.retries} retries)")
            return Failure(timeout, f"took longer than {budget_s:g} s", user_traceback(error.__cause__ or error))
        if isinstance(error, Interrupted):
            held = f"held the event loop until its {budget_s:g} s were over"
            return Failure(
                timeout,
                held if code == "agent" else f"took longer than {budget_s:g} s",
                user_traceback(error),
            )
        failed = _model_error(error) if code == "agent" else None
        if failed is not None:
            return Failure(failed.boundary, str(failed), "", failed.systemic)
        text = str(error)
        message = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return Failure(code, message, user_traceback(error))

    def _stuck(self, key: Key) -> Callable[[int], None]:
        def stuck(times: int) -> None:
            if times >= 5:
                self._emit({"ev": "stalled", **key._asdict(), "stack": "it swallows its cancellation"})

        return stuck

    def _artifacts(self, key: Key) -> Path:
        return Path(self._setup.artifacts) / str(Run(key.row, key.run))


def _model_error(error: BaseException) -> ModelError | None:
    """The `ModelError` that `error` is, or that led to it."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ModelError):
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return seen


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _ms(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 3)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
