"""A workflow and a Grader of `osmosis_ai` that behave as the prompt says, and what comes of each behaviour.

`OUTCOMES` holds the end of a rollout in the SDK: "success" with its reward, "skipped" or "failed".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIMIT_S = 2.0
LATE = {"a slow workflow": "agent_workflow_timeout_s", "a slow Grader": "grader_timeout_s"}
"""The rows that end only with their time, and the limit that ends them: `LIMIT_S`."""

CODE = """
import asyncio
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.context import AgentWorkflowContext, GraderContext, SampleSource, get_rollout_context
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types import AgentWorkflowConfig, AgentWorkflowOutput, GraderConfig, RolloutSample

NAN, INFINITY = float("nan"), float("inf")
ANSWER = [{"role": "user", "content": "what?"}, {"role": "assistant", "content": "42"}]


class FlowConfig(AgentWorkflowConfig):
    name: str = "flow"
    seen: list = []


class JudgeConfig(GraderConfig):
    name: str = "judge"
    right: str = "42"


flow_config, judge_config = FlowConfig(mood="kind"), JudgeConfig()


class Source(SampleSource):
    def __init__(self, **fields):
        self.fields = fields

    async def get_sample(self):
        return RolloutSample(messages=ANSWER, **self.fields)


class Flow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext):
        case = ctx.prompt[-1]["content"] if ctx.prompt else ctx.metadata["case"]
        assert self.config is ctx.config and ctx.config is not flow_config and ctx.config.mood == "kind"
        ctx.config.seen.append(case)
        assert ctx.config.seen == [case], "each rollout has a config of its own"
        assert ctx.artifacts_dir.is_dir()
        rollout = get_rollout_context()
        match case:
            case "output":
                return AgentWorkflowOutput(messages=ANSWER, metrics={"turns": 2}, info={"note": "brief"})
            case "output without messages":
                return AgentWorkflowOutput(metrics={"turns": 2})
            case "output with nan":
                return AgentWorkflowOutput(messages=ANSWER, metrics={"turns": NAN})
            case "output with a later nan":
                output = AgentWorkflowOutput(messages=ANSWER)
                output.metrics["turns"] = INFINITY
                return output
            case "output with another field":
                return AgentWorkflowOutput(messages=ANSWER, score=1.0)
            case "source":
                rollout.set_sample_source(Source())
            case "source and output":
                rollout.set_sample_source(Source(reward=0.125))
                return ANSWER
            case "source with a reward":
                rollout.set_sample_source(Source(reward=0.25, extra_fields={"by": "source"}, metrics={"f1": 0.5}))
            case "source that removes":
                rollout.set_sample_source(Source(remove_sample=True))
            case "source of something else":
                rollout.set_sample_source(type("Odd", (SampleSource,), {"get_sample": lambda self: 3})())
            case "two sources":
                rollout.set_sample_source(Source())
                rollout.set_sample_source(Source())
            case "nothing":
                pass
            case "text":
                return "42"
            case "messages of text":
                return ["42"]
            case "messages without roles":
                return [*ANSWER, {"type": "function_call_output", "output": "42"}]
            case "raises":
                raise ValueError("bad")
            case "its own timeout":
                raise TimeoutError("mine")
            case "slow":
                await asyncio.sleep(60)
            case _:
                return ANSWER


class Judge(Grader):
    async def grade(self, ctx: GraderContext):
        case = ctx.metadata["case"] if ctx.metadata else (ctx.label or "").partition(": ")[2]
        assert self.config.right == "42" and get_rollout_context() is None and ctx.artifacts_dir.is_dir()
        match case:
            case "no reward":
                return 1.0
            case "nan":
                ctx.set_reward(NAN)
            case "infinity":
                ctx.sample.reward = INFINITY
            case "raises":
                raise KeyError("no such thing")
            case "removes":
                ctx.sample.remove_sample = True
            case "removes and rewards":
                ctx.set_reward(0.5)
                ctx.sample.remove_sample = True
            case "a number as text":
                ctx.set_reward("0.5")
            case "text":
                ctx.set_reward("good")
            case "true":
                ctx.set_reward(True)
            case "large":
                ctx.set_reward(-1e6)
            case "another sample":
                ctx.sample = RolloutSample(messages=[], reward=0.75)
            case "no sample":
                ctx.sample = None
            case "slow":
                await asyncio.sleep(60)
            case "metrics":
                assert ctx.sample.metrics == {"turns": 2.0} and ctx.sample.trajectory_messages == ANSWER
                ctx.sample.metrics["overlap"] = 0.5
                ctx.sample.extra_fields["judge"] = "x"
                ctx.set_reward(1.0)
            case "kept":
                assert ctx.sample.metrics == {"f1": 0.5} and ctx.sample.extra_fields == {"by": "source"}
            case _:
                assert ctx.sample.label in (None, ctx.label)
                ctx.set_reward(float(ctx.sample.messages[-1].get("content") == self.config.right))
"""

FAILED = ("failed", None)
ROWS: Mapping[str, tuple[dict[str, Any], tuple[str, float | None]]] = {
    "messages": ({"user_prompt": "list", "ground_truth": "x"}, ("success", 1.0)),
    "messages without roles": ({"user_prompt": "messages without roles", "ground_truth": "x"}, ("success", 0.0)),
    "an output with metrics": ({"user_prompt": "output", "ground_truth": "x: metrics"}, ("success", 1.0)),
    "an output without messages": ({"user_prompt": "output without messages", "ground_truth": "x"}, FAILED),
    "an output with nan": ({"user_prompt": "output with nan", "ground_truth": "x"}, FAILED),
    "an output with a later nan": ({"user_prompt": "output with a later nan", "ground_truth": "x"}, FAILED),
    "an output with another field": ({"user_prompt": "output with another field", "ground_truth": "x"}, FAILED),
    "a source": ({"user_prompt": "source", "ground_truth": "x"}, ("success", 1.0)),
    "a source and an output": ({"user_prompt": "source and output", "ground_truth": "x"}, ("success", 1.0)),
    "a source with a reward": ({"user_prompt": "source with a reward", "ground_truth": "x: kept"}, ("success", 0.25)),
    "a source that removes": ({"user_prompt": "source that removes", "ground_truth": "x"}, ("skipped", None)),
    "a source of something else": ({"user_prompt": "source of something else", "ground_truth": "x"}, FAILED),
    "two sources": ({"user_prompt": "two sources", "ground_truth": "x"}, FAILED),
    "None without a source": ({"user_prompt": "nothing", "ground_truth": "x"}, FAILED),
    "a text": ({"user_prompt": "text", "ground_truth": "x"}, FAILED),
    "messages of text": ({"user_prompt": "messages of text", "ground_truth": "x"}, FAILED),
    "a workflow that raises": ({"user_prompt": "raises", "ground_truth": "x"}, FAILED),
    "a workflow with a timeout of its own": ({"user_prompt": "its own timeout", "ground_truth": "x"}, FAILED),
    "a slow workflow": ({"user_prompt": "slow", "ground_truth": "x"}, FAILED),
    "no reward": ({"user_prompt": "list", "ground_truth": "x: no reward"}, FAILED),
    "a nan": ({"user_prompt": "list", "ground_truth": "x: nan"}, FAILED),
    "an infinity": ({"user_prompt": "list", "ground_truth": "x: infinity"}, FAILED),
    "a Grader that raises": ({"user_prompt": "list", "ground_truth": "x: raises"}, FAILED),
    "a Grader that removes": ({"user_prompt": "list", "ground_truth": "x: removes"}, ("skipped", None)),
    "removes and rewards": ({"user_prompt": "list", "ground_truth": "x: removes and rewards"}, ("skipped", None)),
    "a number as text": ({"user_prompt": "list", "ground_truth": "x: a number as text"}, ("success", 0.5)),
    "a text as reward": ({"user_prompt": "list", "ground_truth": "x: text"}, FAILED),
    "true": ({"user_prompt": "list", "ground_truth": "x: true"}, ("success", 1.0)),
    "a large reward": ({"user_prompt": "list", "ground_truth": "x: large"}, ("success", -1e6)),
    "another sample": ({"user_prompt": "list", "ground_truth": "x: another sample"}, ("success", 0.75)),
    "no sample any more": ({"user_prompt": "list", "ground_truth": "x: no sample"}, FAILED),
    "a slow Grader": ({"user_prompt": "list", "ground_truth": "x: slow"}, FAILED),
    "neither label nor metadata": ({"user_prompt": "list"}, FAILED),
    "an empty label": ({"user_prompt": "list", "ground_truth": ""}, FAILED),
    "a number as label": ({"user_prompt": "list", "ground_truth": 42}, ("success", 1.0)),
    "metadata alone": ({"metadata": {"case": "source"}}, ("success", 1.0)),
    "metadata as text": ({"metadata": '{"case": "true"}'}, ("success", 1.0)),
    "metadata with a prompt": ({"user_prompt": "list", "metadata": {"case": "true"}}, ("success", 1.0)),
}
"""By what they try: a row, and the end of its rollout."""
