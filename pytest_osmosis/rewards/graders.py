"""The Grader contract of Osmosis 0.3: `grade(ctx)` reads a sample and calls `ctx.set_reward`; its result is ignored.

Source of the shapes: osmosis_ai.rollout, SDK 0.3.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_osmosis.models.base import Message
from pytest_osmosis.rewards.functions import NotAScore, score_of

REWARD = "reward"
"""The name under which a Grader's score is published."""


@dataclass(slots=True)
class RolloutSample:
    """A rollout as a Grader sees it. Setting `remove_sample` removes the run from every statistic."""

    messages: list[Message]
    label: Any = None
    reward: float | None = None
    remove_sample: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    extra_fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class GraderContext:
    """One rollout to grade: `label` is the row's ground truth, `metadata` the whole row."""

    sample: RolloutSample
    label: Any = None
    metadata: dict[str, Any] | None = None
    project_path: Path | None = None
    artifacts: Path | None = None

    @property
    def artifacts_dir(self) -> Path | None:
        """The folder for files of this run, created on first access."""
        if self.artifacts is not None:
            self.artifacts.mkdir(parents=True, exist_ok=True)
        return self.artifacts

    def set_reward(self, reward: float) -> None:
        """Give the rollout its score, any finite number."""
        self.sample.reward = score_of(reward)


class Grader(ABC):
    """The base class of Graders, which define `grade`. Every rollout gets a new instance."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    @abstractmethod
    async def grade(self, ctx: GraderContext) -> None:
        """Read `ctx.sample` and call `ctx.set_reward`."""


@dataclass(frozen=True, slots=True)
class GraderCode:
    """A user's Grader class, ready to be called."""

    grader: type[Any]
    config: Any = None

    async def grade(
        self,
        messages: Sequence[Message],
        ground_truth: object,
        row: Mapping[str, Any],
        *,
        project: Path,
        artifacts: Path,
    ) -> RolloutSample:
        """Return the sample, graded by a new instance. Raises `NotAScore` if it is neither scored nor removed."""
        config = copy.deepcopy(self.config)
        instance = self.grader(config) if config is not None else self.grader()
        sample = RolloutSample(messages=list(messages), label=ground_truth)
        await instance.grade(GraderContext(sample, ground_truth, dict(row), project, artifacts))
        if not sample.remove_sample:
            if sample.reward is None:
                raise NotAScore(f"{self.grader.__name__}.grade() set no reward: call ctx.set_reward(...)")
            sample.reward = score_of(sample.reward)
        return sample
