"""Probes with answers as odd as a model may write: every one gets a score in the declared range, and no exception.

Some are listed here; others Hypothesis generates.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from pytest_osmosis.addons.lab.calls import CallInput, ScoredCall
from pytest_osmosis.addons.lab.contract import not_a_number
from pytest_osmosis.addons.lab.findings import LabResult, RewardFinding
from pytest_osmosis.addons.lab.probe_context import NO_INPUT, ProbeContext
from pytest_osmosis.addons.lab.target import Target

ANSWERS = ("", " ", "\n", ".", "0", "-1", "1e308", "I do not know.")
ODD_NUMBERS = "1,000 1.000,5 1e5 1E400 -1e400 0x2A 1_000 IV inf -inf nan . - + --1 1.2.3 1/0 0/0 42% $42 1e -0 0"
ODD_JSON = 'null None [] {} {"answer":null} {"answer":[1]} {"answer":{}} "text" [1,2 { }'
ODD_MARKERS = r"#### <answer> </answer> <answer></answer> \boxed{} \boxed{ ``` **"
ODD_CHARACTERS = "\n \t \x00 \x1b[31m \u200b \ufeff \u202e é e\u0301 ß İ 😀 \ud800"
NUMBERS = (*ODD_NUMBERS.split(), "½", "²", "\u0664\u0662", "\uff14\uff12", "4 2", "9" * 400, "9" * 5000)
LONG = ("a" * 20_000, "42 " * 7_000, "\n" * 20_000, "word " * 4_000)
TEXTS = ("", " ", "\n", *ODD_CHARACTERS.split(" "), *ODD_JSON.split(), *ODD_MARKERS.split(), "#### ", "####\n", *LONG)
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
EXAMPLES = 200
DIGITS = "0123456789.,-+eE"
PLAIN = "0a \n1A.,;:!?-+*/=_#$%&@|~^'`\"<>()[]{}\\9zZ\t\r"
ODD = "\x00\x1b\u00e9\u00df\u0130\u00b2\u00bd\u0664\u200b\u2028\ufeff\U0001f600\ud800"
"""A sample of unusual characters: accents, digits, fractions, direction marks, emoji, half a surrogate pair."""


def probe_range(context: ProbeContext) -> LabResult:
    inputs = context.answers.usable
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    calls = context.all_scored(call_input.answering(answer) for call_input in inputs[:4] for answer in ANSWERS)
    findings = (finding for call in (*calls, *context.answers.calls) if (finding := fault(context.target, call)))
    return LabResult(tuple(shortest_examples(findings)))


def shortest_examples(findings: Iterable[RewardFinding]) -> list[RewardFinding]:
    """Return one finding of each problem, the one with the shortest example."""
    shortest: dict[tuple[str, str], RewardFinding] = {}
    for finding in sorted(findings, key=lambda finding: len(finding.example)):
        shortest.setdefault((finding.problem, finding.level), finding)
    return list(shortest.values())


def fault(target: Target, call: ScoredCall) -> RewardFinding | None:
    """Return the fault of a score, None if it is a number within its range."""
    outcome = call.outcome
    if outcome.kind == "not_a_score":
        return not_a_number(target, call)
    low, high = target.declaration.range
    if outcome.score is None:
        return None
    if (low is not None and outcome.score < low) or (high is not None and outcome.score > high):
        bounds = f"from {'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"
        fix = "limit the score with min() and max(), or declare another range"
        return RewardFinding("out-of-range", f"it leaves its range ({bounds})", call.shown(target), fix)
    return None


def probe_robustness(context: ProbeContext) -> LabResult:
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


def probe_fuzz(context: ProbeContext) -> LabResult:
    inputs = context.answers.usable
    if not inputs:
        return LabResult(unmeasured=NO_INPUT)
    worst = _search(context, inputs[0])
    return LabResult(tuple(faults(context, [worst] if worst is not None else [])))


def _search(context: ProbeContext, base: CallInput) -> ScoredCall | None:
    import hypothesis
    from hypothesis.errors import NoSuchExample

    n = max(10, len(context.affordable([base] * EXAMPLES, 1)))

    def goes_wrong(answer: str) -> bool:
        return bool(faults(context, [context.scored(base.answering(answer))]))

    settings = hypothesis.settings(
        max_examples=min(n, EXAMPLES),
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with _elsewhere():
        try:
            answer = hypothesis.find(_answers(base), goes_wrong, settings=settings, random=random.Random(0))
        except NoSuchExample:
            return None
    return context.scored(base.answering(answer))


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    from hypothesis import configuration

    storage: Any = configuration.storage_directory(intent_to_write=False)
    home = getattr(storage, "path", storage)  # older releases return the path itself
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(home)


def _answers(base: CallInput) -> Any:
    """Return a strategy for unusual texts, numbers in many formats, and mixtures of these with a right answer."""
    from hypothesis import strategies as st

    parts = (base.text(), str(base.ground_truth), "####", "<answer>", "</answer>", "{", "}", '"', " ", "\n")
    text = st.text(st.sampled_from(PLAIN + ODD), max_size=50)
    digits = st.text(st.sampled_from(DIGITS), max_size=8)
    pieces = st.lists(
        st.one_of(st.sampled_from([piece for piece in parts if piece]), digits, st.floats().map(repr), text), max_size=6
    )
    return st.one_of(text, pieces.map("".join), pieces.map(" ".join))
