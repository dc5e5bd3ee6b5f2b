"""The embedded model: what it reads, what it answers, which tools it calls, and when it is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatRequest, Message, Usage
from pytest_osmosis.models.embedded import DIVISION_BY_ZERO, MAX_OPERATIONS, NOTHING_TO_SOLVE, answer, reply_to
from tests.raised import raised


def user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def tool(name: str, **types: str) -> dict[str, Any]:
    properties = {parameter: {"type": kind} for parameter, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


MULTIPLY = tool("multiply", a="number", b="number")
ADD = tool("add", x="number", y="number")


def converse(text: str, tools: Any, results: list[str], *, accuracy: float = 1.0, key: str = "") -> tuple[Any, str]:
    """The calls that the model makes when it is given these results in turn, and its final text."""
    messages, calls = user(text), []
    for result in [*results, None]:
        reply = answer(messages, tools, accuracy=accuracy, key=key)
        if not reply.tool_calls:
            break
        assert result is not None, f"one more call than expected: {reply.tool_calls}"
        [call] = reply.tool_calls
        calls.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
        messages = [*messages, reply.message, {"role": "tool", "tool_call_id": call["id"], "content": result}]
    return calls, reply.content


def test_the_last_expression_of_the_user_is_solved_and_without_one_the_answer_is_polite() -> None:
    solved = {
        "17x23": "391",
        "17 \N{MULTIPLICATION SIGN} 23 = ?": "391",
        "9 \N{MINUS SIGN} 12": "-3",
        "9-12": "-3",
        "-5 + 3": "-2",
        "84 \N{DIVISION SIGN} 7 / 2": "6",
        "3 - -4": "7",
        "2 + 3 * 4": "14",
        "1,234,567 + 1": "1234568",
        "0.1 + 0.2": "0.3",
        "10 / 3": "3.3333333333333335",
        "12345678901234567890 * 98765432109876543210": "1219326311370217952237463801111263526900",
        "+".join(["1"] * (MAX_OPERATIONS + 1)): str(MAX_OPERATIONS + 1),
        # prose around the expression is not part of it
        "Tom is 12. He has 3 bags, 17 * 23 marbles in all. How many?": "391",
        "We know 2 + 2 = 4. What is 3 * 3?": "9",
        "Question - 5 + 3": "8",
        "**17 * 23**": "391",
        "-" * 80 + "\n17 * 23\n" + "-" * 80: "391",
        "What is 20% of it? No: 17 * 23": "391",
    }
    unsolvable = [
        *("Hello!", "", "What is 5?", "2 ** 3 + 1", "7 // 2", "7 % 2"),
        *("2 * (3 + 4)", "(2 + 3) * 4", "2 * -(1 + 1)", "3 plus 4", "a1 * 2", "17 * 23rd"),
        "+".join(["1"] * (MAX_OPERATIONS + 2)),
        "9" * 5000 + " * 2",
    ]
    assert answer(user("What is 17 * 23?")).content == "17 * 23 = 391\n#### 391"
    assert {text: answer(user(text)).content.rpartition("#### ")[2] for text in solved} == solved
    assert {answer(user(text), [MULTIPLY]).content for text in unsolvable} == {NOTHING_TO_SOLVE}
    assert answer(user("5 / 0 - 3"), [MULTIPLY]).content == DIVISION_BY_ZERO
    assert answer([{"role": "system", "content": "17 * 23"}]).content == NOTHING_TO_SOLVE
    parts = [{"type": "text", "text": "17 *"}, {"type": "text", "text": " 23"}]
    messages = [*user("1 + 1"), {"role": "assistant", "content": "2 + 2"}, {"role": "user", "content": parts}]

    assert answer(messages).content == "17 * 23 = 391\n#### 391"


def is_right(accuracy: float, key: str) -> bool:
    return answer(user("17 * 23"), accuracy=accuracy, key=key).content.endswith("#### 391")


def test_answers_are_right_by_their_accuracy_in_every_process_and_else_off_by_one_to_nine() -> None:
    shares = [sum(is_right(accuracy, str(key)) for key in range(1000)) / 1000 for accuracy in (0.0, 0.8, 1.0)]

    assert shares == [0.0, pytest.approx(0.8, abs=0.04), 1.0]
    assert "".join(str(int(is_right(0.5, str(key)))) for key in range(16)) == "1010110000001100"
    offsets = {int(answer(user("17 * 23"), accuracy=0, key=str(key)).content.split()[-1]) - 391 for key in range(500)}

    assert offsets == {*range(-9, 0), *range(1, 10)}
    for key in map(str, range(30)):
        _, final = converse("17 * 23", [MULTIPLY], ["391"], accuracy=0.5, key=key)
        assert final == answer(user("17 * 23"), accuracy=0.5, key=key).content


def test_the_tools_result_after_the_question_is_the_answer_if_it_is_a_number() -> None:
    usable = ["400", "400.0", '{"result": 400}', "17 * 23 = 400.", "4e2", "It is 1,400 - 1,000, so 400"]
    unusable = ["error: a must be below 10", "nan", "", "1e999", "1e99", "9" * 80]

    said = {result: converse("17 * 23", [MULTIPLY], [result])[1] for result in (*usable, *unusable)}

    assert [result for result, final in said.items() if final.endswith("#### 400")] == usable
    assert [result for result, final in said.items() if final.endswith("#### 391")] == unusable
    asked = answer(user("1 * 1"), [MULTIPLY]).message
    before = [*user("1 * 1"), asked, {"role": "tool", "content": "1"}, {"role": "assistant", "content": "1"}]
    after = [{"role": "assistant", "content": "Calling tools: multiply"}, *user("Observation:\n400")]

    assert answer([*before, *user("17 * 23")], [MULTIPLY]).finish_reason == "tool_calls"
    assert answer([*user("17 * 23"), *after], [MULTIPLY]).content.endswith("#### 400")


def test_each_operation_that_has_a_tool_takes_one_call() -> None:
    calls, final = converse("2 + 7 * 3 * -1.5", [ADD, MULTIPLY], ["21", "-31.5", "-29.5"])

    assert calls == [("multiply", {"a": 7, "b": 3}), ("multiply", {"a": 21, "b": -1.5}), ("add", {"x": 2, "y": -31.5})]
    assert final == "2 + 7 * 3 * -1.5 = -29.5\n#### -29.5"
    assert converse("2 * 3 + 4", [MULTIPLY], ["6"])[0] == [("multiply", {"a": 2, "b": 3})]


def test_a_call_that_is_required_brings_the_answer_and_none_is_made_if_the_choice_is_none() -> None:
    assert reply_to(ChatRequest(user("17 * 23"), [MULTIPLY], {"tool_choice": "none"})).tool_calls == []
    found = []
    for offered in (tool("done", response="string"), tool("final_answer", answer="number")):
        tools, sampling = [MULTIPLY, offered], {"tool_choice": "required"}
        first = reply_to(ChatRequest(user("17 * 23"), tools, sampling))
        told = [*user("17 * 23"), first.message, {"role": "tool", "content": "391"}]
        assert reply_to(ChatRequest(told, tools)).tool_calls == []
        found.append([call["function"] for call in reply_to(ChatRequest(told, tools, sampling)).tool_calls])

    arguments = json.dumps({"response": "17 * 23 = 391\n#### 391"})
    assert found == [[{"name": "done", "arguments": arguments}], []]


def test_a_tool_is_called_only_if_it_fits() -> None:
    fitting = [(tool("multiplyNumbers", a="integer", b="integer"), "2 * 3")]
    others: list[tuple[dict[str, Any], str]] = [
        (tool("multiply", a="number", b="number"), "2 + 3"),
        (tool("multiply", a="string", b="string"), "2 * 3"),
        (tool("multiply", a="number"), "2 * 3"),
        (tool("address_book", a="number", b="number"), "2 + 3"),
        (tool("add_or_multiply", a="number", b="number"), "2 + 3"),
        (tool("get_weather", city="string"), "2 * 3"),
        ({"type": "function"}, "2 * 3"),
        ({"function": {"name": "multiply", "parameters": {"properties": [1]}}}, "2 * 3"),
    ]

    called = [each for each in (*fitting, *others) if answer(user(each[1]), [each[0]]).tool_calls]

    assert called == fitting


def test_a_request_of_the_wrong_shape_is_the_models_error() -> None:
    refused: list[tuple[str, dict[str, Any]]] = [
        *(("accuracy must be a number from 0 to 1", {"accuracy": value}) for value in (1.5, "0.8", True, float("nan"))),
        *(("max_tokens must be an integer of at least 1", {"max_tokens": value}) for value in (0, 1.5, True)),
    ]
    wrong: Any = ["multiply"]
    requests = [
        *((text, ChatRequest(user("1 + 1"), sampling=sampling)) for text, sampling in refused),
        ("messages must be a list of at least one object", ChatRequest([])),
        ("messages must be a list of at least one object", ChatRequest(wrong)),
        ("tools must be a list of objects", ChatRequest(user("1 + 1"), wrong)),
    ]
    for text, request in requests:
        error = raised(ModelError, reply_to, request)
        assert text in str(error)
        assert (error.boundary, error.status, error.retryable) == ("model", 400, False)


def test_usage_counts_words_and_an_answer_longer_than_max_tokens_is_cut() -> None:
    first = answer([{"role": "system", "content": "Be  brief."}, *user("What is 17 * 23?")], [MULTIPLY])
    second = answer([*user("17 * 23"), first.message])

    assert (first.usage, second.usage) == (Usage(2 + 5, 5), Usage(3 + 5, 7))  # multiply {"a": 17, "b": 23}
    cut = reply_to(ChatRequest(user("17 * 23"), sampling={"max_tokens": 4}))
    whole = reply_to(ChatRequest(user("17 * 23"), sampling={"max_completion_tokens": 7}))

    assert (cut.content, cut.finish_reason, cut.usage) == ("17 * 23 =", "length", Usage(3, 4))
    assert (whole.content, whole.finish_reason) == ("17 * 23 = 391\n#### 391", "stop")


scripted = partial(reply_to, scripted=True)


def said(script: object, *results: str, tools: list[dict[str, Any]] | None = None, **sampling: Any) -> list[object]:
    """The calls and texts of a script, one for each result of a tool and a last one."""
    messages, steps = user("?"), list[object]()
    for result in [*results, None]:
        reply = scripted(ChatRequest(messages, [ADD] if tools is None else tools, sampling, script=script))
        functions = [call["function"] for call in reply.tool_calls]
        steps += [(each["name"], json.loads(each["arguments"])) for each in functions] or [reply.content]
        messages = [*messages, reply.message, {"role": "tool", "content": result}]
    return steps


FIND: dict[str, Any] = {"tool": "find", "arguments": {"id": 7}}

FOUND = ("find", {"id": 7})
AS_OPENAI_HAS_IT = {"type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}
SCRIPTS: dict[str, tuple[object, Sequence[str], list[object]]] = {
    "step by step, and its last text again": ([FIND, "It is blue."], ["blue", "?"], [FOUND, *["It is blue."] * 2]),
    "the tool's result after a call that is the last step": (FIND, ["blue"], [FOUND, "blue"]),
    "several calls": ([FIND, {**FIND, "tool": "other"}], ["1", "2"], [FOUND, ("other", {"id": 7}), "2"]),
    "a call in a text": (json.dumps(FIND), [], [FOUND]),
    "a call by name": ({"name": "find", "arguments": {"id": 7}}, [], [FOUND]),
    "a call as OpenAI has it": (AS_OPENAI_HAS_IT, [], [FOUND]),
    "a boolean": (True, [], ["true"]),
    "another object": ({"name": "Z\u00fcrich"}, [], ['{"name": "Z\u00fcrich"}']),
    "other arguments": ({"name": "find", "arguments": "?"}, [], ['{"name": "find", "arguments": "?"}']),
    "a list in a text": ('["a", "b"]', [], ['["a", "b"]']),
    "the first of several texts": (["a", "b"], [], ["a"]),
    "half a list": ("[1", [], ["[1"]),
}


@pytest.mark.parametrize(("script", "results", "expected"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_is_said(script: object, results: Sequence[str], expected: list[object]) -> None:
    assert said(script, *results) == expected


def test_a_script_is_called_and_cut_as_the_request_asks_and_begins_anew_after_a_message_of_the_user() -> None:
    assert said([FIND, "blue"], tools=[]) == ["blue"]
    assert said(FIND, tool_choice="none") == [json.dumps(FIND)]
    finish = tool("final_answer", answer="string")
    assert said("one two", tools=[finish], tool_choice="required") == [("final_answer", {"answer": "one two"})]
    assert said("one two", max_tokens=1) == ["one"]
    messages = [*user("?"), {"role": "assistant", "content": "Paris"}, *user("Sure?")]
    assert scripted(ChatRequest(messages, script=["Paris", "Rome"])).content == "Paris"
    with pytest.raises(ModelError, match="demo/script: answers from the rows of an eval's dataset"):
        scripted(ChatRequest(user("?")))
