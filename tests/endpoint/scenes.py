"""Agents of many scenes: row N of the dataset plays the scene with the number N, and fails if it does not go well."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent, indent

from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import ChatServer

IMPORTS = """
import anthropic, httpx2, openai

def AsyncOpenAI(ctx):
    return openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)

def AsyncAnthropic(ctx):
    return anthropic.AsyncAnthropic(base_url=ctx.base_url.removesuffix("/v1"), api_key=ctx.api_key)

def raw(ctx):
    return httpx2.AsyncClient(headers={"Authorization": f"Bearer {ctx.api_key}"})
"""


def agent_of(scenes: Mapping[str, str], head: str = "") -> str:
    """Return an agent whose rollout of row N runs the scene with the number N, a body of a function of `ctx`."""
    bodies = [indent(dedent(code), "    ") for code in scenes.values()]
    functions = [f"async def scene_{number}(ctx):\n{body}" for number, body in enumerate(bodies)]
    names = ", ".join(f"scene_{number}" for number in range(len(scenes)))
    rollout = f"async def rollout(ctx):\n    return await [{names}][ctx.row_index](ctx)\n"
    return "\n".join([IMPORTS, dedent(head), *functions, rollout])


def play(
    workspace: Workspace, scenes: Mapping[str, str], server: ChatServer, head: str = "", **tables: Mapping[str, object]
) -> Live:
    """Run each scene once. Rows are scored with `exact`, but not judged: see the records."""
    workspace.rows([{"user_prompt": f"row {number}", "ground_truth": "42"} for number in range(len(scenes))])
    workspace.agent(agent_of(scenes, head))
    return evaluated(workspace.config(server, **tables))


def failures(live: Live, scenes: Mapping[str, str]) -> dict[str, str]:
    names = list(scenes)
    return {names[row]: text for row, text in errors(live).items()}


def errors(live: Live) -> dict[int, str]:
    failed = [event for event in live.events("rollout") if event.get("error")]
    return {event["row"]: f"{event['error']}\n{event['details']}" for event in failed}
