"""Only a right answer scores as one: none that is empty, lists everything, or that the prompt gave.

A model in training finds such answers. Each is compared with the score of a right answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.bench import NO_EXAMPLE, Bench
from pytest_osmosis.lab.calls import Input
from pytest_osmosis.lab.examples import TRUTHS, Solved
from pytest_osmosis.lab.findings import Finding, Verdict

TOLERANCE = 1e-9
NOTHING = ("", " ", "\n", ".", "I do not know.")


def probe(bench: Bench) -> Verdict:
    """Tries answers that nobody should be paid for."""
    solved = bench.examples.solved
    if not solved:
        return Verdict(unmeasured=NO_EXAMPLE)
    found: dict[str, Finding] = {}
    for example in solved[:4]:
        for finding in _leaks(bench, example):
            found.setdefault(finding.code, finding)
    return Verdict(tuple(found.values()))


def _leaks(bench: Bench, solved: Solved) -> Iterator[Finding]:
    truth = str(solved.right.ground_truth)
    yield from _pays(
        bench,
        solved,
        [solved.right.answering(text) for text in NOTHING],
        "leak-empty",
        "an answer with nothing in it scores as the right one",
        "give the lowest score where no answer is found",
    )
    yield from _pays(
        bench,
        solved,
        [solved.right.answering(text) for text in _listings(truth, str(solved.other_truth))],
        "leak-listed",
        "an answer that lists several possibilities scores as the right one",
        "compare the one final answer (after a marker such as ####), not whether the text holds it",
    )
    if bench.target.mode == "full":
        yield from _pays(
            bench,
            solved,
            [_echoed(solved.right, truth)],
            "leak-prompt",
            "the right answer in the prompt is paid for",
            'look at messages whose role is "assistant" only',
        )
    elif isinstance(prompt := _prompt(solved.right), str) and truth in prompt:
        yield from _pays(
            bench,
            solved,
            [solved.right.answering(prompt)],
            "leak-prompt",
            "the prompt repeated scores as the right answer",
            "ask for a format that the prompt does not show with the right answer in it",
        )
    yield from _empty_truth(bench, solved)


def _pays(bench: Bench, solved: Solved, tries: list[Input], code: str, what: str, fix: str) -> Iterator[Finding]:
    for given in tries:
        scored = bench.scored(given)
        if scored.outcome.score is not None and scored.outcome.score >= solved.score - TOLERANCE:
            yield Finding(code, what, scored.seen(bench.target), fix)
            return


def _listings(truth: str, other: str) -> Iterator[str]:
    """The ground truth in the midst of others, never first and never last."""
    kind = next((pair for pair in TRUTHS if truth in pair), None)
    others = [text for text in (other, *(kind or ())) if text != truth] or ["something else"]
    first, last = others[0], others[-1]
    try:
        number = float(truth)
    except ValueError:
        around = [f"{first}, {truth}, {last}", f"It could be {first}, {truth} or {last}"]
    else:
        low, high = f"{number - 1:g}", f"{number + 1:g}"
        around = [f"{low}, {truth}, {high}", f"It could be {low}, {truth} or {high}"]
        if number.is_integer() and abs(number) < 1e6:
            around.append(" ".join(str(n) for n in range(int(number) - 50, int(number) + 51)))
    yield from around


def _echoed(right: Input, truth: str) -> Input:
    """The ground truth in the prompt, and an answer without it."""
    prompt = {"role": "user", "content": f"Is it {right.text() or truth}?"}
    return Input(None, [prompt, {"role": "assistant", "content": "I do not know."}], right.ground_truth, right.extra)


def _prompt(right: Input) -> object:
    return right.extra.get("user_prompt") if isinstance(right.extra, dict) else None


def _empty_truth(bench: Bench, solved: Solved) -> Iterator[Finding]:
    given = Input(solved.right.answer, solved.right.messages, "", solved.right.extra)
    scored = bench.scored(given)
    if scored.outcome.score is not None and scored.outcome.score >= solved.score - TOLERANCE:
        what = "with an empty ground truth any answer scores as the right one"
        fix = "raise ValueError for an empty ground truth: such a row teaches that anything is right"
        yield Finding("leak-empty-ground-truth", what, scored.seen(bench.target), fix)
