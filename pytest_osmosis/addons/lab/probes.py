"""The probes; each looks for one kind of bug by calling a reward function.

- determinism: the same call always gets the same score: repeated, in another order, with other hashes, later
- robustness and range: every answer, as odd as a model may write it, gets a score in the declared range, and no
  exception
- leaks: wrong answers that score like right ones, as a model in training finds them: empty ones, lists of guesses,
  copies of the prompt. Each is compared with the score of a right answer, and long wrong answers with short ones
- speed: see `speed`
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_osmosis.addons.lab.calls import TOLERANCE, CallInput, CallOutcome, LabResult, RewardFinding, ScoredCall
from pytest_osmosis.addons.lab.contract import not_a_number
from pytest_osmosis.addons.lab.probe_context import (
    NO_EXAMPLE,
    NO_INPUT,
    NOT_STEADY,
    TRUTHS,
    AnswerPair,
    ProbeContext,
    constants,
    suggested_formats,
)
from pytest_osmosis.addons.lab.process import LabProcess
from pytest_osmosis.addons.lab.speed import probe_speed
from pytest_osmosis.addons.lab.target import Target
from pytest_osmosis.errors import CodeError
from pytest_osmosis.text.numbers import plural

LATER_S = 397 * 86400 + 5025.5
"""More than a year and an odd number of seconds, so that year, month, day, hour and fraction differ."""
HALF_A_YEAR_LATER_S = (185 * 24 + 12) * 3600
"""The other half of the day and of the year, for scores that depend on a part of the day or of the year."""
TIMES = 4
MOST_INPUTS = 60
WORDS = "red green blue yellow black white"
UNENDED = {"slow", "died", "not_called"}
PROBLEMS = {
    "not-repeatable": (
        "the same call scores differently when repeated",
        "use no random numbers, and keep nothing between calls: no globals, no caches that scores depend on",
    ),
    "order-dependent": (
        "the score depends on earlier calls",
        "keep nothing between calls: no globals, no mutable defaults",
    ),
    "hash-dependent": (
        "the score differs between processes",
        "do not depend on the order of a set or on hash(): sort, or use dict.fromkeys",
    ),
    "time-dependent": (
        "the score depends on the time of the call",
        "do not read the clock; pass the time in extra_info if it matters",
    ),
}
"""The problem and the fix of a finding, by its code."""


def probe_determinism(context: ProbeContext) -> LabResult:
    inputs = context.affordable(_inputs(context), TIMES + 5)
    found = _variation(context, inputs)
    return LabResult(() if found is None else (found,))


def is_steady(context: ProbeContext, calls: Sequence[ScoredCall]) -> bool:
    """Return True if each of these calls always has the outcome that it had, so that their scores can be compared."""
    return _variation(context, [call.input for call in calls], [call.outcome for call in calls]) is None


def _variation(
    context: ProbeContext, inputs: Sequence[CallInput], first: Sequence[CallOutcome] | None = None
) -> RewardFinding | None:
    """Return a finding if the outcomes of inputs vary; without `first`, from those of a new process."""
    base = LabProcess(context.target, context.budget)
    again = [("not-repeatable", base, "when it is called again")] * (TIMES - 1)
    in_other_processes = (
        ("order-dependent", "after other calls", 0, 0.0),
        ("hash-dependent", "with PYTHONHASHSEED=1", 1, 0.0),
        ("hash-dependent", "with PYTHONHASHSEED=2", 2, 0.0),
        ("time-dependent", "a year later", 0, LATER_S),
        ("time-dependent", "half a year later", 0, HALF_A_YEAR_LATER_S),
    )
    comparisons = again + [
        (code, LabProcess(context.target, context.budget, hash_seed=seed, clock_s=clock_s), when)
        for code, when, seed, clock_s in in_other_processes
    ]
    with contextlib.ExitStack() as stack:
        for process in dict.fromkeys(process for _, process, _ in comparisons):
            stack.callback(process.close)
            process.begin()
        if first is None:
            first = [base.call(call_input) for call_input in inputs]
        for code, process, when in comparisons:
            step = -1 if code == "order-dependent" else 1
            outcomes = [process.call(call_input) for call_input in inputs[::step]][::step]
            if example := _difference(context, inputs, first, outcomes, when):
                problem, fix = PROBLEMS[code]
                return RewardFinding(code, problem, example, fix)
    return None


def _inputs(context: ProbeContext) -> list[CallInput]:
    answers = context.answers
    inputs = [call_input for pair in answers.pairs[:6] for call_input in (pair.right, pair.wrong)]
    inputs += [replace(pair.right, ground_truth=pair.other_truth) for pair in answers.pairs[:6]]
    usable = answers.usable[:6]
    for index, call_input in enumerate(usable):
        inputs += [call_input, replace(call_input, ground_truth=usable[index - 1].ground_truth)]
        truth = str(call_input.ground_truth)
        texts = (f"41 {truth} 43", f"{WORDS} {truth} {WORDS}", WORDS, truth, "")
        inputs += [call_input.answering(text) for text in texts]
    return inputs[:MOST_INPUTS]


def _difference(
    context: ProbeContext,
    inputs: Sequence[CallInput],
    before: Sequence[CallOutcome],
    after: Sequence[CallOutcome],
    when: str,
) -> str:
    """Describe the shortest call whose outcome differs, empty if none does. Only calls that ended count."""
    examples = [
        (call_input.shown(context.target), f"{old.description}, {when} {new.description.removeprefix('= ')}")
        for call_input, old, new in zip(inputs, before, after, strict=True)
        if (old.kind, old.score) != (new.kind, new.score) and not {old.kind, new.kind} & UNENDED
    ]
    if not examples:
        return ""
    call, outcomes = min(examples, key=lambda example: len(example[0]))
    return f"{call} {outcomes}"


MOST_TRUTHS = 3
"""Ground truths for which wrong answers are lengthened."""
MOST_TAGS, MOST_OWN, MOST_CHARS_OF_OWN = 3, 5, 20
LENGTHS = (60, 400, 3000)
WORD_CHARS = 5
RARE_FIRST = "zqxjkwvyfbmgpuhdclrsniotae"
NOTHING = ("", " ", "\n", ".", "I do not know.")


class _Leak(NamedTuple):
    """A kind of wrong answer, the inputs that try it, and the finding if one of them scores like the right answer."""

    code: str
    inputs: list[CallInput]
    problem: str
    fix: str


def probe_leaks(context: ProbeContext) -> LabResult:
    pairs = context.answers.pairs
    found = [*_by_length(context), *(leak for pair in pairs[:4] for leak in _like_the_right_one(context, pair))]
    first = {finding.code: (finding, calls) for finding, calls in reversed(found)}
    if not all(is_steady(context, calls) for _, calls in first.values()):
        return LabResult(unmeasured=NOT_STEADY)
    findings = tuple(finding for finding, _ in reversed(first.values()))
    return LabResult(findings, unmeasured="" if pairs or findings else NO_EXAMPLE)


def _like_the_right_one(context: ProbeContext, pair: AnswerPair) -> Iterator[tuple[RewardFinding, list[ScoredCall]]]:
    """Yield the wrong answers that score like the right one, at most one of a kind, with the calls that show it."""
    for leak in _leaks(pair, full=context.target.mode == "full"):
        for call in map(context.scored, leak.inputs):
            if call.outcome.score is not None and call.outcome.score >= pair.score - TOLERANCE:
                finding = RewardFinding(leak.code, leak.problem, call.shown(context.target), leak.fix)
                yield finding, [context.scored(pair.right), call]
                break


def _by_length(context: ProbeContext) -> Iterator[tuple[RewardFinding, list[ScoredCall]]]:
    """Yield a wrong answer that scores more if more of the same is added, with the calls that show it."""
    tags = [form for form in suggested_formats(context.target) if form.startswith("<")][:MOST_TAGS]
    own = [text for text in constants(context.target) if text.strip() and len(text) <= MOST_CHARS_OF_OWN]
    wrong = {repr(pair.right): pair.wrong_text() for pair in context.answers.pairs}
    for base in context.answers.usable[:MOST_TRUTHS]:
        sizes = [0, *(size for size in LENGTHS if size > 3 * len(str(base.ground_truth)))]
        ends = dict.fromkeys(("", wrong.get(repr(base), "")))
        for filler, form, end in itertools.product(_fillers(str(base.ground_truth), own), ("{}", *tags), ends):
            least = filler.partition(" ")[0]
            answers = [form.format((filler * size)[:size] or least) + end for size in sizes]
            short, *longer = (base.answering(answer) for answer in answers)
            before = context.scored(short)
            for call in map(context.scored, longer if before.outcome.score is not None else ()):
                if (call.outcome.score or 0.0) > (before.outcome.score or 0.0) + TOLERANCE:
                    example = f"{before.shown(context.target)}, but {call.shown(context.target)}"
                    problem = "a wrong answer scores more if it is longer"
                    fix = "pay for what is right, and nothing for length: training finds this first"
                    yield RewardFinding("leak-length", problem, example, fix), [before, call]
                    return


def _fillers(truth: str, own: Sequence[str]) -> list[str]:
    """Return texts to repeat in which nothing can be taken for the ground truth or a part of it.

    They are a word, a line, different words, and what the function may look for: `own`.
    """
    taken = {*filter(str.isalnum, truth.casefold())}
    letters = [letter for letter in RARE_FIRST if letter not in taken][:6]
    words = ["".join(word) for word in itertools.product(letters, repeat=WORD_CHARS)][1:]
    if not words:
        return []
    looked_for = [f"{text.strip()} " for text in own if not taken & {*text.casefold()}]
    return [f"{words[0]} ", f"{words[0]}.\n", " ".join(words[:600]), *looked_for[:MOST_OWN]]


def _leaks(pair: AnswerPair, *, full: bool) -> Iterator[_Leak]:
    right, truth = pair.right, str(pair.right.ground_truth)
    yield _Leak(
        "leak-empty",
        [right.answering(text) for text in NOTHING],
        "an empty answer scores as the right one",
        "return the lowest score if no answer is found",
    )
    yield _Leak(
        "leak-listed",
        [right.answering(text) for text in _lists(truth, str(pair.other_truth))],
        "an answer that lists several possibilities scores as the right one",
        "compare the final answer (after a marker such as ####) instead of searching the text",
    )
    prompt = right.extra.get("user_prompt") if isinstance(right.extra, dict) else None
    if full:
        question = {"role": "user", "content": f"Is it {right.text() or truth}?"}
        messages = [question, {"role": "assistant", "content": "I do not know."}]
        yield _Leak(
            "leak-prompt",
            [replace(right, answer=None, messages=messages)],
            "the right answer in the prompt scores",
            'look only at messages whose role is "assistant"',
        )
    elif isinstance(prompt, str) and truth in prompt:
        yield _Leak(
            "leak-prompt",
            [right.answering(prompt)],
            "the prompt repeated scores as the right answer",
            "require a format that the prompt does not show together with the right answer",
        )
    yield _Leak(
        "leak-empty-ground-truth",
        [replace(right, ground_truth="")],
        "with an empty ground truth any answer scores as the right one",
        "raise ValueError for an empty ground truth; such a row teaches a model that anything is right",
    )


def _lists(truth: str, other: str) -> Iterator[str]:
    """Yield lists that hold the ground truth, but neither first nor last."""
    kind = next((pair for pair in TRUTHS if truth in pair), ())
    others = [text for text in (other, *kind) if text != truth] or ["something else"]
    first, last = others[0], others[-1]
    number = math.nan
    with contextlib.suppress(ValueError):
        number = float(truth)
        first, last = f"{number - 1:g}", f"{number + 1:g}"
    yield f"{first}, {truth}, {last}"
    yield f"It could be {first}, {truth} or {last}"
    if number.is_integer() and abs(number) < 1e6:
        yield " ".join(str(n) for n in range(int(number) - 50, int(number) + 51))


ANSWERS = ("", " ", "\n", ".", "0", "-1", "1e308", "I do not know.")
ODD_NUMBERS = "1,000 1.000,5 1e5 1E400 -1e400 0x2A 1_000 IV inf -inf nan . - + --1 1.2.3 1/0 0/0 42% $42 1e -0 0"
ODD_JSON = 'null None [] {} {"answer":null} {"answer":[1]} {"answer":{}} "text" [1,2 { }'
ODD_MARKERS = r"#### <answer> </answer> <answer></answer> \boxed{} \boxed{ ``` **"
ODD_CHARACTERS = "\n \t \x00 \x1b[31m \u200b \ufeff \u202e é e\u0301 ß İ 😀 \ud800"
NUMBERS = (*ODD_NUMBERS.split(), "½", "²", "\u0664\u0662", "\uff14\uff12", "4 2", "9" * 400, "9" * 5000)
LONG = ("a" * 20_000, "42 " * 7_000, "\n" * 20_000, "word " * 4_000)
TEXTS = ("", " ", "\n", *ODD_CHARACTERS.split(" "), *ODD_JSON.split(), *ODD_MARKERS.split(), "#### ", "####\n", *LONG)
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def probe_range(context: ProbeContext) -> LabResult:
    usable = context.answers.usable[:4]
    calls = [context.scored(call_input.answering(answer)) for call_input in usable for answer in ANSWERS]
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
    inputs = (call_input for base in context.answers.usable[:2] for call_input in _odd(context, base))
    findings = (finding for call in map(context.scored, inputs) if (finding := _fault(context, call)))
    return LabResult(tuple(shortest_examples(findings)))


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
    truth, right = str(base.ground_truth), _last(base)
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


PROBES: Mapping[str, Callable[[ProbeContext], LabResult]] = {
    "determinism": probe_determinism,
    "range": probe_range,
    "robustness": probe_robustness,
    "speed": probe_speed,
    "leaks": probe_leaks,
}
"""The probes by name. All but that of leaks need a usable answer."""


def examine(context: ProbeContext, name: str) -> LabResult:
    """Run a probe. A file that cannot be imported again, a crash, a call that does not end are findings too."""
    context.budget.begin()
    fatal_before = context.fatal_call
    try:
        is_possible = name == "leaks" or context.answers.usable
        result = PROBES[name](context) if is_possible else LabResult(unmeasured=NO_INPUT)
    except CodeError as error:
        context.close()
        fix = "let the file only define things when it is imported, so that it can be imported anywhere"
        return LabResult((RewardFinding("import", "it cannot be loaded again", str(error), fix),))
    fatal = context.fatal_call
    is_to_blame = fatal is not fatal_before or result.unmeasured or (fatal and fatal.outcome.kind == "died")
    if fatal is not None and is_to_blame and not result.failures():
        return LabResult((_fatal(fatal, context),))
    left_out = _left_out(context)
    return result if left_out is None else LabResult((*result.findings, left_out), result.unmeasured)


def _fatal(fatal: ScoredCall, context: ProbeContext) -> RewardFinding:
    example = fatal.shown(context.target)
    if fatal.outcome.kind == "died":
        fix = "raise an exception or return a score; never end the process, and take little memory"
        return RewardFinding("crash", "it takes its process down", example, fix)
    fix = "return a score for every answer; wait for nothing, and limit loops"
    return RewardFinding("hang", "it does not return", example, fix)


def _left_out(context: ProbeContext) -> RewardFinding | None:
    """Return a note of the calls that were left out for lack of time, None if none were."""
    budget = context.budget
    if not budget.left_out and not context.incomplete_answers:
        return None
    left = (
        f"after {budget.seconds:g} s and {plural(budget.made, 'call')}, {plural(budget.left_out, 'call')} were left out"
    )
    example = left if budget.left_out else "an earlier test had no time to look for all answers"
    fix = "make the function faster, or give each test more time: --osmosis-lab-budget=60"
    return RewardFinding("cut-short", "the check is incomplete", example, fix, level="note")
