"""Checks of an answer, and of what an agent did: their verdicts, the reasons for them, and those of promptfoo."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.checks.catalogue import edits
from pytest_osmosis.checks.kinds import Check, SeenRollout, load
from pytest_osmosis.text.user_code import UserValueFault
from tests.raised import raised

QUESTION = {"role": "user", "content": "How long do I have?"}
JSON = '{"order": {"id": 7, "items": ["a", "b"]}, "paid": true}'
BLOCK = f"Here it is:\n```json\n{JSON}\n```\nDone."
SCHEMA = {"type": "object", "required": ["paid"], "properties": {"paid": {"type": "boolean"}}}


def checked(answer: str | None, truth: object = None, **declared: Any) -> tuple[float, str]:
    messages: list[dict[str, Any]] = [QUESTION]
    if answer is not None:
        messages.append({"role": "assistant", "content": answer})
    result = Check.of(declared)(SeenRollout(messages, 1, truth))
    assert isinstance(result["score"], float)
    return result["score"], str(result["reason"])


@pytest.mark.parametrize(
    ("declared", "answer", "score", "reason"),
    [
        ({"kind": "equals", "value": "42"}, "42\n", 0, r'is not "42" but "42\n"'),
        ({"kind": "equals", "value": "Yes", "ignore_case": True}, "YES", 1, 'is "YES"'),
        ({"kind": "one_of", "value": ["yes", "no"]}, "no", 1, 'is "no"'),
        ({"kind": "one_of", "value": ["yes", "no"]}, "maybe", 0, 'is not one of "yes", "no" but "maybe"'),
        ({"kind": "contains", "value": ["a", "x"]}, "abc", 0, 'does not contain "x"'),
        ({"kind": "contains", "value": ["a", "x"], "match": "any"}, "abc", 1, 'contains "a"'),
        ({"kind": "contains", "value": ["y", "x"], "match": "any"}, "abc", 0, 'contains none of "y", "x"'),
        ({"kind": "contains", "value": ["a", "x"], "match": "none"}, "abc", 0, 'contains "a"'),
        ({"kind": "starts_with", "value": "Dear"}, "Dear Ann", 1, 'starts with "Dear"'),
        ({"kind": "starts_with", "value": "Dear"}, "Hi", 0, 'starts with "Hi", not with "Dear"'),
        ({"kind": "ends_with", "value": "Bob"}, "Yours, Al", 0, 'ends with "Yours, Al", not with "Bob"'),
        ({"kind": "ends_with", "value": "Bob"}, "a" * 30, 0, f'ends with "{"a" * 23}", not with "Bob"'),
        ({"kind": "regex", "value": r"\d+ days"}, "in 30 days", 1, r'matches "\\d+ days" with "30 days"'),
        ({"kind": "regex", "value": "DAYS", "ignore_case": True}, "days", 1, 'matches "DAYS" with "days"'),
        ({"kind": "regex", "value": "x"}, "days", 0, 'does not match "x"'),
        ({"kind": "number", "value": 1200.5}, "It costs $1,200.50.", 1, "has 1200.5 as its last number"),
        ({"kind": "number", "value": 0.3, "within": 0.1}, "0.4", 1, "has 0.4 as its last number"),
        ({"kind": "number", "value": 3, "within": 1}, "5", 0, "has 5 as its last number, not within 1 of 3"),
        ({"kind": "number", "value": 20}, "10-20", 1, "has 20 as its last number"),
        ({"kind": "number", "value": 3}, "none", 0, "has no number"),
        ({"kind": "json"}, JSON, 1, "is JSON"),
        ({"kind": "json"}, "{'a': 1}", 0, "is not JSON: Expecting property name"),
        ({"kind": "json"}, "NaN", 0, "is not JSON: "),
        ({"kind": "json", "schema": SCHEMA}, JSON, 1, "is JSON that fits the schema"),
        ({"kind": "json", "schema": SCHEMA}, "{}", 0, "does not fit the schema at $: 'paid' is a required property"),
        ({"kind": "json_equals", "value": {"a": 1}}, '{"a": 1.0}', 1, "is the same JSON"),
        ({"kind": "json_equals", "value": {"a": 1}}, '{"a": true}', 0, "a is true, not 1"),
        ({"kind": "json_equals", "value": '{"a": 1, "b": 2}'}, '{"a": 1, "c": 3}', 0, "has no b; has c, which is not"),
        ({"kind": "json_equals", "value": [1, {"a": []}]}, '[1, {"a": []}]', 1, "is the same JSON"),
        ({"kind": "json_equals", "value": {"a": {"b": 1}}, "fields": "a.b"}, '{"a": {"b": 1, "c": 2}}', 1, "has the"),
        ({"kind": "json_equals", "value": {"a": {"b": 1}}, "fields": "a.b"}, '{"a": 2}', 0, "has no a.b"),
        ({"kind": "length", "max": 2, "unit": "words"}, "a b c", 0, "has 3 words, more than 2"),
        ({"kind": "length", "min": 2}, "a", 0, "has 1 character, fewer than 2"),
        ({"kind": "f1", "value": "the black cat"}, "A cat: the cat!", 4 / 7, "shares 2 words: F1 is 0.57"),
        ({"kind": "f1", "value": ["x", "三十天"]}, "三天", 0.8, "shares 2 words: F1 is 0.80"),
        ({"kind": "f1", "value": "?"}, "!", 1, "shares 0 words: F1 is 1.00"),
        ({"kind": "f1", "value": "cat"}, "!", 0, "shares 0 words: F1 is 0.00"),
        ({"kind": "similarity", "value": "abcd"}, "abxd", 0.75, 'is 1 edit from "abcd"'),
        ({"kind": "similarity", "value": "x"}, "", 0, 'is 1 edit from "x"'),
        ({"kind": "edit_distance", "value": "kitten", "max": 2}, "sitting", 0, 'is 3 edits from "kitten", more than 2'),
        ({"kind": "refusal", "negate": True}, "You can return it. I cannot recommend it enough.", 1, "does not refuse"),
        ({"kind": "refusal"}, "抱歉 我无法回答这个问题", 1, "refuses: "),
        ({"kind": "refusal"}, " ", 1, "is empty"),
    ],
)
def test_a_check_decides_and_says_why(declared: dict[str, Any], answer: str, score: float, reason: str) -> None:
    found, told = checked(answer, **declared)

    assert found == pytest.approx(score)
    assert told.startswith(reason), told


@pytest.mark.parametrize(
    ("on", "answer", "part"),
    [
        ("answer", " 7 ", " 7 "),
        ("last_line", "6\n 7 \n\n", "7"),
        ("code_block", BLOCK, JSON),
        ({"after": "####"}, "1 #### 2\n#### 7\n", "7"),
        ({"json": "order.id"}, JSON, "7"),
        ({"json": "$.order.items[1]"}, BLOCK, "b"),
    ],
)
def test_a_check_looks_at_a_part_of_the_answer(on: Any, answer: str, part: str) -> None:
    assert checked(answer, kind="equals", value=part, on=on)[0] == 1.0
    assert checked(answer, kind="equals", value="other", on=on)[0] == 0.0


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ("code_block", "has no code block"),
        ({"after": "####"}, 'has no "####"'),
        ({"json": "a.b"}, "is not JSON: Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_part_that_is_not_there_fails_negated_or_not(on: Any, reason: str, negate: bool) -> None:
    assert checked("seven", kind="equals", value="7", on=on, negate=negate) == (0.0, reason)


def test_the_reason_names_the_part_or_that_there_is_no_answer() -> None:
    after = {"after": "####"}
    assert checked("1\n2", kind="equals", value="3", on="last_line") == (0.0, 'the last line is not "3" but "2"')
    assert checked("#### x", kind="number", value=3, on=after) == (0.0, 'what follows "####" has no number')
    assert checked(JSON, kind="equals", value="3", on={"json": "order.id"}) == (0.0, 'its order.id is not "3" but "7"')
    assert checked(None, kind="contains", value="x", negate=True) == (0.0, "gives no answer")


@pytest.mark.parametrize(
    ("kind", "answer", "truth"),
    [
        ("equals", "42", 42),
        ("contains", "30 days or 4 weeks", ["30 days", "4 weeks"]),
        ("number", "it is 42", "about 42.0"),
        ("one_of", "b", ["a", "b"]),
        ("json_equals", '{"a": 1}', {"a": 1}),
        ("regex", "aab", "a+b"),
    ],
)
def test_without_a_value_the_ground_truth_counts(kind: str, answer: str, truth: object) -> None:
    assert checked(answer, truth, kind=kind)[0] == 1.0
    assert checked("0", truth, kind=kind)[0] == 0.0


@pytest.mark.parametrize(
    ("kind", "truth", "fault"),
    [
        ("equals", None, "the row has no ground truth; set value, or name its column in [data] columns"),
        ("contains", "", "the row has no ground truth; set value, or name its column in [data] columns"),
        ("equals", ["a"], 'the ground truth must be a text, got list: ["a"]'),
        ("number", "some", 'the ground truth must be a number, got str: "some"'),
        ("regex", "(", "the ground truth is no regular expression: missing ), unterminated subpattern at position 0"),
    ],
)
def test_a_ground_truth_that_does_not_fit_is_an_error_and_no_score(kind: str, truth: object, fault: str) -> None:
    assert str(raised(UserValueFault, checked, "x", truth, kind=kind)) == fault


def test_edits_are_those_of_the_textbook() -> None:
    chance = random.Random(0)

    def slow(one: str, other: str) -> int:
        row = list(range(len(other) + 1))
        for i, a in enumerate(one, 1):
            left, row[0] = row[0], i
            for j, b in enumerate(other, 1):
                left, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, left + (a != b))
        return row[-1]

    for _ in range(200):
        one, other = ("".join(chance.choices("abc", k=chance.randrange(9))) for _ in range(2))
        assert edits(one, other) == slow(one, other), (one, other)


def test_a_check_needs_what_has_no_default_and_one_of_its_bounds_and_each_part_changes_its_digest() -> None:
    kinds = load()
    needs = {name: (kinds[name].required, kinds[name].bounds) for name in ("equals", "edit_distance", "length")}

    assert needs == {"equals": ((), ()), "edit_distance": (("max",), ()), "length": ((), ("min", "max"))}
    assert [name for name in needs if kinds[name].needs_nothing] == ["equals"]
    declared: list[dict[str, Any]] = [
        {"kind": "equals", "value": "a"},
        {"kind": "contains", "value": "a"},
        {"kind": "equals", "value": "b"},
        {"kind": "equals", "value": "a", "on": "last_line"},
        {"kind": "equals", "value": "a", "negate": True},
    ]

    assert len({Check.of(each).digest for each in declared}) == len(declared)
    assert Check.of({"name": "x", **declared[0]}).digest == Check.of(declared[0]).digest


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


def done(own: Messages, facts: dict[str, Any] | None = None, **declared: Any) -> tuple[object, str]:
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
    assert done(shape(failing=False), **declared) == expected


@EVERY_SHAPE
def test_a_result_with_an_error_is_found_in_every_shape(shape: Any) -> None:
    score, reason = done(shape(failing=True), kind="tool_results")

    assert (score, reason.partition(":")[0]) == (0.0, 'gets an error from "search"')
    assert done(shape(failing=True), kind="tool_results", tool="order")[0] == 1.0
    assert done(shape(failing=False), kind="tool_results")[0] == 1.0


def test_calls_in_the_prompt_are_not_the_agents() -> None:
    rollout = SeenRollout([*chat(failing=True), {"role": "assistant", "content": "Hi"}], 5)

    assert str(Check.of({**SEQUENCE, "value": ["search"]})(rollout)["reason"]).startswith("calls no tool instead of")
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
    assert done([], facts=USED, **declared) == expected


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
    assert str(raised(UserValueFault, done, [], **declared)) == fault


# -- promptfoo: its assertions, and for each the answers with the verdicts of promptfoo -----------------------

HERE = Path(__file__).parent
ASSERTIONS: list[dict[str, Any]] = json.loads((HERE / "promptfoo.json").read_text(encoding="utf-8"))
PROMPTFOO = os.environ.get("PROMPTFOO")
"""A folder in which npm installed promptfoo."""


def check_of(assertion: Mapping[str, Any]) -> Check:
    """Return the check that says the same as an assertion of promptfoo."""
    name, negate = assertion["type"].removeprefix("not-"), assertion["type"].startswith("not-")
    value = assertion.get("value")
    declared: dict[str, Any] = {"negate": negate}
    match name:
        case "equals" | "regex":
            declared |= {"kind": name, "value": value}
        case "starts-with":
            declared |= {"kind": "starts_with", "value": value}
        case "is-json":
            declared |= {"kind": "json"} | ({} if value is None else {"schema": value})
        case "levenshtein":
            declared |= {"kind": "edit_distance", "value": value, "max": assertion["threshold"]}
        case "is-refusal":
            declared |= {"kind": "refusal"}
        case "word-count":
            declared |= {"kind": "length", "unit": "words"}
            declared |= value if isinstance(value, dict) else {"min": value, "max": value}
        case _:  # contains, icontains-any, ...
            match = "any" if name.endswith("-any") else "all"
            declared |= {"kind": "contains", "value": value, "match": match, "ignore_case": name.startswith("i")}
    return Check.of(declared)


IDS = [f"{assertion['type']} {json.dumps(assertion.get('value'))[:40]}" for assertion in ASSERTIONS]


@pytest.mark.parametrize("assertion", ASSERTIONS, ids=IDS)
def test_the_verdicts_are_those_of_promptfoo(assertion: dict[str, Any]) -> None:
    check = check_of(assertion)

    for answer, verdict in assertion["answers"].items():
        rollout = SeenRollout([{"role": "assistant", "content": answer}], 0)
        assert (check(rollout)["score"] == 1.0) is verdict, answer


@pytest.mark.nightly
@pytest.mark.skipif(PROMPTFOO is None, reason="make test-promptfoo installs promptfoo")
def test_promptfoo_itself_still_decides_so() -> None:
    assert PROMPTFOO is not None
    script = shutil.copy(HERE / "promptfoo.mjs", PROMPTFOO)
    asked = [
        {**{key: value for key, value in assertion.items() if key != "answers"}, "output": answer}
        for assertion in ASSERTIONS
        for answer in assertion["answers"]
    ]
    environ = {**os.environ, "PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}

    how: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "env": environ, "timeout": 300}
    done = subprocess.run(["node", script], input=json.dumps(asked), **how)

    verdicts = json.loads(done.stdout.splitlines()[-1])
    assert verdicts == [verdict for assertion in ASSERTIONS for verdict in assertion["answers"].values()]
