"""Checks of what an agent did: tool calls in the shapes of each API, how it ended, and what it used."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.checks.kinds import Check, SeenRollout
from pytest_osmosis.text.user_code import UserValueFault
from tests.raised import raised

Messages = list[dict[str, Any]]
SEARCH = {"query": "cup", "page": 1}
SEQUENCE = {"kind": "tool_sequence"}
OF_SEARCH, OF_ORDER = ({"kind": "tool_arguments", "tool": tool} for tool in ("search", "order"))


def chat(failing: bool) -> Messages:
    """A search, then an order, as chat completions keep them."""

    def call(id: str, name: str, arguments: str) -> dict[str, Any]:
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

    return [
        {"role": "assistant", "content": None, "tool_calls": [call("1", "search", '{"query": "cup", "page": 1}')]},
        {"role": "tool", "tool_call_id": "1", "content": "Error: no such page" if failing else "2 cups"},
        {"role": "assistant", "content": None, "tool_calls": [call("2", "order", '{"id": 7}')]},
        {"role": "tool", "tool_call_id": "2", "content": '{"error": null}'},
        {"role": "assistant", "content": "Done."},
    ]


def anthropic(failing: bool) -> Messages:
    def use(id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": given}]}

    result = {"type": "tool_result", "tool_use_id": "1", "content": "none", "is_error": failing}
    return [use("1", "search", SEARCH), {"role": "user", "content": [result]}, use("2", "order", {"id": 7})]


def responses(failing: bool) -> Messages:
    return [
        {"type": "function_call", "call_id": "1", "name": "search", "arguments": '{"query": "cup", "page": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": '{"error": "gone"}' if failing else "2 cups"},
        {"type": "function_call", "call_id": "2", "name": "order", "arguments": '{"id": 7}'},
    ]


def bedrock(failing: bool) -> Messages:
    def use(id: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"toolUse": {"toolUseId": id, "name": name, "input": given}}]}

    result = {"toolUseId": "1", "status": "error" if failing else "success", "content": [{"text": "none"}]}
    told = {"role": "user", "content": [{"toolResult": result}]}
    return [use("1", "search", SEARCH), told, use("2", "order", {"id": 7})]


EVERY_SHAPE = pytest.mark.parametrize("shape", [chat, anthropic, responses, bedrock])


def checked(own: Messages, facts: dict[str, Any] | None = None, **declared: Any) -> tuple[object, str]:
    prompt = [{"role": "user", "content": "Order a cup."}]
    result = Check.of(declared)(SeenRollout([*prompt, *own], 1, **(facts or {})))
    return result["score"], str(result["reason"])


@EVERY_SHAPE
@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"kind": "tool_used", "value": "search"}, (1.0, 'calls "search"')),
        ({"kind": "tool_used", "value": ["search", "pay"]}, (0.0, 'does not call "pay"')),
        ({"kind": "tool_used", "value": ["refund", "pay"], "match": "none"}, (1.0, 'calls none of "refund", "pay"')),
        ({"kind": "tool_used", "value": "order", "negate": True}, (0.0, 'calls "order"')),
        ({"kind": "tool_sequence", "value": ["search", "order"], "exact": True}, (1.0, 'calls "search", "order"')),
        ({"kind": "tool_sequence", "value": ["order"]}, (1.0, 'calls "search", "order"')),
        (
            {**SEQUENCE, "value": ["order", "search"]},
            (0.0, 'calls "search", "order" instead of "order", "search" in this order'),
        ),
        ({**OF_SEARCH, "arguments": {"query": "cup"}}, (1.0, 'calls "search" with {"query": "cup", "page": 1}')),
        ({**OF_ORDER, "arguments": {"id": 8}}, (0.0, 'calls "order" with {"id": 7}, not with {"id": 8}')),
        ({"kind": "tool_arguments", "tool": "pay", "arguments": {"id": 8}}, (0.0, 'does not call "pay"')),
        ({"kind": "tool_count", "max": 1}, (0.0, "makes 2 tool calls, more than 1")),
        ({"kind": "tool_count", "tool": "order", "min": 1}, (1.0, 'makes 1 tool call of "order"')),
    ],
)
def test_tool_calls_are_found_in_every_shape(shape: Any, declared: dict[str, Any], expected: object) -> None:
    assert checked(shape(failing=False), **declared) == expected


@EVERY_SHAPE
def test_a_result_with_an_error_is_found_in_every_shape(shape: Any) -> None:
    score, reason = checked(shape(failing=True), kind="tool_results")

    assert (score, reason.partition(":")[0]) == (0.0, 'gets an error from "search"')
    assert checked(shape(failing=True), kind="tool_results", tool="order")[0] == 1.0
    assert checked(shape(failing=False), kind="tool_results")[0] == 1.0


def test_calls_in_the_prompt_are_not_the_agents() -> None:
    rollout = SeenRollout([*chat(failing=True), {"role": "assistant", "content": "Hi"}], 5)

    assert (
        Check.of({**SEQUENCE, "value": ["search"]})(rollout)["reason"]
        == 'calls no tool instead of "search" in this order'
    )
    assert Check.of({"kind": "tool_results"})(rollout)["reason"] == "gets 0 results without an error"


TOKENS = {"input_tokens": 900, "output_tokens": 150}
USED = {"finish_reason": "length", "ms": 3210.0, "usage": TOKENS, "cost_usd": lambda: 0.02}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"kind": "finish_reason", "value": "stop"}, (0.0, 'ended with "length", not "stop"')),
        ({"kind": "finish_reason", "value": ["stop", "length"]}, (1.0, 'ended with "length"')),
        ({"kind": "latency", "max": 3}, (0.0, "takes 3.21 s, more than 3")),
        ({"kind": "tokens", "max": 2000}, (1.0, "uses 1,050 tokens")),
        ({"kind": "cost", "max": 0.01}, (0.0, "costs $0.020, more than 0.01")),
    ],
)
def test_the_facts_of_a_rollout_are_compared(declared: dict[str, Any], expected: object) -> None:
    assert checked([], facts=USED, **declared) == expected


@pytest.mark.parametrize(
    ("declared", "fault"),
    [
        ({"kind": "finish_reason", "value": "stop"}, "the server did not say why the answer ended"),
        ({"kind": "latency", "max": 3}, "it is not known how long the rollout took"),
        ({"kind": "tokens", "max": 3}, "the server does not report token usage"),
        ({"kind": "cost", "max": 3}, "the price of the model, or its token usage, is not known; set [prices]"),
        ({"kind": "tool_used"}, "the row has no ground truth; set value, or name its column in [data] columns"),
    ],
)
def test_a_fact_that_is_not_known_is_an_error_and_no_score(declared: dict[str, Any], fault: str) -> None:
    assert str(raised(UserValueFault, checked, [], **declared)) == fault
