"""The only code for the eval: it asks the assistant, as its users do."""

from __future__ import annotations

from assistant import answer

from pytest_osmosis import ChatContext


def rollout(ctx: ChatContext) -> None:
    """Ask the assistant. A rollout that does not wait with `await` runs in a thread of its own."""
    answer(ctx.prompt[-1]["content"])
