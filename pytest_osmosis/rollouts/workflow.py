"""The workflow contract of Osmosis 0.3: a class whose `run(ctx)` produces a conversation, with one instance per run.

Classes are recognised by the name of a base class in their MRO, so user code need not import ours.
Source of the shapes: osmosis_ai.rollout, SDK 0.3.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.rollouts.output import RolloutOutput, output_of


@dataclass(slots=True)
class AgentWorkflowOutput:
    """The result of a workflow: the conversation, with numbers and notes of the workflow's own."""

    messages: list[Message] | None = None
    """The conversation, prompt included; None for that of the last `ctx.chat`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Finite numbers by name, such as the number of turns. A Grader finds them in `ctx.sample.metrics`, and the summary
    shows their means."""
    info: dict[str, Any] = field(default_factory=dict)
    """Further facts by name, which are kept and shown with the run. Long values are shortened."""


@dataclass(slots=True)
class ConcurrencyConfig:
    """The limit of a workflow's or a Grader's config, in its attribute `concurrency`."""

    max_concurrent: int | None = None
    """The most rollouts, or scorings, that are in flight at once, in all processes together; None for any number. A
    rollout that waits for a retry counts too. `batch_size` may be lower."""


class AgentWorkflowConfig:
    """The base class of a workflow's config: attributes of the class are defaults, keywords replace them.

    An instance in the module of the workflow is its config. Each run gets a copy, as `ctx.config`, and as the argument
    of the workflow's `__init__`. A dataclass may derive from it too. An attribute `concurrency` limits the rollouts in
    flight (see `ConcurrencyConfig`).
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


AgentWorkflowContext = ChatContext
"""A workflow's context is the run's `ChatContext`; its `config` is this run's copy of the workflow's config."""


class AgentWorkflow(ABC):
    """The base class of workflows, which define `run`. Every rollout gets a new instance.

    The module of an entrypoint holds one such class, and at most one `AgentWorkflowConfig`.
    """

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config
        """This run's copy of the module's `AgentWorkflowConfig`, None without one."""

    @abstractmethod
    async def run(self, ctx: AgentWorkflowContext) -> AgentWorkflowOutput | list[Message] | None:
        """Return the conversation, prompt included, or None for that of the last `ctx.chat`."""


@dataclass(frozen=True, slots=True)
class WorkflowAgent:
    """Runs a workflow class."""

    workflow: type[Any]
    config: Any = None

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the checked output of `run` of a new instance."""
        config = copy.deepcopy(self.config)
        ctx.config = config
        instance = self.workflow(config) if config is not None else self.workflow()
        return output_of(await instance.run(ctx), ctx, f"{self.workflow.__name__}.run()")
