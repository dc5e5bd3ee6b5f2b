"""Workflows and Graders of `osmosis_ai` 0.2.18 and newer, the SDK's own classes or those of our shim.

Workflows ask the model at the URL in the `RolloutContext` that is active while they run, and get contexts of the
package's own types. The versions differ: a sample source used to have a name, and there could be several; what `run`
returned was ignored. So the adapter looks at what the installed types offer, never at a version. Source of the rules:
osmosis_ai.rollout.backend.local, SDK 0.3.7.

Backends of the SDK are not used, and those that run a rollout elsewhere are refused. An entrypoint builds its backend
where an eval does not come, in `main()`, and imports what only that backend needs; so its source is read, and not run.
Source: osmosis_ai 0.3.8, whose only other backend is `LocalBackend`.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_osmosis.errors import CodeError
from pytest_osmosis.files import private
from pytest_osmosis.host.loading import Configured, check_class
from pytest_osmosis.host.rollout_code import files_needed_by, read_source
from pytest_osmosis.models.base import Message, own_copy
from pytest_osmosis.rewards.graders import GraderCode, Reward, RolloutToGrade, no_reward, with_notes
from pytest_osmosis.rollouts.agents import ChatContext, NotAConversation, RolloutOutput
from pytest_osmosis.text.chat_messages import label_of, metadata_of
from pytest_osmosis.text.safe import dumps
from pytest_osmosis.text.user_code import (
    UserValueFault,
    error_in_words,
    fields_of,
    metrics_and_fields,
    metrics_of,
    number_of,
    only_taken,
    type_name,
)

NOTHING_TO_GRADE = (
    "returned None and registered no sample source, so there is nothing to grade; return the messages, or "
    "construct an agent or a session of osmosis_ai.rollout.integrations in run()"
)


class SdkWorkflowAgent(Struct, frozen=True):
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
            ctx = only_taken(
                contexts.GraderContext,
                label=label,
                sample=next(iter(samples.values())) if len(samples) == 1 else None,
                samples=dict(samples),
                project_path=str(rollout.project),
                metadata=metadata,
                artifacts_dir=rollout.artifacts,
            )
            await self.grader(self.config).grade(ctx)
        finally:
            with suppress(OSError):  # it is not empty
                rollout.artifacts.rmdir()
        sample = getattr(ctx, "sample", None)  # the only one, or there are several with names
        return self._reward({"": sample} if sample is not None else getattr(ctx, "samples", {}), rollout)

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


def sdk_workflow(workflow: Configured, package: str) -> SdkWorkflowAgent:
    """Return the agent that runs a workflow of the SDK in `package`. Raises `CodeError` if it cannot be called."""
    _check(workflow, package, "run")
    return SdkWorkflowAgent(workflow.cls, package, workflow.config)


def sdk_grader(grader: Configured, package: str) -> SdkGraderCode:
    """Return the code that calls a Grader of the SDK in `package`. Raises `CodeError` if it cannot be called."""
    _check(grader, package, "grade")
    return SdkGraderCode(grader.cls, grader.config, package=package)


def _check(code: Configured, package: str, method: str) -> None:
    """Raise `CodeError` if the package lacks what a rollout needs, or if `method` of the class cannot be called."""
    for module in ("context", "types"):
        try:
            importlib.import_module(f"{package}.rollout.{module}")
        except ImportError as error:
            raise CodeError(
                f"{code.name}: derives from a class of {package}, but {package}.rollout.{module} cannot be imported "
                f"({error_in_words(error)}); install osmosis-ai 0.2.25 or newer"
            ) from error
    check_class(code.name, code.cls, method, passes_config=True)


CONTAINERS = "HarborBackend"
BASE = "ExecutionBackend"
"""The class from which users derive backends of their own."""
_CHECKS = ("isinstance", "issubclass", "cast")


def other_backend(entrypoint: Path, roots: Sequence[str]) -> str | None:
    """Return why the workflow of an entrypoint would run elsewhere, None if it runs here.

    It would if the entrypoint, or a file in the roots that it needs, uses `HarborBackend` or derives a backend of its
    own. Annotations and checks of types do not count.
    """
    for path in sorted(files_needed_by([entrypoint], [Path(root) for root in roots])):
        source = read_source(path)[0]
        if CONTAINERS.encode() in source or BASE.encode() in source:
            for line, backend, where in _backends(ast.parse(source)):
                return (
                    f"{path}: line {line} uses {backend}, which runs the workflow {where}, while an eval runs it on "
                    "this machine; `osmosis eval run` evaluates it there; if it can run here, use LocalBackend, or "
                    "name its classes in [agent] agent and [scoring] grader: see docs/how-to/from-osmosis.md"
                )
    return None


def _backends(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a module that use another backend, its name, and where it runs a workflow."""
    nodes = [*ast.walk(tree)]
    imported = {each.asname: each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names}
    for node in nodes:
        is_check = isinstance(node, ast.Call) and _last_name(node.func) in _CHECKS
        for name in ("args",) if is_check else ("annotation", "returns"):
            setattr(node, name, None)

    def named(node: ast.AST) -> str:
        name = _last_name(node)
        return imported.get(name, name)

    for node in ast.walk(tree):
        if named(node) == CONTAINERS and isinstance(node, ast.expr):
            yield node.lineno, CONTAINERS, "in a container"
        if isinstance(node, ast.ClassDef) and BASE in map(named, node.bases):
            yield node.lineno, node.name, "in a way of its own"


def _last_name(node: ast.AST) -> str:
    """Return the last name of an expression like `a.b`, "" for another."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
