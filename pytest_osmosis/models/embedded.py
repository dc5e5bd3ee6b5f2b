"""The embedded model `demo/arithmetic`: offline, deterministic, solves arithmetic in the last user message.

Invariants: the same request gets the same reply, in this process or over HTTP (`pytest_osmosis.demo`).
Whether it is right or wrong is decided once per user message, by a hash of the key (the run's seed, else its
identity) and of the conversation up to that message, so the turns of a tool-calling conversation agree.
No `eval`: a bounded parser for + - * / and parentheses, exact in rational numbers.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage, text_of

NAME = "demo/arithmetic"

MAX_OPERATIONS = 50
MAX_DEPTH = 50
MAX_DIGITS = 50

# No digits in these: a reward function that reads numbers finds none.
NOTHING_TO_SOLVE = "I only solve arithmetic with + - * / and parentheses, and found none here that I can solve."
DIVISION_BY_ZERO = "I cannot solve this: it divides by zero."


class ArithmeticModel:
    """`demo/arithmetic` as a `Model`: no connection, no key, no waiting."""

    async def chat(self, request: ChatRequest) -> ChatReply:
        """The reply to one request; `ModelError` for an accuracy or max_tokens that makes no sense."""
        await asyncio.sleep(0)  # a model that answers at once must not hold the loop
        return reply_to(request)

    async def close(self) -> None:
        """Nothing to close."""


def reply_to(request: ChatRequest) -> ChatReply:
    """The reply to a whole request: `answer` with what its sampling, seed and run say.

    Raises `ModelError` (boundary "model", status 400) for messages or tools of the wrong shape, an accuracy
    that is no number from 0 to 1, or a max_tokens that is no integer of at least 1.
    """
    _check_shape(request)
    accuracy = _accuracy(request.sampling)
    max_tokens = _max_tokens(request.sampling)
    key = request.run if request.seed is None else str(request.seed)
    reply = answer(request.messages, request.tools, accuracy=accuracy, key=key)
    return reply if max_tokens is None else _truncated(reply, max_tokens)


def answer(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    accuracy: float = 1.0,
    key: str = "",
) -> ChatReply:
    """The next assistant message: a call of an offered tool that fits, else the solution.

    >>> print(answer([{"role": "user", "content": "What is 17 * 23?"}]).content)
    17 * 23 = 391
    #### 391

    `accuracy` is the share of user messages that are solved rightly, 0..1; `key` decides which. A wrong
    solution is off by 1 to 9. Tool results after the last user message are used where they hold a number.
    """
    asked = _last_user_message(messages)
    expression = None if asked is None else find_expression(text_of(messages[asked].get("content")))
    if asked is None or expression is None:
        return _text_reply(messages, NOTHING_TO_SOLVE)
    decision = _decide(messages[: asked + 1], accuracy, key)
    try:
        step = _next_step(expression, tools, _tool_results(messages[asked + 1 :]))
    except ZeroDivisionError:
        return _text_reply(messages, DIVISION_BY_ZERO)
    if isinstance(step, _Call):
        return _call_reply(messages, step, f"call_{decision.digest[:20]}_{step.number}")
    number = format_number(step + decision.offset)
    return _text_reply(messages, f"{format_expression(expression)} = {number}\n#### {number}")


# -- expressions ------------------------------------------------------------------------------------------

Operator = Literal["+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Number:
    """A literal, never negative: its sign is a `Negation`."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Negation:
    """A minus sign before a term."""

    term: Expression


@dataclass(frozen=True, slots=True)
class Operation:
    """Two terms and what is done with them."""

    operator: Operator
    left: Expression
    right: Expression


Expression = Number | Negation | Operation

_SPELLINGS: Mapping[str, Operator] = {
    "+": "+", "plus": "+",
    "-": "-", "\N{MINUS SIGN}": "-", "minus": "-",
    "*": "*", "x": "*", "\N{MULTIPLICATION SIGN}": "*", "times": "*", "multiplied by": "*",
    "/": "/", "\N{DIVISION SIGN}": "/", "divided by": "/",
}  # fmt: skip
_DASHES = ("-", "\N{MINUS SIGN}")
_PRECEDENCE: Mapping[Operator, int] = {"+": 1, "-": 1, "*": 2, "/": 2}

_TOKEN = re.compile(
    r"""
      (?P<number>   \d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)? | \d+(?:\.\d+)? | \.\d+ )
    | (?P<power>    \*\* | // | [\^%] )
    | (?P<operator> [-+*/\u2212\u00d7\u00f7] | x(?=[\s\d(.-])
                    | (?:times|plus|minus|(?:multiplied|divided)\s+by)\b )
    | (?P<open>     \( )
    | (?P<close>    \) )
    | (?P<space>    [^\S\n]+ )
    | (?P<other>    [^\W\d]\w* | . | \n )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    glued: bool
    """No space follows: tells the sign in "-5 + 3" from the dash in "Question - 5 + 3"."""


class _Unsupported(Exception):
    """The text holds arithmetic beyond what is solved here: a power, a remainder, or too long."""


@functools.lru_cache(maxsize=8)  # all runs of a row ask the same, one after the other
def find_expression(text: str) -> Expression | None:
    """The last arithmetic expression in a text, with at least one operation; None where there is none.

    >>> print(format_expression(find_expression("Is 2 + 2 = 4? And what is 1,200 divided by (7 minus 3)?")))
    1200 / (7 - 3)

    None also where the text holds powers or remainders, or an expression of more than 50 operations, 50
    nested parentheses or 50 digits in a number: no part of such an expression is what was asked.
    """
    tokens = _tokens(text)
    try:
        _refuse_powers(tokens)
        found = [expression for expression in _expressions(tokens) if _has_operation(expression)]
    except _Unsupported:
        return None
    return found[-1] if found else None


def _has_operation(expression: Expression) -> bool:
    match expression:
        case Number():
            return False
        case Negation(term):
            return _has_operation(term)
        case Operation():
            return True


def _tokens(text: str) -> list[_Token]:
    tokens = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            glued = not text[match.end() : match.end() + 1].isspace()
            tokens.append(_Token(str(match.lastgroup), match.group(), glued))
    return tokens


def _refuse_powers(tokens: Sequence[_Token]) -> None:
    """A power or remainder sign counts between two terms only, so prose may hold "20% of" and **bold**."""
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        ends_term = before.kind in {"number", "close"}
        begins_term = after.kind in {"number", "open"} or (after.kind == "operator" and after.glued)
        if token.kind == "power" and ends_term and begins_term:
            raise _Unsupported


def _expressions(tokens: Sequence[_Token]) -> Iterator[Expression]:
    """Every longest expression in the tokens, from left to right."""
    position = 0
    while position < len(tokens):
        parser = _Parser(tokens, position)
        dash = tokens[position].text in _DASHES and not tokens[position].glued
        expression = None if dash else parser.sum(0)
        if expression is not None:
            yield expression
        position = max(parser.position, position + 1)


class _Parser:
    """Recursive descent from `position` on: a method gives its longest match, or None, consuming nothing."""

    def __init__(self, tokens: Sequence[_Token], position: int) -> None:
        self._tokens = tokens
        self._operations = 0
        self.position = position

    def sum(self, depth: int) -> Expression | None:
        left = self._product(depth)
        while left is not None and (operation := self._continued(left, ("+", "-"), depth)) is not None:
            left = operation
        return left

    def _product(self, depth: int) -> Expression | None:
        left = self._term(depth)
        while left is not None and (operation := self._continued(left, ("*", "/"), depth)) is not None:
            left = operation
        return left

    def _continued(self, left: Expression, operators: tuple[Operator, ...], depth: int) -> Operation | None:
        start = self.position
        operator = self._operator()
        if operator in operators:
            right = self._product(depth) if operator in ("+", "-") else self._term(depth)
            if right is not None:
                self._operations += 1
                if self._operations > MAX_OPERATIONS:
                    raise _Unsupported
                return Operation(operator, left, right)
        self.position = start
        return None

    def _term(self, depth: int) -> Expression | None:
        start = self.position
        if self._operator() == "-":
            term = self._unsigned(depth)
            if term is not None:
                return Negation(term)
        self.position = start
        return self._unsigned(depth)

    def _unsigned(self, depth: int) -> Expression | None:
        kind = self._kind()
        if kind == "number":
            return self._number()
        return self._parenthesised(depth + 1) if kind == "open" else None

    def _parenthesised(self, depth: int) -> Expression | None:
        if depth > MAX_DEPTH:
            raise _Unsupported
        start = self.position
        self.position += 1
        expression = self.sum(depth)
        if expression is not None and self._kind() == "close":
            self.position += 1
            return expression
        self.position = start
        return None

    def _number(self) -> Number:
        text = self._tokens[self.position].text.replace(",", "")
        if len(text) > MAX_DIGITS:
            raise _Unsupported
        self.position += 1
        return Number(Fraction(text))

    def _kind(self) -> str | None:
        return self._tokens[self.position].kind if self.position < len(self._tokens) else None

    def _operator(self) -> Operator | None:
        if self._kind() != "operator":
            return None
        spelling = " ".join(self._tokens[self.position].text.lower().split())
        self.position += 1
        return _SPELLINGS[spelling]


def format_expression(expression: Expression, parent_precedence: int = 0) -> str:
    """An expression as text that Python reads too, with no more parentheses than it needs."""
    match expression:
        case Number(value):
            return format_number(value)
        case Negation(term):
            text = "-" + format_expression(term, 3)
            return f"({text})" if parent_precedence == 3 else text
        case Operation(operator, left, right):
            precedence = _PRECEDENCE[operator]
            left_text = format_expression(left, precedence)
            right_text = format_expression(right, precedence + 1)
            text = f"{left_text} {operator} {right_text}"
            return f"({text})" if precedence < parent_precedence else text


def format_number(value: Fraction) -> str:
    """A number in plain digits: exact where it has an end, else 15 digits after the integer part.

    >>> [format_number(Fraction(n, d)) for n, d in [(391, 1), (3, 10), (-10, 3)]]
    ['391', '0.3', '-3.333333333333333']
    """
    if value.denominator == 1:
        return str(value.numerator)
    with localcontext() as context:
        context.prec = _digits(value)
        text = format(Decimal(value.numerator) / Decimal(value.denominator), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _digits(value: Fraction) -> int:
    """Significant digits to print a fraction with."""
    integer_digits = len(str(abs(value.numerator) // value.denominator))
    rest, decimals = value.denominator, {2: 0, 5: 0}
    for factor in decimals:
        while rest % factor == 0:
            rest //= factor
            decimals[factor] += 1
    return integer_digits + (max(decimals.values()) if rest == 1 else 15)


def calculate(operator: Operator, left: Fraction, right: Fraction) -> Fraction:
    """One operation, exactly. Raises ZeroDivisionError."""
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right


# -- tools ------------------------------------------------------------------------------------------------

_OPERATION_WORDS: Mapping[Operator, frozenset[str]] = {
    "+": frozenset({"add", "adds", "adding", "addition", "plus", "sum"}),
    "-": frozenset({"sub", "subtract", "subtracts", "subtraction", "minus", "difference"}),
    "*": frozenset({"mul", "multiply", "multiplies", "multiplication", "times", "product"}),
    "/": frozenset({"div", "divide", "divides", "division", "quotient"}),
}
_EXPRESSION_WORDS = frozenset({"expression", "expr", "formula", "equation", "calculation"})
_CALCULATOR_WORDS = frozenset({"calculate", "calculates", "calculator", "calc", "compute", "evaluate", "arithmetic"})


@dataclass(frozen=True, slots=True)
class _Tools:
    """The offered tools that fit: one for a whole expression, and for each operator one of two numbers."""

    expression: tuple[str, str] | None
    operations: Mapping[Operator, tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Call:
    """The tool call to make next; `number` counts the calls of this answer from 0."""

    name: str
    arguments: Mapping[str, object]
    number: int


class _CallNeeded(Exception):
    def __init__(self, call: _Call) -> None:
        super().__init__(call.name)
        self.call = call


def _next_step(
    expression: Expression, tools: Sequence[Mapping[str, Any]], results: Sequence[Fraction | None]
) -> _Call | Fraction:
    """The next tool call, or the value. Raises ZeroDivisionError, before any call where it can be known."""
    own = _Solver(_Tools(None, {}), ()).value(expression)
    offered = _fitting(tools)
    if offered.expression is None:
        try:
            return _Solver(offered, results).value(expression)
        except _CallNeeded as needed:
            return needed.call
    if not results:
        name, parameter = offered.expression
        return _Call(name, {parameter: format_expression(expression)}, 0)
    return own if results[-1] is None else results[-1]


class _Solver:
    """Evaluates innermost first, left to right; an operation with a tool takes the next result."""

    def __init__(self, tools: _Tools, results: Sequence[Fraction | None]) -> None:
        self._operations = tools.operations
        self._results = results
        self._calls = 0

    def value(self, expression: Expression) -> Fraction:
        match expression:
            case Number(value):
                return value
            case Negation(term):
                return -self.value(term)
            case Operation(operator, left, right):
                return self._operation(operator, self.value(left), self.value(right))

    def _operation(self, operator: Operator, left: Fraction, right: Fraction) -> Fraction:
        own = calculate(operator, left, right)
        if operator not in self._operations:
            return own
        if self._calls == len(self._results):
            name, first, second = self._operations[operator]
            arguments = {first: _json_number(left), second: _json_number(right)}
            raise _CallNeeded(_Call(name, arguments, self._calls))
        result = self._results[self._calls]
        self._calls += 1
        return own if result is None else result


def _json_number(value: Fraction) -> int | float:
    """Whole numbers as int; beyond 2**53 a float has no fraction either."""
    return int(value) if value.denominator == 1 or abs(value) >= 2**53 else float(value)


def _fitting(tools: Sequence[Mapping[str, Any]]) -> _Tools:
    expression: tuple[str, str] | None = None
    operations: dict[Operator, tuple[str, str, str]] = {}
    for tool in tools:
        function = _object(tool.get("function"))
        name, description = str(function.get("name", "")), str(function.get("description", ""))
        properties = _object(_object(function.get("parameters")).get("properties"))
        types = [_object(schema).get("type") for schema in properties.values()]
        if types == ["string"] and _takes_expression(name, description, *properties):
            expression = expression or (name, next(iter(properties)))
        elif len(types) == 2 and {*map(str, types)} <= {"number", "integer"}:
            operator = _operator_of(name, description)
            if operator is not None:
                first, second = properties
                operations.setdefault(operator, (name, first, second))
    return _Tools(expression, operations)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _takes_expression(name: str, description: str, parameter: str) -> bool:
    return bool(_words(parameter) & _EXPRESSION_WORDS or _words(f"{name} {description}") & _CALCULATOR_WORDS)


def _operator_of(name: str, description: str) -> Operator | None:
    """The one operator that the name, else the description, speaks of; None where neither has exactly one."""
    for text in (name, description):
        spoken = [operator for operator, words in _OPERATION_WORDS.items() if words & _words(text)]
        if len(spoken) == 1:
            return spoken[0]
    return None


def _words(text: str) -> frozenset[str]:
    """The words of prose, snake_case or camelCase, in lower case."""
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text))


_RESULT = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d{1,2})?(?![\w])", re.IGNORECASE)


def _tool_results(messages: Sequence[Message]) -> list[Fraction | None]:
    """The last number of each tool message; None for an error, or where there is no number in bounds."""
    return [_result(text_of(message.get("content"))) for message in messages if message.get("role") == "tool"]


def _result(text: str) -> Fraction | None:
    numbers: list[str] = [] if "error" in text.lower() else _RESULT.findall(text)
    if not numbers or len(numbers[-1]) > MAX_DIGITS:
        return None
    value = Fraction(numbers[-1].replace(",", ""))
    return value if abs(value) < 10**MAX_DIGITS else None


# -- right or wrong ---------------------------------------------------------------------------------------


class _Decision(NamedTuple):
    offset: int
    """Added to the value that is reported: 0 where the model is right."""
    digest: str


def _decide(conversation: Sequence[Message], accuracy: float, key: str) -> _Decision:
    said = [[str(message.get("role")), text_of(message.get("content"))] for message in conversation]
    digest = blake2b(json.dumps([key, said]).encode(), digest_size=16).digest()
    draw = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
    if draw < accuracy:
        return _Decision(0, digest.hex())
    sign = 1 if digest[8] & 1 else -1
    return _Decision(sign * (1 + digest[9] % 9), digest.hex())


def _last_user_message(messages: Sequence[Message]) -> int | None:
    positions = [position for position, message in enumerate(messages) if message.get("role") == "user"]
    return positions[-1] if positions else None


# -- requests and replies ---------------------------------------------------------------------------------


def _check_shape(request: ChatRequest) -> None:
    if not request.messages or not all(isinstance(_object(each).get("role"), str) for each in request.messages):
        raise _refusal("messages must be a list of at least one object, each with a role")
    if not all(isinstance(tool, dict) for tool in request.tools):
        raise _refusal('tools must be a list of objects such as {"type": "function", "function": {...}}')


def _refusal(text: str) -> ModelError:
    return ModelError(f"{NAME}: {text}", boundary="model", status=400)


def _accuracy(sampling: Mapping[str, Any]) -> float:
    accuracy = sampling.get("accuracy", 1.0)
    if isinstance(accuracy, bool) or not isinstance(accuracy, int | float) or not 0 <= accuracy <= 1:
        raise _refusal(
            f"accuracy must be a number from 0 to 1, got {accuracy!r}; "
            "set it as in [sampling] extra_body = {accuracy = 0.8}"
        )
    return float(accuracy)


def _max_tokens(sampling: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = sampling.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise _refusal(f"{name} must be an integer of at least 1, got {value!r}")
        return value
    return None


def _text_reply(messages: Sequence[Message], text: str) -> ChatReply:
    return _reply(messages, {"role": "assistant", "content": text}, "stop")


def _call_reply(messages: Sequence[Message], call: _Call, call_id: str) -> ChatReply:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    tool_call = {"id": call_id, "type": "function", "function": function}
    return _reply(messages, {"role": "assistant", "content": None, "tool_calls": [tool_call]}, "tool_calls")


def _reply(messages: Sequence[Message], message: Message, finish_reason: str) -> ChatReply:
    usage = Usage(sum(map(_tokens_of, messages)), _tokens_of(message))
    return ChatReply(message, finish_reason, usage, NAME)


def _tokens_of(message: Message) -> int:
    """A token here is a word between spaces: of the text, and of the names and arguments of tool calls."""
    calls = message.get("tool_calls")
    functions = [_object(_object(call).get("function")) for call in calls] if isinstance(calls, list) else []
    texts = [text_of(message.get("content"))]
    texts += [f"{function.get('name')} {function.get('arguments')}" for function in functions]
    return sum(len(text.split()) for text in texts)


def _truncated(reply: ChatReply, max_tokens: int) -> ChatReply:
    """The first words of a text reply. A tool call is left whole: cut, it would be no call."""
    words = list(re.finditer(r"\S+", reply.content))
    if len(words) <= max_tokens or reply.usage is None:
        return reply
    message = {**reply.message, "content": reply.content[: words[max_tokens - 1].end()]}
    return ChatReply(message, "length", Usage(reply.usage.input_tokens, max_tokens), reply.model)
