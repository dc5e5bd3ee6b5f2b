"""A calculator with Strands."""

from __future__ import annotations

from typing import Any

import uvicorn
from grading import ProductsGrader, products_grader_config
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend.local import LocalBackend
from osmosis_ai.rollout.context import AgentWorkflowContext
from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.types import AgentWorkflowConfig
from strands import tool
from strands.models.model import Model


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


class CalculatorConfig(AgentWorkflowConfig):
    name: str = "calculator"
    model: Model
    tools: list[Any]


calculator_config = CalculatorConfig(model=OsmosisRolloutModel(params={"max_tokens": 1000}), tools=[multiply])


class Calculator(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext) -> None:
        config = ctx.config
        agent = OsmosisStrandsAgent(
            name="calculator", model=config.model, tools=config.tools, messages=ctx.prompt, callback_handler=None
        )
        await agent.invoke_async()


if __name__ == "__main__":
    backend = LocalBackend(
        workflow=Calculator,
        workflow_config=calculator_config,
        grader=ProductsGrader,
        grader_config=products_grader_config,
    )
    uvicorn.run(create_rollout_server(backend=backend), port=8000)
