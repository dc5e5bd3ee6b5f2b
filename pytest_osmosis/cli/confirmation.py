"""A question at the terminal before something that costs money, or cannot be undone."""

from __future__ import annotations

from pytest_osmosis.cli.output import CommandOutput

USAGE = 2
"""The exit status if there is nobody to ask."""


def refusal(question: str, unconfirmed: str, output: CommandOutput, *, asks: bool) -> int | None:
    """Ask a question, and return None if the answer is yes, else the exit status.

    It is 2 without a terminal, and unless the command `asks`, as a program may read its output. `unconfirmed` is
    printed after any other answer.
    """
    answer = output.ask(question) if asks else None
    if answer is None:
        why = "there is no terminal to ask on" if asks else "with --json nothing is asked"
        output.complain(f"{unconfirmed}: {why}; add --yes to answer yes beforehand")
        return USAGE
    if not answer:
        output.lines([unconfirmed])
        return 1
    return None
