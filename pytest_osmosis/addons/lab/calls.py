"""One call of a reward function, as plain data that can be sent to a child process, and findings about the function."""

from __future__ import annotations

import contextlib
import copy
import dis
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import perf_counter, process_time  # user code may replace the module's attributes
from typing import Any, Final, Literal, get_args

from pytest_osmosis.addons.lab.target import ARGUMENTS, Target
from pytest_osmosis.models.base import Message
from pytest_osmosis.rewards.graders import reward_of
from pytest_osmosis.text.safe import escaped, shortened
from pytest_osmosis.text.user_code import UserValueFault, error_in_words, is_users_own, traceback_of, type_name

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # Windows
    getrusage = None  # type: ignore[assignment]

PROMPT: Final = "What is asked?"
MOST_CHARS: Final = 10_000
MOST_PATTERNS: Final = 50
TOLERANCE: Final = 1e-9
"""Scores that differ by no more than this are equal."""


class Missing:
    """The type of `MISSING`, which represents an argument that is left out."""


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class CallInput:
    """The input of a call: an answer (simple mode) or a conversation (full mode), and the other arguments."""

    answer: str | None = None
    messages: list[Message] | None = None
    ground_truth: Any = None
    extra: Any = MISSING

    def arguments(self, target: Target) -> dict[str, Any]:
        """Return the keyword arguments of the call, without those that the function does not take."""
        assert target.mode is not None
        first, truth, extra = ARGUMENTS[target.mode]
        arguments = {first: self.conversation() if target.mode == "full" else self.text(), truth: self.ground_truth}
        if self.extra is not MISSING:
            arguments[extra] = self.extra
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in target.parameters.values()):
            return arguments
        return {name: value for name, value in arguments.items() if name in target.parameters}

    def text(self) -> str:
        """Return the answer, empty if there is none."""
        return self.answer or ""

    def conversation(self) -> list[Message]:
        """Return the conversation; a plain answer follows a prompt."""
        if self.messages is not None:
            return self.messages
        return [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": self.text()}]

    def answering(self, answer: str) -> CallInput:
        """Return a copy with another last answer."""
        if self.messages is None:
            return replace(self, answer=answer)
        at = max((i for i, message in enumerate(self.messages) if message.get("role") == "assistant"), default=None)
        last = {"role": "assistant", "content": answer}
        if at is None:
            return replace(self, messages=[*self.messages, last])
        return replace(self, messages=[*self.messages[:at], {**self.messages[at], **last}, *self.messages[at + 1 :]])

    def shown(self, target: Target) -> str:
        arguments = ", ".join(f"{name}={quoted(value)}" for name, value in self.arguments(target).items())
        return f"{target.name}({arguments})"


OutcomeKind = Literal["score", "raised", "refused", "not_a_score", "slow", "died", "not_called"]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call.

    `score`: it returned a finite number. `not_a_score`: it returned something else. `refused`: it raised ValueError,
    or another exception in a `raise` statement of its own. `raised`: any other exception. `slow`: it was cut off.
    `died`: its process ended. `not_called`: no time was left, or its process had ended too often.

    `text` describes it in a line, `where` is the user's line, `returned` the type of the returned value, and
    `is_float` is False if that is no float. `seconds` are processor time, and the time that the call waited. `patterns`
    are the regular expressions that functions of `re` were given, with their flags, if they were noted.
    """

    kind: OutcomeKind
    score: float | None = None
    text: str = ""
    where: str = ""
    returned: str = ""
    is_float: bool = True
    seconds: float = 0.0
    patterns: tuple[tuple[str, int], ...] = ()

    @property
    def ended(self) -> bool:
        """True if its process is gone."""
        return self.kind in ("slow", "died")

    @property
    def description(self) -> str:
        """The text after a call in a message: "= 1.0", "raised KeyError: 'x'"."""
        if self.kind == "score":
            return f"= {self.score!r}"
        return f"{self.text} at {self.where}" if self.where else self.text


@dataclass(frozen=True, slots=True)
class ScoredCall:
    input: CallInput
    outcome: CallOutcome = field(compare=False)

    def shown(self, target: Target) -> str:
        return f"{self.input.shown(target)} {self.outcome.description}"


def call(target: Target, call_input: CallInput) -> CallOutcome:
    """Call the function in this process on copies of its arguments, and await the result of an asynchronous one."""
    arguments = copy.deepcopy(call_input.arguments(target))
    start, start_cpu, start_waits = perf_counter(), process_time(), _waits()
    try:
        value = _returned(target, arguments)
    except Exception as error:
        outcome = outcome_of_exception(error)
    else:
        outcome = outcome_of_value(value)
    seconds, cpu_s = perf_counter() - start, process_time() - start_cpu
    if _waits() == start_waits:
        seconds = min(seconds, cpu_s)  # the rest is that of other processes on a busy machine
    return replace(outcome, seconds=seconds)


def call_noting_patterns(target: Target, call_input: CallInput) -> CallOutcome:
    """Call the function, and note the regular expressions that it gives to functions of `re`."""
    re.purge()
    cache = getattr(re, "_cache", {})  # private: without it, only patterns in constants and globals are known
    outcome = call(target, call_input)
    noted = tuple((text, flags) for kind, text, flags in cache if kind is str)
    return replace(outcome, patterns=noted[:MOST_PATTERNS])


def _waits() -> object:
    """Return how often this process has waited for something; where that is not known, an object of its own."""
    return object() if getrusage is None else getrusage(RUSAGE_SELF).ru_nvcsw


def invoke(target: Target, call_input: CallInput) -> Any:
    """Call the function on copies of its arguments; return what it returns and raise what it raises."""
    return _returned(target, copy.deepcopy(call_input.arguments(target)))


def outcome_of_value(value: object) -> CallOutcome:
    returned = quoted_text(type_name(value))
    try:
        is_float = issubclass(type(value), float)
        return CallOutcome("score", reward_of(value).score, returned=returned, is_float=is_float)
    except UserValueFault as error:
        return CallOutcome("not_a_score", text=quoted_text(str(error)), returned=returned)
    except Exception as error:  # its methods are user code
        text = f"must return a number, got {returned}, which raised {error_in_words(error)}"
        return CallOutcome("not_a_score", text=quoted_text(text), returned=returned)


def outcome_of_exception(error: BaseException) -> CallOutcome:
    kind: OutcomeKind = "refused" if issubclass(type(error), ValueError) or _raised_on_purpose(error) else "raised"
    return CallOutcome(kind, text=quoted_text(f"raised {error_in_words(error)}"), where=_where(error))


def quoted_text(text: str) -> str:
    """Return text on one line, shortened; very long text is cut before it is looked at."""
    head = text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "..."
    return shortened(escaped(" ".join(head.split())), 200)


def _returned(target: Target, arguments: Mapping[str, Any]) -> Any:
    with _without_forks():
        value = target.function(**arguments)
        return _awaited(value) if hasattr(type(value), "__await__") else value


@contextlib.contextmanager
def _without_forks() -> Iterator[None]:
    """End a process that the block forked, at its end."""
    pid = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != pid:
            os._exit(0)


def _awaited(value: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _raised_on_purpose(error: BaseException) -> bool:
    """Return True if a `raise` statement of the user raised the error, and not a failed operation."""
    last = traceback_of(error)
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not is_users_own(last.tb_frame.f_code.co_filename):
        return False
    return any(
        instruction.offset == last.tb_lasti and instruction.opname == "RAISE_VARARGS"
        for instruction in dis.get_instructions(last.tb_frame.f_code)
    )


def _where(error: BaseException) -> str:
    """Return the innermost line of user code in the traceback: "rewards.py:12"."""
    frames = [frame for frame in traceback.extract_tb(traceback_of(error)) if is_users_own(frame.filename)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def to_json(call_input: CallInput) -> dict[str, Any]:
    return {each.name: value for each in fields(call_input) if (value := getattr(call_input, each.name)) is not MISSING}


def outcome_from_json(data: Mapping[str, Any]) -> CallOutcome:
    """Return the outcome that a child process sent. Raises ValueError, TypeError or KeyError for anything else."""
    patterns = tuple((str(text), int(flags)) for text, flags in data["patterns"])
    outcome = CallOutcome(**{**data, "patterns": patterns})
    texts = (outcome.text, outcome.where, outcome.returned)
    if (
        outcome.kind not in get_args(OutcomeKind)
        or outcome.ended
        or (outcome.kind == "score") != isinstance(outcome.score, float)
    ):
        raise ValueError(outcome.kind)
    if not all(isinstance(text, str) for text in texts) or not isinstance(outcome.seconds, float):
        raise TypeError(texts)
    return outcome


# -- findings ----------------------------------------------------------------------------------------------

FindingLevel = Literal["failure", "note"]
WIDEST = 160
NEVER_THE_INPUT = ("NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError")
"""Errors that are bugs of the function, whatever its input."""


@dataclass(frozen=True, slots=True)
class RewardFinding:
    """One problem of a reward function.

    `code` identifies it for `allow=[...]`, `problem` describes it in a line, `example` is a call with its outcome. A
    note never fails a test.
    """

    code: str
    problem: str
    example: str
    fix: str
    level: FindingLevel = "failure"

    def __str__(self) -> str:
        return f"{self.problem} ({self.code})\n  {self.example}\n  fix: {self.fix}"


@dataclass(frozen=True, slots=True)
class LabResult:
    """The findings of one test. `unmeasured` is the reason if nothing could be tested, else empty."""

    findings: tuple[RewardFinding, ...] = ()
    unmeasured: str = ""

    def failures(self) -> list[RewardFinding]:
        return [finding for finding in self.findings if finding.level == "failure"]

    def notes(self) -> list[RewardFinding]:
        return [finding for finding in self.findings if finding.level == "note"]

    def allowing(self, allow: tuple[str, ...]) -> LabResult:
        return LabResult(tuple(finding for finding in self.findings if finding.code not in allow), self.unmeasured)


def quoted(value: object) -> str:
    """Return a value as Python code, shortened. Values may be user objects."""
    return shortened(escaped(_repr(value)), WIDEST)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<an object whose text raised {type_name(error)}>"
