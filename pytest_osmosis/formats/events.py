"""The events of the journal, one JSON object a line, told apart by `ev`: `record.run_record` folds them into records.

Writers make them and readers take them as dicts of these types, by which they are checked, too, when they are read.
Events of an unknown kind are of a later version; readers pass over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, cast, get_args, get_type_hints

from msgspec import MsgspecError
from msgspec.json import Decoder

from pytest_osmosis.formats import Boundary, Ending, StopReason
from pytest_osmosis.formats.codec import Count, Moment, Ms, RowKey, ShapeFault, decode


class RunFields(TypedDict):
    """The identity of a run. `model_tag` is left out of runs of the primary model."""

    row: Count
    run: Count
    model_tag: NotRequired[Literal["primary", "baseline"]]


class AttemptFields(RunFields):
    attempt: Count


class BeganEvent(TypedDict):
    """A session that rolls out begins, in a process of a machine. `resumed` if an earlier one left rollouts.

    The `loaded` that follows counts at once. Scores by functions whose code is unchanged stay, unless the `rows` that
    follow it show that the row has changed; other scores are dropped.
    """

    ev: Literal["began"]
    at: Moment
    pid: Count
    machine: str
    resumed: bool


class StopFields(TypedDict):
    reason: StopReason
    text: str


class EndedEvent(TypedDict):
    """The session that `began` has ended, and nothing of it is in flight. `reason` says why it was stopped or failed.

    A lost gate is no failure: that session has finished. `stop` is the reason why no further run began, in a word
    and in words, and `baseline_stopped` why none of the baseline's model did.
    """

    ev: Literal["ended"]
    at: Moment
    status: Ending
    reason: str | None
    stop: NotRequired[StopFields]
    baseline_stopped: NotRequired[str]


class LoadedEvent(TypedDict):
    """User code is loaded and scoring begins: the reward functions, in order, and the digests of their code.

    `rollout_code` holds the digests of the files that rollouts run, by path; it is left out if none are rolled out.
    `result_facts` are those that results need besides the events of runs (`EvalFacts`).
    """

    ev: Literal["loaded"]
    scorers: Sequence[str]
    digests: Mapping[str, str]
    rollout_code: NotRequired[Mapping[str, str]]
    result_facts: NotRequired[Mapping[str, Any]]


class RowsEvent(TypedDict):
    """The digests of each row's content, (prompt, whole row) by index.

    `digests` are those by which rows are published, and matched with the rows of other eval runs.
    """

    ev: Literal["rows"]
    rows: Mapping[RowKey, tuple[str, str]]
    digests: Mapping[RowKey, str]


class HandedOutEvent(TypedDict):
    """Hosts have `n` runs that they may begin, or may have begun, and the journal holds no `start` of them yet.

    It is written before hosts get runs. Each `start` that follows is of one of them.
    """

    ev: Literal["handed_out"]
    n: Count


class StartEvent(AttemptFields):
    """A host began the run, which it writes before user code may ask a model."""

    ev: Literal["start"]
    at: NotRequired[Moment]


class NoteFields(TypedDict):
    """The reports of user code about a run besides its scores, by their source: a reward function, or `ROLLOUT`.

    `metrics` are numbers by name, `fields` plain JSON by name: an agent's `info`, a Grader's `extra_fields`.
    """

    metrics: NotRequired[Mapping[str, Mapping[str, float]]]
    reasons: NotRequired[Mapping[str, str]]
    fields: NotRequired[Mapping[str, Mapping[str, Any]]]


ROLLOUT = "rollout"
"""The source of the reports of an agent."""


class StoredFields(TypedDict):
    """The answers that came from a cassette: their number, and the sum of their tokens, None if unknown."""

    requests: Count
    usage: Mapping[str, Count] | None


class ImportedFields(TypedDict):
    """The folder with files of `prime eval` that a run is from, and the scores that it had there."""

    folder: str
    scores: Sequence[str]


class FailureFields(TypedDict):
    at: Moment
    error: str


class ReplicaFields(TypedDict):
    """The requests of a rollout to one replica of the model, of which `errors` failed.

    `left_out` are the failures after which the replica was left out, `back` the times at which an answer ended that.
    """

    requests: Count
    errors: Count
    left_out: NotRequired[Sequence[FailureFields]]
    back: NotRequired[Sequence[Moment]]


class PlainFields(TypedDict):
    """Facts about a rollout with one name and one form wherever they go: journal, record, results, `show`, exports.

    To add one, declare it here, and in `RequestTotals`, `RunRecord` and `UnscoredRollout`.
    """

    finish_reason: NotRequired[str | None]
    retries: NotRequired[Count]


PLAIN = tuple(PlainFields.__annotations__)


def plain(source: object) -> PlainFields:
    """Return the plain facts in attributes of an object."""
    return cast(PlainFields, {name: getattr(source, name) for name in PLAIN})


class RolloutEvent(AttemptFields, NoteFields, PlainFields):
    """The end of a rollout. The first `n_prompt` messages are the prompt's: the rollout's own answer is not among them.

    `boundary`, `error` and `details` are there if it failed; the engine writes no more than these about a rollout that
    took its host down.

    `bound` is the bound of its rollout for which a request was refused, like "[agent] max_turns = 10"; it is there too
    if the agent then ended well.

    `stored` are its answers that were not asked for, because a cassette has them; its `usage` counts them.
    `samples` are what a workflow of `osmosis_ai` left for its Grader besides the conversation. `environment` is what a
    verifiers environment says of the rollout, and the parts of its state that JSON can hold. `replicas` are its
    requests to each replica of the model, by the replica's name.

    `imported` says where it is from, if it was not made here.

    `systemic` ("always" or "until_success") means that further runs will meet the same failure; "never", that they will
    not.
    """

    ev: Literal["rollout"]
    ms: Ms
    messages: list[Any]
    n_prompt: Count
    at: NotRequired[Moment]
    usage: NotRequired[Mapping[str, Count] | None]
    model: NotRequired[str | None]
    bound: NotRequired[str]
    boundary: NotRequired[Boundary]
    error: NotRequired[str]
    details: NotRequired[str]
    systemic: NotRequired[str]
    output: NotRequired[Mapping[str, str]]
    samples: NotRequired[Sequence[Mapping[str, Any]]]
    environment: NotRequired[Mapping[str, Any]]
    imported: NotRequired[ImportedFields]
    replicas: NotRequired[Mapping[str, ReplicaFields]]
    stored: NotRequired[StoredFields]


class JudgeFields(TypedDict):
    """The requests to one judge: `calls` were answered, after `retries`.

    `model` is the name as typed; `base_url` is None at the address that the name implies. `usage` is the sum of the
    known token counts, None without any; `uncounted` answers came without. `stored` are those of the calls that a
    cassette answered.
    """

    model: str
    base_url: str | None
    calls: Count
    retries: Count
    uncounted: Count
    usage: Mapping[str, Count] | None
    stored: NotRequired[StoredFields]


class ScoringError(TypedDict):
    """The reason why a function gave no score: a line, and the user's traceback or "".

    The boundary is there unless it is "reward".
    """

    message: str
    details: str
    boundary: NotRequired[Boundary]


class ScoreEvent(AttemptFields, NoteFields):
    """The score of one reward function, or the error of functions that will never return one.

    `ground_truth` is the row's, as the function got it. `judges` are the requests to judges, if there were
    any.
    """

    ev: Literal["score"]
    ms: Ms
    scores: Mapping[str, float]
    errors: Mapping[str, ScoringError]
    output: Mapping[str, str]
    ground_truth: NotRequired[Any]
    judges: NotRequired[Sequence[JudgeFields]]


def score_event(
    key: AttemptFields, ms: float, scores: Mapping[str, float], errors: Mapping[str, ScoringError], ground_truth: object
) -> ScoreEvent:
    """Return the event of functions that scored a run, or failed to, without what they printed."""
    return {
        "ev": "score",
        **key,  # type: ignore[typeddict-item]  # it lacks optional fields
        "ms": ms,
        "scores": scores,
        "errors": errors,
        "output": {},
        "ground_truth": ground_truth,
    }


class RemovalEvent(ScoreEvent):
    """The Grader `name` takes the run out of the statistics."""

    removed: bool
    name: str


class SkipEvent(RunFields):
    """The run will not be done in this session."""

    ev: Literal["skip"]
    reason: str


class RescoredEvent(TypedDict):
    """Every stored rollout was scored again: this completes what the last `loaded` began."""

    ev: Literal["rescored"]


JournalEvent = (
    BeganEvent
    | LoadedEvent
    | RowsEvent
    | HandedOutEvent
    | StartEvent
    | RolloutEvent
    | ScoreEvent
    | SkipEvent
    | RescoredEvent
    | EndedEvent
)


def kinds_of(events: Any) -> Mapping[object, type]:
    """Return the types of a union of events by their `ev`."""
    return {get_args(get_type_hints(event)["ev"])[0]: event for event in get_args(events)}


def check_event(event: Mapping[str, Any], kinds: Mapping[object, type] | None = None) -> bool:
    """Return False for an event of another kind. Raises `ShapeFault` for one that is not of its type."""
    kind = event.get("ev")
    if not isinstance(kind, str):
        raise ShapeFault("lacks ev, the kind of the event")
    known = (JOURNAL if kinds is None else kinds).get(kind)
    if known is not None:
        decode(event, RemovalEvent if kind == "score" and event.get("removed") else known)
    return known is not None


JOURNAL = kinds_of(JournalEvent)


FREQUENT = ("start", "rollout", "scoring", "score")
"""The events of every rollout."""


def decoders_of(kinds: Mapping[object, type]) -> Mapping[bytes, Decoder[Any]]:
    """Return what reads and checks the events of every rollout at once, by the beginning of their lines."""
    return {b'{"ev":"%s"' % kind.encode(): Decoder(kinds[kind]) for kind in FREQUENT if kind in kinds}


def frequent_event(line: bytes, decoders: Mapping[bytes, Decoder[Any]]) -> dict[str, Any] | None:
    """Return an event of every rollout, in a fifth of the time that `json` and `check_event` take.

    It is None for other events, and for what msgspec refuses or would read in another way, as lone surrogates.
    """
    decoder = decoders.get(line[: line.find(b",")])
    if decoder is None or b'"removed"' in line:
        return None
    try:
        return decoder.decode(line)  # type: ignore[no-any-return]
    except MsgspecError:
        return None
