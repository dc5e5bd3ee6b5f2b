"""Workflows of `osmosis_ai` 0.2.18 and newer, the SDK's own classes or those of our shim.

They ask the model at the URL in the `RolloutContext` that is active while they run, and get contexts of the package's
own types. The versions differ: a sample source used to have a name, and there could be several; what `run` returned was
ignored. So the adapter looks at what the installed types offer, never at a version. Backends of the SDK are not used.
Source of the rules: osmosis_ai.rollout.backend.local, SDK 0.3.7.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext, NotAConversation, RolloutOutput
from pytest_osmosis.text.recorded import metadata_of
from pytest_osmosis.text.safe import dumps
from pytest_osmosis.text.user_code import (
    error_in_words,
    fields_of,
    metrics_and_fields,
    metrics_of,
    only_taken,
    type_name,
)

NOTHING_TO_GRADE = (
    "returned None and registered no sample source, so there is nothing to grade; return the messages, or "
    "construct an agent or a session of osmosis_ai.rollout.integrations in run()"
)


@dataclass(frozen=True, slots=True)
class SdkWorkflowAgent:
    """Runs a workflow class of the SDK in `package`, a new instance with a copy of `config` for each rollout."""

    workflow: type[Any]
    package: str
    config: Any = None

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation that `run` returned or that its sample source holds.

        Raises `NotAConversation` if there is neither, and what user code and the SDK's checks of its values raise.
        """
        contexts = importlib.import_module(f"{self.package}.rollout.context")
        config = copy.deepcopy(self.config)
        instance = self.workflow(config)
        rollout = contexts.RolloutContext(
            chat_completions_url=ctx.base_url,
            api_key=ctx.api_key,
            rollout_id=f"row{ctx.row_index}-run{ctx.run_index}-{secrets.token_hex(4)}",
        )
        folder = ctx.artifacts_dir
        try:
            context = only_taken(
                contexts.AgentWorkflowContext,
                prompt=ctx.prompt,
                config=config,
                metadata=metadata_of(ctx.metadata),
                artifacts_dir=folder,
            )
            with rollout:
                return await self._output(await instance.run(context), rollout)
        finally:
            with suppress(OSError):  # it is not empty
                folder.rmdir()

    async def _output(self, returned: object, rollout: Any) -> RolloutOutput:
        types = importlib.import_module(f"{self.package}.rollout.types")
        who = f"{self.workflow.__name__}.run()"
        output_class = getattr(types, "AgentWorkflowOutput", None)
        if output_class is not None and returned is not None:
            output = _checked_output(returned, output_class)
            if output.messages is None:
                raise NotAConversation(f"{who} returned no messages, so there is nothing to grade")
            return RolloutOutput(_messages(output), metrics_of(output.metrics), fields_of(output.info, "info"))
        samples = await _samples(rollout)
        for sample in samples.values():
            if not isinstance(sample, types.RolloutSample):
                raise TypeError(f"a sample source must return a RolloutSample, got {type_name(sample)}")
        if not samples:
            raise NotAConversation(f"{who} {NOTHING_TO_GRADE}")
        first, *others = samples.values()
        metrics, fields = _notes_of(samples)
        stored = [_stored(name, sample, with_messages=bool(others)) for name, sample in samples.items()]
        return RolloutOutput(_messages(first), metrics, fields, stored)


async def _samples(rollout: Any) -> Mapping[str, Any]:
    """Return the samples by name, as before 0.3, or the only one under the name ""."""
    get_samples = getattr(rollout, "get_samples", None)
    named = get_samples() if get_samples is not None else {}
    samples = dict(await named if inspect.isawaitable(named) else named)
    if not samples and hasattr(rollout, "get_sample"):
        sample = await rollout.get_sample()
        samples = {} if sample is None else {"": sample}
    return samples


def _checked_output(returned: object, output: Any) -> Any:
    """Return what `run` returned as an `AgentWorkflowOutput`, checked by the SDK's own rules."""
    if isinstance(returned, output):
        return output.model_validate(returned)
    if isinstance(returned, list):
        return output(messages=returned)
    raise TypeError(f"run() must return AgentWorkflowOutput, a message list, or None; got {type_name(returned)}")


def _notes_of(samples: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the metrics and fields of samples; with several, their names begin with the sample's."""
    metrics: dict[str, float] = {}
    fields: dict[str, Any] = {}
    for sample_name, sample in samples.items():
        before = f"{sample_name}." if len(samples) > 1 else ""
        named = {f"{before}{name}": value for name, value in sample.metrics.items()}
        numbers, others = metrics_and_fields(named, "sample.metrics")
        metrics |= numbers
        more = {f"{before}{name}": value for name, value in sample.extra_fields.items()}
        fields |= others | fields_of(more, "sample.extra_fields")
    return metrics_of(metrics), fields


def _messages(holder: Any) -> Sequence[Message]:
    return [dict(message) for message in holder.messages]


def _stored(name: str, sample: Any, *, with_messages: bool) -> Mapping[str, Any]:
    """Return the fields of a sample that its Grader gets, as plain JSON, without those that have their default.

    Messages are stored with the rollout, unless there are several samples.
    """
    messages = _messages(sample)
    known = type(sample).model_fields
    fields = {field: getattr(sample, field) for field in known if field != "messages"}
    if fields.get("trajectory_messages") is not None:
        fields["trajectory_messages"] = [dict(message) for message in fields["trajectory_messages"]]
    if fields.get("trajectory_messages") == messages:
        del fields["trajectory_messages"]
    kept = {
        field: value
        for field, value in fields.items()
        if field == "trajectory_messages" or value != known[field].get_default(call_default_factory=True)
    }
    kept |= {"name": name} if name else {}
    kept |= {"messages": messages} if with_messages else {}
    try:
        return json.loads(dumps(kept))  # type: ignore[no-any-return]
    except Exception as error:
        raise NotAConversation(f"its sample cannot be written as JSON: {error_in_words(error)}") from error
