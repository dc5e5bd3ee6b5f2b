"""Invented conversations for `viewer_runs`, about 6 kB each as a journal holds them.

The same seed gives the same text. It can be compressed about as well as real conversations (to a third), because
identifiers that never repeat are among its words.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Message = dict[str, Any]
SYSTEM = (
    "You answer questions of customers and of engineers. Use the tools where they help, show your steps, and put the "
    "final answer alone on the last line, after four hashes."
)
TOPICS = ("orders", "code", "arithmetic", "translation", "summaries")
LEVELS = ("easy", "medium", "hard")
ITEMS = ("desk lamp", "USB-C cable", "notebook, 200 pages", "water filter", "wool blanket", "bicycle pump", "teapot")
CITIES = ("Graz", "Osaka", "Łódź", "São Paulo", "Reykjavík", "Chengdu", "Nairobi", "Montréal")
VOCABULARY = (
    "the order was packed on a Tuesday and left our warehouse before noon because one carrier scanned it twice while "
    "this parcel waited for some missing label until someone called that depot where no driver had noted which door "
    "code rain delayed another ferry so your invoice lists three positions but every discount applies only to first "
    "of them since shipping is free above forty euros although a refund takes five working days under warranty terms "
    "that cover battery damage within two years except cable wear as shown by records from an earlier exchange with "
    "serial number ending in seven whenever manual pages recommend slower charging at night or after long storage near "
    "heat sources we therefore suggest testing each adapter separately then comparing measured voltage against printed "
    "values if they differ more than ten percent please return both parts using prepaid form without tape however "
    "customers who already opened their box may keep spare screws unless stated otherwise during checkout weekend "
    "support answers questions about billing accounts password resets gift cards delivery windows customs documents "
    "insurance claims size tables colour choices repair appointments pickup stations bulk prices loyalty points and "
    "newsletter preferences usually quickly sometimes later rarely never always often perhaps clearly exactly roughly"
)
WORDS = tuple(VOCABULARY.split(" "))
CHINESE = (
    "客户询问包裹什么时候能够送达,因为他下周要出差。系统显示包裹已经离开仓库,正在等待清关。我们需要先核对运单号,"
    "再检查地址是否完整。如果海关要求补充发票,客服会在当天联系收件人。退款通常需要五个工作日,原路退回到付款账户。"
    "电池的保修期是两年,数据线不在保修范围之内。请注意,折扣只适用于第一件商品,其余商品按照原价计算。"
)


class Question(NamedTuple):
    """A row of the dataset, and how hard it is: the chance that an answer is wrong although the model is good."""

    row: Mapping[str, Any]
    hardness: float

    @property
    def answer(self) -> str:
        return str(self.row["ground_truth"])

    @property
    def topic(self) -> str:
        return str(self.row["topic"])


@dataclass(frozen=True, slots=True)
class Conversation:
    """The fields of a run's rollout event, without its identity, and those of its score events."""

    rollout: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]

    @property
    def ms(self) -> float:
        return float(self.rollout["ms"])


def questions(number: int) -> list[Question]:
    """Return this number of rows, equal in every call."""
    return [_question(row) for row in range(number)]


def conversation(question: Question, seed: str, share: float, model: str) -> Conversation:
    """Return one of the conversations about a question. About `share` of them pass."""
    chance = random.Random(seed)
    fate = chance.random()
    if fate < 0.02:
        return _broken(question, chance, model)
    is_right = chance.random() < share + (1 - share) * (0.5 - question.hardness)
    return _scored(question, chance, model, is_right=is_right)


# -- questions ---------------------------------------------------------------------------------------------


def _question(row: int) -> Question:
    chance = random.Random(f"question {row}")
    topic, level = TOPICS[row % len(TOPICS)], chance.choice(LEVELS)
    prompt, answer = _ASKED[topic](row, chance)
    record = {
        "user_prompt": prompt,
        "ground_truth": answer,
        "topic": topic,
        "level": level,
        "language": "zh" if topic == "translation" else "en",
        "source": f"ticket-{10_000 + row}",
    }
    return Question(record, chance.random() * (LEVELS.index(level) + 1) / len(LEVELS))


def _orders(row: int, chance: random.Random) -> tuple[str, str]:
    number, items = 4_711_000 + row, chance.sample(ITEMS, 3)
    total = sum(_price(item) for item in items)
    return f"Order {number} has {_listed(items)}. What did the customer pay in all, in cents?", str(total)


def _code(row: int, chance: random.Random) -> tuple[str, str]:
    step, last = chance.randint(2, 9), chance.randint(40, 400)
    asked = f"range(0, {last}, {step})"
    prompt = (
        f"This returns the wrong sum. Fix it, and say what it returns for {asked}:\n\n```python\n{_function(row)}```"
    )
    return prompt, str(sum(range(0, last, step)))


def _arithmetic(row: int, chance: random.Random) -> tuple[str, str]:
    a, b, c = chance.randint(11, 99), chance.randint(101, 999), row + 3
    return f"What is {a} * {b} - {c}? Work it out step by step, and check the result.", str(a * b - c)


def _translation(row: int, chance: random.Random) -> tuple[str, str]:
    city = chance.choice(CITIES)
    return f"请问寄往 {city} 的包裹 {880_000 + row} 还需要多少天?请用中文回答,并说明理由。", str(chance.randint(2, 14))


def _summaries(row: int, chance: random.Random) -> tuple[str, str]:
    text = _prose(chance, 120)
    return f"Summarize note {row} in two sentences, and count its words:\n\n{text}", str(len(text.split()))


_ASKED = {
    "orders": _orders,
    "code": _code,
    "arithmetic": _arithmetic,
    "translation": _translation,
    "summaries": _summaries,
}


def _function(row: int) -> str:
    return (
        f"def total_{row % 97}(values):\n    total = 0\n    for i in range(1, len(values)):\n"
        "        total += values[i]  # skips the first one?\n    return total\n"
    )


# -- rollouts ----------------------------------------------------------------------------------------------


def _scored(question: Question, chance: random.Random, model: str, *, is_right: bool) -> Conversation:
    answer = question.answer if is_right else str(int(question.answer) + chance.choice((-10, -1, 1, 2, 7, 100)))
    messages = [*_prompt(question)]
    for turn in range(_n_calls(question, chance)):
        messages += _tool_turn(question, chance, turn)
    cut = not is_right and chance.random() < 0.1
    final = _final(question, chance, answer, cut=cut)
    messages.append(
        {
            "role": "assistant",
            "content": final,
            "reasoning_content": _thought(question, chance, chance.randint(90, 240)),
        }
    )
    rollout = {
        **_use(messages, chance, model),
        "finish_reason": "length" if cut else "stop",
        "metrics": {"rollout": {"tool_calls": float(sum(message["role"] == "tool" for message in messages))}},
    }
    if chance.random() < 0.05:
        rollout["retries"] = chance.randint(1, 3)
    concise = round(min(1.0, 400 / len(final)), 3)
    reason = f"the last line {'is' if is_right else 'is not'} {question.answer}"
    correct = {
        "ms": round(chance.random() * 3, 3),
        "scores": {"rewards:correct": float(is_right)},
        "errors": {},
        "output": {"stdout": f"compared {answer!r} with {question.answer!r}\n"} if not is_right else {},
        "reasons": {"rewards:correct": reason},
        "ground_truth": question.answer,
    }
    second: dict[str, Any] = {"ms": 0.2, "scores": {"rewards:concise": concise}, "errors": {}, "output": {}}
    if chance.random() < 0.01:
        message = f"ValueError: could not convert string to float: {final[:20]!r}"
        correct |= {"scores": {}, "errors": {"rewards:correct": {"message": message, "details": _traceback(message)}}}
    return Conversation(rollout, [correct, {**second, "ground_truth": question.answer}])


_BREAKS = (
    ("provider", "HTTP 503: upstream connect error or disconnect before headers. reset reason: overflow"),
    ("timeout", "the rollout took longer than agent_workflow_timeout_s = 450"),
    ("agent", "KeyError: 'arguments'"),
    ("model", "HTTP 400: This model's maximum context length is 131072 tokens"),
    ("host", "the host process ended with signal 9 (SIGKILL)"),
)


def _broken(question: Question, chance: random.Random, model: str) -> Conversation:
    boundary, error = chance.choice(_BREAKS)
    messages = [*_prompt(question), *_tool_turn(question, chance, 0)]
    rollout = {**_use(messages, chance, model), "boundary": boundary, "error": error}
    if boundary == "agent":
        rollout |= {"details": _traceback(error), "output": {"stderr": "retrying the tool call\n" * 3}}
    if boundary in ("provider", "host"):
        rollout |= {"usage": None}
    return Conversation(rollout, [])


def _use(messages: Sequence[Message], chance: random.Random, model: str) -> dict[str, Any]:
    said = [message for message in messages if message["role"] == "assistant"]
    out = sum(len(json.dumps(message)) for message in said) // 4
    into = len(said) * len(json.dumps(messages)) // 8
    return {
        "ms": round(900 * len(said) + chance.expovariate(1 / 2500), 3),
        "messages": list(messages),
        "n_prompt": 2,
        "usage": {"input_tokens": into, "cached_input_tokens": into // 3, "output_tokens": out},
        "model": f"{model}-2026-08-07",
    }


def _prompt(question: Question) -> list[Message]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question.row["user_prompt"]}]


def _n_calls(question: Question, chance: random.Random) -> int:
    return chance.choice({"orders": (1, 2, 3), "code": (1, 2), "arithmetic": (0, 1, 2)}.get(question.topic, (0, 1)))


def _tool_turn(question: Question, chance: random.Random, turn: int) -> list[Message]:
    call = f"call_{chance.getrandbits(48):012x}"
    name, arguments, result = _called(question, chance, turn)
    calls = [{"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]
    thought = _thought(question, chance, chance.randint(40, 120))
    return [
        {"role": "assistant", "content": None, "reasoning_content": thought, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call, "name": name, "content": result},
    ]


def _called(question: Question, chance: random.Random, turn: int) -> tuple[str, dict[str, Any], str]:
    if question.topic == "code":
        source = f"{_function(turn)}\nprint(total_{turn}([1, 2, 3]))\n"
        result = "5\n" if turn else _traceback(f"NameError: name 'total_{turn}' is not defined")
        return "run_python", {"source": source, "timeout_s": 10}, result
    if question.topic == "orders":
        items = [{"name": item, "cents": _price(item), "note": _prose(chance, 18)} for item in chance.sample(ITEMS, 3)]
        found = {"order": question.row["source"], "city": chance.choice(CITIES), "items": items, "page": turn}
        return "find_order", {"query": question.row["source"], "page": turn}, json.dumps(found, ensure_ascii=False)
    if question.topic == "translation":
        return "track_parcel", {"text": CHINESE[turn * 9 : turn * 9 + 18]}, _shuffled(chance, CHINESE)
    return (
        "calculate",
        {"expression": f"{chance.randint(2, 99)} * {chance.randint(2, 999)}"},
        str(chance.randint(4, 99_999)),
    )


def _final(question: Question, chance: random.Random, answer: str, *, cut: bool) -> str:
    if question.topic == "translation":
        body = _shuffled(chance, CHINESE) * chance.randint(1, 2)
    elif question.topic == "code":
        body = (
            f"The loop begins at 1, so it skips the first value.\n\n```python\n{_function(3).replace('1, ', '')}```\n"
        )
        body += f"\n| input | before | now |\n|---|---|---|\n| `[1, 2, 3]` | 5 | **6** |\n\n{_prose(chance, 240)}"
    else:
        steps = "\n".join(f"{number}. {_prose(chance, chance.randint(20, 50))}." for number in range(1, 9))
        body = f"## Steps\n\n{steps}\n\nSo the answer is *{answer}*."
    return body[: len(body) // 2] if cut else f"{body}\n\n#### {answer}"


def _thought(question: Question, chance: random.Random, words: int) -> str:
    if question.topic == "translation":
        return _shuffled(chance, CHINESE)[: words * 2]
    return f"Let me think. {_prose(chance, words)}."


def _traceback(error: str) -> str:
    return (
        'Traceback (most recent call last):\n  File "rollouts/support/main.py", line 87, in run\n'
        '    arguments = call["function"]["arguments"]\n                ~~~~~~~~~~~~~~~~^^^^^^^^^^^^^\n'
        f"{error}\n"
    )


def _price(item: str) -> int:
    return 1999 + 137 * ITEMS.index(item)


def _prose(chance: random.Random, words: int) -> str:
    """Return this number of words, every third of them an identifier or a number."""
    said = chance.choices(WORDS, k=words)
    for at in range(2, words, 3):
        said[at] = f"{chance.choice('ABCDEFGHKLMNPRSTUVWXYZ')}{chance.getrandbits(24):06x}"
    return " ".join(said)


def _shuffled(chance: random.Random, text: str) -> str:
    clauses = text.split(",")
    return ",".join(chance.sample(clauses, len(clauses)))


def _listed(items: Sequence[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"
