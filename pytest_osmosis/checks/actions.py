"""The kinds of checks that look at what the agent did: its tool calls, how it ended, and what it used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pytest_osmosis.checks.answers import Match, matched, within_bounds
from pytest_osmosis.checks.kinds import TRUTH, SeenRollout, Table, Texts, Verdict, is_same, kind, listed_texts, quoted
from pytest_osmosis.files.reading import JsonFault, parsed
from pytest_osmosis.text.chat_messages import as_chat_messages, text_of
from pytest_osmosis.text.numbers import money, plural
from pytest_osmosis.text.user_code import UserValueFault


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
    return holds, made if holds else f"{made}, not {listed_texts(value)} in this order"


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
            if is_error or _tells_error(text):
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


def _tells_error(text: str) -> bool:
    """Return True for a text that begins like an error, or a JSON object with a value under "error"."""
    value = _parsed(text)
    return bool(value.get("error")) if isinstance(value, Mapping) else _ERROR.match(text) is not None


@kind
def finish_reason(rollout: SeenRollout, value: Texts) -> Verdict:
    """The last answer of the model ended for the reason `value`, such as "stop" or "length", or for one of several."""
    reason = rollout.finish_reason
    if reason is None:
        raise UserValueFault("finish_reason: the server did not say why the answer ended")
    holds = reason in value
    return holds, f"ends for {quoted(reason)}{'' if holds else f', not {listed_texts(value)}'}"


@kind
def latency(rollout: SeenRollout, max: float) -> Verdict:
    """The rollout took at most `max` seconds."""
    if rollout.ms is None:
        raise UserValueFault("latency: it is not known how long the rollout took")
    return within_bounds(rollout.ms / 1000, None, max, f"takes {rollout.ms / 1000:.2f} s")


@kind
def tokens(rollout: SeenRollout, max: int) -> Verdict:
    """The rollout used at most `max` tokens, input and output together."""
    if rollout.usage is None:
        raise UserValueFault("tokens: the server does not report token usage")
    count = rollout.usage.get("input_tokens", 0) + rollout.usage.get("output_tokens", 0)
    return within_bounds(count, None, max, f"uses {plural(count, 'token')}")


@kind
def cost(rollout: SeenRollout, max: float) -> Verdict:
    """The rollout cost at most `max` US dollars."""
    spent = rollout.cost_usd()
    if spent is None:
        raise UserValueFault("cost: the price of the model, or its token usage, is not known; set [prices]")
    return within_bounds(spent, None, max, f"costs {money(spent)}")
