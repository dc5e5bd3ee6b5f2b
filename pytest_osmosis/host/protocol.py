"""The messages between the engine and a host: one ASCII JSON object a line, in both directions.

`Request` lists all that the engine sends, told apart by `op`; `HostEvent` all that a host sends, told apart by `ev`.
The messages are plain dicts, and these types cost nothing at run time. `HostCode` and `Setup` are what a host is given,
with the judge of the config (`JudgeSetup`) and the bounds of a rollout (`RolloutBounds`).

A bound keeps further requests from beginning, and cuts off none that has begun. So a rollout can exceed a bound on
tokens or dollars by its last request, or by those that it sends at once; it never exceeds one on turns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict

from msgspec import MsgspecError, Struct, field, to_builtins
from msgspec.json import Decoder, decode
from msgspec.json import encode as encode_json

from pytest_osmosis.cassettes.exchange import AskedFields
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.formats import Boundary, CassetteMode
from pytest_osmosis.formats.codec import AnyModel
from pytest_osmosis.formats.events import (
    FREQUENT,
    ROLLOUT,
    AttemptFields,
    RolloutEvent,
    ScoreEvent,
    StartEvent,
    check_event,
    decoders_of,
    frequent_event,
    kinds_of,
)
from pytest_osmosis.formats.price import Price
from pytest_osmosis.models.providers import provider_secrets, secret_headers
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.text.numbers import money, plural
from pytest_osmosis.text.safe import dumps, loads

if TYPE_CHECKING:
    from pytest_osmosis.host.chat import RequestTotals
    from pytest_osmosis.rollouts.environment import EnvironmentSource

MAX_TURNS = "[agent] max_turns"
LIMITS = "[limits.rollout]"


class RolloutBounds(Struct, frozen=True):
    """The bounds of every rollout; None: unbounded. `prices` are those of the models by tag, for `cost_usd`."""

    max_turns: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    prices: Mapping[str, Price] = {}

    @classmethod
    def from_json(cls, bounds: Mapping[str, Any]) -> RolloutBounds:
        return cls(**{**bounds, "prices": {tag: Price(**price) for tag, price in bounds["prices"].items()}})

    def check(self, turn: int, totals: RequestTotals, model: ModelTag) -> None:
        """Raise the error of the request that is the rollout's `turn`, if one of the bounds is met.

        Raises `ModelError` if the server does not say how many tokens were used, because the bound cannot be kept then.
        """
        if self.max_turns is not None and turn > self.max_turns:
            raise BoundError(f"the rollout asked the model {plural(turn, 'time')}", f"{MAX_TURNS} = {self.max_turns}")
        if self.tool_calls is not None and totals.tool_calls > self.tool_calls:
            calls = plural(totals.tool_calls, "tool call")
            raise BoundError(f"the model asked for {calls}", f"{LIMITS} tool_calls = {self.tool_calls}")
        if totals.answers and totals.usage is None and (self.tokens, self.cost_usd) != (None, None):
            name = "tokens" if self.tokens is not None else "cost_usd"
            raise ModelError(
                f"{LIMITS} {name} cannot be kept: the server does not report token usage", systemic="always"
            )
        if totals.usage is None:
            return
        if self.tokens is not None and totals.usage.total_tokens >= self.tokens:
            used = plural(totals.usage.total_tokens, "token")
            raise BoundError(f"the rollout used {used}", f"{LIMITS} tokens = {self.tokens}")
        if self.cost_usd is not None:
            spent = self.prices[model].cost_usd(totals.usage.to_json())
            if spent is not None and spent >= self.cost_usd:
                raise BoundError(f"the rollout spent {money(spent)}", f"{LIMITS} cost_usd = {self.cost_usd:g}")


RUBRIC = "rubric"


class JudgeSetup(TypedDict):
    """The judge of a config, as a host gets it. `model` is its name as typed, `base_url` unless the name implies it."""

    model: str
    base_url: str | None
    target: Mapping[str, Any]
    rubric: str
    score_range: Sequence[float]
    votes: int
    sees: str
    metadata: Sequence[str]
    system_prompt: str
    sampling: Mapping[str, Any]


def judge_digest(setup: Mapping[str, Any]) -> str:
    """Return the digest of all that a judge's scores depend on: its model, its rubric, and what it sees.

    An endpoint may move, or lose one of its replicas, and stay the same.
    """
    target = setup["target"]
    address = None if target.get("endpoint") else target["base_url"]
    model = [setup["model"], address, target["provider"], target["model"]]
    rest = {name: value for name, value in setup.items() if name not in ("target", "model", "base_url")}
    return blake2b(dumps({"model": model, **rest}).encode(), digest_size=8).hexdigest()


Role = Literal["roll", "score"]
WhyLeftOut = Literal["large", "unreadable", "special"]

MOST_BYTES = 64 << 20
"""The artifacts of an attempt are sent up to this size."""
MOST_FILES = 10_000
"""The artifacts of an attempt are sent up to this number of files and folders."""


TEARDOWN_S = 30.0
"""An environment gets this long at the end to release what it holds, like sandboxes."""

JUDGE = "judge"
"""The tag of the judge in messages about models."""


class Key(NamedTuple):
    """One attempt at one run: requests and events are matched by it."""

    run: RunId
    attempt: int

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Key:
        return cls(RunId.of(message), message["attempt"])

    def to_json(self) -> AttemptFields:
        return {**self.run.to_json(), "attempt": self.attempt}


class Size(NamedTuple):
    """The size of a request before it is sent: the characters of its text, and the bound on its answer."""

    chars: int
    max_tokens: int | None


class CommitFields(TypedDict):
    """A commit's `name`, the top folder of its `repository`, and that of the `worktree` that holds its files."""

    name: str
    repository: str
    worktree: str


class CassetteFields(TypedDict):
    """The store of exchanges of an eval: its mode, and the files in which hosts look for answers.

    With "record" and "new" a request without an answer there is sent, and every exchange is reported. They differ in
    their files: "record" has those of the rollouts that it resumes. With "replay"
    nothing is sent. Of equal exchanges, those in later files count. Without one of the files `needed`, which
    existed as the eval began, a host does not start: it would send what was answered already.
    """

    mode: CassetteMode
    paths: Sequence[str]
    needed: Sequence[str]


class HostCode(Struct, frozen=True):
    """All that code can see of its eval while it loads: two processes with equal ones have loaded the same.

    A process that loads an environment to tell its rows gets nothing else. It may become a host of an eval whose
    `Setup` has an equal one.

    `roots` are put in front of sys.path. Role "score" only ever scores, and loads no agent. `target` describes the
    model (`models.targets.ModelTarget.to_json`), `baseline` the model that it is compared with, and `judge` the judge
    of `[scoring] rubric` (`JudgeSetup`): their clients are imported before. `environment` is then the agent, and
    scores under the name `reward`. With `endpoint` "env", clients that user code makes find the endpoint in the
    environment variables. `secrets` are names of variables whose values never leave the process. With `sdk_shim`, code
    finds names of `osmosis_ai` that are not installed (`compat`). `commit` is the commit that the code is from, if it
    is not the files of the workspace.
    """

    role: Role
    workspace: str
    roots: tuple[str, ...]
    target: Mapping[str, Any]
    baseline: Mapping[str, Any] | None = None
    judge: Mapping[str, Any] | None = None
    environment: EnvironmentSource | None = None
    endpoint: Literal["url", "env"] = "url"
    secrets: tuple[str, ...] = ()
    sdk_shim: bool = True
    commit: CommitFields | None = None

    @property
    def model_targets(self) -> dict[str, Mapping[str, Any]]:
        """All models to which the config lets requests be sent: those that roll out, and the judge."""
        targets = {str(tag): target for tag, target in self.targets.items()}
        return targets if self.judge is None else {**targets, JUDGE: self.judge["target"]}

    @property
    def targets(self) -> dict[ModelTag, Mapping[str, Any]]:
        targets = {ModelTag.PRIMARY: self.target, ModelTag.BASELINE: self.baseline}
        return {tag: target for tag, target in targets.items() if target is not None}

    @classmethod
    def from_json(cls, request: SetupRequest | TellRequest) -> HostCode:
        values = {**request["code"]}
        values |= {name: tuple(values[name]) for name in ("roots", "secrets")}
        if values["environment"] is not None:
            from pytest_osmosis.rollouts.environment import EnvironmentSource  # most hosts have none

            values["environment"] = EnvironmentSource(**values["environment"])
        return cls(**values)


class Setup(Struct, frozen=True):
    """All that a host must know before its first run: its `code`, and its work.

    `agent` is "chat", "recorded", "module:attr" or None for that of `entrypoint` (a file). `grader` is "module:Class"
    or None for the entrypoint's. `checks` are those of the config, with their names. `mcp` is the folder of a FastMCP
    server whose tools the built-in agent offers.
    `sampling` holds keys of the request body; `bounds` are those of each rollout, and `max_turns` is what agents are
    told. `limit` is how many rollouts may be in flight at first, and `max_limit` the most that it may ever be raised
    to, as other hosts may have no place; with `permits` each request waits for the engine's. `judge_permits` and
    `judge_retries` hold for the requests of all judges. `cassette` is the store of exchanges, if there is one.
    Without `scores_at_once`, a run is scored only once the engine asks for it. With `sends_artifacts` the engine gets
    the files in `artifacts`, because it runs on another machine.
    An environment has `concurrency` runs in flight in this process; `rollout_retries`, `independent_scoring`,
    `state_columns` and `saves_results` are those of the config.
    """

    code: HostCode
    agent: str | None = "chat"
    entrypoint: str | None = None
    grader: str | None = None
    eval_fns: tuple[str, ...] = ()
    checks: tuple[Mapping[str, Any], ...] = ()
    mcp: str | None = None
    sampling: Mapping[str, Any] = {}
    max_turns: int = 10
    bounds: RolloutBounds = field(default_factory=RolloutBounds)
    limit: int = 1
    max_limit: int = 1
    permits: bool = False
    judge_permits: bool = False
    judge_retries: int = 4
    cassette: CassetteFields | None = None
    agent_timeout_s: float = 450.0
    grader_timeout_s: float = 150.0
    scores_at_once: bool = True
    artifacts: str = ""
    sends_artifacts: bool = False
    concurrency: int = 1
    rollout_retries: int = 0
    independent_scoring: bool = False
    state_columns: tuple[str, ...] = ()
    saves_results: bool = False

    @property
    def teardown_s(self) -> float:
        return TEARDOWN_S if self.code.environment is not None else 0.0

    def to_json(self) -> SetupRequest:
        work: dict[str, Any] = to_builtins(self)
        return {"op": "setup", "code": work.pop("code"), "work": work}

    @classmethod
    def from_json(cls, request: SetupRequest) -> Setup:
        work = request["work"]
        tuples = {name: tuple(work[name]) for name in ("eval_fns", "checks", "state_columns")}
        return cls(HostCode.from_json(request), **{**work, **tuples, "bounds": RolloutBounds.from_json(work["bounds"])})


# -- engine to host --------------------------------------------------------------------------------------

BecomeRequest = TypedDict(
    "BecomeRequest", {"op": Literal["become"], "environ": Mapping[str, str] | None, "cwd": str, "log": str}
)
"""The first message to a host that was started before its eval was known: the process that it becomes. One that has
loaded an environment only gets another log."""
TellRequest = TypedDict("TellRequest", {"op": Literal["tell"], "code": Mapping[str, Any], "rows": str})
"""Load the environment of `code` (`HostCode`), and nothing else. Write its rows to the file `rows` and tell its facts.
What follows is the `setup` of an eval with this `code`, or `close`."""
SetupRequest = TypedDict("SetupRequest", {"op": Literal["setup"], "code": Mapping[str, Any], "work": Mapping[str, Any]})
"""Load the user's code: the fields of `Setup`, those of its `code` apart. Sent once, before all that follow."""
ProbeRequest = TypedDict("ProbeRequest", {"op": Literal["probe"], "model_tag": str})
LimitRequest = TypedDict("LimitRequest", {"op": Literal["limit"], "limit": int, "begun": int, "scorings": int})
"""Have at most `limit` rollouts, and `scorings` scorings, in flight from now on. Those that only wait for a retry are
not in flight, but no more than `begun` may have begun."""
HoldRequest = TypedDict("HoldRequest", {"op": Literal["hold"], "wait_s": float})
"""Begin no rollout and no request for `wait_s`: the server has no room."""
PermitRequest = TypedDict("PermitRequest", {"op": Literal["permit"], "ids": Sequence[int]})
"""Send the requests `ids`, for which the host has asked."""
DropRequest = TypedDict("DropRequest", {"op": Literal["drop"], "model_tag": str | None})
"""Give back the runs that have not begun: all of them, or with `model_tag` those of one model."""
DenyRequest = TypedDict("DenyRequest", {"op": Literal["deny"], "model_tag": str, "error": str})
"""Send no further request to a model: it would deny it with `error`, as it denied one of another host."""
ControlRequest = TypedDict("ControlRequest", {"op": Literal["pause", "resume", "close"]})
"""`pause`: begin nothing until `resume`. `close`: cancel what runs, and end."""


class RunRequest(AttemptFields):
    """Roll out a run, then score it with the functions that do not block. `script` is for `demo/script`."""

    op: Literal["run"]
    prompt: list[dict[str, Any]]
    ground_truth: Any
    record: dict[str, Any]
    seed: int | None
    script: NotRequired[Any]


class RolloutFacts(TypedDict):
    """Facts of a rollout besides its conversation, for checks and scorers of other libraries; as in `RolloutEvent`."""

    finish_reason: str | None
    ms: float
    usage: Mapping[str, int] | None


class ScoringFields(AttemptFields):
    """A conversation and its row, for reward functions. The first `n_prompt` messages are the prompt's.

    `metrics` are those of the rollout, `samples` and `environment` those of its `RolloutEvent`. `facts` are there
    unless nothing was rolled out.
    """

    messages: list[dict[str, Any]]
    n_prompt: int
    ground_truth: Any
    record: dict[str, Any]
    metrics: Mapping[str, float]
    samples: Sequence[Mapping[str, Any]]
    environment: Mapping[str, Any]
    facts: NotRequired[RolloutFacts]


def scoring_fields(
    key: Key, rollout: Mapping[str, Any], ground_truth: object, record: Mapping[str, Any]
) -> ScoringFields:
    """Return what reward functions get of a rollout (a `RolloutEvent`, or a conversation alone) and its row."""
    fields: Any = {
        **key.to_json(),
        "messages": rollout["messages"],
        "n_prompt": rollout["n_prompt"],
        "ground_truth": ground_truth,
        "record": record,
        "metrics": rollout.get("metrics", {}).get(ROLLOUT, {}),
        "samples": rollout.get("samples", ()),
        "environment": rollout.get("environment", {}),
    }
    if "ms" in rollout:
        usage, reason = rollout.get("usage"), rollout.get("finish_reason")
        fields["facts"] = {"finish_reason": reason, "ms": rollout["ms"], "usage": usage}
    return fields  # type: ignore[no-any-return]


class ScoreRequest(ScoringFields):
    """Score a conversation with the functions `names`."""

    op: Literal["score"]
    names: Sequence[str]


class ScoreGroupRequest(TypedDict):
    """Score the conversations of a row together with the functions `names`, which need all of them."""

    op: Literal["score_group"]
    names: Sequence[str]
    runs: Sequence[ScoringFields]


RunsRequest = ProbeRequest | RunRequest | ScoreRequest | ScoreGroupRequest | DropRequest | DenyRequest
LimitsRequest = LimitRequest | HoldRequest | PermitRequest
Request = BecomeRequest | TellRequest | SetupRequest | RunsRequest | LimitsRequest | ControlRequest

# -- host to engine --------------------------------------------------------------------------------------

ReadyEvent = TypedDict(
    "ReadyEvent",
    {
        "ev": Literal["ready"],
        "scorers": Sequence[str],
        "sync": Sequence[str],
        "digests": Mapping[str, str],
        "files": NotRequired[Mapping[str, str]],
        "notes": NotRequired[Sequence[str]],
        "max_rollouts": NotRequired[int | None],
        "max_scorings": NotRequired[int | None],
        "rollout_code": NotRequired[Mapping[str, str]],
        "grouped": NotRequired[Sequence[str]],
    },
)
"""The answer to `setup`: the reward functions in order; `sync` lists those that block, `digests` are of their code,
`files` of each file of user code that was read.
`grouped` lists those that score all runs of a row together (`ScoreGroupRequest`).
The header prints `notes`. All hosts together may have `max_rollouts` and `max_scorings` in flight, or any number.
`rollout_code` are digests of the code of rollouts, by file (`host.rollout_code`)."""
RefusedEvent = TypedDict("RefusedEvent", {"ev": Literal["refused"], "error": str, "details": str})
"""The other answer to `setup`, and to `tell`: the code does not load, and the host ends."""
ToldEvent = TypedDict("ToldEvent", {"ev": Literal["told"], "facts": Mapping[str, Any]})
"""The answer to `tell`: the facts of an environment (`rollouts.environment`)."""
ProbedEvent = TypedDict(
    "ProbedEvent", {"ev": Literal["probed"], "model_tag": AnyModel, "error": str | None, "is_systemic": bool}
)
"""The answer to `probe`: its error, None without one. One that `is_systemic` every request to the model would meet."""
DeniedEvent = TypedDict("DeniedEvent", {"ev": Literal["denied"], "model_tag": AnyModel, "error": str})
"""A model denies every request with `error`, such as for a wrong key: the host sends it none, and begins no run."""
LimitedEvent = TypedDict("LimitedEvent", {"ev": Literal["limited"]})
"""The answer to `limit`: what begins from now on keeps it."""
DroppedEvent = TypedDict("DroppedEvent", {"ev": Literal["dropped"], "runs": Sequence[AttemptFields]})
"""The runs that will not begin here: the answer to `drop`, and to runs of a model that denies all requests."""
ThrottledEvent = TypedDict("ThrottledEvent", {"ev": Literal["throttled"], "wait_s": float})
"""A server had no room: the host sends it nothing for `wait_s`."""
AnsweredEvent = TypedDict("AnsweredEvent", {"ev": Literal["answered"], "id": int, "usage": Mapping[str, int] | None})
"""A request that had its permit is over. `usage` is None if its tokens were not counted."""
UnusedEvent = TypedDict("UnusedEvent", {"ev": Literal["unused"], "id": int})
"""A request will not be sent, with or without its permit."""


class RetryEvent(AttemptFields):
    """A request of a rollout begins to wait for its retry, or has waited for it."""

    ev: Literal["retry"]
    waits: bool


class AskEvent(AttemptFields):
    """A rollout, or with `judge` the scoring of one, wants to send the request `id` of this size."""

    ev: Literal["ask"]
    id: int
    chars: int
    max_tokens: int | None
    judge: NotRequired[bool]


class ExchangeEvent(AskedFields, AttemptFields):
    """A request was answered or refused, and is kept in the exchange log, as `cassettes.exchange` declares it."""

    ev: Literal["exchange"]
    request: Mapping[str, Any]
    reply: NotRequired[Mapping[str, Any]]
    error: NotRequired[Mapping[str, Any]]


class ScoringEvent(AttemptFields):
    """The function `name` begins to score a run."""

    ev: Literal["scoring"]
    name: str


class ArtifactEvent(AttemptFields):
    """A piece of a file in a run's artifacts folder: `data` in base64, which begins at `offset`. It may be the `last`.

    Those of the rollout come before its `rollout` event, those of a Grader before its `score`. A host sends one file
    after the other; one that it sends again takes the place of the first. It is sent as it is, without redaction.
    """

    ev: Literal["artifact"]
    path: str
    data: str
    offset: int
    last: bool


class LeftOutEvent(AttemptFields):
    """Artifacts of a run were not sent: they are too `large`, `unreadable`, or `special` (links, pipes, devices)."""

    ev: Literal["left_out"]
    why: WhyLeftOut


class StalledEvent(AttemptFields):
    """The code of a run cannot be interrupted: its host must end. `stack` shows where it is."""

    ev: Literal["stalled"]
    stack: str


class BrokenEvent(AttemptFields):
    """A request ended without its own event: user code cancelled it, or the host has a bug."""

    ev: Literal["broken"]
    boundary: Boundary
    error: str


AnswerEvent = ReadyEvent | RefusedEvent | ProbedEvent | LimitedEvent | DroppedEvent
RequestEvent = AskEvent | AnsweredEvent | UnusedEvent | ThrottledEvent | DeniedEvent | ExchangeEvent
ProgressEvent = StartEvent | RetryEvent | RolloutEvent | ScoringEvent | ScoreEvent
FileEvent = ArtifactEvent | LeftOutEvent
HostEvent = AnswerEvent | RequestEvent | ProgressEvent | FileEvent | StalledEvent | BrokenEvent

Emit = Callable[[HostEvent], None]


class EventSink(Protocol):
    """Takes the events of a host on their way to the engine."""

    def emit(self, event: HostEvent) -> None:
        """Take an event, on the host's event loop."""

    def emit_from_thread(self, event: HostEvent) -> None:
        """Send an event at once, from any thread, even if the loop cannot run."""

    def send_artifact(self, event: ArtifactEvent) -> None:
        """Send a piece of a file as it is, from any thread."""

    def flush(self) -> None:
        """Send what was emitted."""

    def redacted(self, value: Mapping[str, Any]) -> str:
        """Return a value as JSON text without secrets. May be called from any thread."""

    def hide(self, name: str, value: str) -> None:
        """Redact a further secret, which user code passed to us."""


def read_event(line: bytes) -> HostEvent:
    """Return the event on a line. Raises `ValueError` if it is none: user code can write to the pipe too."""
    if (frequent := frequent_event(line, _frequent())) is not None:
        return frequent  # type: ignore[return-value]  # it was checked
    event = loads(line.decode())
    if not isinstance(event, dict) or not check_event(event, _kinds()):
        raise ValueError("not an event of a host")
    return event  # type: ignore[return-value]  # it was checked


def read_request(line: bytes) -> Request:
    """Return the request on a line of the engine."""
    try:
        return decode(line)  # type: ignore[no-any-return]
    except MsgspecError:
        return loads(line.decode())  # type: ignore[no-any-return]


def line_of(event: HostEvent) -> str:
    """Return an event as ASCII JSON, in a fifth of the time if it is one of every rollout, whose values are plain JSON.

    What msgspec would write in other ways than `dumps` is left to that: NaN as null, and text that is not ASCII.
    """
    if event["ev"] not in FREQUENT or event.keys() & FROM_USERS:
        return dumps(event)
    try:
        line = encode_json(event)
    except (MsgspecError, TypeError, UnicodeError):
        return dumps(event)
    is_same = line.isascii() and b"null" not in line and b"\x7f" not in line
    return line.decode() if is_same else dumps(event)


FROM_USERS = frozenset({"samples", "environment"})
"""Members of a rollout that may hold any object."""


@functools.cache
def _frequent() -> Mapping[bytes, Decoder[Any]]:
    return decoders_of(_kinds())


@functools.cache
def _kinds() -> Mapping[object, type]:
    return kinds_of(HostEvent)


def become(log: Path, environ: Mapping[str, str] | None, cwd: str) -> BecomeRequest:
    return {"op": "become", "environ": environ, "cwd": cwd, "log": str(log.absolute())}


# -- lines -----------------------------------------------------------------------------------------------


class LineBuffer:
    """Makes lines of the bytes that come from a pipe."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` ends, and keep the rest."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._begun, whole[0]))
            self._begun = []
        self._begun.append(rest)
        return whole


def lines(read: Callable[[], bytes]) -> Iterator[list[bytes]]:
    """Yield the whole lines of each read that ends one, until nothing more comes; a torn last line is left out."""
    buffer = LineBuffer()
    while data := read():
        if whole := buffer.take(data):
            yield whole


def encode(messages: Iterable[Mapping[str, Any]]) -> bytes:
    """Return messages as lines. Values that JSON has no shape for become their text, as do NaN and infinities."""
    return b"".join(_encoded(message) + b"\n" for message in messages)


def _encoded(message: Mapping[str, Any]) -> bytes:
    try:
        return encode_json(message) if message.get("op") in OF_READ_JSON else dumps(message).encode("ascii")
    except (MsgspecError, OverflowError, TypeError, UnicodeError):
        return dumps(message).encode("ascii")


OF_READ_JSON = frozenset({"run", "score"})
"""The requests of every rollout, whose values were read as JSON: msgspec writes those in an eighth of the time."""


def secrets_of(code: HostCode, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values that must not leave a host, by name: of its secrets, of its models' headers, of all keys."""
    keys = [target["api_key_env"] for target in code.model_targets.values()]
    names = [*code.secrets, *filter(None, keys)]
    headers = [secret_headers(target["headers"]) for target in code.model_targets.values()]
    return {
        **{name: value for each in headers for name, value in each.items()},
        **provider_secrets(environ),
        **{name: environ[name] for name in names if name in environ},
    }
