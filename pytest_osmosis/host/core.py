"""Performs runs: rolls out with the user's agent, scores with the user's functions.

`HostCore` knows no pipe, no process and no pytest; events are its only output. A failure of user code, of a model or of
time becomes an event with its boundary and never leaves `perform` or `score`, so it cannot harm other runs.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter, time_ns
from typing import Any, TypeVar

from pytest_osmosis import seams
from pytest_osmosis.formats.events import (
    ROLLOUT,
    RemovalEvent,
    RolloutEvent,
    ScoreEvent,
    ScoringError,
    plain,
    score_event,
)
from pytest_osmosis.host import output
from pytest_osmosis.host.chat import (
    JudgeCounts,
    JudgeGateway,
    ModelGateway,
    RequestTotals,
    RolloutChat,
    ScoringRequests,
)
from pytest_osmosis.host.deadline import Deadline, LoopMonitor, MonitoredCode, running_task
from pytest_osmosis.host.exchanges import HostExchanges
from pytest_osmosis.host.host_endpoint import HostEndpoint, RolloutEndpoint
from pytest_osmosis.host.loading import UserCode
from pytest_osmosis.host.protocol import JUDGE, RUBRIC, EventSink, Key, RunRequest, ScoringFields, Setup, scoring_fields
from pytest_osmosis.host.slots import HostLimits, RolloutSlot
from pytest_osmosis.host.user_errors import Failure, reward_failure, rollout_failure, undescribed
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage, copied, own_copy, refused
from pytest_osmosis.models.retry import DeniableModel
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rewards.graders import NO_FACTS, REWARD, Reward, RolloutToGrade, reward_of
from pytest_osmosis.rollouts.agents import ChatContext, NotAConversation, RolloutOutput, SingleTurn
from pytest_osmosis.rollouts.environment import STATE, EnvironmentFault
from pytest_osmosis.text.chat_messages import RECORDED, prompt_length, refusal_of
from pytest_osmosis.text.safe import dumps, loads
from pytest_osmosis.text.user_code import error_in_words, suspended_stack


def plain_messages(messages: Sequence[Message]) -> list[Message]:
    """Return a copy as plain JSON. Values without a JSON form become their text.

    Raises `NotAConversation` if that is impossible, as for a list that contains itself.
    """
    try:
        return copied(list(messages))  # type: ignore[no-any-return]
    except (TypeError, RecursionError):
        pass
    try:
        return loads(dumps({"messages": list(messages)}))["messages"]  # type: ignore[no-any-return]
    except Exception as error:
        raise NotAConversation(f"its messages cannot be written as JSON: {error_in_words(error)}") from error


T = TypeVar("T")
OnError = Callable[[Key, BaseException], None]

BRIEFLY_S = 2.0
"""The time for the description of an error, whose text user code may make."""
STUCK_AFTER = 5
"""Code that swallowed this many cancellations will not end by itself."""


class HostCore:
    """Performs requests on the running event loop: each method takes a request and passes events on.

    The event that user code begins is emitted and flushed before it begins, so that it is on its way whatever that code
    does to the process. Once `closing` is set, errors are no longer reported. `on_error` receives each error of user
    code before it becomes data, and may raise it again.
    """

    def __init__(
        self,
        setup: Setup,
        code: UserCode,
        clients: Mapping[str, DeniableModel],
        endpoint: HostEndpoint,
        limits: HostLimits,
        monitor: LoopMonitor,
        events: EventSink,
        store: HostExchanges | None = None,
        on_error: OnError = lambda key, error: None,
    ) -> None:
        self.closing = False
        self._setup = setup
        self._code = code
        self._scored_at_once = code.scored_at_once if setup.scores_at_once else ()
        self._limits = limits
        self._monitor = monitor
        self._emit = events.emit
        self._on_error = on_error
        self._flush = events.flush
        self._gateway = ModelGateway(setup, clients, endpoint.environ, limits, monitor.stalls, events, store)
        self._endpoint = endpoint
        self._clients = clients
        self._judges = JudgeGateway(setup, limits, monitor.stalls, events, store)
        self._store = store
        self._sent_artifacts = seams.ArtifactSender(setup.artifacts, events) if setup.sends_artifacts else None

    async def perform(self, request: RunRequest) -> None:
        """Perform a run whose slot is held already. Emits `start`, `rollout`, and the events of `score`."""
        key = Key.of(request)
        chat = RolloutChat(
            self._gateway,
            key,
            self._deadline(key, self._setup.agent_timeout_s),
            script=request.get("script"),
            example_id=request["record"].get("example_id", key.run.row),
        )
        self._endpoint.attach(asyncio.get_running_loop())
        endpoint = RolloutEndpoint(self._endpoint, chat, self._setup.sampling, request["seed"])
        if self._setup.agent == RECORDED:
            chat.totals.usage = Usage(0, 0)  # known: nobody is asked
        with output.Sink() as sink:
            try:
                self._emit({"ev": "start", **key.to_json(), "at": _now()})
                if type(self._code.agent) is not SingleTurn:  # which runs no user code
                    self._flush()
                rollout = await self._roll_out(request, chat, endpoint)
            finally:
                endpoint.end()
                chat.slot.end()
            rollout["output"] = sink.take()
            try:
                await self._send_artifacts(key)
            finally:
                self._emit(rollout)
        if rollout.get("boundary") is None and self._scored_at_once:
            run = scoring_fields(key, rollout, request["ground_truth"], request["record"])
            await self.score(self._scored_at_once, [run])

    async def score(self, names: Sequence[str], runs: Sequence[ScoringFields]) -> None:
        """Score a run, or those of a row together, with each function. Emits `scoring` and `score` for each of both.

        One deadline holds for all runs. What the code prints, and the files that it writes, are those of the first.
        """
        keys = [Key.of(run) for run in runs]
        await self._limits.scorings.acquire()
        slot = RolloutSlot(self._limits.scorings, self._limits.judge_requests)
        try:
            for name in names:
                writes = self._sent_artifacts is not None and name == REWARD and self._code.grader is not None
                since_ns = time_ns() if writes else 0
                with output.Sink() as sink:
                    for key in keys:
                        self._emit({"ev": "scoring", **key.to_json(), "name": name})
                    self._flush()
                    events = await self._score_with(name, runs, keys, slot)
                    events[0]["output"] = sink.take()
                try:
                    if writes:
                        await self._send_artifacts(keys[0], since_ns)
                finally:
                    for event in events:
                        self._emit(event)
        finally:
            slot.end()

    async def replay(self, request: ScoringFields, name: str) -> Reward:
        """Return the reward by the function `name`, without a score if a Grader removes the run.

        For debuggers: there are no events and no time limit, and errors of user code are raised. If the eval replays a
        cassette, so do the judges that the function asks.
        """
        key = Key.of(request)
        running = MonitoredCode(key, self._deadline(key, math.inf), self._monitor)
        asking: AbstractContextManager[object] = nullcontext()
        if self._store is not None and self._store.is_replay:
            slot = RolloutSlot(self._limits.scorings, self._limits.judge_requests, running.deadline)
            asking = ScoringRequests(self._judges, key, name, slot, running.deadline)
        with asking, running:
            reward = (await self._rewards(name, [request], running))[0]
        if isinstance(reward, BaseException):
            raise reward
        return reward

    async def _roll_out(self, request: RunRequest, chat: RolloutChat, endpoint: RolloutEndpoint) -> RolloutEvent:
        running = MonitoredCode(chat.key, chat.deadline, self._monitor)
        context = endpoint.context = self._context(request, chat, endpoint)
        failure: Failure | None = None
        told: RolloutOutput | None = None
        environment: Mapping[str, Any] = {}
        prompt = request["prompt"]
        begun = perf_counter()
        try:
            if (agent := self._code.agent) is None:
                raise RuntimeError("this host only scores")
            with endpoint.current():
                async with running.deadline:
                    with running:
                        output = await agent.roll(context)
                        messages = plain_messages(output.messages)
            environment = output.environment
            n_prompt = _prompt_length(prompt, messages, environment)
            refusal = refusal_of(messages[-1]) if messages[n_prompt:] else None
            if refusal is not None:  # of a model that the agent asked by itself
                raise refused(refusal)
            chat.totals.raise_outage()
            told = output
            if self._code.environment is not None:
                self._code.environment.keep(chat.key, output.state)
        except BaseException as error:
            if self.closing:
                raise
            self._on_error(chat.key, error)
            describe = partial(rollout_failure, error, running, copy(chat.totals))
            failure = await self._briefly(chat.key, describe, partial(undescribed, "agent", error))
            messages = await self._briefly(
                chat.key, lambda: plain_messages(context.last_conversation or ()), lambda worse: []
            )
            messages = messages or prompt
            environment = error.facts if type(error) is EnvironmentFault else environment
            n_prompt = _prompt_length(prompt, messages, environment)
        event = _rollout_event(chat.key, begun, messages, n_prompt, chat.totals, failure)
        if told is not None:
            event |= {"metrics": {ROLLOUT: told.metrics}} if told.metrics else {}
            event |= {"fields": {ROLLOUT: told.info}} if told.info else {}
            event |= {"samples": told.samples} if told.samples else {}
        if environment:
            event["environment"] = environment
        if chat.totals.replicas:
            event["replicas"] = {name: use.to_json() for name, use in chat.totals.replicas.items()}
        return event

    async def _briefly(self, key: Key, call: Callable[[], T], otherwise: Callable[[BaseException], T]) -> T:
        """Return what `call` returns within a few seconds, else `otherwise` of the error that it ends with.

        It deals with objects of a rollout that failed, whose code may do anything now too.
        """
        running = MonitoredCode(key, self._deadline(key, BRIEFLY_S), self._monitor)
        try:
            async with running.deadline:
                with running:
                    return call()
        except BaseException as worse:
            if self.closing:
                raise
            return otherwise(worse)

    async def close(self) -> None:
        """Close the clients of judges that functions needed, those of the standby, and what an environment holds."""
        try:
            await self._gateway.close()
            await self._judges.close()
        finally:
            if self._code.environment is not None:
                await self._code.environment.close()

    def _context(self, request: RunRequest, chat: RolloutChat, endpoint: RolloutEndpoint) -> ChatContext:
        run = chat.key.run

        def send(
            messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any]
        ) -> Awaitable[ChatReply]:
            self._monitor.end_forks()
            sampling = {**self._setup.sampling, **sampling}
            headers = sampling.pop("extra_headers", None) or {}
            return chat.send(
                ChatRequest(messages, tools, sampling, seed=request["seed"], run=str(run), headers=headers)
            )

        return ChatContext(
            prompt=request["prompt"],
            metadata=request["record"],
            row_index=run.row,
            run_index=run.index,
            model_tag="baseline" if run.is_baseline else "primary",
            max_turns=self._setup.max_turns,
            artifacts=self._artifacts(chat.key),
            chat=send,
            sampling=self._setup.sampling,
            endpoint=endpoint,
        )

    async def _score_with(
        self, name: str, runs: Sequence[ScoringFields], keys: Sequence[Key], slot: RolloutSlot
    ) -> list[ScoreEvent | RemovalEvent]:
        """Return the events of the function `name`, which scores the runs together, under its own deadline.

        Only the first has the requests to judges.
        """
        key = keys[0]
        begun = perf_counter()
        running = MonitoredCode(key, self._deadline(key, self._setup.grader_timeout_s), self._monitor)
        slot.clock = running.deadline
        with ScoringRequests(self._judges, key, name, slot, running.deadline) as judges:
            try:
                async with running.deadline:
                    rubric = self._code.rubric if name == RUBRIC else None
                    rewards: Sequence[Reward | BaseException]
                    if rubric is not None:
                        ask = partial(judges.send, rubric.model, client=self._clients[JUDGE])
                        rewards = [await rubric.score(runs[0], ask, str(key.run))]
                    else:
                        with running:
                            rewards = await self._rewards(name, runs, running)
                    if judges.counts.unrecorded is not None:  # whatever the function made of it is no score
                        raise judges.counts.unrecorded
                outcomes = [await self._scoring_outcome(reward, running, judges.counts) for reward in rewards]
            except BaseException as error:
                if self.closing:
                    raise
                outcomes = [await self._scoring_outcome(error, running, judges.counts)] * len(runs)
        events = [_score_event(*scored, begun, name) for scored in zip(keys, runs, outcomes, strict=True)]
        if asked := judges.counts.to_json():
            events[0]["judges"] = asked
        return events

    async def _scoring_outcome(
        self, reward: Reward | BaseException, running: MonitoredCode, counts: JudgeCounts
    ) -> Reward | ScoringError:
        if not isinstance(reward, BaseException):  # to ask an error for another class would run its code
            return reward
        self._on_error(running.key, reward)
        describe = partial(reward_failure, reward, running, copy(counts))
        failure = await self._briefly(running.key, describe, partial(undescribed, "reward", reward))
        scoring_error: ScoringError = {"message": failure.message, "details": failure.details}
        if failure.boundary != "reward":
            scoring_error["boundary"] = failure.boundary
        return scoring_error

    async def _rewards(
        self, name: str, runs: Sequence[ScoringFields], running: MonitoredCode
    ) -> Sequence[Reward | BaseException]:
        """Return the rewards of runs by the function `name`, which scores them together."""
        environment = self._code.environment if name == REWARD else None
        if environment is not None:
            return await environment.score(runs)
        return [await self._reward(name, request, running) for request in runs]

    async def _reward(self, name: str, request: ScoringFields, running: MonitoredCode) -> Reward:
        """Return the reward by the function `name`, without a score if a Grader removes the run."""
        messages, ground_truth, record = request["messages"], request["ground_truth"], request["record"]
        function = self._code.eval_function(name)
        if function is None:
            return await self._grade(request, self._artifacts(running.key))
        facts = self._facts(request) if function.mode == "rollout" else NO_FACTS
        arguments = function.arguments(messages, request["n_prompt"], ground_truth, record, facts)
        if function.is_async:
            return reward_of(await function.function(**arguments))
        value = self._monitor.blocking(running, partial(function.function, **arguments))
        if type(value) is not float and inspect.isawaitable(value):  # a decorator hid that the function is async
            value = await value
        return reward_of(value)

    def _facts(self, request: ScoringFields) -> Mapping[str, Any]:
        """Return what checks see of a rollout besides its conversation; none of a reference solution."""
        facts = request.get("facts")
        price = self._setup.bounds.prices.get(RunId.of(request).model)
        if facts is None:
            return NO_FACTS
        return {**facts, "cost_usd": lambda: None if price is None else price.cost_usd(facts["usage"])}

    async def _grade(self, request: ScoringFields, artifacts: str) -> Reward:
        if self._code.grader is None:
            raise RuntimeError("this host has no Grader")
        own = own_copy(request)
        rollout = RolloutToGrade(
            messages=own["messages"],
            ground_truth=own["ground_truth"],
            row=own["record"],
            metrics=own["metrics"],
            samples=own["samples"],
            project=Path(self._setup.code.workspace),
            artifacts=Path(artifacts),
        )
        return await self._code.grader.grade(rollout)

    def _deadline(self, key: Key, budget_s: float) -> Deadline:
        def on_stuck(task: asyncio.Task[Any], times: int) -> None:
            if times >= STUCK_AFTER:
                self._emit({"ev": "stalled", **key.to_json(), "stack": suspended_stack(task)})

        return Deadline(budget_s, self._monitor.stalls, on_stuck)

    async def _send_artifacts(self, key: Key, since_ns: int = 0) -> None:
        """Send the artifacts of a run that changed after `since_ns`, for the engine that is on another machine."""
        if self._sent_artifacts is not None:
            try:
                await self._sent_artifacts.send_changed(key, since_ns)
            except asyncio.CancelledError:
                self._survive_cancellation()

    def _survive_cancellation(self) -> None:
        """Go on after user code of another run cancelled this one. Raises `CancelledError` if the host ends."""
        if self.closing:
            raise asyncio.CancelledError
        running_task().uncancel()

    def _artifacts(self, key: Key) -> str:
        return f"{self._setup.artifacts}{os.sep}{key.run}"


def _prompt_length(prompt: Sequence[Message], messages: Sequence[Message], environment: Mapping[str, Any]) -> int:
    """Return how many messages come from the prompt. An environment knows it, as its prompt may not be the row's."""
    told: int | None = environment.get(STATE, {}).get("n_prompt")
    return prompt_length(prompt, messages) if told is None else min(told, len(messages))


def _rollout_event(
    key: Key, begun: float, messages: list[Message], n_prompt: int, totals: RequestTotals, failure: Failure | None
) -> RolloutEvent:
    event: RolloutEvent = {
        "ev": "rollout",
        **key.to_json(),
        "at": _now(),
        "ms": _ms_since(begun),
        "messages": messages,
        "n_prompt": n_prompt,
        "usage": totals.usage.to_json() if totals.usage is not None else None,
        "model": totals.model,
        **plain(totals),  # type: ignore[typeddict-item]  # it lacks optional fields
    }
    if totals.bound is not None:
        event["bound"] = totals.bound
    if totals.stored.requests:
        event["stored"] = totals.stored.to_json()
    if failure is not None:
        event |= {"boundary": failure.boundary, "error": failure.message, "details": failure.details}
        event |= {"systemic": failure.systemic} if failure.systemic != "no" else {}
    return event


def _score_event(
    key: Key, run: ScoringFields, outcome: Reward | ScoringError, begun: float, name: str
) -> ScoreEvent | RemovalEvent:
    fields, ms, truth = key.to_json(), _ms_since(begun), run["ground_truth"]
    if not isinstance(outcome, Reward):
        return score_event(fields, ms, {}, {name: outcome}, truth)
    event = score_event(fields, ms, {} if outcome.score is None else {name: outcome.score}, {}, truth)
    if outcome.metrics:
        event["metrics"] = {name: outcome.metrics}
    if outcome.reason:
        event["reasons"] = {name: outcome.reason}
    if outcome.fields:
        event["fields"] = {name: outcome.fields}
    if outcome.score is None:
        return {**event, "removed": True, "name": name}
    return event


def _ms_since(begun: float) -> float:
    return round((perf_counter() - begun) * 1000, 3)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
