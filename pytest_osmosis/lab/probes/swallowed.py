"""No bug hides in a handler for all exceptions: `except Exception: return 0.0` makes a typo a score.

What is told of: an error that no input explains (a name or an attribute that is not there), wherever such a handler
caught it; and any error, where no answer gets past it. To catch what text may cause, a ValueError, is fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.bench import Bench
from pytest_osmosis.lab.calls import Caught, Input, Scored
from pytest_osmosis.lab.findings import NEVER_THE_INPUT, Finding, Verdict

MOST_INPUTS = 60


def probe(bench: Bench) -> Verdict:
    """Watches which exceptions are swallowed, on answers right, wrong and empty."""
    inputs = bench.affordable(_inputs(bench), 1)
    watched = [Scored(given, bench.ask(given, watch=True)) for given in inputs]
    return Verdict(tuple(_found(bench, watched)))


def _inputs(bench: Bench) -> list[Input]:
    examples = bench.examples
    solved = [given for found in examples.solved for given in (found.right, found.wrong)]
    others = [given.answering(text) for given in examples.fitting[:3] for text in ("", "I do not know.", "{}", "[]")]
    return [*solved, *others, *(scored.input for scored in examples.tried)][:MOST_INPUTS]


def _found(bench: Bench, watched: list[Scored]) -> Iterator[Finding]:
    seen: set[tuple[str, int]] = set()
    always = _always(watched)
    for scored in sorted(watched, key=lambda scored: len(scored.input.shown(bench.target))):
        for caught in scored.outcome.caught:
            if (caught.error, caught.line) in seen:
                continue
            if caught.error in NEVER_THE_INPUT or (caught.error, caught.line) in always:
                seen.add((caught.error, caught.line))
                yield _finding(bench, scored, caught, always=(caught.error, caught.line) in always)


def _always(watched: list[Scored]) -> set[tuple[str, int]]:
    """What was swallowed in every call, where none got another score than the rest."""
    scores = {scored.outcome.score for scored in watched}
    if len(watched) < 2 or len(scores) > 1:
        return set()
    each = [{(caught.error, caught.line) for caught in scored.outcome.caught} for scored in watched]
    return set.intersection(*each)


def _finding(bench: Bench, scored: Scored, caught: Caught, *, always: bool) -> Finding:
    name = bench.target.path.name
    what = f"{caught.error}: {caught.text} ({name}:{caught.line})"
    text = f"{what} is caught by `{caught.clause}:` ({name}:{caught.handler})"
    which = "every call" if always else scored.input.shown(bench.target)
    fix = "correct the error, and catch only what an answer may cause, such as `except ValueError:`"
    seen = f"{which} {scored.outcome.said}, as {text}"
    return Finding("swallowed", "an error of its own is swallowed and becomes a score", seen, fix)
