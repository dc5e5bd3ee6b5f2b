"""The embedded models, offline and deterministic: `demo/arithmetic` solves what the last user message asks.

The same request gets the same reply, in this process and over HTTP (`pytest_osmosis.demo`). A hash of the key (the
run's seed, or else its identity) and of the conversation up to the last user message decides if the model is right, so
all turns of a conversation with tool calls agree. Arithmetic is exact, in rational numbers.

`demo/judge` is the same model as a judge: a request that quotes a candidate gets an opinion, whatever the name.
`demo/script` says what the script of its run tells it to: texts, and calls of tools.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from operator import add, mul, sub, truediv
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.text.chat_messages import ANSWER, CONVERSATION, INPUT, SCRIPTED, TRUTH, blocks_in, text_of

NAME = "demo/arithmetic"
JUDGE = "demo/judge"
CANDIDATE = re.compile(rf"^<<<BEGIN ({ANSWER}|{CONVERSATION}) ", re.MULTILINE)
_SCORES = re.compile(r"^Scores: from (\S+) to (\S+)\.$", re.MULTILINE)

MAX_OPERATIONS = 10
MAX_DIGITS = 20  # so that a float holds every result

# These contain no digits, so a reward function that looks for a number does not find one.
NOTHING_TO_SOLVE = "I only solve arithmetic with + - * /, and found none here that I can solve."
DIVISION_BY_ZERO = "I cannot solve this: it divides by zero."


class EmbeddedModel(Struct, frozen=True):
    """`demo/arithmetic`, or `demo/script` if it is `scripted`, as a `Model`: without a connection and without a key."""

    scripted: bool = False

    async def chat(self, request: ChatRequest) -> ChatReply:
        await asyncio.sleep(0)  # let other rollouts run, although this model answers at once
        return reply_to(request, scripted=self.scripted)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def reply_to(request: ChatRequest, *, scripted: bool = False) -> ChatReply:
    """Return the reply to a request, according to its sampling, seed and run. It is an opinion if a judge is asked for.

    A `scripted` one is the next step of the request's script. Raises `ModelError` (boundary "model", status 400) for
    messages or tools of the wrong shape, an accuracy outside 0..1, a max_tokens below 1, or the lack of a script.
    """
    if not request.messages or not all(isinstance(_object(each).get("role"), str) for each in request.messages):
        _refuse("messages must be a list of at least one object, each with a role")
    if not all(isinstance(tool, dict) for tool in request.tools):
        _refuse('tools must be a list of objects such as {"type": "function", "function": {...}}')
    accuracy, max_tokens = _accuracy(request.sampling), _max_tokens(request.sampling)
    key = request.run if request.seed is None else str(request.seed)
    choice = request.sampling.get("tool_choice")
    tools = () if choice == "none" else request.tools
    if scripted:
        reply = _next_step(request, tools)
    else:
        opinion = judge_reply(request.messages, accuracy, key)
        reply = opinion or answer(request.messages, tools, accuracy=accuracy, key=key)
    if choice == "required":
        reply = _as_call(reply, request)
    return reply if max_tokens is None else _truncated(reply, max_tokens)


def answer(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, accuracy: float = 1.0, key: str = ""
) -> ChatReply:
    """Return the next assistant message: a call of a tool that fits, or else the solution.

    >>> print(answer([{"role": "user", "content": "What is 17 * 23?"}]).content)
    17 * 23 = 391
    #### 391

    `accuracy` is the share of user messages that get the right solution, 0..1; `key` decides which ones. A wrong
    solution is off by 1 to 9. Tool results after the last user message are used if they contain a number. Agents that
    have no messages for them send user messages which begin with "Observation:".
    """
    question = max((index for index, message in enumerate(messages) if _is_of_user(message)), default=None)
    expression = None if question is None else find_expression(_text(messages[question]))
    if question is None or expression is None:
        return _text_reply(messages, NOTHING_TO_SOLVE)
    decision = _decide(messages[: question + 1], accuracy, key)
    try:
        value = _solve(expression, tools, _tool_results(messages[question + 1 :]))
    except ZeroDivisionError:
        return _text_reply(messages, DIVISION_BY_ZERO)
    except _CallNeeded as call:
        return _call_reply(messages, call, f"call_{decision.digest[:20]}_{call.number}")
    number = format_number(value + decision.offset)
    return _text_reply(messages, f"{format_expression(expression)} = {number}\n#### {number}")


# -- scripts ----------------------------------------------------------------------------------------------


def _next_step(request: ChatRequest, tools: Sequence[Mapping[str, Any]]) -> ChatReply:
    """Return the next step of a script, which begins anew after each message of the user.

    After a call that is the last step, the model repeats the tool's result. Without tools it makes no calls.
    """
    if request.script is None:
        _refuse("answers from the rows of an eval's dataset, and this request belongs to none", SCRIPTED)
    messages, steps = request.messages, _steps(request.script)
    if not tools:
        steps = [step for step in steps if isinstance(step, str)] or [_as_text(request.script)]
    question = max((index for index, message in enumerate(messages) if _is_of_user(message)), default=-1)
    n_said = sum(message["role"] == "assistant" for message in messages[question + 1 :])
    step = steps[min(n_said, len(steps) - 1)]
    if isinstance(step, str):
        return _text_reply(messages, step, SCRIPTED)
    if n_said >= len(steps):
        return _text_reply(messages, _text(messages[-1]), SCRIPTED)
    digest = blake2b(f"{request.run} {question} {step}".encode(), digest_size=10).hexdigest()
    return _call_reply(messages, step, f"call_{digest}_{n_said}", SCRIPTED)


def _steps(script: object) -> Sequence[str | _CallNeeded]:
    """Return what a cell says: a text, the call of a tool, or a list of both. Cells of a CSV hold calls as JSON.

    >>> [step if isinstance(step, str) else step.name for step in _steps([{"tool": "find", "arguments": {}}, "42"])]
    ['find', '42']

    Of a list of texts, which are all right, it is the first one.
    """
    value = script
    if isinstance(script, str) and script.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            value = json.loads(script)
    parts = value if isinstance(value, list) else [value]
    steps = [part if isinstance(part, str) else _call_of(part, number) for number, part in enumerate(parts)]
    found = [step for step in steps if step is not None]
    has_calls = any(isinstance(step, _CallNeeded) for step in found)
    return found if found and len(found) == len(parts) and (has_calls or value is script) else [_as_text(script)]


def _call_of(value: object, number: int) -> _CallNeeded | None:
    call = _object(_object(value).get("function")) or _object(value)
    name, arguments = call.get("tool", call.get("name")), call.get("arguments", {})
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    is_call = isinstance(name, str) and isinstance(arguments, dict) and "arguments" in call
    return _CallNeeded(name, arguments, number) if is_call else None


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- judging ----------------------------------------------------------------------------------------------


def judge_reply(messages: Sequence[Message], accuracy: float, key: str) -> ChatReply | None:
    """Return the opinion on a candidate that the messages quote, None if they ask for no judge.

    This judge does not read the rubric. It compares the last number of the candidate with the last one of the ground
    truth, or else with the solution of the original input; texts without numbers must be equal. The highest score is
    for a match, the lowest for anything else. With an `accuracy` below 1.0 it errs as often as the solver does.
    """
    asking = next((message for message in messages if CANDIDATE.search(_text(message))), None)
    if asking is None or asking.get("role") != "user":
        return None
    prompt = _text(asking)
    blocks = blocks_in(prompt)
    candidate = blocks[ANSWER] if ANSWER in blocks else _last_answer(blocks.get(CONVERSATION, ""))
    truth = blocks.get(TRUTH) or _solution(blocks.get(INPUT, ""))
    low, high = map(float, match.groups()) if (match := _SCORES.search(prompt)) else (0.0, 1.0)
    is_match, finding = _compared(candidate, truth)
    if _decide([asking], accuracy, key).offset:
        is_match, finding = not is_match, f"{finding}, which this judge misread"
    opinion = {"score": high if is_match else low, "explanation": f"The demo judge compares numbers: {finding}."}
    return _text_reply(messages, json.dumps(opinion), JUDGE)


def _last_answer(conversation: str) -> str:
    for line in reversed(conversation.splitlines()):
        message = _object(json.loads(line)) if line.startswith("{") else {}
        if message.get("role") == "assistant" and _text(message).strip():
            return _text(message)
    return ""


def _solution(question: str) -> str:
    expression = find_expression(question)
    try:
        return "" if expression is None else format_number(_solve(expression, (), ()))
    except ZeroDivisionError:
        return ""


def _compared(candidate: str, truth: str) -> tuple[bool, str]:
    if not truth.strip():
        return False, "there is no ground truth to compare with"
    said, true = _result(candidate), _result(truth)
    if true is not None:
        found = "no number" if said is None else format_number(said)
        return said == true, f"the answer has {found}, the ground truth {format_number(true)}"
    is_equal = candidate.strip().casefold() == truth.strip().casefold()
    return is_equal, f"the answer and the ground truth are {'equal' if is_equal else 'different'} texts"


def _text(message: Mapping[str, Any]) -> str:
    return text_of(message.get("content"))


# -- expressions ------------------------------------------------------------------------------------------


Expression = Sequence[tuple[str, Fraction]]
"""Numbers, each with the operator before it: "+", "-", "*" or "/"; "" before the first."""

_SPELLINGS = {"x": "*", "\N{MULTIPLICATION SIGN}": "*", "\N{DIVISION SIGN}": "/", "\N{MINUS SIGN}": "-"}
_CALCULATE: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {"+": add, "-": sub, "*": mul, "/": truediv}

_NUMBER = r"-?(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?"
_OPERATOR = r"[-+*/x\u2212\u00d7\u00f7]"
_EXPRESSION = re.compile(rf"(?<![\w.]){_NUMBER}(?:[ \t]*{_OPERATOR}[ \t]*{_NUMBER})++(?!\w)", re.ASCII)
_TERM = re.compile(rf"(^|{_OPERATOR})[ \t]*({_NUMBER})", re.ASCII)
_UNSUPPORTED = re.compile(
    rf"[\d)][ \t]*(?:\*\*|//|[\^%])[ \t]*[-\d(] | \)[ \t]*{_OPERATOR}[ \t]*[-\d(] | \d[ \t]*{_OPERATOR}[ \t]*-?\(",
    re.VERBOSE,
)
"""A power, a remainder, or a term in parentheses: no part of such an expression answers the question."""


@functools.lru_cache(maxsize=8)  # all runs of a row ask the same question, one after the other
def find_expression(text: str) -> Expression | None:
    """Return the last arithmetic expression in a text, with at least one operation, or None.

    >>> print(format_expression(find_expression("Is 2 + 2 = 4? And what is 1,200 / 7 - 3?")))
    1200 / 7 - 3

    Also returns None if the text has powers, remainders or terms in parentheses, or an expression of too many
    operations or digits.
    """
    found = [] if _UNSUPPORTED.search(text) else _EXPRESSION.findall(text)
    terms = _TERM.findall(found[-1]) if found else []
    if not terms or len(terms) > MAX_OPERATIONS + 1 or any(len(number) > MAX_DIGITS for _, number in terms):
        return None
    return tuple((_SPELLINGS.get(operator, operator), Fraction(number.replace(",", ""))) for operator, number in terms)


def format_expression(expression: Expression) -> str:
    """Return an expression as Python code."""
    return " ".join(f"{operator} {format_number(number)}".strip() for operator, number in expression)


def format_number(value: Fraction) -> str:
    """Return a number in plain digits: a whole one exactly, and any other as a float has it.

    >>> [format_number(Fraction(n, d)) for n, d in [(391, 1), (3, 10), (-10, 3)]]
    ['391', '0.3', '-3.3333333333333335']
    """
    return str(value.numerator) if value.denominator == 1 else format(Decimal(repr(float(value))), "f")


# -- tools ------------------------------------------------------------------------------------------------

_OPERATION_WORDS = {
    "+": {"add", "addition", "plus", "sum"},
    "-": {"sub", "subtract", "subtraction", "minus", "difference"},
    "*": {"mul", "multiply", "multiplies", "multiplication", "times", "product"},
    "/": {"div", "divide", "division", "quotient"},
}
_ANSWER_WORDS = {"answer", "final", "response", "respond", "reply", "result", "finish"}


class _CallNeeded(Exception):
    """The solution needs the result of a tool call first; `number` counts the calls of this answer from 0."""

    def __init__(self, name: str, arguments: Mapping[str, object], number: int) -> None:
        super().__init__(name)
        self.name, self.arguments, self.number = name, arguments, number


def _solve(expression: Expression, tools: Sequence[Mapping[str, Any]], results: Sequence[Fraction | None]) -> Fraction:
    """Return the value, each operation from the next tool result if a tool fits it.

    Raises `_CallNeeded` for the first result that is missing, and `ZeroDivisionError` before any call.
    """
    _evaluate(expression, lambda operator, left, right: _CALCULATE[operator](left, right))
    by_operator = _fitting(tools)
    n_calls = 0

    def calculate(operator: str, left: Fraction, right: Fraction) -> Fraction:
        nonlocal n_calls
        own = _CALCULATE[operator](left, right)
        if operator not in by_operator:
            return own
        if n_calls == len(results):
            name, first, second = by_operator[operator]
            raise _CallNeeded(name, {first: _json_number(left), second: _json_number(right)}, n_calls)
        n_calls += 1
        result = results[n_calls - 1]
        return own if result is None else result

    return _evaluate(expression, calculate)


def _evaluate(expression: Expression, calculate: Callable[[str, Fraction, Fraction], Fraction]) -> Fraction:
    """Calculate products and quotients first, then sums and differences, each from left to right."""
    terms: list[tuple[str, Fraction]] = []
    for operator, number in expression:
        if operator in ("*", "/"):
            before, left = terms.pop()
            terms.append((before, calculate(operator, left, number)))
        else:
            terms.append((operator, number))
    value = terms[0][1]
    for operator, number in terms[1:]:
        value = calculate(operator, value, number)
    return value


def _json_number(value: Fraction) -> int | float:
    """Return whole numbers as int, and also numbers beyond 2**53, where a float has no fraction."""
    return int(value) if value.denominator == 1 or abs(value) >= 2**53 else float(value)


def _fitting(tools: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str, str]]:
    """Return the tools that take two numbers, by the operator that their names have, with both parameters."""
    by_operator: dict[str, tuple[str, str, str]] = {}
    for name, types in map(_declared, tools):
        operators = [operator for operator, words in _OPERATION_WORDS.items() if words & _words(name)]
        if len(operators) == 1 and len(types) == 2 and {*types.values()} <= {"number", "integer"}:
            first, second = types
            by_operator.setdefault(operators[0], (name, first, second))
    return by_operator


def _declared(tool: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    function = _object(tool.get("function"))
    properties = _object(_object(function.get("parameters")).get("properties"))
    types = {name: str(_object(schema).get("type")) for name, schema in properties.items()}
    return str(function.get("name", "")), types


def _answering(tools: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return the tool that takes the answer as its only parameter, and this parameter, or None."""
    for name, types in map(_declared, tools):
        if [*types.values()] == ["string"] and _words(" ".join((name, *types))) & _ANSWER_WORDS:
            return name, next(iter(types))
    return None


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text)}


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


_OBSERVATION = "Observation:"


def _is_of_user(message: Message) -> bool:
    return message.get("role") == "user" and not _text(message).startswith(_OBSERVATION)


_RESULT = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d{1,2})?(?![\w])", re.IGNORECASE)


def _tool_results(messages: Sequence[Message]) -> list[Fraction | None]:
    """Return the last number of each tool result, or None for an error or without a number in bounds."""
    return [_result(_text(message)) for message in messages if message.get("role") in ("tool", "user")]


def _result(text: str) -> Fraction | None:
    numbers: list[str] = [] if "error" in text.lower() else _RESULT.findall(text)
    if not numbers or len(numbers[-1]) > MAX_DIGITS:
        return None
    value = Fraction(numbers[-1].replace(",", ""))
    return value if abs(value) < 10**MAX_DIGITS else None


# -- right or wrong ---------------------------------------------------------------------------------------


class _Decision(NamedTuple):
    offset: int
    """Added to the reported value: 0 if the model is right."""
    digest: str


def _decide(conversation: Sequence[Message], accuracy: float, key: str) -> _Decision:
    texts = [[str(message.get("role")), _text(message)] for message in conversation]
    digest = blake2b(json.dumps([key, texts]).encode(), digest_size=16).digest()
    draw = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
    sign = 1 if digest[8] & 1 else -1
    return _Decision(0 if draw < accuracy else sign * (1 + digest[9] % 9), digest.hex())


# -- requests and replies ---------------------------------------------------------------------------------


def _refuse(text: str, name: str = NAME) -> NoReturn:
    raise ModelError(f"{name}: {text}", boundary="model", status=400)


def _accuracy(sampling: Mapping[str, Any]) -> float:
    accuracy = sampling.get("accuracy", 1.0)
    if isinstance(accuracy, bool) or not isinstance(accuracy, int | float) or not 0 <= accuracy <= 1:
        example = "set it as in [sampling] extra_body = {accuracy = 0.8}"
        _refuse(f"accuracy must be a number from 0 to 1, got {accuracy!r}; {example}")
    return float(accuracy)


def _max_tokens(sampling: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = sampling.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                _refuse(f"{name} must be an integer of at least 1, got {value!r}")
            return value
    return None


def _text_reply(messages: Sequence[Message], text: str, name: str = NAME) -> ChatReply:
    return _reply(messages, {"role": "assistant", "content": text}, "stop", name)


def _call_reply(messages: Sequence[Message], call: _CallNeeded, call_id: str, name: str = NAME) -> ChatReply:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    tool_call = {"id": call_id, "type": "function", "function": function}
    return _reply(messages, {"role": "assistant", "content": None, "tool_calls": [tool_call]}, "tool_calls", name)


def _as_call(reply: ChatReply, request: ChatRequest) -> ChatReply:
    """Return a text reply as the call of a tool that takes the answer, if there is one."""
    tool = None if reply.tool_calls else _answering(request.tools)
    if tool is None:
        return reply
    name, parameter = tool
    digest = blake2b(reply.content.encode(), digest_size=10).hexdigest()
    return _call_reply(request.messages, _CallNeeded(name, {parameter: reply.content}, 0), f"call_{digest}_answer")


def _reply(messages: Sequence[Message], message: Message, finish_reason: str, name: str = NAME) -> ChatReply:
    usage = Usage(sum(map(_n_tokens, messages)), _n_tokens(message))
    return ChatReply(message, finish_reason, usage, name)


def _n_tokens(message: Message) -> int:
    """Count the words between spaces, of the text and of the names and arguments of tool calls."""
    calls = message.get("tool_calls")
    functions = [_object(_object(call).get("function")) for call in calls] if isinstance(calls, list) else []
    texts = [_text(message), *(f"{each.get('name')} {each.get('arguments')}" for each in functions)]
    return sum(len(text.split()) for text in texts)


def _truncated(reply: ChatReply, max_tokens: int) -> ChatReply:
    """Return the first words of a text reply. Tool calls stay whole, because half a call is useless."""
    words = list(re.finditer(r"\S+", reply.content))
    if len(words) <= max_tokens or reply.usage is None:
        return reply
    message = {**reply.message, "content": reply.content[: words[max_tokens - 1].end()]}
    return ChatReply(message, "length", Usage(reply.usage.input_tokens, max_tokens), reply.model)
