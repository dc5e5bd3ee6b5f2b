"""A model may write anything: whatever it writes gets a score, and no exception."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_osmosis.lab.bench import NO_INPUT, Bench
from pytest_osmosis.lab.calls import Input, Scored
from pytest_osmosis.lab.findings import Finding, Verdict
from pytest_osmosis.lab.probes.scores import fault

ODD_NUMBERS = "1,000 1.000,5 1e5 1E400 -1e400 0x2A 1_000 IV inf -inf nan . - + --1 1.2.3 1/0 0/0 42% $42 1e -0 0"
ODD_JSON = 'null None [] {} {"answer":null} {"answer":[1]} {"answer":{}} "text" [1,2 { }'
ODD_MARKERS = r"#### <answer> </answer> <answer></answer> \boxed{} \boxed{ ``` **"
ODD_CHARACTERS = "\n \t \x00 \x1b[31m \u200b \ufeff \u202e é e\u0301 ß İ 😀 \ud800"

NUMBERS = (*ODD_NUMBERS.split(), "½", "²", "\u0664\u0662", "\uff14\uff12", "4 2", "9" * 400, "9" * 5000)
LONG = ("a" * 20_000, "42 " * 7_000, "\n" * 20_000, "word " * 4_000)
TEXTS = ("", " ", "\n", *ODD_CHARACTERS.split(" "), *ODD_JSON.split(), *ODD_MARKERS.split(), "#### ", "####\n", *LONG)
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def probe(bench: Bench) -> Verdict:
    """Odd numbers in the places of right ones, odd texts, and conversations that end early."""
    fitting = bench.examples.fitting
    if not fitting:
        return Verdict(unmeasured=NO_INPUT)
    asked = bench.all_scored(given for fit in fitting[:2] for given in _odd(bench, fit))
    return Verdict(tuple(faults(bench, asked)))


def faults(bench: Bench, asked: Iterable[Scored]) -> list[Finding]:
    """What is wrong with outcomes, the shortest call for each kind of trouble."""
    shortest: dict[str, Finding] = {}
    found = [finding for scored in asked if (finding := _fault(bench, scored))]
    for finding in sorted(found, key=lambda finding: len(finding.seen)):
        shortest.setdefault(f"{finding.what} {finding.level}", finding)
    return list(shortest.values())


def _fault(bench: Bench, scored: Scored) -> Finding | None:
    outcome = scored.outcome
    if outcome.kind in ("raised", "refused"):
        name = outcome.text.removeprefix("raised ").partition(":")[0]
        what = f"it raises {name} on what a model may write"
        fix = "score what cannot be read as a wrong answer: catch that exception where it may occur"
        rare = "integer string conversion" in outcome.text  # thousands of digits
        return Finding("crash", what, scored.seen(bench.target), fix, level="note" if rare else "failure")
    return fault(bench.target, scored)


def _odd(bench: Bench, fit: Input) -> Iterable[Input]:
    truth, right = str(fit.ground_truth), fit.text() if fit.messages is None else _last(fit)
    for number in NUMBERS:
        yield fit.answering(number)
        if truth and truth in right:
            yield fit.answering(right.replace(truth, number))
    for text in TEXTS:
        yield fit.answering(text)
        yield fit.answering(right + text)
    if bench.target.mode == "full":
        yield from _conversations(fit)


def _last(fit: Input) -> str:
    said = [message.get("content") for message in fit.conversation() if message.get("role") == "assistant"]
    return str(said[-1]) if said else ""


def _conversations(fit: Input) -> Iterable[Input]:
    """The conversation without its answer, and with a tool call in its place."""
    asked = [message for message in fit.conversation() if message.get("role") != "assistant"]
    silent = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "nothing found"}
    for messages in (asked, [*asked, silent], [*asked, silent, result], [*asked, {"role": "assistant", "content": ""}]):
        yield Input(None, messages, fit.ground_truth, fit.extra)
