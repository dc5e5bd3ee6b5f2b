"""Chat messages in the shape of OpenAI's chat completions: their text, and the answer in a conversation.

A conversation is what an agent returned: most often its prompt and what followed. Only the messages that follow are of
the rollout, and only those can hold its answer.

A quoted block is a text of somebody else in a prompt, between two markers that it cannot contain: they hold a hash of
everything that is quoted, so a text that tried to close its block would have to contain a hash of itself.

A row of a dataset may hold a conversation, which an agent returns, and the metadata and label of Osmosis 0.3. Source of
the latter: osmosis_ai.eval.local.dataset, SDK 0.3.7.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

AnswerFault = Literal["no message", "only calls", "no text"]
"""The faults of a conversation without an answer."""
REFUSED = "the model refused: "
FILTERED = "a content filter stopped the answer"
"""Beginnings of the errors of rollouts in which the model, or a filter in front of it, would not answer."""


def as_chat_messages(messages: Sequence[object]) -> list[object]:
    """Return the messages, those of frameworks as chat messages, and all others as they are. Records keep the first.

    Known are the items of OpenAI's Responses API, which the OpenAI Agents SDK keeps, and the blocks of Amazon Bedrock's
    Converse API, which Strands keeps.

    >>> as_chat_messages([{"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"}])
    [{'role': 'assistant', 'tool_calls': [{'id': '1', 'function': {'name': 'add', 'arguments': '{}'}}]}]
    >>> as_chat_messages([{"type": "function_call_output", "call_id": "1", "output": "3"}])
    [{'role': 'tool', 'tool_call_id': '1', 'content': '3'}]
    """
    return [shown for message in messages for shown in _shown(message)]


def uses_tools(message: Mapping[str, Any]) -> bool:
    """Return True if an assistant message calls tools, in the shape of any API.

    >>> uses_tools({"tool_calls": [{}]}), uses_tools({"content": [{"toolUse": {"name": "add"}}]}), uses_tools({})
    (True, True, False)
    """
    blocks = any(_member(each, "toolUse") is not None or each.get("type") == "tool_use" for each in _blocks(message))
    return bool(message.get("tool_calls") or message.get("function_call")) or blocks


def _shown(message: object) -> Iterator[object]:
    if not isinstance(message, Mapping):
        yield message
    elif message.get("type") == "function_call":
        yield _calling([(message.get("call_id"), message.get("name"), message.get("arguments"))])
    elif message.get("type") == "function_call_output":
        yield {"role": "tool", "tool_call_id": message.get("call_id"), "content": message.get("output")}
    elif any(_member(block, name) is not None for block in _blocks(message) for name in ("toolUse", "toolResult")):
        yield from _unblocked(message)
    else:
        yield message


def _unblocked(message: Mapping[str, Any]) -> Iterator[object]:
    """Yield the messages of a message with blocks: results of tools, then the rest with its calls."""
    rest, calls = [], []
    for block in message["content"]:
        use, result = _member(block, "toolUse"), _member(block, "toolResult")
        if result is not None:
            yield {"role": "tool", "tool_call_id": result.get("toolUseId"), "content": result.get("content")}
        elif use is not None:
            calls.append((use.get("toolUseId"), use.get("name"), use.get("input")))
        else:
            rest.append(block)
    if calls:
        yield {**message, "content": rest or None, **_calling(calls)}
    elif rest:
        yield {**message, "content": rest}


def _calling(calls: Sequence[tuple[object, object, object]]) -> dict[str, Any]:
    made = [{"id": call, "function": {"name": name, "arguments": arguments}} for call, name, arguments in calls]
    return {"role": "assistant", "tool_calls": made}


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _member(block: object, name: str) -> Mapping[str, Any] | None:
    value = block.get(name) if isinstance(block, Mapping) else None
    return value if isinstance(value, Mapping) else None


def text_of(content: object) -> str:
    """Return the text in a message's content: a string, or the joined text parts of a list, or else "".

    >>> text_of([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}])
    '42'
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def answer_of(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the text of the last assistant message that is more than tool calls, None if there is no such message.

    A message with neither text nor tool calls is an empty answer, as of a model that stopped while it was reasoning.

    >>> call = {"role": "assistant", "content": None, "tool_calls": [{}]}
    >>> answer_of([{"role": "assistant", "content": "42"}, call])
    '42'
    >>> answer_of([{"role": "assistant", "content": "42"}, {"role": "assistant", "content": None}])
    ''
    >>> answer_of([{"role": "assistant", "content": "42"}, {"role": "assistant", "content": [{"toolUse": {}}]}])
    '42'
    """
    for message in reversed(messages):
        if message.get("role") == "assistant":
            text = text_of(message.get("content"))
            if text.strip() or not uses_tools(message):
                return text
    return None


def answer_fault(messages: Sequence[Mapping[str, Any]]) -> AnswerFault | None:
    """Return what the messages of a rollout have instead of an answer with text, None if they have one."""
    answer = answer_of(messages)
    if answer is not None:
        return None if answer.strip() else "no text"
    return "only calls" if any(message.get("role") == "assistant" for message in messages) else "no message"


def refusal_of(message: Mapping[str, Any]) -> str | None:
    """Return the text with which a model refused to answer, None if it did not refuse.

    >>> refusal_of({"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]})
    'I will not'
    """
    for text in [message.get("refusal"), *[part.get("refusal") for part in _blocks(message)]]:
        if isinstance(text, str) and text:
            return text
    return None


def prompt_length(prompt: Sequence[Mapping[str, Any]], conversation: Sequence[Mapping[str, Any]]) -> int:
    """Return how many messages of a conversation, from the first, come from its prompt.

    An agent may have changed, added and left out messages: the rollout begins after the last message that it took over.
    A message that the prompt holds twice is taken over twice, unless the conversation has fewer of it.

    >>> question, answer = {"role": "user", "content": "6 * 7"}, {"role": "assistant", "content": "42"}
    >>> prompt_length([question], [{"role": "system", "content": "Think."}, question, answer])
    2
    >>> prompt_length([question, answer], [question, answer])
    2
    """
    for n_equal, (one, other) in enumerate(zip(prompt, conversation, strict=False)):
        if one != other and _identity(one) != _identity(other):
            return max(n_equal, _end_of_prompt([*map(_identity, prompt)], [*map(_identity, conversation)]))
    return min(len(prompt), len(conversation))


def _end_of_prompt(prompt: Sequence[str], conversation: Sequence[str]) -> int:
    """Return the position after the last message of the prompt that the conversation holds, 0 if it holds none."""
    ends: dict[str, list[int]] = {}
    for end, message in enumerate(conversation, start=1):
        ends.setdefault(message, []).append(end)
    last = next((index for index in reversed(range(len(prompt))) if prompt[index] in ends), None)
    if last is None:
        return 0
    found, times = ends[prompt[last]], prompt[: last + 1].count(prompt[last])
    return found[min(times, len(found)) - 1]


def _identity(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or None
    return json.dumps([message.get("role"), text_of(message.get("content")), calls], default=str)


ID_BYTES = 6
ANSWER, CONVERSATION = "CANDIDATE_OUTPUT", "CANDIDATE_CONVERSATION"
"""The labels of what a judge judges: one text, or the messages of a rollout."""
INPUT, TRUTH, METADATA = "ORIGINAL_INPUT", "GROUND_TRUTH", "METADATA"
"""The labels of what else a judge sees."""
_BLOCK = re.compile(r"^<<<BEGIN ([A-Z_]+) ([0-9a-f]{12})>>>\n(.*?)\n?^<<<END \1 \2>>>$", re.DOTALL | re.MULTILINE)


def marker_id(texts: Iterable[str]) -> str:
    """Return the id of the markers around `texts`, which none of them can contain."""
    return blake2b(json.dumps([0, *texts]).encode(), digest_size=ID_BYTES).hexdigest()


def quoted(label: str, text: str, marker: str) -> str:
    """Return a text as a block. `label` has capital letters and underscores.

    >>> print(quoted("ANSWER", "42", "0123456789ab"))
    <<<BEGIN ANSWER 0123456789ab>>>
    42
    <<<END ANSWER 0123456789ab>>>
    """
    return f"<<<BEGIN {label} {marker}>>>\n{text}\n<<<END {label} {marker}>>>"


def blocks_in(prompt: str) -> Mapping[str, str]:
    """Return the quoted texts of a prompt by their labels.

    >>> blocks_in("Judge this:\\n" + quoted("ANSWER", "42", "0123456789ab"))
    {'ANSWER': '42'}
    """
    return {label: text for label, _, text in _BLOCK.findall(prompt)}


# -- conversations, metadata and labels in rows -------------------------------------------------------------

RECORDED = "recorded"
"""The built-in agent that returns the conversation of its row."""
SCRIPTED = "demo/script"
"""The embedded model that answers from a column of the dataset."""
SOLUTION = "solution_str"
"""The column with an answer: the one to score, or the reference solution of a row that is rolled out."""
METADATA_COLUMN = "metadata"
"""The column with an object that may stand in place of a prompt."""


def recorded_conversation(prompt: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> list[Any]:
    """Return the conversation in a row: its `messages`, or else its prompt and the answer in `solution_str`.

    >>> recorded_conversation([{"role": "user", "content": "6 * 7"}], {"solution_str": "42"})
    [{'role': 'user', 'content': '6 * 7'}, {'role': 'assistant', 'content': '42'}]
    """
    return list(record.get("messages") or [*prompt, {"role": "assistant", "content": record[SOLUTION]}])


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages before the first one of the assistant.

    >>> prompt_of([{"role": "user"}, {"role": "assistant"}, {"role": "user"}, {"role": "assistant"}])
    [{'role': 'user'}]
    """
    first = next((index for index, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    return list(messages[:first])


def metadata_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object in a row's column `metadata`, which may be JSON text; None if there is none, or an empty one.

    >>> metadata_of({"metadata": {"level": 1}}), metadata_of({"metadata": '{"level": 1}'})
    ({'level': 1}, {'level': 1})
    >>> metadata_of({"metadata": {}}), metadata_of({"metadata": "easy"}), metadata_of({})
    (None, None, None)
    """
    value = record.get(METADATA_COLUMN)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return dict(value) or None if isinstance(value, Mapping) else None


def label_of(record: Mapping[str, Any]) -> str | None:
    """Return the ground truth of a row as text, None if it has none, or an empty one.

    >>> label_of({"ground_truth": 42}), label_of({"ground_truth": "", "label": "b"}), label_of({"ground_truth": None})
    ('42', 'b', None)
    """
    for column in ("ground_truth", "label"):
        value = record.get(column)
        text = None if value is None else value if isinstance(value, str) else str(value)
        if text:
            return text
    return None
