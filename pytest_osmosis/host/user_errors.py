"""Turns errors of user code into data: the boundary where a run broke, one line of text, the user's traceback."""

from __future__ import annotations

import bdb
import traceback
from collections.abc import Iterator

from msgspec import Struct

from pytest_osmosis.errors import BoundError, JudgeError, ModelError
from pytest_osmosis.host.chat import JudgeCounts, RequestTotals
from pytest_osmosis.host.deadline import DeadlineExpired, Interrupted, MonitoredCode
from pytest_osmosis.host.protocol import BrokenEvent, Key
from pytest_osmosis.record.run_record import Boundary
from pytest_osmosis.rollouts.agents import NotAConversation
from pytest_osmosis.rollouts.environment import EnvironmentFault
from pytest_osmosis.text.user_code import UserValueFault, error_in_words, passed_user_code, type_name, user_traceback

NO_TERMINAL = "breakpoint() has no terminal here; add --osmosis-inline"
ROLLOUT_LIMIT, SCORING_LIMIT = "agent_workflow_timeout_s", "grader_timeout_s"
CANCELLED = "user code cancelled its task before it began"


class Failure(Struct, frozen=True):
    """The failure of user code. `details` is the user's traceback, "" if it would add nothing to the message."""

    boundary: Boundary
    message: str
    details: str = ""
    systemic: str = "no"

    @classmethod
    def of(cls, error: ModelError | BoundError, details: str = "") -> Failure:
        """Return the failure of a request; `details` if it has none of its own."""
        return cls(error.boundary, str(error), error.details or details, error.systemic)


def rollout_failure(error: BaseException, code: MonitoredCode, totals: RequestTotals) -> Failure:
    """Return the failure of a rollout that `error` ended.

    In a replay, whatever follows a request that was not recorded says nothing about the agent.
    """
    if totals.unrecorded is not None:
        return Failure.of(totals.unrecorded)
    stack, time = code.interrupted_stack, f"{code.deadline.budget_s:g} s"
    if stack or isinstance(error, DeadlineExpired):
        n_unanswered = totals.held_for if stack else totals.open  # what holds the loop may be a synchronous client
        if n_unanswered:
            retries = "1 retry" if totals.retries == 1 else f"{totals.retries} retries"
            return Failure("provider", f"no answer within the {time} of {ROLLOUT_LIMIT} ({retries})", stack)
        if stack:
            message = f"blocked the event loop until its time limit of {time} ({ROLLOUT_LIMIT})"
            return Failure("timeout", message, stack)
        return Failure("timeout", f"took longer than {time} ({ROLLOUT_LIMIT})", _cancelled_at(error))
    of_request = next((cause for cause in _causes(error) if isinstance(cause, (ModelError, BoundError))), None)
    if of_request is not None:
        return Failure.of(of_request)
    if totals.failure is not None:  # the agent's own client made another error of it
        return Failure.of(totals.failure, user_traceback(error))
    if isinstance(error, EnvironmentFault):
        return Failure(error.boundary, str(error), error.details)
    return _code_failure("agent", error)


def reward_failure(error: BaseException, code: MonitoredCode, judges: JudgeCounts) -> Failure:
    """Return the failure of a reward function that `error` ended. `judges` counts its requests to judges.

    A judge that cannot be asked says nothing about the function, and is an outage. So is one that a replay does not
    know, whatever the function makes of that.
    """
    if judges.unrecorded is not None:
        return Failure.of(judges.unrecorded)
    stack, time = code.interrupted_stack, f"{code.deadline.budget_s:g} s"
    if stack or isinstance(error, DeadlineExpired):
        if judges.open or judges.late:
            return Failure("provider", f"no answer of the judge within the {time} of {SCORING_LIMIT}")
        return Failure("reward", f"took longer than {time} ({SCORING_LIMIT})", stack or _cancelled_at(error))
    judge_error = next((cause for cause in _causes(error) if isinstance(cause, (ModelError, JudgeError))), None)
    if judge_error is None:
        return _code_failure("reward", error)
    is_ours = judge_error is error
    own = judge_error.details if isinstance(judge_error, ModelError) else ""
    return Failure(
        "provider" if isinstance(judge_error, ModelError) and judge_error.boundary == "provider" else "reward",
        str(error) if is_ours else error_in_words(error),
        own or ("" if is_ours else user_traceback(error)),
    )


def undescribed(boundary: Boundary, error: BaseException, worse: BaseException) -> Failure:
    """Return the failure of user code whose error cannot be described, as `worse` happened meanwhile."""
    late = issubclass(type(worse), (DeadlineExpired, Interrupted))  # whatever its code says of its class
    why = "takes too long to make" if late else f"raised {type_name(worse)}"
    return Failure(boundary, f"{type_name(error)}: (its text {why})")


def broken(key: Key, error: BaseException | None) -> BrokenEvent:
    """Return the event of a request that ended without its own event.

    Either user code cancelled it (`error` is None), or the host has a bug.
    """
    if error is None:
        return {"ev": "broken", **key.to_json(), "boundary": "agent", "error": CANCELLED}
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:  # what led to it has code that gets in the way
        trace = user_traceback(error)
    return {"ev": "broken", **key.to_json(), "boundary": "host", "error": trace}


def raise_no_terminal(*_args: object, **_options: object) -> None:
    """Stand in for `breakpoint()` in a host."""
    raise RuntimeError(NO_TERMINAL)


def _code_failure(boundary: Boundary, error: BaseException) -> Failure:
    if isinstance(error, bdb.BdbQuit):
        return Failure(boundary, NO_TERMINAL, user_traceback(error))
    if isinstance(error, (NotAConversation, UserValueFault)):
        return Failure(boundary, str(error), user_traceback(error) if passed_user_code(error) else "")
    return Failure(boundary, error_in_words(error), user_traceback(error))


def _cancelled_at(error: BaseException) -> str:
    return user_traceback(error.__cause__) if error.__cause__ is not None else ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and all that led to it: causes, contexts, and members of groups."""
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
