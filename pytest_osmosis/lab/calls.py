"""One call of a reward function, and what came of it. Both are plain data, so that they cross to a child process."""

from __future__ import annotations

import copy
import dis
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from pytest_osmosis.lab.findings import quoted
from pytest_osmosis.lab.target import GIVEN, Target
from pytest_osmosis.models.base import Message
from pytest_osmosis.rewards.functions import NotAScore, score_of
from pytest_osmosis.text.safe import shortened, shown
from pytest_osmosis.text.user_frames import is_users_own

PROMPT: Final = "What is asked?"


class Missing:
    """Stands for an argument that is not given."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class Input:
    """What a reward function is called with: an answer (simple mode) or a conversation (full mode), and the rest."""

    answer: str | None = None
    messages: list[Message] | None = None
    ground_truth: Any = None
    extra: Any = MISSING

    def arguments(self, target: Target) -> dict[str, Any]:
        """The keyword arguments of the call, those left out that the function does not take."""
        assert target.mode is not None
        first, truth, extra = GIVEN[target.mode]
        given = {first: self.conversation() if target.mode == "full" else self.text(), truth: self.ground_truth}
        if self.extra is not MISSING:
            given[extra] = self.extra
        if target.takes_any:
            return given
        return {name: value for name, value in given.items() if name in target.parameters}

    def text(self) -> str:
        """The answer."""
        return self.answer if self.answer is not None else ""

    def conversation(self) -> list[Message]:
        """The conversation; a plain answer follows a prompt."""
        if self.messages is not None:
            return self.messages
        return [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": self.text()}]

    def answering(self, answer: str) -> Input:
        """The same, with another last answer."""
        if self.messages is None:
            return replace(self, answer=answer)
        at = max((i for i, message in enumerate(self.messages) if message.get("role") == "assistant"), default=None)
        said = {"role": "assistant", "content": answer}
        if at is None:
            return replace(self, messages=[*self.messages, said])
        return replace(self, messages=[*self.messages[:at], {**self.messages[at], **said}, *self.messages[at + 1 :]])

    def shown(self, target: Target) -> str:
        """The call as one would write it."""
        written = ", ".join(f"{name}={quoted(value)}" for name, value in self.arguments(target).items())
        return f"{target.name}({written})"


Kind = Literal["score", "raised", "refused", "not_a_score", "slow", "died", "not_called"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call.

    `score`: a finite number. `refused`: the function raised ValueError, or another exception with a `raise` of its own.
    `raised`: any other exception. `not_a_score`: it returned something else. `slow`: it was cut off. `died`: its
    process ended. `not_called`: there was no time left, or its process had ended too often. `text` says it in a line,
    `where` the user's line. `mutated` names the argument that it changed. `caught` are exceptions that its own code
    swallowed, where that was watched.
    """

    kind: Kind
    score: float | None = None
    text: str = ""
    where: str = ""
    returned: str = ""
    mutated: str = ""
    seconds: float = 0.0
    caught: tuple[Caught, ...] = ()

    @property
    def said(self) -> str:
        """What follows a call in a message: "= 1.0", "raised KeyError: 'x'"."""
        if self.kind == "score":
            return f"= {self.score!r}"
        place = f" at {self.where}" if self.where else ""
        return f"{self.text}{place}"


@dataclass(frozen=True, slots=True)
class Caught:
    """An exception that code of the user's module swallowed: raised at `line`, caught at `handler` by `clause`."""

    error: str
    text: str
    line: int
    handler: int
    clause: str


@dataclass(frozen=True, slots=True)
class Scored:
    """An input and what came of it."""

    input: Input
    outcome: Outcome = field(compare=False)

    def seen(self, target: Target) -> str:
        """Both, in a line."""
        return f"{self.input.shown(target)} {self.outcome.said}"


def call(target: Target, given: Input) -> Outcome:
    """Call the function in this process, on copies of its arguments, and await what it gives."""
    arguments = given.arguments(target)
    before = copy.deepcopy(arguments)
    begun = time.perf_counter()
    try:
        value = target.function(**arguments)
        if hasattr(value, "__await__"):
            value = _awaited(value)
    except Exception as error:
        outcome = of_exception(error)
    else:
        outcome = of_value(value)
    seconds = time.perf_counter() - begun
    mutated = next((name for name in before if not _same(before[name], arguments[name])), "")
    return replace(outcome, seconds=seconds, mutated=mutated)


def invoke(target: Target, given: Input) -> Any:
    """What the function returns; what it raises is raised."""
    value = target.function(**copy.deepcopy(given.arguments(target)))
    return _awaited(value) if hasattr(value, "__await__") else value


def of_value(value: object) -> Outcome:
    """The outcome of a call that returned."""
    try:
        return Outcome("score", score_of(value), returned=type(value).__name__)
    except NotAScore as error:
        return Outcome("not_a_score", text=str(error), returned=type(value).__name__)


def of_exception(error: BaseException) -> Outcome:
    """The outcome of a call that raised."""
    text = f"raised {type(error).__name__}: {error}" if str(error) else f"raised {type(error).__name__}"
    kind: Kind = "refused" if isinstance(error, ValueError) or _raised_on_purpose(error) else "raised"
    return Outcome(kind, text=quoted_text(text), where=_where(error))


def quoted_text(text: str) -> str:
    """A message in one line."""
    return shortened(shown(" ".join(text.split())), 200)


def _awaited(value: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _last(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _raised_on_purpose(error: BaseException) -> bool:
    """True where a `raise` statement of the user's raised it, and not an operation that went wrong."""
    last = _last(error.__traceback__)
    if last is None or not is_users_own(last.tb_frame.f_code.co_filename):
        return False
    return any(
        instruction.offset == last.tb_lasti and instruction.opname == "RAISE_VARARGS"
        for instruction in dis.get_instructions(last.tb_frame.f_code)
    )


def _where(error: BaseException) -> str:
    """The innermost line of the user's that the exception passed: "rewards.py:12"."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users_own(frame.filename)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _same(before: object, after: object) -> bool:
    try:
        return bool(before == after)
    except Exception:  # arrays and the like
        return True


def to_json(given: Input) -> dict[str, Any]:
    """An input as JSON; TypeError where a value is none."""
    data: dict[str, Any] = {"answer": given.answer, "messages": given.messages, "ground_truth": given.ground_truth}
    if given.extra is not MISSING:
        data["extra"] = given.extra
    return data


def from_json(data: Mapping[str, Any]) -> Input:
    """An input as it was."""
    return Input(data["answer"], data["messages"], data["ground_truth"], data.get("extra", MISSING))


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON."""
    return asdict(outcome)


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    """An outcome as it was."""
    return Outcome(**{**data, "caught": tuple(Caught(**caught) for caught in data["caught"])})
