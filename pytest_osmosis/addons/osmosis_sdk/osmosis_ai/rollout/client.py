"""`osmosis_ai.rollout.client`: the answer of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CompletionsResult"]


@dataclass(frozen=True)
class CompletionsResult:
    """An answer. `message` is the assistant's, without fields that are None; no ids of tokens are known here."""

    message: dict[str, Any]
    token_ids: list[int]
    logprobs: list[float]
    usage: dict[str, int]
    finish_reason: str

    @property
    def has_tool_calls(self) -> bool:
        return bool(self.tool_calls)

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return self.message.get("tool_calls") or []

    @property
    def content(self) -> str | None:
        return self.message.get("content")
