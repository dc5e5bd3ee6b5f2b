"""Graders of `osmosis_ai` 0.2.18 and newer, the SDK's own classes or those of our shim.

They get contexts and samples of the package's own types, whose checks therefore hold. Before 0.3 there could be several
samples, each with a name and a reward; their mean is the score. The adapter looks at what the installed types offer,
never at a version. Source of the rules: osmosis_ai.rollout.backend.local, SDK 0.3.7.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pytest_osmosis.files import private
from pytest_osmosis.models.base import own_copy
from pytest_osmosis.rewards.graders import GraderCode, RolloutToGrade, no_reward, with_notes
from pytest_osmosis.rewards.reward import Reward
from pytest_osmosis.text.recorded import label_of, metadata_of
from pytest_osmosis.text.user_code import UserValueFault, number_of, only_taken

UNGRADED = (
    "the row has neither a ground_truth (label) nor metadata, and osmosis_ai then calls no Grader; give the row one of "
    "them, or derive the Grader from pytest_osmosis.Grader"
)


@dataclass(frozen=True, slots=True)
class SdkGraderCode(GraderCode):
    """Calls a Grader class of the SDK in `package`. All instances share the `config`, as in the SDK."""

    package: str = field(kw_only=True)

    async def grade(self, rollout: RolloutToGrade) -> Reward:
        label, metadata = label_of(rollout.row), metadata_of(rollout.row)
        if label is None and metadata is None:
            raise UserValueFault(UNGRADED)
        contexts = importlib.import_module(f"{self.package}.rollout.context")
        samples = self._samples(rollout, label)
        private.make_folders(rollout.artifacts)
        try:
            ctx = _context(contexts.GraderContext, samples, label, metadata, rollout)
            await self.grader(self.config).grade(ctx)
        finally:
            with suppress(OSError):  # it is not empty
                rollout.artifacts.rmdir()
        return self._reward(_graded(ctx), rollout)

    def _samples(self, rollout: RolloutToGrade, label: str | None) -> dict[str, Any]:
        """Return new samples by name: those that the workflow left, or the conversation with its metrics."""
        sample_class = importlib.import_module(f"{self.package}.rollout.types").RolloutSample
        stored: Sequence[Mapping[str, Any]] = rollout.samples or [{"label": label, "metrics": dict(rollout.metrics)}]
        samples = {}
        for fields in own_copy(stored):
            name = fields.get("name", "")
            taken = {key: value for key, value in {"id": name, **fields}.items() if key in sample_class.model_fields}
            samples[name] = sample_class(**{"messages": list(rollout.messages), **taken})
        return samples

    def _reward(self, samples: Mapping[str, Any], rollout: RolloutToGrade) -> Reward:
        """Return the mean of the samples' rewards, without a score if all were removed."""
        if not samples:
            raise UserValueFault(f"{self.grader.__name__}.grade() left no sample, so there is no reward")
        kept = {name: sample for name, sample in samples.items() if not sample.remove_sample}
        if any(sample.reward is None for sample in kept.values()):
            raise UserValueFault(no_reward(self.grader))
        scores = {name: number_of(sample.reward) for name, sample in kept.items()}
        reward = Reward(sum(scores.values()) / len(scores) if scores else None)
        if len(samples) == 1:
            [sample] = samples.values()
            given: Mapping[str, Any] = next((fields.get("extra_fields", {}) for fields in rollout.samples), {})
            changed = {name: value for name, value in sample.extra_fields.items() if given.get(name) != value}
            return with_notes(reward, sample.metrics, changed, rollout.metrics)
        metrics = {f"{name}.{key}": value for name, sample in samples.items() for key, value in sample.metrics.items()}
        return with_notes(reward, metrics, {"rewards": scores}, rollout.metrics)


def _context(
    cls: Any, samples: Mapping[str, Any], label: str | None, metadata: Mapping[str, Any] | None, rollout: RolloutToGrade
) -> Any:
    return only_taken(
        cls,
        label=label,
        sample=next(iter(samples.values())) if len(samples) == 1 else None,
        samples=dict(samples),
        project_path=str(rollout.project),
        metadata=metadata,
        artifacts_dir=rollout.artifacts,
    )


def _graded(ctx: Any) -> Mapping[str, Any]:
    """Return the samples in a context by name, after the Grader: the only one, or those with names."""
    sample = getattr(ctx, "sample", None)
    return {"": sample} if sample is not None else getattr(ctx, "samples", {})
