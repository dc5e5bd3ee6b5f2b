"""The embedded model: what it reads, what it answers, which tools it calls, and when it is wrong."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatRequest, Message
from pytest_osmosis.models.embedded import (
    DIVISION_BY_ZERO,
    MAX_OPERATIONS,
    NOTHING_TO_SOLVE,
    ArithmeticModel,
    answer,
    format_number,
    reply_to,
)


def user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def solution(text: str) -> str:
    """The number after the last line's ####."""
    return answer(user(text)).content.rpartition("#### ")[2]


def tool(name: str, description: str = "", **types: str) -> dict[str, Any]:
    properties = {parameter: {"type": kind} for parameter, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


MULTIPLY = tool("multiply", a="number", b="number")
ADD = tool("add", x="number", y="number")
CALCULATOR = tool("calculator", "Evaluate arithmetic", expression="string")


def converse(
    text: str, tools: list[dict[str, Any]], results: list[str], *, accuracy: float = 1.0, key: str = ""
) -> tuple[list[tuple[str, dict[str, Any]]], str]:
    """The calls that the model makes when it is given these results in turn, and its final text."""
    messages, calls = user(text), []
    for result in [*results, None]:
        reply = answer(messages, tools, accuracy=accuracy, key=key)
        if not reply.tool_calls:
            break
        assert result is not None, f"one more call than expected: {reply.tool_calls}"
        [call] = reply.tool_calls
        calls.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
        messages = [
            *messages,
            reply.message,
            {"role": "tool", "tool_call_id": call["id"], "content": result},
        ]
    return calls, reply.content


# -- what it reads ----------------------------------------------------------------------------------------


def test_the_answer_ends_with_the_number_after_four_hashes() -> None:
    assert answer(user("What is 17 * 23?")).content == "17 * 23 = 391\n#### 391"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("17 x 23", "391"),
        ("17x23", "391"),
        ("17 \N{MULTIPLICATION SIGN} 23 = ?", "391"),
        ("17 times 23", "391"),
        ("What is 17 Multiplied By 23?", "391"),
        ("84 ÷ 7", "12"),
        ("84 divided by 7", "12"),
        ("9 minus 12", "-3"),
        ("9 \N{MINUS SIGN} 12", "-3"),
        ("9-12", "-3"),
        ("two: 2 plus 2.", "4"),
        ("minus 5 plus 3", "-2"),
        ("-5 + 3", "-2"),
        ("3 - -4", "7"),
        ("2 * -(1 + 1)", "-4"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("8 - 3 - 2", "3"),
        ("8 / 2 / 2", "2"),
        ("1,234,567 + 1", "1234568"),
        ("0.1 + 0.2", "0.3"),
        (".5 * 4", "2"),
        ("10 / 3", "3.333333333333333"),
        ("1 / 8", "0.125"),
        ("12345678901234567890 * 98765432109876543210", "1219326311370217952237463801111263526900"),
        ("0.000000000000000000001 + 1", "1.000000000000000000001"),
    ],
)
def test_an_expression_is_solved(text: str, number: str) -> None:
    assert solution(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Tom is 12. He has 3 bags, 17 * 23 marbles in all. How many?", "391"),
        ("We know 2 + 2 = 4. What is 3 * 3?", "9"),
        ("- 17 * 23", "391"),
        ("Question - 5 + 3", "8"),
        ("**17 * 23**", "391"),
        ("-" * 80 + "\n17 * 23\n" + "-" * 80, "391"),
        ("What is 20% of it? No: 17 * 23", "391"),
        ("1) 17 * 23", "391"),
    ],
)
def test_prose_around_the_expression_is_not_part_of_it(text: str, number: str) -> None:
    assert solution(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "Hello!",
        "",
        "What is 5?",
        "solve for x (no numbers)",
        "2 ** 3 + 1",
        "(2 ^ 3) + 1 * 5",
        "7 // 2",
        "7 % 2",
        "(" * 60 + "1 + 1" + ")" * 60,
        "+".join(["1"] * (MAX_OPERATIONS + 2)),
        "9" * 5000 + " * 2",
    ],
)
def test_an_unsolvable_question_gets_a_polite_answer_without_a_number(text: str) -> None:
    reply = answer(user(text), [MULTIPLY, CALCULATOR])
    assert reply.content == NOTHING_TO_SOLVE
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("text", ["1 / 0", "5 / (3 - 3)"])
def test_a_division_by_zero_gets_a_polite_answer_and_no_call(text: str) -> None:
    assert answer(user(text), [CALCULATOR]).content == DIVISION_BY_ZERO


def test_the_longest_expression_that_is_allowed_is_solved() -> None:
    assert solution("+".join(["1"] * (MAX_OPERATIONS + 1))) == str(MAX_OPERATIONS + 1)


def test_the_last_user_message_is_the_question() -> None:
    messages = [*user("1 + 1"), {"role": "assistant", "content": "2 + 2"}, *user("3 + 3")]
    assert answer(messages).content == "3 + 3 = 6\n#### 6"


def test_text_parts_are_read_like_a_string() -> None:
    parts = [{"type": "text", "text": "17 *"}, {"type": "text", "text": " 23"}]
    assert answer([{"role": "user", "content": parts}]).content == "17 * 23 = 391\n#### 391"


def test_a_conversation_without_a_user_gets_a_polite_answer() -> None:
    assert answer([{"role": "system", "content": "17 * 23"}]).content == NOTHING_TO_SOLVE


Solved = tuple[str, Fraction]


def _joined(operator: str, left: Solved, right: Solved) -> Solved:
    assume(operator != "/" or right[1] != 0)
    value = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }[operator](left[1], right[1])
    return f"({left[0]} {operator} {right[0]})", value


LITERALS: st.SearchStrategy[Solved] = st.decimals(
    min_value=-999, max_value=999, places=2, allow_nan=False, allow_infinity=False
).map(lambda number: (str(number), Fraction(number)))
EXPRESSIONS: st.SearchStrategy[Solved] = st.recursive(
    LITERALS, lambda inner: st.builds(_joined, st.sampled_from("+-*/"), inner, inner), max_leaves=8
)


@given(EXPRESSIONS)
def test_any_nested_expression_has_its_exact_value(expression: Solved) -> None:
    text, value = expression
    assume(text.startswith("("))
    assert solution(f"What is {text}?") == format_number(value)


@given(EXPRESSIONS)
def test_the_expression_is_repeated_with_the_same_meaning(expression: Solved) -> None:
    text, value = expression
    assume(text.startswith("("))
    repeated = answer(user(text)).content.partition(" = ")[0]
    assert solution(repeated) == format_number(value)


@given(st.text())
def test_any_text_gets_an_answer(text: str) -> None:
    assert answer(user(text), [MULTIPLY]).message["role"] == "assistant"


# -- right or wrong ---------------------------------------------------------------------------------------


def _is_right(accuracy: float, key: str, prefix: list[Message] | None = None) -> bool:
    return answer([*(prefix or []), *user("17 * 23")], accuracy=accuracy, key=key).content.endswith("#### 391")


def test_the_share_of_right_answers_is_the_accuracy() -> None:
    right = sum(_is_right(0.8, str(key)) for key in range(2000))
    assert 0.77 < right / 2000 < 0.83


@pytest.mark.parametrize(("accuracy", "expected"), [(0.0, 0), (1.0, 200)])
def test_accuracy_0_and_1_are_never_and_always_right(accuracy: float, expected: int) -> None:
    assert sum(_is_right(accuracy, str(key)) for key in range(200)) == expected


def test_a_wrong_answer_is_off_by_one_to_nine() -> None:
    offsets = {int(answer(user("17 * 23"), accuracy=0, key=str(key)).content.split()[-1]) - 391 for key in range(500)}
    assert offsets == {*range(-9, 0), *range(1, 10)}


def test_the_same_request_gets_the_same_reply() -> None:
    first, again = (answer(user("17 * 23"), accuracy=0.5, key="7") for _ in range(2))
    assert first == again


def test_the_decision_is_the_same_in_every_process() -> None:
    rights = "".join(str(int(_is_right(0.5, str(key)))) for key in range(16))
    assert rights == "1010110000001100"


def test_earlier_messages_change_the_decision() -> None:
    plain = [_is_right(0.5, str(key)) for key in range(50)]
    prefixed = [_is_right(0.5, str(key), [{"role": "system", "content": "Be brief."}]) for key in range(50)]
    assert plain != prefixed


def test_all_turns_of_a_tool_calling_conversation_agree() -> None:
    for key in map(str, range(30)):
        _, final = converse("17 * 23", [MULTIPLY], ["391"], accuracy=0.5, key=key)
        assert final == answer(user("17 * 23"), accuracy=0.5, key=key).content


def test_the_seed_decides_before_the_run() -> None:
    sampling = {"accuracy": 0.5}

    def contents(seed: int | None) -> set[str]:
        requests = [ChatRequest(user("17 * 23"), (), sampling, seed, run=f"row0-run{run}") for run in range(30)]
        return {reply_to(request).content for request in requests}

    assert len(contents(3)) == 1
    assert len(contents(None)) > 1


# -- tools ------------------------------------------------------------------------------------------------


def test_a_tool_that_fits_is_called_in_the_shape_of_openai() -> None:
    reply = answer(user("What is 17 * 23?"), [MULTIPLY])
    [call] = reply.message["tool_calls"]
    assert reply.finish_reason == "tool_calls"
    assert reply.message["content"] is None
    assert call["type"] == "function"
    assert call["function"] == {"name": "multiply", "arguments": '{"a": 17, "b": 23}'}


def test_the_result_of_the_tool_is_the_answer() -> None:
    calls, final = converse("What is 17 * 23?", [MULTIPLY], ["391"])
    assert calls == [("multiply", {"a": 17, "b": 23})]
    assert final == "17 * 23 = 391\n#### 391"


@pytest.mark.parametrize(
    "result", ["400", "400.0", '{"result": 400}', "17 * 23 = 400.", "4e2", "It is 1,400 - 1,000, so 400"]
)
def test_the_tools_result_is_used_as_it_is(result: str) -> None:
    _, final = converse("17 * 23", [MULTIPLY], [result])
    assert final.endswith("#### 400")


@pytest.mark.parametrize("result", ["error: a must be below 10", "nan", "", "1e999", "1e99", "9" * 80])
def test_without_a_usable_result_it_works_out_its_own(result: str) -> None:
    _, final = converse("17 * 23", [MULTIPLY], [result])
    assert final.endswith("#### 391")


def test_a_nested_expression_takes_one_call_for_each_operation_innermost_first() -> None:
    calls, final = converse("2 * (3 + 4) * 5", [ADD, MULTIPLY], ["7", "14", "70"])
    assert calls == [
        ("add", {"x": 3, "y": 4}),
        ("multiply", {"a": 2, "b": 7}),
        ("multiply", {"a": 14, "b": 5}),
    ]
    assert final == "2 * (3 + 4) * 5 = 70\n#### 70"


def test_the_calls_of_one_answer_have_different_ids_that_are_always_the_same() -> None:
    def ids() -> list[str]:
        first = answer(user("2 * 3 * 4"), [MULTIPLY])
        result = {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": "6"}
        second = answer([*user("2 * 3 * 4"), first.message, result], [MULTIPLY])
        return [first.tool_calls[0]["id"], second.tool_calls[0]["id"]]

    assert ids() == ids()
    assert len(set(ids())) == 2


def test_an_operation_without_a_tool_is_done_without_one() -> None:
    calls, final = converse("2 * (3 + 4)", [MULTIPLY], ["14"])
    assert calls == [("multiply", {"a": 2, "b": 7})]
    assert final.endswith("#### 14")


def test_a_tool_for_expressions_gets_the_whole_expression_at_once() -> None:
    calls, final = converse("What is 2 x (3 plus 4)?", [MULTIPLY, CALCULATOR], ["14"])
    assert calls == [("calculator", {"expression": "2 * (3 + 4)"})]
    assert final.endswith("#### 14")


def test_decimals_are_sent_as_numbers_with_a_point() -> None:
    calls, _ = converse("1.5 * -4", [MULTIPLY], ["-6"])
    assert calls == [("multiply", {"a": 1.5, "b": -4})]


def test_results_before_the_last_question_do_not_count() -> None:
    before = [
        *user("1 * 1"),
        answer(user("1 * 1"), [MULTIPLY]).message,
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "assistant", "content": "1"},
    ]
    assert answer([*before, *user("17 * 23")], [MULTIPLY]).finish_reason == "tool_calls"


def test_an_observation_of_the_user_is_the_result_of_a_tool() -> None:
    asked = [*user("What is 17 * 23?"), {"role": "assistant", "content": "Calling tools: multiply"}]
    reply = answer([*asked, *user("Observation:\n400")], [MULTIPLY])
    assert (reply.tool_calls, reply.content.splitlines()[-1]) == ([], "#### 400")


def test_no_tool_is_called_if_the_choice_is_none() -> None:
    reply = reply_to(ChatRequest(user("17 * 23"), [MULTIPLY], {"tool_choice": "none"}))
    assert reply.tool_calls == []


@pytest.mark.parametrize(
    ("answering", "call"),
    [
        (tool("final_answer", answer="string"), ("final_answer", "answer")),
        (tool("done", response="string"), ("done", "response")),
        (tool("final_answer", answer="number"), None),
        (tool("final_answer", answer="string", reason="string"), None),
        (tool("search", query="string"), None),
    ],
)
def test_a_call_that_is_required_brings_the_answer(answering: dict[str, Any], call: tuple[str, str] | None) -> None:
    tools, sampling = [MULTIPLY, answering], {"tool_choice": "required"}
    first = reply_to(ChatRequest(user("17 * 23"), tools, sampling))
    assert first.tool_calls[0]["function"]["name"] == "multiply"
    told = [*user("17 * 23"), first.message, {"role": "tool", "content": "391"}]
    last = reply_to(ChatRequest(told, tools, sampling))
    functions = [each["function"] for each in last.tool_calls]
    found = [(each["name"], json.loads(each["arguments"])) for each in functions]
    assert found == ([] if call is None else [(call[0], {call[1]: "17 * 23 = 391\n#### 391"})])
    assert reply_to(ChatRequest(told, tools)).tool_calls == []


@pytest.mark.parametrize(
    ("offered", "text", "called"),
    [
        (tool("multiplyNumbers", a="integer", b="integer"), "2 * 3", True),
        (tool("math_op", "Returns the product of two numbers.", a="number", b="number"), "2 * 3", True),
        (tool("subtract", a="number", b="number"), "2 - 3", True),
        (tool("div", a="number", b="number"), "2 / 3", True),
        (tool("solve", formula="string"), "2 * 3", True),
        (tool("multiply", a="number", b="number"), "2 + 3", False),
        (tool("multiply", a="string", b="string"), "2 * 3", False),
        (tool("multiply", a="number"), "2 * 3", False),
        (tool("address_book", a="number", b="number"), "2 + 3", False),
        (tool("calc", "Adds or multiplies: add, multiply", a="number", b="number"), "2 + 3", False),
        (tool("get_weather", "The weather of a city", city="string"), "2 * 3", False),
        ({"type": "function"}, "2 * 3", False),
        ({"function": {"name": "multiply", "parameters": {"properties": [1]}}}, "2 * 3", False),
    ],
)
def test_a_tool_is_called_only_if_it_fits(offered: dict[str, Any], text: str, called: bool) -> None:
    assert (answer(user(text), [offered]).finish_reason == "tool_calls") is called


# -- requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accuracy", [1.5, -0.1, "0.8", True, None, float("nan"), [1]])
def test_an_invalid_accuracy_is_the_models_error(accuracy: object) -> None:
    with pytest.raises(ModelError, match="accuracy must be a number from 0 to 1, got") as caught:
        reply_to(ChatRequest(user("1 + 1"), sampling={"accuracy": accuracy}))
    assert (caught.value.boundary, caught.value.status, caught.value.retryable) == ("model", 400, False)


@pytest.mark.parametrize("max_tokens", [0, -1, 1.5, "3", True])
def test_invalid_max_tokens_are_the_models_error(max_tokens: object) -> None:
    with pytest.raises(ModelError, match="max_tokens must be an integer of at least 1"):
        reply_to(ChatRequest(user("1 + 1"), sampling={"max_tokens": max_tokens}))


@pytest.mark.parametrize("messages", [[], [{"content": "1 + 1"}], ["1 + 1"]])
def test_messages_of_the_wrong_shape_are_the_models_error(messages: Any) -> None:
    with pytest.raises(ModelError, match="messages must be a list of at least one object"):
        reply_to(ChatRequest(messages))


def test_tools_of_the_wrong_shape_are_the_models_error() -> None:
    tools: Any = ["multiply"]
    with pytest.raises(ModelError, match="tools must be a list of objects"):
        reply_to(ChatRequest(user("1 + 1"), tools))


def test_usage_counts_words() -> None:
    messages: list[Message] = [{"role": "system", "content": "Be  brief."}, *user("What is 17 * 23?")]
    usage = answer(messages).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (2 + 5, 7)


def test_usage_counts_the_words_of_a_tool_call() -> None:
    first = answer(user("17 * 23"), [MULTIPLY])
    second = answer([*user("17 * 23"), first.message], [])
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.output_tokens == 5  # multiply {"a": 17, "b": 23}
    assert second.usage.input_tokens == 3 + first.usage.output_tokens


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_longer_than_max_tokens_is_cut(name: str) -> None:
    reply = reply_to(ChatRequest(user("17 * 23"), sampling={name: 4}))
    assert reply.content == "17 * 23 ="
    assert reply.finish_reason == "length"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 4


def test_an_answer_of_max_tokens_is_whole() -> None:
    reply = reply_to(ChatRequest(user("17 * 23"), sampling={"max_tokens": 7}))
    assert reply.content == "17 * 23 = 391\n#### 391"
    assert reply.finish_reason == "stop"


async def test_the_model_echoes_its_name() -> None:
    model = ArithmeticModel()
    reply = await model.chat(ChatRequest(user("17 * 23")))
    await model.close()
    assert reply.model == "demo/arithmetic"
