"""The Grader contract of Osmosis 0.3: `grade(ctx)` reads a sample and calls `ctx.set_reward`; its result is ignored.

Source of the shapes: osmosis_ai.rollout, SDK 0.3.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.files import private
from pytest_osmosis.models.base import Message, own_copy
from pytest_osmosis.rewards.reward import Reward, reward_of
from pytest_osmosis.text.user_values import UserValueFault, fields_of, metrics_and_fields, number_of

REWARD = "reward"
"""The name under which a Grader's score is published."""


@dataclass(slots=True)
class RolloutSample:
    """A rollout as a Grader sees it. What a Grader sets here belongs to the run."""

    messages: list[Message]
    """The conversation that the agent returned, prompt included."""
    label: Any = None
    """The row's ground truth, None if it has none."""
    reward: float | None = None
    """The score, which `GraderContext.set_reward` sets."""
    remove_sample: bool = False
    """True removes the run from every statistic: its test is skipped."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Finite numbers by name, at first those of the rollout. Those that a Grader adds or changes are kept with the run,
    and the summary shows their means."""
    extra_fields: dict[str, Any] = field(default_factory=dict)
    """Further facts by name, which are kept and shown with the run. Long values are shortened."""
    trajectory_messages: list[Message] | None = None
    """A copy of the conversation, which Osmosis archives. Nothing reads it here."""


@dataclass(slots=True)
class GraderContext:
    """One rollout to grade: `ctx` of `Grader.grade`."""

    sample: RolloutSample
    """The rollout."""
    label: Any = None
    """The row's ground truth, None if it has none."""
    metadata: dict[str, Any] | None = None
    """The whole row with all its columns."""
    project_path: Path | None = None
    """The workspace's folder."""
    artifacts: Path | None = None
    reason: str = ""
    """The reason for the score, if `set_reward` got one."""

    @property
    def artifacts_dir(self) -> Path | None:
        """The folder for files of this run, which its agent may have written; created on first access."""
        if self.artifacts is not None:
            private.make_folders(self.artifacts)
        return self.artifacts

    def set_reward(self, reward: Any) -> None:
        """Give the rollout its score, any finite number, alone or with a reason and metrics, as functions return them.

        Raises `ValueError` for anything else.
        """
        found = reward_of(reward)
        self.sample.reward, self.reason = found.score, found.reason
        if found.metrics:
            self.sample.metrics = {**self.sample.metrics, **found.metrics}


class GraderConfig:
    """The base class of a Grader's config: attributes of the class are defaults, keywords replace them.

    An instance in the module of the Grader is its config. Each run gets a copy, as the argument of the Grader's
    `__init__`. A dataclass may derive from it too. An attribute `concurrency` limits the scorings in flight (see
    `ConcurrencyConfig`).
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


class Grader(ABC):
    """The base class of Graders, which define `grade`. Every rollout gets a new instance.

    The module of an entrypoint holds at most one such class, and at most one `GraderConfig`.
    """

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config
        """This run's copy of the module's `GraderConfig`, None without one."""

    @abstractmethod
    async def grade(self, ctx: GraderContext) -> None:
        """Read `ctx.sample`, and call `ctx.set_reward` or set `ctx.sample.remove_sample`; the result is ignored."""


class RolloutToGrade(NamedTuple):
    """A rollout, its row, and folders: objects of its Grader's own, which may change them.

    `metrics` are those of the rollout, `samples` the fields of samples that a workflow of `osmosis_ai` left for its
    Grader (`rollouts.sdk_workflow`).
    """

    messages: list[Message]
    ground_truth: object
    row: dict[str, Any]
    metrics: Mapping[str, float]
    samples: Sequence[Mapping[str, Any]]
    project: Path
    artifacts: Path


@dataclass(frozen=True, slots=True)
class GraderCode:
    """A user's Grader class, ready to be called: here with our context and sample."""

    grader: type[Any]
    config: Any = None

    async def grade(self, rollout: RolloutToGrade) -> Reward:
        """Return the reward by a new instance, without a score if it removed the sample.

        Raises `UserValueFault` if the sample is neither scored nor removed.
        """
        config = copy.deepcopy(self.config)
        instance = self.grader(config) if config is not None else self.grader()
        messages, truth, metrics = rollout.messages, rollout.ground_truth, rollout.metrics
        sample = RolloutSample(messages, truth, metrics=dict(metrics), trajectory_messages=own_copy(messages))
        ctx = GraderContext(sample, truth, rollout.row, rollout.project, rollout.artifacts)
        await instance.grade(ctx)
        if not sample.remove_sample and sample.reward is None:
            raise UserValueFault(no_reward(self.grader))
        score = None if sample.remove_sample else number_of(sample.reward)
        return with_notes(Reward(score, ctx.reason), sample.metrics, sample.extra_fields, metrics)


def no_reward(grader: type[Any]) -> str:
    """Return the fault of a Grader that neither scored nor removed its sample."""
    return f"{grader.__name__}.grade() set no reward: call ctx.set_reward(...)"


def with_notes(reward: Reward, metrics_after: object, extra_fields: object, before: Mapping[str, float]) -> Reward:
    """Return a reward with the metrics that its Grader added or changed, and with its extra fields.

    Osmosis takes any value as a metric, and keeps the reward whatever it is. So what is no finite number becomes a
    field.
    """
    fields = fields_of(extra_fields, "sample.extra_fields")
    metrics, others = metrics_and_fields(metrics_after, "sample.metrics")
    changed = {name: value for name, value in metrics.items() if name not in before or before[name] != value}
    return replace(reward, metrics=changed, fields=fields | others)
