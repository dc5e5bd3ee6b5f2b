"""The kinds of checks, each declared once as a function, and checks made of them.

The first parameter of such a function says what it looks at: `text`, the answer or the part of it that `on` names, or
`rollout`. The others are the keys that a config may set, with their types; a `value` that defaults to `TRUTH` is the
row's ground truth then. A function returns what it found: a `Verdict` (`negate` turns it round) or a `Degree`, each
with its reason, which continues "The answer ...". The config, its JSON Schema and its page are made from this.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import NoneType
from typing import Any, NewType, TypeVar, get_args

from msgspec import Struct

from pytest_osmosis.files.reading import JsonFault, parsed
from pytest_osmosis.text.chat_messages import answer_of
from pytest_osmosis.text.safe import dumps, shortened
from pytest_osmosis.text.user_code import UserValueFault, type_name

Texts = NewType("Texts", tuple[str, ...])
Pattern = NewType("Pattern", str)
Schema = NewType("Schema", Mapping[str, Any])
Paths = NewType("Paths", tuple[str, ...])
"""Paths into JSON, like "order.items[0].id"."""
Table = NewType("Table", Mapping[str, Any])

Verdict = tuple[bool, str]
Degree = tuple[float, str]
Function = TypeVar("Function", bound=Callable[..., Verdict | Degree])

TRUTH: Any = "the row's ground truth"
"""The default of a `value` that is the row's ground truth."""
MOST_QUOTED = 200
PATH = re.compile(r"\$?(?:\.?[^.$\[\]]+|\[\d+\])(?:\.[^.$\[\]]+|\[\d+\])*")
_BLOCK = re.compile(r"^```[^\n]*\n(.*?)\n?^```", re.DOTALL | re.MULTILINE)

On = str | Mapping[str, str]
"""The part of an answer that is checked: one of `PARTS`, or a table with one of the keys `AFTER` and `JSON`."""
ANSWER = "answer"
PARTS = (ANSWER, "last_line", "code_block")
AFTER, JSON = "after", "json"


class SeenRollout(Struct, frozen=True):
    """A rollout as checks see it. The first `n_prompt` messages are the prompt's.

    `ms` is how long it took, `usage` its tokens by kind, `cost_usd` returns what they cost; None: unknown.
    """

    messages: Sequence[Mapping[str, Any]]
    n_prompt: int
    ground_truth: object = None
    finish_reason: str | None = None
    ms: float | None = None
    usage: Mapping[str, int] | None = None
    cost_usd: Callable[[], float | None] = lambda: None

    @property
    def own(self) -> Sequence[Mapping[str, Any]]:
        """The messages that follow the prompt."""
        return self.messages[self.n_prompt :]


class CheckKind(Struct, frozen=True):
    """A kind of checks. `parameters` are those that a config may set."""

    name: str
    help: str
    function: Callable[..., Verdict | Degree]
    parameters: Mapping[str, inspect.Parameter]
    sees_text: bool
    is_degree: bool

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name, each in self.parameters.items() if each.default is each.empty)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The keys `min` and `max`, of which a check must have one."""
        return tuple(name for name in ("min", "max") if name in self.parameters and name not in self.required)

    @property
    def needs_nothing(self) -> bool:
        """True if the name alone is a check."""
        return not (self.required or self.bounds)


KINDS: dict[str, CheckKind] = {}


def kind(function: Function) -> Function:
    """Declare a function as a kind of its name. The first line of its docstring describes it."""
    signature = inspect.signature(function, eval_str=True)
    first, *others = signature.parameters.values()
    KINDS[function.__name__] = CheckKind(
        function.__name__,
        (function.__doc__ or "").partition("\n")[0],
        function,
        {each.name: each for each in others},
        sees_text=first.name == "text",
        is_degree=signature.return_annotation == Degree,
    )
    return function


class Absent(Exception):
    """The text or value that a check looks at is not there. The check fails, negated or not."""


class Check(Struct, frozen=True):
    """A check of a config: a kind with its parameters. Call it with a rollout."""

    kind: CheckKind
    parameters: Mapping[str, Any] = {}
    on: On = ANSWER
    negate: bool = False

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Check:
        """Return the check that a config declares, without its name."""
        own = {key: value for key, value in declared.items() if key not in ("name", "kind", "on", "negate")}
        on, negate = declared.get("on", ANSWER), declared.get("negate", False)
        return cls(load()[declared["kind"]], own, on, negate)

    @property
    def digest(self) -> str:
        """The digest of all that its scores depend on."""
        content = [self.kind.name, dict(self.parameters), self.on, self.negate]
        return blake2b(dumps(content).encode(), digest_size=8).hexdigest()

    @property
    def needs_truth(self) -> bool:
        """True if it compares with the row's ground truth."""
        return any(self._given(each) is TRUTH for each in self.kind.parameters.values())

    def __call__(self, rollout: SeenRollout) -> dict[str, object]:
        """Return the score and its reason. Raises `UserValueFault` if the row or the rollout lacks what it needs."""
        arguments = {name: self._argument(each, rollout) for name, each in self.kind.parameters.items()}
        where = ""
        try:
            seen: SeenRollout | str = rollout
            if self.kind.sees_text:
                text = answer_of(rollout.own)
                if text is None:
                    raise Absent("gives no answer")
                seen = part_of(text, self.on)
                where = "" if self.on == ANSWER else f"{part_title(self.on)} "
            found, reason = self.kind.function(seen, **arguments)
        except Absent as error:
            return {"score": 0.0, "reason": f"{where}{error}"}
        if isinstance(found, bool):
            found = found is not self.negate
        return {"score": float(found), "reason": f"{where}{reason}"}

    def _given(self, parameter: inspect.Parameter) -> object:
        return self.parameters.get(parameter.name, parameter.default)

    def _argument(self, parameter: inspect.Parameter, rollout: SeenRollout) -> object:
        value = self._given(parameter)
        if value is TRUTH:
            value = rollout.ground_truth
            if value is None or value == "":  # as in a CSV; every text contains it
                raise UserValueFault("the row has no ground truth; set value, or name its column in [data] columns")
        return None if value is None else _as_type(value, plain_type(parameter))


def plain_type(parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, without None."""
    members = [each for each in get_args(parameter.annotation) if each is not NoneType]
    return members[0] if NoneType in get_args(parameter.annotation) else parameter.annotation


def _as_type(value: Any, wanted: object) -> object:
    """Return a value of the config or a ground truth as the type of a parameter."""
    if wanted in (Texts, Paths):
        several = value if isinstance(value, list | tuple) else [value]
        return tuple(map(_as_text, several))
    if wanted in (str, Pattern):
        return _as_text(value)
    if wanted is float:
        number = as_number(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UserValueFault(f"the ground truth must be a number, got {type_name(value)}: {quoted(value)}")
        return float(number)
    return value


def _as_text(value: object) -> str:
    if isinstance(value, list | tuple | dict):
        raise UserValueFault(f"the ground truth must be a text, got {type_name(value)}: {quoted(value)}")
    return value if isinstance(value, str) else json.dumps(value)


_NUMBER = re.compile(
    r"(?:(?<![\w)])[-+])?"  # in "10-20" it is no sign
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
)


def as_number(text: str) -> float | None:
    """Return the last number in a text, None without one.

    >>> as_number("It costs $1,200.50."), as_number("1, 2 or -3e2"), as_number("none")
    (1200.5, -300.0, None)
    """
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None


def quoted(value: object) -> str:
    """Return a value as reasons show it, as JSON on one line."""
    return shortened(json.dumps(value, ensure_ascii=False, default=str), MOST_QUOTED)


def part_of(text: str, on: On) -> str:
    """Return the part of an answer that a check looks at. Raises `Absent` if there is none."""
    if isinstance(on, str):
        if on == ANSWER:
            return text
        if on == "last_line":
            return text.rstrip().rpartition("\n")[2].strip()
        blocks = _BLOCK.findall(text)
        if not blocks:
            raise Absent("has no code block")
        return str(blocks[-1])
    if AFTER in on:
        _, found, rest = text.rpartition(on[AFTER])
        if not found:
            raise Absent(f"has no {quoted(on[AFTER])}")
        return rest.strip()
    blocks = _BLOCK.findall(text)
    value = at_path(as_json(blocks[-1] if blocks else text), on[JSON])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def part_title(on: On) -> str:
    """Return the part as reasons name it."""
    if isinstance(on, str):
        return f"the {on.replace('_', ' ')}"
    return f"what follows {quoted(on[AFTER])}" if AFTER in on else f"its {on[JSON]}"


def as_json(text: str) -> Any:
    """Return the value of a JSON text. Raises `Absent` if it is none."""
    try:
        return parsed(text)
    except JsonFault as fault:
        raise Absent(f"is not JSON: {fault}") from None


def at_path(value: Any, path: str) -> Any:
    """Return the value at a path into JSON. Raises `Absent` if there is none.

    >>> at_path({"items": [{"id": 7}]}, "$.items[0].id")
    7
    """
    for step in re.findall(r"[^.$\[\]]+", path):
        try:
            value = value[int(step)] if isinstance(value, list) else dict(value)[step]
        except (KeyError, IndexError, TypeError, ValueError):
            raise Absent(f"has no {path}") from None
    return value


def is_same(one: Any, other: Any) -> bool:
    """Return True for equal JSON. Numbers are equal by their value, and true is no number."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(each, other[name]) for name, each in one.items())
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def listed_texts(texts: Sequence[str]) -> str:
    return ", ".join(map(quoted, texts))


def load() -> dict[str, CheckKind]:
    """Return all kinds by name, in the order of their page."""
    from pytest_osmosis.checks import catalogue  # noqa: F401 (it declares the kinds)

    return KINDS
