"""The view that a rollout has of its run: the prompt, its row, and `chat`."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, Message, copied
from pytest_osmosis.models.refusal import refusal_error

Chat = Callable[[Sequence[Message], Sequence[Mapping[str, Any]], Mapping[str, Any]], Awaitable[ChatReply]]


class ChatContext:
    """One run, as agent code sees it.

    `prompt` holds the row's chat messages (a copy for this run), `metadata` the whole row. `row_index` and `run_index`
    identify the run among those of its model; `model_tag` is "primary" for the eval's model and "baseline" for the
    baseline's. `max_turns` is the configured limit, which the agent is expected to keep. `config` is this run's copy of
    the config of an `AgentWorkflow`.
    """

    def __init__(
        self,
        *,
        prompt: Sequence[Message],
        metadata: Mapping[str, Any],
        row_index: int,
        run_index: int,
        max_turns: int,
        artifacts: str | Path,
        chat: Chat,
        model_tag: Literal["primary", "baseline"] = "primary",
    ) -> None:
        self.prompt: list[Message] = _own(prompt)
        self.metadata: dict[str, Any] = dict(metadata)
        self.row_index = row_index
        self.run_index = run_index
        self.model_tag = model_tag
        self.max_turns = max_turns
        self.config: Any = None
        self.last_conversation: list[Message] | None = None
        self.last_refusal: ModelError | None = None
        self._artifacts = artifacts
        self._chat = chat

    @property
    def artifacts_dir(self) -> Path:
        """A folder for files of this run, created on first access."""
        folder = Path(self._artifacts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatReply:
        """Send one request to the configured model, with retries, and return its reply. Calls may be concurrent.

        `messages` and `tools` have the shape of OpenAI's chat completions. `sampling` (temperature, max_tokens, ...)
        overrides the config's. Raises `pytest_osmosis.errors.ModelError` if there is no answer, or a refusal.
        """
        sent = _own(messages)
        reply = await self._chat(sent, list(tools or ()), sampling)
        self.last_conversation = [*sent, reply.message]
        self.last_refusal = refusal_error(reply)
        if self.last_refusal is not None:
            raise self.last_refusal
        return reply


def _own(messages: Sequence[Message]) -> list[Message]:
    """Return a copy that shares nothing with `messages`, whatever an agent put into them."""
    try:
        own: list[Message] = copied(list(messages))
    except (TypeError, RecursionError):
        own = copy.deepcopy(list(messages))
    return own
