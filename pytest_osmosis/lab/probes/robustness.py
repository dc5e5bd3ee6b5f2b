"""A probe that every answer gets a score and no exception, because a model may write anything."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_osmosis.lab.calls import CallInput, ScoredCall
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.lab.probes.scores import fault, shortest_examples

ODD_NUMBERS = "1,000 1.000,5 1e5 1E400 -1e400 0x2A 1_000 IV inf -inf nan . - + --1 1.2.3 1/0 0/0 42% $42 1e -0 0"
ODD_JSON = 'null None [] {} {"answer":null} {"answer":[1]} {"answer":{}} "text" [1,2 { }'
ODD_MARKERS = r"#### <answer> </answer> <answer></answer> \boxed{} \boxed{ ``` **"
ODD_CHARACTERS = "\n \t \x00 \x1b[31m \u200b \ufeff \u202e é e\u0301 ß İ 😀 \ud800"

NUMBERS = (*ODD_NUMBERS.split(), "½", "²", "\u0664\u0662", "\uff14\uff12", "4 2", "9" * 400, "9" * 5000)
LONG = ("a" * 20_000, "42 " * 7_000, "\n" * 20_000, "word " * 4_000)
TEXTS = ("", " ", "\n", *ODD_CHARACTERS.split(" "), *ODD_JSON.split(), *ODD_MARKERS.split(), "#### ", "####\n", *LONG)
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def probe(context: ProbeContext) -> LabResult:
    inputs = context.answers.usable
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    calls = context.all_scored(call_input for base in inputs[:2] for call_input in _odd(context, base))
    return LabResult(tuple(faults(context, calls)))


def faults(context: ProbeContext, calls: Iterable[ScoredCall]) -> list[RewardFinding]:
    return shortest_examples(finding for call in calls if (finding := _fault(context, call)))


def _fault(context: ProbeContext, call: ScoredCall) -> RewardFinding | None:
    outcome = call.outcome
    if outcome.kind in ("raised", "refused"):
        name = outcome.text.removeprefix("raised ").partition(":")[0]
        problem = f"it raises {name} on what a model may write"
        fix = "score unreadable text as a wrong answer: catch that exception where it can occur"
        rare = "integer string conversion" in outcome.text  # thousands of digits
        return RewardFinding("crash", problem, call.shown(context.target), fix, level="note" if rare else "failure")
    return fault(context.target, call)


def _odd(context: ProbeContext, base: CallInput) -> Iterable[CallInput]:
    truth, right = str(base.ground_truth), base.text() if base.messages is None else _last(base)
    for number in NUMBERS:
        yield base.answering(number)
        if truth and truth in right:
            yield base.answering(right.replace(truth, number))
    for text in TEXTS:
        yield base.answering(text)
        yield base.answering(right + text)
    if context.target.mode == "full":
        yield from _conversations(base)


def _last(base: CallInput) -> str:
    contents = [message.get("content") for message in base.conversation() if message.get("role") == "assistant"]
    return str(contents[-1]) if contents else ""


def _conversations(base: CallInput) -> Iterable[CallInput]:
    """Yield the conversation without its answer, and with a tool call in its place."""
    prompt = [message for message in base.conversation() if message.get("role") != "assistant"]
    silent = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "nothing found"}
    for messages in (
        prompt,
        [*prompt, silent],
        [*prompt, silent, result],
        [*prompt, {"role": "assistant", "content": ""}],
    ):
        yield CallInput(None, messages, base.ground_truth, base.extra)
