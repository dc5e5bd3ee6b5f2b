"""The Grader of both rollouts."""

from __future__ import annotations

import re

from osmosis_ai.rollout.context import GraderContext
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types import GraderConfig


class ProductsGraderConfig(GraderConfig):
    name: str = "products"
    tolerance: float = 1e-6


products_grader_config = ProductsGraderConfig()


class ProductsGrader(Grader):
    async def grade(self, ctx: GraderContext) -> None:
        content = ctx.sample.messages[-1]["content"]
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
        close = bool(numbers) and abs(float(numbers[-1]) - float(ctx.label)) <= self.config.tolerance
        ctx.sample.metrics["messages"] = len(ctx.sample.messages)
        ctx.set_reward(float(close))
