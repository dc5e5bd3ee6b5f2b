"""Agent loops of Osmosis 0.2: a `RolloutAgentLoop` has `get_tools(request)`, and `run(ctx)` that produces a result.

The loop is a single instance for all runs of a host. Its request, context and answers are objects of the module that
defines its base class: the installed SDK, or the one that stands in for it. No other part of either is used.
Sources: osmosis_ai 0.2.17, rollout/core/base.py and rollout/eval/common.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from msgspec import Struct

from pytest_osmosis.errors import BoundError, CodeError, ModelError
from pytest_osmosis.models.base import Message, Usage
from pytest_osmosis.rollouts.agents import ChatContext, NotAConversation, RolloutOutput, output_of
from pytest_osmosis.text.user_code import AGENT_LOOP, UserValueFault, described, number_of, type_name

COMPLETED = "COMPLETED"
SERVER_URL = "http://local-rollout.local"
"""The address of a trainer in requests, which must have one. Nothing is sent there."""
MAX_TOKENS_TOTAL = 4096
DEBUG_DIR = "ROLLOUT_DEBUG_DIR"
"""The variable that names the folder for `ctx.log_event`, as for the SDK's server."""
PROMPT_COLUMNS = ("user_prompt", "system_prompt", "messages", "ground_truth")
PUBLISHED_METRICS = ("num_llm_calls", "llm_latency_ms", "num_tool_calls", "tool_latency_ms")
"""The metrics of a result that are kept with its run. Tokens and the duration are known anyway."""

_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class AgentLoopError(NotAConversation):
    """An agent loop returned an error, or something that is no result."""


class LoopTypes(Struct, frozen=True):
    """The SDK's classes of which the arguments of a loop are instances."""

    request: type[Any]
    context: type[Any]
    result: type[Any]
    """The class of a model's answer."""
    metrics: type[Any]

    @classmethod
    def of(cls, loop: type[Any]) -> LoopTypes | None:
        """Return the classes that belong to the base class of a loop, None if its module does not have them.

        One of the bases of `loop` is called `RolloutAgentLoop`.
        """
        base = next(each for each in loop.__mro__ if each.__name__ == AGENT_LOOP)
        module = sys.modules.get(base.__module__)
        root = f"{base.__module__.partition('.rollout.')[0]}.rollout"
        try:
            client = importlib.import_module(f"{root}.client")
            return cls(
                request=module.RolloutRequest,  # type: ignore[union-attr]  # an AttributeError says that it has none
                context=module.RolloutContext,  # type: ignore[union-attr]
                result=client.CompletionsResult,
                metrics=module.RolloutMetrics,  # type: ignore[union-attr]
            )
        except (ImportError, AttributeError):
            return None


class AgentLoopAgent(Struct, frozen=True):
    """Runs an agent loop."""

    name: str
    loop: Any
    types: LoopTypes

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation of the loop's result, with its metrics, and its finish reason if it is its own.

        Raises `AgentLoopError` for a result that is an error, and `NotAConversation` for a wrong tool.
        """
        request = self._request(ctx)
        tools = self.loop.get_tools(request)
        check_tools(tools, f"{self.name}.get_tools()")
        client = LoopClient(ctx, tools, self.types)
        debug_dir = os.environ.get(DEBUG_DIR) or None
        begun = monotonic()
        context = self.types.context(request=request, tools=tools, llm=client, _start_time=begun, _debug_dir=debug_dir)
        running = self.loop.run(context)
        if not inspect.isawaitable(running):
            raise AgentLoopError(f"{self.name}.run(ctx) must be awaitable: define `async def run(self, ctx)`")
        result = await running
        try:
            return self._output(result, ctx, client)
        except AgentLoopError as error:
            raise error from client.failure

    def _request(self, ctx: ChatContext) -> Any:
        run = f"eval-{ctx.row_index}-run-{ctx.run_index}"
        baseline = {"model_tag": "baseline"} if ctx.model_tag == "baseline" else {}
        columns = {name: value for name, value in ctx.metadata.items() if name not in PROMPT_COLUMNS}
        return self.types.request(
            rollout_id=f"{run}-baseline" if baseline else run,
            server_url=SERVER_URL,
            messages=ctx.prompt,
            max_turns=ctx.max_turns,
            max_tokens_total=MAX_TOKENS_TOTAL,
            completion_params=dict(ctx.sampling),
            metadata={
                "ground_truth": ctx.metadata.get("ground_truth"),
                "row_index": ctx.row_index,
                **columns,
                "execution_mode": "eval",
                **baseline,
                "run_index": ctx.run_index,
            },
        )

    def _output(self, result: Any, ctx: ChatContext, client: LoopClient) -> RolloutOutput:
        who = f"{self.name}.run()"
        missing = [field for field in ("status", "final_messages") if not hasattr(result, field)]
        if missing:
            got = f"{type_name(result)}: {described(result)}"
            raise AgentLoopError(f"{who} must return ctx.complete(...) or ctx.error(...), got {got}")
        if result.status != COMPLETED:
            if isinstance(result.final_messages, list) and result.final_messages:
                ctx.last_conversation = result.final_messages
            text = getattr(result, "error_message", None) or f"ended with status {described(result.status)}"
            raise AgentLoopError(str(text))
        messages = result.final_messages
        if not isinstance(messages, list):
            raise AgentLoopError(f"{who}: final_messages must be a list of messages, got {type_name(messages)}")
        reason = getattr(result, "finish_reason", None)
        info = {"finish_reason": reason} if isinstance(reason, str) and reason != client.finish_reason else {}
        return RolloutOutput(output_of(messages, ctx, who).messages, _metrics(result), info)


def agent_loop(name: str, value: Any, reporting: Callable[[str, Callable[[], Any]], Any]) -> AgentLoopAgent:
    """Return the agent of a loop, or of a class, which is instantiated once. Raises `CodeError`.

    `reporting` makes errors of the user's code a `CodeError`.
    """
    is_class = inspect.isclass(value)
    types = LoopTypes.of(value if is_class else type(value))
    if types is None:
        raise CodeError(f"{name}: derives from a {AGENT_LOOP} that is not the one of osmosis_ai.rollout")
    if inspect.isabstract(value):
        raise CodeError(f"{name}: is abstract: it does not define {', '.join(sorted(value.__abstractmethods__))}")
    return AgentLoopAgent(name, reporting(name, value) if is_class else value, types)


class LoopClient:
    """`ctx.llm` of a loop: asks the eval's model, with the rollout's tools in every request.

    `failure` is the error of the last request, None if it was answered: what the loop makes of it is the model's too.
    An answer makes up for a failure that was known when its request began, and for none that happened meanwhile.
    `finish_reason` is that of the last answer.
    """

    def __init__(self, ctx: ChatContext, tools: Sequence[Any], types: LoopTypes) -> None:
        self._ctx = ctx
        self._types = types
        self.failure: ModelError | BoundError | None = None
        self.finish_reason = ""
        self.reset_metrics()
        self.set_tools(tools)

    def set_tools(self, tools: Sequence[Any]) -> None:
        self._tools = [tool.model_dump(exclude_none=True) if hasattr(tool, "model_dump") else tool for tool in tools]

    def clear_tools(self) -> None:
        self._tools = []

    def reset_metrics(self) -> None:
        self._counts: dict[str, float] = {
            "llm_latency_ms": 0.0,
            "num_llm_calls": 0,
            "prompt_tokens": 0,
            "response_tokens": 0,
        }

    def get_metrics(self) -> Any:
        """Return the SDK's metrics of the requests so far."""
        return self._types.metrics(**self._counts)

    async def chat_completions(self, messages: Sequence[Message], **parameters: Any) -> Any:
        """Return the SDK's `CompletionsResult` for one request. `parameters` are those of the request's body."""
        tools = parameters.pop("tools", self._tools)
        begun, known = monotonic(), self.failure
        try:
            reply = await self._ctx.chat(messages, tools, **parameters)
        except (ModelError, BoundError) as error:
            self.failure = error
            raise
        if self.failure is known:
            self.failure = None
        self.finish_reason = reply.finish_reason or "stop"
        used = reply.usage or Usage(0, 0)
        given, taken = used.input_tokens, used.output_tokens
        self._counts["llm_latency_ms"] += (monotonic() - begun) * 1000
        self._counts["num_llm_calls"] += 1
        self._counts["prompt_tokens"] += given
        self._counts["response_tokens"] += taken
        return self._types.result(
            message=_without_none(reply.message),
            token_ids=[],
            logprobs=[],
            usage={"prompt_tokens": given, "completion_tokens": taken, "total_tokens": given + taken},
            finish_reason=self.finish_reason,
        )


def check_tools(tools: object, who: str) -> None:
    """Raise `NotAConversation` if a tool is none that models accept, by the rules of the SDK."""
    if not isinstance(tools, (list, tuple)):
        raise NotAConversation(f"{who} must return a list of OpenAIFunctionToolSchema, got {type_name(tools)}")
    for index, tool in enumerate(tools):
        function = getattr(tool, "function", None)
        if function is None:
            got = f"{type_name(tool)}: {described(tool)}"
            raise NotAConversation(f"{who}: tool {index} must be an OpenAIFunctionToolSchema, got {got}")
        name = getattr(function, "name", None)
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            allowed = "a letter or an underscore, then letters, digits and underscores"
            raise NotAConversation(f"{who}: the name of tool {index} must be {allowed}, got {described(name)}")
        kind = getattr(getattr(function, "parameters", None), "type", "object")
        if kind != "object":
            raise NotAConversation(f'{who}: tool {name}: parameters.type must be "object", got {described(kind)}')


def _metrics(result: Any) -> dict[str, float]:
    """Return those of a result's metrics that are numbers. The SDK takes any value, so no other one fails a run."""
    metrics: dict[str, float] = {}
    for name in PUBLISHED_METRICS:
        with contextlib.suppress(UserValueFault):
            metrics[name] = number_of(getattr(getattr(result, "metrics", None), name, None))
    return metrics


def _without_none(value: Any) -> Any:
    """Return JSON data without the fields that are None: agents put the message into their next request.

    >>> _without_none({"role": "assistant", "content": None, "tool_calls": [{"id": "1", "index": None}]})
    {'role': 'assistant', 'tool_calls': [{'id': '1'}]}
    """
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
