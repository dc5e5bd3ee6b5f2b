"""Conversations laid out to be read; sides of comparisons, and the rollouts that a list counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.viewer.compared_runs import RunDifference, Side, compared_with_first, run_differences
from pytest_osmosis.addons.viewer.message_layout import Shortener, message_lines
from pytest_osmosis.addons.viewer.run_entry import RolloutCounter
from pytest_osmosis.errors import JournalError, OsmosisError
from pytest_osmosis.record.journal import encode
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.text.safe import width
from tests.golden import Golden
from tests.unit.made import CONFIG, A, B, finished, published, results_of

LONG = {"city": "Paris", "days": [1, 2], "notes": "mild, " * 12, "language": "français"}
PARTS = [
    {"type": "text", "text": "Look: "},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"filename": "report.pdf"}},
    {"type": "hologram"},
    "and ",
    {"type": "text", "text": "this."},
]


def call(id: str | None, name: str = "weather", arguments: object = '{"city": "Paris"}') -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asking(*calls: object, content: str | None = None) -> dict[str, object]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: str, content: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": content}


@pytest.mark.parametrize(
    "messages",
    [
        [result("a", "sun")],
        [asking(call("a")), {"role": "user", "content": "Well?"}, result("a", "sun")],
        [asking(call("b")), result("a", "sun")],
        [asking(call(None)), result("a", "sun")],
    ],
    ids=["no call", "somebody spoke between", "another call", "a call without an id"],
)
def test_a_result_without_its_call_keeps_its_place_and_its_id(messages: Sequence[object]) -> None:
    assert list(message_lines(messages, Shortener()))[-2:] == ["tool (a):", "    sun"]


def test_a_conversation_is_laid_out_to_be_read(golden: Golden) -> None:
    conversations: dict[str, Sequence[object]] = {
        "results in another order than their calls": [
            *(asking(call("a"), call("b", "time", "{}"), content="Both."), result("b", "noon"), result("a", "sun")),
        ],
        "two calls with one id": [asking(call("a")), result("a", "sun"), asking(call("a")), result("a", "rain")],
        "long arguments and results": [asking(call("a", "plan", json.dumps(LONG))), result("a", json.dumps(LONG))],
        "arguments that are no JSON text": [
            asking(call("a", "f", {"x": 1}), call("b", "g", "{not json"), call("c", "h", None)),
        ],
        "a call and a result of the Responses API": [
            {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "sun"},
        ],
        "reasoning and a refusal": [
            {"role": "assistant", "reasoning_content": "Hm.\nYes.", "content": "No.", "refusal": "I will not"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        ],
        "members that have no place": [
            {"role": "assistant", "content": "x", "annotations": [{"url": "y"}], "logprobs": None, "name": "bob"},
        ],
        "parts that are no text": [{"role": "user", "content": PARTS}],
        "blocks of Anthropic": [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm."},
                    {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sun"}]},
                ],
            },
        ],
    }
    shown = {name: list(message_lines(messages, Shortener())) for name, messages in conversations.items()}

    golden(shown)
    assert max(width(line) for lines in shown.values() for line in lines) < 100


@pytest.mark.parametrize(
    "message",
    [
        "text", None, 7, ["x"], {}, {"role": None, "content": 3},
        {"role": "assistant", "tool_calls": [None, {"function": None}, {"function": {"name": None}}, 3]},
        {"role": "assistant", "tool_calls": {"a": 1}, "function_call": {"name": "f", "arguments": 3}},
        {"role": "assistant", "content": [None, 3, [], {"type": ["x"]}, {"text": 3}, {"type": "image", "image": 3}]},
        {"role": "tool", "tool_call_id": ["x"], "content": {"a": [1]}},
        {"role": "assistant", "audio": {"transcript": 3}, "reasoning": {"x": 1}, "refusal": ["no"]},
    ],
)  # fmt: skip
def test_anything_can_be_a_message(message: object) -> None:
    lines = list(message_lines([message, message], Shortener()))
    assert lines
    assert all("\n" not in line for line in lines)


def test_only_long_texts_lose_their_middle_and_are_counted() -> None:
    cut = Shortener(200)
    text = "\n".join(message_lines([{"role": "user", "content": "a" * 150 + "b" * 150}], cut))
    assert "140 characters left out" in text
    assert text.count("a") < 150
    assert cut.n_cut == 1
    assert not any("left out" in line for line in message_lines([{"role": "user", "content": "a" * 200}], cut))
    assert cut.n_cut == 1


def test_results_files_of_one_eval_are_told_apart_by_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries = {}
    for name, scores in (("a.json", [1.0, 0.0] * 10), ("b.json", [1.0] * 20)):
        records = [finished({A: score}, row) for row, score in enumerate(scores)]
        entries[name] = results_of(records)
        (tmp_path / name).write_text(json.dumps(published(records)))

    found = compared_with_first(tmp_path, ["a.json", "b.json"])

    assert [results.description.name for results in found] == ["x (a.json)", "x (b.json)"]
    assert found[1].among is not None
    _, second = entry_table("x.toml", entries).entries
    assert found[1].among.entries[1].difference == second.difference
    with pytest.raises(OsmosisError, match=r"^a\.json: is named twice"):
        compared_with_first(tmp_path, ["a.json", "b.json", "a.json"])


def side(letter: str, thresholds: Mapping[str, float] | None = None, **extra: Any) -> Side:
    """A results file whose run is gone."""
    scorers = (A,) if thresholds is None else tuple(thresholds)
    results = results_of([finished({A: 1.0})], scorers=scorers, thresholds=thresholds, extra={**CONFIG, **extra})
    return Side(letter, "x-1", Path("x.json"), "finished", results, True, None)


def test_differences_of_the_question_come_first_and_equal_settings_have_none() -> None:
    assert run_differences(side("A"), side("B", overridden=["batch_size = 8 (--osmosis-batch-size)"])) == []

    a = side("A", thresholds={A: 1.0, B: 0.5})
    b = side("B", thresholds={A: 0.5}, judge={"model": "j"}, sampling={**CONFIG["sampling"], "seed": 1}, batch_size=4)

    assert run_differences(a, b) == [
        RunDifference("[sampling] seed", "question", None, "1"),
        RunDifference("functions", "scoring", '["rewards:a", "rewards:b"]', '["rewards:a"]'),
        RunDifference("thresholds", "scoring", '{"rewards:a": 1.0}', '{"rewards:a": 0.5}'),
        RunDifference("[judge] model", "scoring", None, "j"),
        RunDifference("batch_size", "throughput", "8", "4"),
    ]


def test_a_rollout_counts_once_its_line_in_the_journal_is_whole(tmp_path: Path) -> None:
    journal, counter = tmp_path / "journal.jsonl", RolloutCounter()
    one, two = (encode({"ev": "rollout", "row": row, "run": 0, "attempt": 1}) for row in range(2))
    counts = []
    for content in (one, one + two[:-1], one + two, one + two + one):
        journal.write_bytes(content)
        counts.append(counter.count(journal))

    assert counts == [1, 1, 2, 2]
    journal.write_bytes(one + two + one + two.replace(b'"row":1', b'"row":2'))
    with pytest.raises(JournalError, match=r"journal\.jsonl:4: "):
        counter.count(journal)
