"""Commands that there are not: those of `osmosis eval` and `prime eval`, and misspelt ones of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pytest_osmosis.cli.arguments import COMMANDS, RUNS
from pytest_osmosis.text.names import suggestion

EVAL = ("eval", "vf-eval")
_RUN = "pytest --osmosis-config=FILE, or pytest --osmosis-env=ID for an environment"
ELSEWHERE: Mapping[str, str] = {
    "run": f"type {_RUN}",
    "retry": "type pytest --osmosis-config=FILE --osmosis-run=NAME --osmosis-retry-failed",
    "rubric": "an eval with --osmosis-agent=recorded and [scoring] rubric scores recorded conversations",
    "eval-rubric": "an eval with --osmosis-agent=recorded and [scoring] rubric scores recorded conversations",
    "download": "the files of eval runs are in .osmosis/runs already",
    "upload": "not offered: requests go only to the model",
    "push": "not offered, but for --osmosis-save-to-hf-hub",
    "get": "type pytest-osmosis show NAME",
    "info": "type pytest-osmosis show NAME",
    "tui": "type pytest-osmosis view",
}
"""Commands there whose equivalent has another name, and what to do instead."""


def advice(arguments: Sequence[str]) -> str | None:
    """Return what to type instead of an unknown command, None if there is nothing to say."""
    match arguments:
        case [first, *_] if first.startswith("-"):
            return refusal(arguments)
        case ["runs", first, second, *_] if first not in RUNS and first[:1] != "-" != second[:1]:
            return _instead(f"runs {first}", first, RUNS)
        case [first, second, *_] if first in EVAL and not second.startswith("-"):
            return _instead(f"{first} {second}", second, ()) or f"{first}: no command; type {_RUN}"
        case [first, *_] if first in EVAL:
            return f"{first}: no command; type {_RUN}"
        case [first, *_] if first not in COMMANDS:
            return _instead(first, first, COMMANDS)
    return None


def refusal(arguments: Sequence[str]) -> str | None:
    """Return the errors of arguments that no command has, None if none is a flag of an eval."""
    from pytest_osmosis.config.named_keys import refusals

    return "\n".join(refusals(arguments)) or None


def _instead(words: str, name: str, names: Collection[str]) -> str | None:
    """Return what stands for a command, or the command in `names` that is spelt most like it."""
    if name in RUNS and names is not RUNS:
        return f"{words}: no command; type pytest-osmosis runs {name}"
    if name in COMMANDS and names is not COMMANDS:
        return f"{words}: no command; type pytest-osmosis {name}"
    if name in ELSEWHERE:
        return f"{words}: no command; {ELSEWHERE[name]}"
    near = suggestion(name, names)
    return f"{words}: no command{near}" if near else None
