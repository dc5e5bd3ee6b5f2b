"""pytest-osmosis: evaluations of LLM agents as pytest suites.

The public names load when they are first asked for, so that importing the plugin stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_osmosis.models.base import ChatReply as ChatReply
    from pytest_osmosis.plugin.rollout_tests.rollout import Rollout as Rollout
    from pytest_osmosis.record.run_record import RunRecord as RunRecord
    from pytest_osmosis.results.results import Results as Results
    from pytest_osmosis.rewards.decorator import RewardWarning as RewardWarning
    from pytest_osmosis.rewards.decorator import osmosis_reward as osmosis_reward
    from pytest_osmosis.rewards.graders import Grader as Grader
    from pytest_osmosis.rewards.graders import GraderContext as GraderContext
    from pytest_osmosis.rewards.graders import RolloutSample as RolloutSample
    from pytest_osmosis.rollouts.context import ChatContext as ChatContext
    from pytest_osmosis.rollouts.workflow import AgentWorkflow as AgentWorkflow
    from pytest_osmosis.rollouts.workflow import AgentWorkflowContext as AgentWorkflowContext
    from pytest_osmosis.rollouts.workflow import AgentWorkflowOutput as AgentWorkflowOutput
    from pytest_osmosis.verdicts.gates import Verdict as Verdict

__version__ = "0.1.0"

HOMES = {
    "AgentWorkflow": "pytest_osmosis.rollouts.workflow",
    "AgentWorkflowContext": "pytest_osmosis.rollouts.workflow",
    "AgentWorkflowOutput": "pytest_osmosis.rollouts.workflow",
    "ChatContext": "pytest_osmosis.rollouts.context",
    "ChatReply": "pytest_osmosis.models.base",
    "Grader": "pytest_osmosis.rewards.graders",
    "GraderContext": "pytest_osmosis.rewards.graders",
    "Results": "pytest_osmosis.results.results",
    "RewardWarning": "pytest_osmosis.rewards.decorator",
    "Rollout": "pytest_osmosis.plugin.rollout_tests.rollout",
    "RolloutSample": "pytest_osmosis.rewards.graders",
    "RunRecord": "pytest_osmosis.record.run_record",
    "Verdict": "pytest_osmosis.verdicts.gates",
    "osmosis_reward": "pytest_osmosis.rewards.decorator",
}

__all__ = [
    "AgentWorkflow",
    "AgentWorkflowContext",
    "AgentWorkflowOutput",
    "ChatContext",
    "ChatReply",
    "Grader",
    "GraderContext",
    "Results",
    "RewardWarning",
    "Rollout",
    "RolloutSample",
    "RunRecord",
    "Verdict",
    "__version__",
    "osmosis_reward",
]


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(HOMES[name]), name)
    globals()[name] = value
    return value
