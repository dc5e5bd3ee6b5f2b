"""Eval functions and Graders: user code that scores a rollout.

The name of an eval function's first parameter determines its mode:

- simple mode, `solution_str`: receives the rollout's last assistant text, `ground_truth` and `extra_info`
- full mode, `messages`: receives the whole conversation, `ground_truth` and `metadata`

Arguments are passed by keyword, and only those that the function takes. `extra_info` and `metadata` hold the whole row.
The result is a number, or anything that `reward_of` takes. Source: "Eval functions" of Osmosis' eval mode.

A Grader of Osmosis 0.3 has `grade(ctx)`, which reads a sample and calls `ctx.set_reward`; its result is ignored.
Source of the shapes: osmosis_ai.rollout, SDK 0.3.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_osmosis.errors import CodeError
from pytest_osmosis.files import private
from pytest_osmosis.models.base import Message, own_copy
from pytest_osmosis.text.chat_messages import answer_of
from pytest_osmosis.text.names import suggestion
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.text.user_code import (
    UserValueFault,
    described,
    fields_of,
    metrics_and_fields,
    metrics_of,
    number_of,
    type_name,
)

KEYS = ("score", "reason", "metrics")
"""The keys of a returned mapping, and the attributes of a returned object."""
SHAPE = '{"score": 0.5, "reason": "...", "metrics": {...}}'
MOST_REASON_CHARS = 4_000
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Reward:
    """A score with the reason for it and further numbers, finite like the score.

    A Grader may add `fields`, and may remove the run: then `score` is None.
    """

    score: float | None
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def reward_of(value: object) -> Reward:
    """Return the result of a function: a number, a mapping with a score, or an object with a score.

    Of an object only the attributes in `KEYS` are read. Raises `UserValueFault` for anything else, NaN and infinities.
    """
    if type(value) is float:
        return Reward(number_of(value))
    if isinstance(value, Mapping):
        return _reward(_checked(value))
    score = _ABSENT if isinstance(value, type) else getattr(value, "score", _ABSENT)
    if score is _ABSENT:
        return Reward(number_of(value))
    return _reward({"score": score, **{name: getattr(value, name, None) for name in KEYS[1:]}})


def _checked(value: Mapping[Any, Any]) -> Mapping[str, object]:
    """Return the members of a mapping, which has a score and no other keys."""
    names = list(islice(iter(value), len(KEYS) + 1))
    for name in names:
        if name not in KEYS:
            hint = suggestion(str.__str__(name), KEYS) if isinstance(name, str) else ""
            fix = hint or "; put further numbers into its metrics"
            raise UserValueFault(
                f"returned a mapping with the unknown key {described(name)}{fix} (valid: {', '.join(KEYS)})"
            )
    if "score" not in names:
        raise UserValueFault(f"returned a mapping without a score; return a number, or {SHAPE}")
    return {name: value[name] for name in names}


def _reward(members: Mapping[str, object]) -> Reward:
    score, reason = number_of(members["score"], "the returned score must be a"), members.get("reason")
    if reason is None:
        reason = ""
    if not isinstance(reason, str):
        raise UserValueFault(f"the returned reason must be a text, got {type_name(reason)}: {described(reason)}")
    text = shortened(str.__str__(reason).strip(), MOST_REASON_CHARS)
    return Reward(score, text, metrics_of(members.get("metrics")))


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
    """Finite numbers by name, at first those of the rollout. A Grader may add or change some."""
    extra_fields: dict[str, Any] = field(default_factory=dict)
    """Further facts by name, shown with the run; long values are shortened."""
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

    It is used like an `AgentWorkflowConfig`; its `concurrency` limits the scorings in flight.
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
    Grader.
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


Mode = Literal["simple", "full", "rollout"]
MODES: Mapping[str, Mode] = {"solution_str": "simple", "messages": "full"}

OFFERED: Mapping[Mode, tuple[str, str, str]] = {
    "simple": ("solution_str", "ground_truth", "extra_info"),
    "full": ("messages", "ground_truth", "metadata"),
}
"""The parameters that functions of each mode may have."""
BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


NO_FACTS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class EvalFunction:
    """A user's function or a check, ready to be called. `name` is its path as typed, the key of its scores.

    `parameters` is None if the function takes any keyword.
    """

    name: str
    function: Callable[..., Any]
    mode: Mode
    is_async: bool
    parameters: frozenset[str] | None

    def arguments(
        self,
        messages: list[Message],
        n_prompt: int,
        ground_truth: object,
        row: dict[str, Any],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> dict[str, Any]:
        """Return the keyword arguments of one call, which may change them.

        The first `n_prompt` messages hold no answer. `facts` are what a `SeenRollout` holds besides.
        """
        if self.mode == "rollout":
            from pytest_osmosis.checks.kinds import SeenRollout  # most evals need it not

            return {"rollout": SeenRollout(messages, n_prompt, ground_truth, **facts)}
        first = (answer_of(messages[n_prompt:]) or "") if self.mode == "simple" else messages
        offered = zip(OFFERED[self.mode], (first, ground_truth, row), strict=True)
        taken = self.parameters
        return {name: own_copy(value) for name, value in offered if taken is None or name in taken}


def function_of_check(declared: Mapping[str, Any]) -> tuple[EvalFunction, str]:
    """Return a check of a config as a function, and its digest. It counts as blocking: a pattern may take long."""
    from pytest_osmosis.checks.kinds import Check

    check = Check.of(declared)
    return EvalFunction(declared["name"], check, "rollout", is_async=False, parameters=None), check.digest


def eval_function(name: str, function: object) -> EvalFunction:
    """Detect the mode of `function`. Raises `CodeError` if it cannot be called as an eval function."""
    if not callable(function) or inspect.isclass(function):
        got = "a class" if inspect.isclass(function) else type(function).__name__
        raise CodeError(f"{name}: not a function but {got}")
    parameters = _parameters(name, function, follow_wrapped=True)
    first = next(iter(parameters), None)
    if first is None or first.name not in MODES:
        got = f'"{first.name}"' if first else "none"
        raise CodeError(
            f'{name}: the first parameter must be "solution_str" (the last answer) or "messages" '
            f"(the whole conversation), got {got}"
        )
    mode = MODES[first.name]
    outermost = _parameters(name, function, follow_wrapped=False)
    _refuse_impossible_calls(name, mode, outermost)
    inner = inspect.unwrap(function)  # with decorators, or an object with `__call__`, either may be async
    codes = [function, inner, *(inspect.getattr_static(type(each), "__call__") for each in (function, inner))]
    if any(inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code) for code in codes):
        raise CodeError(f"{name}: yields values, but a score is one number; return it")
    is_async = any(map(inspect.iscoroutinefunction, codes))
    taken = _taken_by_name(outermost)
    return EvalFunction(name, function, mode, is_async, _taken_by_name(parameters) if taken is None else taken)


def _parameters(name: str, function: Callable[..., Any], *, follow_wrapped: bool) -> Sequence[inspect.Parameter]:
    try:
        return list(inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values())
    except (TypeError, ValueError) as error:  # some functions of extension modules have no signature
        raise CodeError(f"{name}: its parameters are unknown ({error}); write a function that calls it") from None


def _taken_by_name(parameters: Sequence[inspect.Parameter]) -> frozenset[str] | None:
    """Return the names of the arguments that may be passed, None if any may."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind in BY_KEYWORD)


def _refuse_impossible_calls(name: str, mode: Mode, outermost: Sequence[inspect.Parameter]) -> None:
    """Raise `CodeError` if no call could succeed. Only the outermost decorator counts: it may pass on what it likes."""
    first, *others = OFFERED[mode]
    taken = _taken_by_name(outermost)
    for parameter in outermost:
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY and (required or parameter.name == first):
            fix = 'arguments are passed by name, so drop the "/"'
            raise CodeError(f'{name}: "{parameter.name}" is positional-only; {fix}')
        if required and parameter.kind in BY_KEYWORD and parameter.name not in OFFERED[mode]:
            raise CodeError(
                f'{name}: requires "{parameter.name}", but only {first}, {" and ".join(others)} (the whole row) are '
                "passed; read it from the row, or give it a default"
            )
    if taken is not None and first not in taken:
        raise CodeError(f'{name}: its decorator does not take "{first}" by name; give it **kwargs')
