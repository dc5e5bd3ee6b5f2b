"""`osmosis_ai.rollout.context`: the contexts of workflows, Graders and rollouts.

It serves both APIs: since 0.3 a rollout has one sample, without a name; before, it had samples by name. A sample that
was registered with a name is the only one too, as long as there is no other.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.types import AgentWorkflowConfig, RolloutSample

__all__ = [
    "AgentWorkflowContext",
    "GraderContext",
    "RolloutContext",
    "SampleSource",
    "get_rollout_context",
]

TConfig = TypeVar("TConfig", bound=AgentWorkflowConfig)


class SampleSource(ABC):
    """Holds the conversation of an agent or a session, and returns it as a sample when the rollout is over."""

    @abstractmethod
    async def get_sample(self) -> RolloutSample:
        """Return the sample. Before 0.3 its name was an argument."""


rollout_contextvar: ContextVar[RolloutContext | None] = ContextVar("rollout_contextvar", default=None)


def get_rollout_context() -> RolloutContext | None:
    """Return the context of the rollout that runs now, None outside of one."""
    return rollout_contextvar.get()


@dataclass
class RolloutContext:
    """One rollout: the URL at which it asks the model, and the source of its sample.

    Entered while the workflow runs. What is not given comes from environment variables.
    """

    chat_completions_url: str = ""
    api_key: str | None = None
    rollout_id: str = ""
    sample_source: SampleSource | None = None
    sample_sources: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chat_completions_url = self.chat_completions_url or os.environ.get("OSMOSIS_CHAT_COMPLETIONS_URL", "")
        self.api_key = self.api_key or os.environ.get("OSMOSIS_API_KEY")
        self.rollout_id = self.rollout_id or os.environ.get("OSMOSIS_ROLLOUT_ID", "")

    def __enter__(self) -> RolloutContext:
        rollout_contextvar.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        rollout_contextvar.set(None)

    def set_sample_source(self, source: SampleSource) -> None:
        """Let `source` give the rollout's sample. Raises `ValueError` if there is one already."""
        if self.sample_source is not None or self.sample_sources:
            raise ValueError(
                "RolloutContext already has a sample source: a rollout produces one sample, so construct a single "
                "agent or session in run()"
            )
        self.sample_source = source

    def register_sample_source(self, name: str, source: Any) -> None:
        """Let `source` give the sample of that name, as before 0.3. Raises `ValueError` if the name is taken."""
        if name in self.sample_sources or self.sample_source is not None:
            raise ValueError(f"{name!r}: there is such a sample source already; give each agent and session its name")
        self.sample_sources[name] = source

    async def get_sample(self) -> RolloutSample | None:
        """Return the only sample, None if there is no source, or if there are several."""
        if self.sample_source is not None:
            return await self.sample_source.get_sample()
        samples = list((await self.get_samples()).values())
        return samples[0] if len(samples) == 1 else None

    async def get_samples(self) -> dict[str, RolloutSample]:
        """Return the samples of sources with names."""
        samples = {}
        for name, source in self.sample_sources.items():
            takes_name = bool(inspect.signature(source.get_sample).parameters)
            sample = await (source.get_sample(name) if takes_name else source.get_sample())
            sample.id = sample.id or name
            samples[name] = sample
        return samples


def add_sample_source(context: Any, source: Any, name: object) -> None:
    """Let `source` give the sample of a rollout, whose context may be the SDK's own."""
    if name is None or not hasattr(context, "register_sample_source"):  # 0.3 has one source, without a name
        context.set_sample_source(source)
    else:
        context.register_sample_source(str(name), source)


@dataclass
class GraderContext:
    """One rollout to grade."""

    label: str | None = None
    sample: RolloutSample | None = None
    project_path: str | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None
    samples: Mapping[str, RolloutSample] = field(default_factory=dict)

    def set_reward(self, reward: float) -> None:
        """Give the sample its reward, a finite number."""
        if self.sample is None:
            raise ValueError("GraderContext has no sample to reward")
        self.sample.reward = reward

    def get_samples(self) -> Mapping[str, RolloutSample]:
        """Return the samples by name, as before 0.3."""
        return self.samples

    def set_sample_reward(self, sample_id: str, reward: float) -> None:
        """Give the sample of that name its reward, as before 0.3."""
        if sample_id not in self.samples:
            raise ValueError(f"Sample {sample_id} not found")
        self.samples[sample_id].reward = reward


@dataclass
class AgentWorkflowContext(Generic[TConfig]):
    """One rollout, as a workflow sees it."""

    prompt: list[dict[str, Any]]
    config: TConfig | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None
