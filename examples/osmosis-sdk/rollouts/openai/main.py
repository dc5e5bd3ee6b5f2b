"""A calculator with the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

import uvicorn
from agents import ModelSettings, RunConfig, Runner, function_tool
from agents.models.interface import Model
from grading import ProductsGrader, products_grader_config
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend.local import LocalBackend
from osmosis_ai.rollout.context import AgentWorkflowContext
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.types import AgentWorkflowConfig, ConcurrencyConfig


@function_tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


class CalculatorConfig(AgentWorkflowConfig):
    name: str = "calculator"
    model: Model
    model_settings: ModelSettings
    tools: list[Any]


calculator_config = CalculatorConfig(
    model=OsmosisRolloutModel(),
    model_settings=ModelSettings(max_tokens=1000),
    tools=[multiply],
    concurrency=ConcurrencyConfig(max_concurrent=2),
)


class Calculator(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        config = ctx.config
        agent = OsmosisAgent(
            name="calculator", model=config.model, model_settings=config.model_settings, tools=config.tools
        )
        quiet = RunConfig(tracing_disabled=True)  # or else the SDK sends each conversation to OpenAI
        await Runner.run(agent, ctx.prompt, session=OsmosisMemorySession(), run_config=quiet, max_turns=4)


if __name__ == "__main__":
    backend = LocalBackend(
        workflow=Calculator,
        workflow_config=calculator_config,
        grader=ProductsGrader,
        grader_config=products_grader_config,
    )
    uvicorn.run(create_rollout_server(backend=backend), port=8000)
