"""The requests of a host to models: of rollouts, and of functions that ask judges while they score.

`Clients` are those of the eval's model, and of its baseline and its judge if it has them. Requests are sent within
limits, which judges have of their own, with permits and retries, and counted. If a server refuses most requests, all
requests to it wait. Code that blocks the host's event loop, and code in another loop or thread, hands its requests to
`OWN_LOOP`, which has clients and a limit of its own.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from threading import Lock
from typing import Any, Self
from uuid import uuid4

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_osmosis.cassettes.exchange import ROLLOUT
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.formats.events import JudgeFields
from pytest_osmosis.host.deadline import Deadline, StallTime
from pytest_osmosis.host.exchanges import AskerExchanges, HostExchanges, StoreTotals, report_at_once, total_usage
from pytest_osmosis.host.protocol import JUDGE, Emit, EventSink, Key, ProbedEvent, Setup
from pytest_osmosis.host.slots import (
    HostLimits,
    ModelRequest,
    PermitClient,
    ResizableSemaphore,
    RolloutSlot,
    StandbySlot,
    size_of,
)
from pytest_osmosis.judges.judge import KEY, REQUESTS, JudgeClients, JudgeModel
from pytest_osmosis.models import create, probe, retry
from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Message, Model, Usage
from pytest_osmosis.models.own_loop import OWN_LOOP
from pytest_osmosis.models.providers import state_headers
from pytest_osmosis.models.replicas import USES, ReplicaUse
from pytest_osmosis.models.retry import DeniableModel
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.text.chat_messages import RECORDED
from pytest_osmosis.text.names import merged_headers

NO_PROBE = "if the model answers other requests than this one, --osmosis-no-probe leaves it out"

Clients = Mapping[str, Model]
"""The client of each model, by its tag. Hosts that only score have at most that of the judge."""


def clients_of(setup: Setup, environ: Mapping[str, str]) -> Clients:
    """Return the clients of all models that `setup` names; `environ` holds their keys."""
    code = setup.code
    asked = {tag: target for tag, target in code.model_targets.items() if code.role == "roll" or tag == JUDGE}
    return {tag: _client(setup, tag, ModelTarget.from_json(target), environ) for tag, target in asked.items()}


def _client(setup: Setup, tag: str, target: ModelTarget, environ: Mapping[str, str]) -> Model:
    if setup.agent == RECORDED and tag != JUDGE:
        return UnaskedModel("the conversations are recorded, so there is no model to ask")
    if setup.cassette is not None and setup.cassette["mode"] == "replay":
        return UnaskedModel("this is a replay, so there is no model to ask")
    return create(target, environ, setup.max_limit)


def deniable(clients: Clients, denied: Callable[[str, str], None]) -> Mapping[str, DeniableModel]:
    """Return clients that send nothing more once their model has denied a request; `denied` gets tag and error."""
    return {tag: DeniableModel(model, partial(denied, tag)) for tag, model in clients.items()}


class UnaskedModel(Struct, frozen=True):
    """The model of recorded conversations and of replays, which nobody asks: `why` not."""

    why: str

    async def chat(self, request: ChatRequest) -> ChatReply:
        raise ModelError(self.why)

    async def close(self) -> None:
        """Close nothing."""


async def probed(clients: Clients, tag: str) -> ProbedEvent:
    event: ProbedEvent = {"ev": "probed", "model_tag": str(tag), "error": None, "is_systemic": False}
    try:
        error = await probe(clients[tag])
    except BaseException as bug:
        return {**event, "error": "".join(traceback.format_exception(bug)), "is_systemic": True}
    if error is None:
        return event
    hint = f"; {NO_PROBE}" if error.status == 404 else ""
    return {**event, "error": f"{error}{hint}", "is_systemic": error.systemic in ("until_success", "always")}


REFUSALS = frozenset({429, 498, 503, 529})
"""The statuses by which servers say that they have no room; 498 is Groq's."""
WINDOW = 8
OVERLOADED = 4
"""This many refusals among the last WINDOW answers mean that the server has no room at all. Every busy service refuses
a request now and then; that costs this request a retry and slows down no other."""


class OverloadDetector:
    """Remembers which of a server's last answers were refusals."""

    def __init__(self) -> None:
        self._refusals: deque[bool] = deque(maxlen=WINDOW)

    def overloaded(self, error: ModelError | None) -> bool:
        """Count an answer (`error` is None for a good one). Return True for the refusal that makes it an overload."""
        refused = error is not None and error.status in REFUSALS
        self._refusals.append(refused)
        if not refused or sum(self._refusals) < OVERLOADED:
            return False
        self._refusals.clear()
        return True


class Sender(Struct):
    """Sends requests in one event loop, `within` their timeouts, and each with one of the `permits` if there are any.

    `hold` makes all requests to an overloaded server wait. The engine hears by `emit` of waits for retries, and by
    `report` of exchanges.
    """

    permits: PermitClient | None
    policy: retry.RetryPolicy
    within: retry.Within
    report: Emit
    hold: Callable[[float], None] = lambda wait_s: None
    emit: Emit = lambda event: None
    overload: OverloadDetector = field(default_factory=OverloadDetector)
    jitter: random.Random = field(default_factory=random.Random)


class SentRequest(ModelRequest):
    """A request of a rollout by a sender, entered once it may be sent, or answered from a store if it is not `sent`.

    `on_retry` is called for each retry.
    """

    def __init__(
        self,
        sender: Sender,
        slot: RolloutSlot | StandbySlot,
        key: Key,
        request: ChatRequest,
        on_retry: Callable[[], None],
        *,
        sent: bool,
    ) -> None:
        permits = sender.permits if sent else None
        super().__init__(slot, None if permits is None else partial(permits.get, key, size_of(request)))
        self._sender = sender
        self._key = key
        self._request = request
        self._on_retry = on_retry
        self._overloaded = False

    async def reply(self, model: Model, timeout_s: float, deadline: Deadline) -> ChatReply:
        """Send it until it is answered or no retry can help."""
        sender = self._sender
        answered = await retry.chat(
            model,
            self._request,
            timeout_s=timeout_s,
            policy=sender.policy,
            remaining_s=deadline.remaining_s,
            waiting=self._waiting,
            rng=sender.jitter,
            on_result=self._note_overload,
            within=self._within,
            moved=self._moved,
        )
        self.answered(answered.reply.usage)
        return answered.reply

    def _within(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Return the context in which the request is sent: none is entered for one that is refused before."""
        self.was_sent = True
        return self._sender.within(seconds)

    def _note_overload(self, error: ModelError | None) -> None:
        self._overloaded = self._sender.overload.overloaded(error)

    @asynccontextmanager
    async def _waiting(self, delay_s: float) -> AsyncIterator[None]:
        """A context for a wait of `delay_s`, left once the request may be sent again."""
        if self._overloaded:
            self._sender.hold(delay_s)
        self._tell(waits=True)
        try:
            async with self.waiting_for_retry():
                yield
        finally:
            self._tell(waits=False)
        self._on_retry()

    async def _moved(self) -> None:
        """Wait until the request may be sent to another replica: its rollout keeps its slot."""
        self._end()
        await self._begin()
        self._on_retry()

    def _tell(self, *, waits: bool) -> None:
        self._sender.emit({"ev": "retry", **self._key.to_json(), "waits": waits})


class Gateway:
    """Sends requests of a host in its event loop (`here`), and in `OWN_LOOP` for code that holds that (`standby`).

    `hold` makes the requests of its loop wait for a server without room. `store` may hold answers.
    """

    def __init__(
        self,
        setup: Setup,
        stalls: StallTime,
        events: EventSink,
        store: HostExchanges | None,
        hold: Callable[[float], None],
        *,
        of_judges: bool = False,
    ) -> None:
        def permits(emit: Emit) -> PermitClient | None:
            return PermitClient(emit, of_judges) if are_needed else None

        def within(seconds: float) -> Deadline:
            return Deadline(seconds, stalls, lambda task, times: None)

        are_needed = setup.judge_permits if of_judges else setup.permits
        policy = retry.RetryPolicy(setup.judge_retries if of_judges else setup.code.target["max_retries"])
        of_threads = events.emit_from_thread
        self.events = events
        self.store = store
        self.here = Sender(permits(events.emit), policy, within, report_at_once(events), hold, events.emit)
        self.standby = Sender(permits(of_threads), policy, asyncio.timeout, of_threads)
        self.standby_requests = ResizableSemaphore(setup.limit)

    def exchanges(self, key: Key, name: str) -> AskerExchanges | None:
        """Return the exchanges of a rollout or a call of a function, None if they are neither kept nor looked up."""
        return None if self.store is None else AskerExchanges(self.store, key, name, self.events.redacted)


OTHER_LOOP = (
    "ctx.chat must be awaited in its rollout's event loop; from a thread: asyncio.run_coroutine_threadsafe("
    "ctx.chat(...), loop).result(), where loop is asyncio.get_running_loop() of the rollout"
)

REFUSED_AGAIN_S = 0.05
"""The wait before a rollout is refused once more: its agent may be a loop that passes over every error."""


class RequestTotals(Struct):
    """The sum of a rollout's requests. `open` counts those without an answer, even if they wait for a retry.

    `finish_reason` and `model` are those of the answer to `last`, the last turn that has one.
    `held_for` counts those for whose answers a synchronous client seems to hold the event loop.
    `asked` counts all that the rollout wanted to send, and `tool_calls` what the answers asked for. `bound` is the
    first bound for which a request was refused. `failure` is the error of the last request through the endpoint, None
    if it was answered: its client raised an error of its own. `outage` is the last error of the provider. `usage` is
    None without an answer, and for good once a server answers without its usage: the sum is unknown then. `stored`
    are those of the answers that came from a store, `unrecorded` is the last request of a replay that it did not hold.
    `replicas` are the requests to each replica of the model, by its name.
    """

    usage: Usage | None = None
    answers: int = 0
    retries: int = 0
    last: int = 0
    finish_reason: str | None = None
    model: str | None = None
    open: int = 0
    held_for: int = 0
    failure: ModelError | BoundError | None = None
    outage: ModelError | None = None
    asked: int = 0
    tool_calls: int = 0
    bound: str | None = None
    stored: StoreTotals = field(default_factory=StoreTotals)
    replicas: dict[str, ReplicaUse] = {}
    unrecorded: ModelError | None = None

    def add(self, reply: ChatReply, turn: int) -> None:
        self.usage = total_usage(self.usage, reply.usage, self.answers)
        self.answers += 1
        self.tool_calls += len(reply.tool_calls)
        if turn >= self.last:  # of requests that were sent together, the first may be answered last
            self.last = turn
            self.finish_reason = reply.finish_reason
            self.model = reply.model or self.model

    def count_retry(self) -> None:
        self.retries += 1

    def raise_outage(self) -> None:
        """Raise `ModelError` if the provider let no request be answered: whatever the agent returned is no model's.

        In a replay one request without an answer is enough.
        """
        if self.unrecorded is not None:
            raise self.unrecorded
        if self.outage is not None and not self.answers:
            outage = self.outage
            text = f"{outage}; the agent returned without an answer of the model"
            raise ModelError(text, status=outage.status, systemic=outage.systemic, details=outage.details)


class ModelGateway(Gateway):
    """Sends the requests of all rollouts of a host.

    `clients` are those of its loop. The standby's, whose keys are in `environ`, are made when it is first needed.
    """

    def __init__(
        self,
        setup: Setup,
        clients: Mapping[str, DeniableModel],
        environ: Mapping[str, str],
        limits: HostLimits,
        stalls: StallTime,
        events: EventSink,
        store: HostExchanges | None = None,
    ) -> None:
        super().__init__(setup, stalls, events, store, self._hold)
        self.limits = limits
        self.setup = setup
        self.targets = setup.code.targets
        self._environ = environ
        self._clients = clients
        self._standby_clients: Clients = {}

    def _hold(self, wait_s: float) -> None:
        self.limits.hold(wait_s)
        self.events.emit({"ev": "throttled", "wait_s": wait_s})

    def client(self, chat: RolloutChat, sender: Sender) -> Model:
        """Return the client of a rollout's model, in the loop of `sender`."""
        tag, loop = chat.key.run.model, chat.deadline.loop
        if sender is self.here:
            return self._clients[tag]
        if not self._standby_clients:
            own = clients_of(self.setup, self._environ)
            self._standby_clients = {tag: _in_standby(own[tag], each, loop) for tag, each in self._clients.items()}
        return self._standby_clients[tag]

    async def close(self) -> None:
        for client in self._standby_clients.values():
            await OWN_LOOP.wait_for(client.close())


def _in_standby(own: Model, host: DeniableModel, loop: asyncio.AbstractEventLoop) -> DeniableModel:
    """Return a model's client in `OWN_LOOP`, while code holds the loop of its client in the host."""
    return DeniableModel(own, lambda error: loop.call_soon_threadsafe(host.deny, error), host)


class RolloutChat:
    """The requests of one rollout. `slot` is the rollout's slot, which it releases while it only waits for retries.

    `script` is what `demo/script` answers from, `example_id` the row's id for headers that name it.
    """

    def __init__(
        self, gateway: ModelGateway, key: Key, deadline: Deadline, *, script: Any = None, example_id: object = None
    ) -> None:
        self.key = key
        self.script = script
        self.deadline = deadline
        self.slot = RolloutSlot(gateway.limits.slots, gateway.limits.requests, deadline)
        self.totals = RequestTotals()
        self._gateway = gateway
        self._exchanges = gateway.exchanges(key, ROLLOUT)
        self.target = gateway.targets[key.run.model]
        self._headers: Mapping[str, str] = {}
        if wanted := self.target.get("headers_from_state"):
            state = {"row_index": key.run.row, "run_index": key.run.index, "example_id": example_id}
            self._headers = state_headers(wanted, {**state, "trajectory_id": uuid4().hex})
        self._items: dict[str, Any] = {}
        """The items of answers that only OpenAI's Responses can represent, by the id of their first tool call."""
        self._counting = Lock()  # protects `totals`, which the endpoint's standby changes in its own thread

    def send(self, request: ChatRequest) -> Awaitable[ChatReply]:
        if asyncio.get_running_loop() is not self.deadline.loop:
            raise RuntimeError(OTHER_LOOP)
        if self.slot.over:
            raise RuntimeError("ctx.chat was called after its rollout was over")
        return self._send(request, self._gateway.here, self.slot)

    async def send_in_standby(self, request: ChatRequest) -> ChatReply:
        """Send a request from the standby's thread, while code holds the loop of the rollout."""
        gateway = self._gateway
        self.totals.held_for += 1
        try:
            return await self._send(request, gateway.standby, StandbySlot(gateway.standby_requests, self.deadline))
        finally:
            self.totals.held_for -= self.deadline.remaining_s() > 0

    async def _send(self, request: ChatRequest, sender: Sender, slot: RolloutSlot | StandbySlot) -> ChatReply:
        """Return the reply to the next turn, within the bounds, and count it.

        A request that is answered from a store waits too, but for no permit.
        """
        request = self._with_items(self._with_headers(request))
        if self.script is not None:
            request = replace(request, script=self.script)
        with self._counting:
            self.totals.asked += 1
            turn = self.totals.asked
        await self._stay_within_bounds(turn)
        gateway, exchanges, asked = self._gateway, self._exchanges, None
        if exchanges is not None:
            asked = exchanges.asks(request, self.target["model"], self.target.get("api", "chat_completions"))

        async def answered() -> ChatReply:
            is_sent = asked is None or asked.is_sent
            async with SentRequest(sender, slot, self.key, request, self.totals.count_retry, sent=is_sent) as sent:
                await self._stay_within_bounds(turn)  # others of this rollout were answered meanwhile
                if asked is not None and not is_sent:
                    return await asked.answer()
                timeout_s = gateway.setup.code.target["timeout_s"]
                return await sent.reply(gateway.client(self, sender), timeout_s, self.deadline)

        with self._counting:
            self.totals.open += 1
        counting = USES.set(self.totals.replicas)
        try:
            reply = await (answered() if asked is None else asked.exchanged(answered, sender.report))
        except ModelError as error:
            if error.boundary == "provider":
                self.totals.outage = error
                if asked is not None and not (asked.is_sent or asked.from_store):
                    self.totals.unrecorded = error
            raise
        finally:
            USES.reset(counting)
            with self._counting:
                self.totals.open -= self.deadline.remaining_s() > 0  # one that ends with the deadline stays open
        with self._counting:
            self.totals.add(reply, turn)
            if ITEMS in reply.message and reply.tool_calls:
                self._items[reply.tool_calls[0]["id"]] = reply.message[ITEMS]
            if asked is not None and asked.from_store:
                self.totals.stored.add(reply.usage)
        return reply

    def _with_items(self, request: ChatRequest) -> ChatRequest:
        """Return a request whose messages have the items of the answers that they repeat: most clients drop them."""
        if not self._items or request.native is not None:
            return request
        return replace(request, messages=[self._with_own_items(message) for message in request.messages])

    def _with_own_items(self, message: Message) -> Message:
        calls = message.get("tool_calls") if isinstance(message, dict) and ITEMS not in message else None
        first = calls[0].get("id") if isinstance(calls, list) and calls and isinstance(calls[0], dict) else None
        items = self._items.get(first) if isinstance(first, str) else None
        return message if items is None else {**message, ITEMS: items}

    def _with_headers(self, request: ChatRequest) -> ChatRequest:
        """Return a request with the headers whose values are in the state of every rollout; its own ones stay."""
        if not self._headers:
            return request
        return replace(request, headers=merged_headers(self._headers, request.headers))

    async def _stay_within_bounds(self, turn: int) -> None:
        """Raise `BoundError` if a request must not begin. An agent that asks on and on must not hold the event loop."""
        try:
            self._gateway.setup.bounds.check(turn, self.totals, self.key.run.model)
        except (BoundError, ModelError) as error:
            refused_before = self.totals.bound is not None
            if isinstance(error, BoundError):
                self.totals.bound = self.totals.bound or error.bound
            await asyncio.sleep(REFUSED_AGAIN_S if refused_before else 0)
            raise


# -- judges ------------------------------------------------------------------------------------------------


class CountedRequests(Struct):
    """The sum of the requests to one judge; `uncounted` answers came without their usage, `stored` from a store."""

    model: str
    base_url: str | None
    calls: int = 0
    retries: int = 0
    uncounted: int = 0
    usage: Usage | None = None
    stored: StoreTotals = field(default_factory=StoreTotals)

    def to_json(self) -> JudgeFields:
        fields: JudgeFields = {
            "model": self.model,
            "base_url": self.base_url,
            "calls": self.calls,
            "retries": self.retries,
            "uncounted": self.uncounted,
            "usage": None if self.usage is None else self.usage.to_json(),
        }
        if self.stored.requests:
            fields["stored"] = self.stored.to_json()
        return fields


class JudgeCounts:
    """The requests to judges of one call of a function, counted in whichever thread they end.

    `open` counts those without an answer; `late` is True once one ended because no time was left. `unrecorded` is the
    last one of a replay that has no recorded answer.
    """

    def __init__(self) -> None:
        self.open = 0
        self.late = False
        self.unrecorded: ModelError | None = None
        self._totals: dict[tuple[str, str | None], CountedRequests] = {}
        self._lock = Lock()

    def count_open(self, change: int) -> None:
        with self._lock:
            self.open += change

    def answered(self, judge: JudgeModel, usage: Usage | None, *, from_store: bool) -> None:
        with self._lock:
            totals = self._of(judge)
            totals.calls += 1
            if from_store:
                totals.stored.add(usage)
            if usage is None:
                totals.uncounted += 1
            else:
                totals.usage = usage if totals.usage is None else totals.usage + usage

    def retried(self, judge: JudgeModel) -> None:
        with self._lock:
            self._of(judge).retries += 1

    def to_json(self) -> Sequence[JudgeFields]:
        with self._lock:
            return [totals.to_json() for totals in self._totals.values()]

    def _of(self, judge: JudgeModel) -> CountedRequests:
        of_judge = judge.name, judge.base_url
        return self._totals.setdefault(of_judge, CountedRequests(*of_judge))


OVER = "the function that asks its judge has ended already"


class JudgeGateway(Gateway):
    """Sends the requests of all scorings of a host. Keys that user code passes are hidden from its `events`."""

    def __init__(
        self, setup: Setup, limits: HostLimits, stalls: StallTime, events: EventSink, store: HostExchanges | None
    ) -> None:
        super().__init__(setup, stalls, events, store, partial(limits.hold, held="judges"), of_judges=True)
        self.clients = JudgeClients()
        self.standby_clients = JudgeClients()
        self._hidden: set[str] = set()

    def hide_key(self, judge: JudgeModel) -> None:
        """Let no event hold the key that a function passes."""
        if judge.api_key is not None and judge.api_key not in self._hidden:
            self._hidden.add(judge.api_key)
            self.events.hide(KEY, judge.api_key)

    async def close(self) -> None:
        await self.clients.close()
        if self.standby_clients.any_made:
            await OWN_LOOP.wait_for(self.standby_clients.close())


class ScoringRequests:
    """The requests to judges of one call of a function (`judges.judge.Requests`), which it asks through this host.

    As a context, it is the one in which the function is called. `slot` is the place of the scoring, which it releases
    while it only waits for retries.
    """

    def __init__(self, gateway: JudgeGateway, key: Key, name: str, slot: RolloutSlot, deadline: Deadline) -> None:
        self.counts = JudgeCounts()
        self._gateway = gateway
        self._key = key
        self._slot = slot
        self._deadline = deadline
        self._over = False
        self._exchanges = gateway.exchanges(key, name)

    @property
    def needs_keys(self) -> bool:
        """False in a replay, which asks no judge."""
        return self._gateway.store is None or not self._gateway.store.is_replay

    def __enter__(self) -> Self:
        self._token = REQUESTS.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        REQUESTS.reset(self._token)
        del self._token  # it has the context that has these requests

    async def send(self, judge: JudgeModel, request: ChatRequest, client: Model | None = None) -> ChatReply:
        """Return the reply, after retries, or from the store. The judge of the config has a `client` already."""
        gateway, deadline = self._gateway, self._deadline
        slot: RolloutSlot | StandbySlot = self._slot
        sender, clients, paused = gateway.here, gateway.clients, deadline.paused
        if asyncio.get_running_loop() is not deadline.loop:
            if not OWN_LOOP.is_here:
                return await OWN_LOOP.wait_for(self.send(judge, request))
            sender, clients, paused = gateway.standby, gateway.standby_clients, deadline.paused_blocked
            slot = StandbySlot(gateway.standby_requests, deadline)
        if self._over:
            raise RuntimeError(OVER)
        gateway.hide_key(judge)
        exchanges = self._exchanges
        asked = None if exchanges is None else exchanges.asks(request, judge.target.model, judge.target.api)

        async def answered() -> ChatReply:
            is_sent = asked is None or asked.is_sent
            model = client or await clients.client(judge, paused) if is_sent else None
            self.counts.count_open(1)
            try:
                on_retry = partial(self.counts.retried, judge)
                async with SentRequest(sender, slot, self._key, request, on_retry, sent=is_sent) as sent:
                    if model is not None:
                        reply = await sent.reply(model, judge.target.timeout_s, deadline)
                    elif asked is not None:
                        reply = await asked.answer()
            except ModelError as error:
                self.counts.late = self.counts.late or deadline.remaining_s() <= 0
                if not is_sent and error.boundary == "provider":
                    self.counts.unrecorded = error
                raise
            finally:
                if not deadline.expired:
                    self.counts.count_open(-1)
            self.counts.answered(judge, reply.usage, from_store=asked is not None and asked.from_store)
            return reply

        return await (answered() if asked is None else asked.exchanged(answered, sender.report))
