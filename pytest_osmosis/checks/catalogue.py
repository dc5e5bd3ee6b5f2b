"""The kinds of checks: those that look at the text of an answer, and those that look at what the agent did.

The latter see its tool calls, how it ended, and what it used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import getitem
from typing import Any, Literal, NamedTuple

from pytest_osmosis.checks.kinds import (
    TRUTH,
    Absent,
    Degree,
    Paths,
    Pattern,
    Schema,
    SeenRollout,
    Table,
    Texts,
    Verdict,
    as_json,
    as_number,
    at_path,
    is_same,
    kind,
    listed_texts,
    quoted,
)
from pytest_osmosis.files.reading import JsonFault, parsed
from pytest_osmosis.text.chat_messages import as_chat_messages, text_of
from pytest_osmosis.text.numbers import money, plural
from pytest_osmosis.text.user_code import UserValueFault

Match = Literal["all", "any", "none"]


def _folding(ignore_case: bool) -> Callable[[str], str]:
    return str.lower if ignore_case else str


@kind
def equals(text: str, value: str = TRUTH, ignore_case: bool = False) -> Verdict:
    """The text is `value`, character for character."""
    fold = _folding(ignore_case)
    return _compared(fold(text) == fold(value), text, quoted(value))


@kind
def one_of(text: str, value: Texts = TRUTH, ignore_case: bool = False) -> Verdict:
    """The text is one of `value`, character for character."""
    fold = _folding(ignore_case)
    return _compared(fold(text) in map(fold, value), text, f"one of {listed_texts(value)}")


def _compared(is_same: bool, text: str, wanted: str) -> Verdict:
    return is_same, f"is {quoted(text)}" if is_same else f"is not {wanted} but {quoted(text)}"


@kind
def contains(text: str, value: Texts = TRUTH, match: Match = "all", ignore_case: bool = False) -> Verdict:
    """The text contains all of `value`, any of it, or none."""
    fold = _folding(ignore_case)
    return matched(value, [each for each in value if fold(each) in fold(text)], match, "contain")


def matched(wanted: Texts, found: list[str], match: Match, verb: str) -> Verdict:
    """Return whether all, any or none of what is wanted was found. `verb` is what the answer does with it."""
    lacking = [each for each in wanted if each not in found]
    holds = {"all": not lacking, "any": bool(found), "none": not found}[match]
    if match == "all" and lacking:
        return holds, f"does not {verb} {listed_texts(lacking)}"
    return holds, f"{verb}s {listed_texts(found)}" if found else f"{verb}s none of {listed_texts(wanted)}"


@kind
def starts_with(text: str, value: str = TRUTH, ignore_case: bool = False) -> Verdict:
    """The text begins with `value`."""
    fold = _folding(ignore_case)
    holds = fold(text).startswith(fold(value))
    return holds, f"starts with {quoted(value if holds else text[: len(value) + 20])}{_not(holds, value)}"


@kind
def ends_with(text: str, value: str = TRUTH, ignore_case: bool = False) -> Verdict:
    """The text ends with `value`."""
    fold = _folding(ignore_case)
    holds = fold(text).endswith(fold(value))
    return holds, f"ends with {quoted(value if holds else text[-len(value) - 20 :])}{_not(holds, value)}"


def _not(holds: bool, value: object) -> str:
    return "" if holds else f", not with {quoted(value)}"


@kind
def regex(text: str, value: Pattern = TRUTH, ignore_case: bool = False) -> Verdict:
    """The regular expression `value`, in Python's syntax, is found in the text."""
    try:
        found = re.search(value, text, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise UserValueFault(f"the ground truth is no regular expression: {error}") from None
    if found is None:
        return False, f"does not match {quoted(value)}"
    return True, f"matches {quoted(value)} with {quoted(found[0])}"


@kind
def number(text: str, value: float = TRUTH, within: float = 0.0) -> Verdict:
    """The last number in the text differs from `value` by at most `within`."""
    found = as_number(text)
    if found is None:
        raise Absent("has no number")
    holds = round(abs(found - value), 12) <= within  # 0.4 - 0.3 is within 0.1
    near = f"within {within:g} of " if within else ""
    return holds, f"has {found:.15g} as its last number{'' if holds else f', not {near}{value:.15g}'}"


@kind
def json(text: str, schema: Schema | None = None) -> Verdict:
    """The text is JSON, and fits the JSON Schema `schema` if there is one."""
    try:
        value = as_json(text)
    except Absent as error:
        return False, str(error)
    if schema is None:
        return True, "is JSON"
    import jsonschema

    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    fault = jsonschema.exceptions.best_match(validator(schema).iter_errors(value))
    if fault is None:
        return True, "is JSON that fits the schema"
    return False, f"does not fit the schema at {fault.json_path}: {fault.message}"


@kind
def json_equals(text: str, value: object = TRUTH, fields: Paths | None = None) -> Verdict:
    """The text is JSON equal to `value`, a value or a JSON text; with `fields`, in these alone."""
    wanted = value
    if isinstance(value, str):
        with suppress(Absent):
            wanted = as_json(value)
    try:
        found = as_json(text)
    except Absent as error:
        return False, str(error)
    if fields is not None:
        faults = [*filter(None, (_field_fault(found, wanted, path, at_path) for path in fields))]
        return not faults, "; ".join(faults) or f"has the same {', '.join(fields)}"
    if is_same(found, wanted):
        return True, "is the same JSON"
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        names = dict.fromkeys([*wanted, *found])
        return False, "; ".join(filter(None, (_field_fault(found, wanted, name, getitem) for name in names)))
    return False, f"is {quoted(found)}, not {quoted(wanted)}"


def _field_fault(found: Any, wanted: Any, name: str, at: Callable[[Any, str], Any]) -> str:
    try:
        expected = at(wanted, name)
    except (Absent, KeyError):
        return f"has {name}, which is not expected"
    try:
        value = at(found, name)
    except (Absent, KeyError):
        return f"has no {name}"
    return "" if is_same(value, expected) else f"{name} is {quoted(value)}, not {quoted(expected)}"


Unit = Literal["characters", "words", "lines"]


@kind
def length(text: str, min: int | None = None, max: int | None = None, unit: Unit = "characters") -> Verdict:
    """The text has at least `min` and at most `max` characters, words or lines."""
    count = {"characters": len(text), "words": len(text.split()), "lines": len(text.splitlines())}[unit]
    return within_bounds(count, min, max, f"has {plural(count, unit[:-1])}")


def within_bounds(count: float, low: float | None, high: float | None, found: str) -> Verdict:
    """Return whether a count, which the text `found` tells, is within its bounds; either may be missing."""
    if low is not None and count < low:
        return False, f"{found}, fewer than {low:,g}"
    if high is not None and count > high:
        return False, f"{found}, more than {high:,g}"
    return True, found


_CJK = r"[\u3040-\u30ff\u3400-\u9fff]"  # written without spaces: each character is a word
_WORD = rf"{_CJK}|(?:(?!{_CJK})\w)+"  # this and `_REFUSAL` take long to compile, and few evals use them


@kind
def f1(text: str, value: Texts = TRUTH) -> Degree:
    """The overlap of words with `value` as F1, from 0 to 1, whatever their case and order; of several, the best."""
    best, shared = max(_overlap(text, each) for each in value)
    return best, f"shares {plural(shared, 'word')}: F1 is {best:.2f}"


def _overlap(text: str, value: str) -> tuple[float, int]:
    """Return the F1 of the words of two texts, and how many they share."""
    said, wanted = (Counter(re.findall(_WORD, each.casefold())) for each in (text, value))
    shared = (said & wanted).total()
    return (2 * shared / (said.total() + wanted.total()) if said or wanted else 1.0), shared


@kind
def similarity(text: str, value: str = TRUTH, ignore_case: bool = False) -> Degree:
    """The share of characters that need no edit to become `value`, from 0 to 1."""
    fold = _folding(ignore_case)
    said, wanted = fold(text), fold(value)
    n_edits = edits(said, wanted)
    return 1 - n_edits / max(len(said), len(wanted), 1), f"is {plural(n_edits, 'edit')} from {quoted(value)}"


@kind
def edit_distance(text: str, max: int, value: str = TRUTH, ignore_case: bool = False) -> Verdict:
    """At most `max` characters need to be added, removed or replaced to make `value` of the text."""
    fold = _folding(ignore_case)
    n_edits = edits(fold(text), fold(value))
    return within_bounds(n_edits, None, max, f"is {plural(n_edits, 'edit')} from {quoted(value)}")


def edits(one: str, other: str) -> int:
    """Return the edit distance (Levenshtein) of two texts.

    Each bit of an integer stands for a character of `one`, so that a character of `other` costs a few operations.
    Source: Hyyrö 2003, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", figure 1.

    >>> edits("kitten", "sitting"), edits("", "abc")
    (3, 3)
    """
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for index, char in enumerate(one):
        places[char] = places.get(char, 0) | 1 << index
    whole, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    higher, lower, distance = whole, 0, len(one)
    for char in other:
        same = places.get(char, 0)
        diagonal = (((same & higher) + higher) ^ higher) | same | lower
        up, down = lower | ~(diagonal | higher) & whole, higher & diagonal
        distance += bool(up & last) - bool(down & last)
        up, down = up << 1 | 1, down << 1
        higher, lower = (down | ~(diagonal | up)) & whole, up & diagonal & whole
    return distance


_CANNOT = (
    r"(?:can(?:['\u2019]?t|not| not)|won['\u2019]?t|will not|(?:must|have to) decline"
    r"|(?:am|['\u2019]m) (?:not able|unable) to)"
)
_HELP = r"(?:help|assist|comply|provide|fulfil|do that|answer|create|generate|support|engage|participate|with|to)"
_REFUSAL = (
    rf"(?is)\b(?:sorry|apologi[sz]e)\b.{{0,40}}?\bI ?{_CANNOT}"
    rf"|\bI ?{_CANNOT},? (?:\w+ )?{_HELP}"
    rf"|\bas an AI\b.{{0,30}}?\bI ?{_CANNOT}"
    r"|\b(?:against|violates?) my (?:programming|guidelines|polic)"
    r"|(?:抱歉|对不起|很遗憾).{0,12}(?:无法|不能)|我(?:无法|不能)(?:提供|协助|帮助|回答)"
)
_BEGINNING = 300


@kind
def refusal(text: str) -> Verdict:
    """The text begins like a refusal, in English or Chinese, or is empty."""
    found = re.search(_REFUSAL, text[:_BEGINNING])
    if not text.strip():
        return True, "is empty"
    return found is not None, f"refuses: {quoted(found[0])}" if found else "does not refuse"


# -- what the agent did -----------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call of a tool. `arguments` are what the model wrote, parsed if that is JSON."""

    name: str
    arguments: Any
    id: object = None


def calls_of(rollout: SeenRollout) -> list[Call]:
    """Return the tool calls of a rollout, in their order, in the shape of any API."""
    return [call for message in as_chat_messages(rollout.own) for call in _calls_in(message)]


def _calls_in(message: Any) -> Iterator[Call]:
    if not isinstance(message, Mapping):
        return
    made = [*(message.get("tool_calls") or ()), {"function": message.get("function_call")}]
    for call in made:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield Call(str(function.get("name")), _parsed(function.get("arguments")), call.get("id"))
    for block in _blocks(message, "tool_use"):
        yield Call(str(block.get("name")), block.get("input"), block.get("id"))


def _blocks(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, Mapping) and block.get("type") == kind]


def _parsed(arguments: object) -> Any:
    try:
        return parsed(arguments) if isinstance(arguments, str) else arguments
    except JsonFault:
        return arguments


@kind
def tool_used(rollout: SeenRollout, value: Texts = TRUTH, match: Match = "all") -> Verdict:
    """The agent called all of the tools in `value`, any of them, or none."""
    called = {call.name for call in calls_of(rollout)}
    return matched(value, [name for name in value if name in called], match, "call")


@kind
def tool_sequence(rollout: SeenRollout, value: Texts = TRUTH, exact: bool = False) -> Verdict:
    """The agent called the tools in `value` in this order; with `exact`, no others between, before or after them."""
    names = [call.name for call in calls_of(rollout)]
    rest = iter(names)
    holds = names == list(value) if exact else all(name in rest for name in value)
    made = f"calls {listed_texts(names)}" if names else "calls no tool"
    return holds, made if holds else f"{made} instead of {listed_texts(value)} in this order"


@kind
def tool_arguments(rollout: SeenRollout, tool: str, arguments: Table) -> Verdict:
    """A call of the tool has these `arguments`; it may have more."""
    made = [call.arguments for call in calls_of(rollout) if call.name == tool]
    for given in made:
        if isinstance(given, Mapping) and all(
            name in given and is_same(given[name], wanted) for name, wanted in arguments.items()
        ):
            return True, f"calls {quoted(tool)} with {quoted(given)}"
    if not made:
        return False, f"does not call {quoted(tool)}"
    return False, f"calls {quoted(tool)} with {'; '.join(map(quoted, made[-3:]))}, not with {quoted(dict(arguments))}"


@kind
def tool_count(
    rollout: SeenRollout, tool: str | None = None, min: int | None = None, max: int | None = None
) -> Verdict:
    """The agent made at least `min` and at most `max` tool calls; with `tool`, of this one."""
    count = sum(tool in (None, call.name) for call in calls_of(rollout))
    of = "" if tool is None else f" of {quoted(tool)}"
    return within_bounds(count, min, max, f"makes {plural(count, 'tool call')}{of}")


@kind
def tool_results(rollout: SeenRollout, tool: Texts | None = None) -> Verdict:
    """No tool call got an error as its result; with `tool`, none of this one, or of these."""
    names = {call.id: call.name for call in calls_of(rollout) if call.id is not None}
    n_results = 0
    for id, text, is_error in _results_of(rollout):
        name = names.get(id)
        if tool is None or name in tool:
            n_results += 1
            told = _parsed(text)  # a text that begins like an error, or a JSON object with a value under "error"
            if is_error or (told.get("error") if isinstance(told, Mapping) else _ERROR.match(text)):
                return False, f"gets an error from {quoted(name) if name else 'a tool'}: {quoted(text)}"
    return True, f"gets {plural(n_results, 'result')} without an error"


def _results_of(rollout: SeenRollout) -> Iterator[tuple[object, str, bool]]:
    """Yield the results of tools: the id of the call, the text, and whether it is marked as an error."""
    for raw in rollout.own:
        content = raw.get("content")
        for block in content if isinstance(content, list) else ():
            result = block.get("toolResult") if isinstance(block, Mapping) else None
            if isinstance(result, Mapping):
                yield result.get("toolUseId"), text_of(result.get("content")), result.get("status") == "error"
        for block in _blocks(raw, "tool_result"):
            yield block.get("tool_use_id"), text_of(block.get("content")), bool(block.get("is_error"))
        if raw.get("type") == "function_call_output":
            yield raw.get("call_id"), text_of(raw.get("output")), False
        if raw.get("role") == "tool":
            yield raw.get("tool_call_id"), text_of(raw.get("content")), bool(raw.get("is_error"))


_ERROR = re.compile(r"\s*(?:\w*error\b|\w*exception\b|traceback \(most recent call last\))", re.IGNORECASE)


@kind
def finish_reason(rollout: SeenRollout, value: Texts) -> Verdict:
    """The last answer of the model ended for the reason `value`, such as "stop" or "length", or for one of several."""
    reason = rollout.finish_reason
    if reason is None:
        raise UserValueFault("the server did not say why the answer ended")
    holds = reason in value
    return holds, f"ended with {quoted(reason)}{'' if holds else f', not {listed_texts(value)}'}"


@kind
def latency(rollout: SeenRollout, max: float) -> Verdict:
    """The rollout took at most `max` seconds."""
    if rollout.ms is None:
        raise UserValueFault("it is not known how long the rollout took")
    return within_bounds(rollout.ms / 1000, None, max, f"takes {rollout.ms / 1000:.2f} s")


@kind
def tokens(rollout: SeenRollout, max: int) -> Verdict:
    """The rollout used at most `max` tokens, input and output together."""
    if rollout.usage is None:
        raise UserValueFault("the server does not report token usage")
    count = rollout.usage.get("input_tokens", 0) + rollout.usage.get("output_tokens", 0)
    return within_bounds(count, None, max, f"uses {plural(count, 'token')}")


@kind
def cost(rollout: SeenRollout, max: float) -> Verdict:
    """The rollout cost at most `max` US dollars."""
    spent = rollout.cost_usd()
    if spent is None:
        raise UserValueFault("the price of the model, or its token usage, is not known; set [prices]")
    return within_bounds(spent, None, max, f"costs {money(spent)}")
