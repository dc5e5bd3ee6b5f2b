"""The scores of an environment: its rubric scores the states of rollouts, as verifiers itself lets it.

verifiers turns an error of a reward function into a score of 0.0. Here it is an error of the run: its functions are
called in a frame that remembers what they raised, and what they returned instead of a finite number.
"""

from __future__ import annotations

import functools
import inspect
import math
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

from pytest_osmosis.addons.verifiers.client import client_for
from pytest_osmosis.addons.verifiers.load import Concurrency, has_taskset
from pytest_osmosis.addons.verifiers.state import UnkeptState, given_row, remade
from pytest_osmosis.models.base import Message
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.text.user_code import UserValueFault, described, error_in_words, number_of, type_name

CALLS = ("_call_individual_reward_func", "_call_group_reward_func")
"""The methods in which verifiers' rubrics call a function, and turn its error into 0.0. If they have other names, such
errors are scores again; tests/verifiers notices."""

ROUTE = "env_id"
"""The member of a row's info by which a group of environments finds the one that the row is for."""

Faults = dict[int, list[BaseException]]
FAULTS: ContextVar[Faults] = ContextVar("FAULTS")
"""The errors of reward functions in this scoring, by the id of the state that they scored."""


def rubrics_of(environment: Any) -> Iterator[Any]:
    """Yield the rubric of an environment, and those that it holds, of groups of rubrics and of environments."""
    waiting, seen = [getattr(environment, "rubric", None)], set()
    while waiting:
        rubric = waiting.pop(0)
        if rubric is None or id(rubric) in seen:
            continue
        seen.add(id(rubric))
        yield rubric
        waiting += list(getattr(rubric, "rubrics", None) or ())
        members = getattr(rubric, "env_map", None)
        waiting += [
            getattr(each, "rubric", None) for each in (members.values() if isinstance(members, Mapping) else ())
        ]


def is_grouped(environment: Any) -> bool:
    """Return True if a reward function of the environment needs all runs of a row."""
    return any(_is_grouped(rubric) for rubric in rubrics_of(environment))


def _is_grouped(rubric: Any) -> bool:
    """Return True for a rubric with functions of groups, and for one of verifiers that scores groups in its own way."""
    if getattr(rubric, "has_group_rewards", None) is True:
        return True
    is_group = getattr(rubric, "_is_group_func", None)
    if callable(is_group) and any(is_group(function) for function in getattr(rubric, "funcs", None) or ()):
        return True
    defining = [cls for cls in type(rubric).__mro__ if "score_group" in vars(cls)]
    return len(defining) > 1 and not _is_of_verifiers(defining[0]) and _is_of_verifiers(defining[-1])


def _is_of_verifiers(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "verifiers"


def function_names(environment: Any) -> tuple[str, ...]:
    """Return the names of the environment's reward functions and metrics, as far as they are known."""
    names = (
        getattr(function, "__name__", None)
        for rubric in rubrics_of(environment)
        for function in getattr(rubric, "funcs", None) or ()
    )
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


async def clean_up(environment: Any, state: Any) -> None:
    """Let the rubric of an environment clean up after a rollout, of which there is a state unless its code failed."""
    method = getattr(getattr(environment, "rubric", None), "cleanup", None)
    if callable(method) and state is not None:
        await method(state)


class EnvironmentRubric:
    """Scores the states of an environment's rollouts. With `independent` each is scored alone."""

    def __init__(self, environment: Any, concurrency: Concurrency, *, independent: bool = False) -> None:
        self._environment = environment
        self._concurrency = concurrency
        self._independent = independent
        self.is_grouped = is_grouped(environment)
        for rubric in rubrics_of(environment):
            _remember_faults(rubric)

    async def score(self, states: Sequence[Any]) -> list[Reward | BaseException]:
        """Return the reward of each state, or the error of a function that scored it. Raises other errors of rubrics.

        The states are those of all runs of a row if the environment is grouped, and otherwise a single one.
        """
        self._concurrency.apply(self._environment)
        faults: Faults = {id(state): [] for state in states}
        token = FAULTS.set(faults)
        member = _member_of(self._environment, states[0])
        try:
            with _without_route(states) if member is not self._environment else nullcontext():
                await self._score(member, states)
        finally:
            FAULTS.reset(token)
            await self._clean_up(states)
        return [next(iter(faults[id(state)]), None) or _reward(state) for state in states]

    async def _score(self, environment: Any, states: Sequence[Any]) -> None:
        rubric = getattr(environment, "rubric", None)
        if rubric is None or has_taskset(environment):
            return  # it scores as it rolls out
        kind = "score" if getattr(environment, "score_rollouts", True) else "dummy_score"
        of_group = getattr(rubric, f"{kind}_group", None)
        if callable(of_group) and not self._independent:
            await of_group(list(states))
            return
        for state in states:
            await getattr(rubric, f"{kind}_rollout")(state)

    async def _clean_up(self, states: Sequence[Any]) -> None:
        """Let the rubric clean up. Its errors are shown in the run's output, and change no score."""
        for state in states:
            try:
                await clean_up(self._environment, state)
            except Exception:
                traceback.print_exc()

    async def remade(
        self, record: Mapping[str, Any], position: int, messages: Sequence[Message], facts: Mapping[str, Any]
    ) -> Any:
        """Return the state of a stored rollout of the row `record` at a position of the dataset, made again.

        Raises `UnkeptState` for an environment that scores as it rolls out: no other process has its score.
        """
        if has_taskset(self._environment):
            raise UnkeptState("its harness scores as it rolls out, and that process is gone; roll out again")
        given = deepcopy(given_row(self._environment, record, position))
        begin = getattr(self._environment, "init_state", None)
        state: Any = {}
        if callable(begin):
            state = await begin(dict(given), client_for(_refuse, _refuse), "", {})
        return remade(state, given, messages, facts)


def _member_of(environment: Any, state: Any) -> Any:
    """Return the environment of a group to which a state belongs, and any other environment unchanged.

    The rubric of a group would add metrics of all its other members, each of them 0.
    """
    info = state.get("info")
    route = info.get(ROUTE) if isinstance(info, Mapping) else None
    route = state.get("task") if route is None else route  # 0.1.13 knows no other
    for name in [route] if isinstance(route, str) else route or ():
        member = getattr(environment, "env_map", {}).get(name)
        environment = environment if member is None else member
    return environment


@contextmanager
def _without_route(states: Sequence[Any]) -> Iterator[None]:
    """A context in which the info of states lacks the name of their environment, as its functions expect it."""
    infos = [(state, info) for state in states if isinstance(info := state.get("info"), Mapping)]
    for state, info in infos:
        state["info"] = {name: value for name, value in info.items() if name != ROUTE}
    try:
        yield
    finally:
        for state, info in infos:
            state["info"] = info


def _refuse(*_: object) -> Any:
    raise RuntimeError("a stored rollout asks no model")


def _reward(state: Any) -> Reward | BaseException:
    """Return the reward and the metrics of a state. Metrics that are no numbers are left out, as verifiers does."""
    try:
        reward = state.get("reward")
        if reward is None:
            raise UserValueFault('the rubric left no number in state["reward"]')
        told, metrics = state.get("metrics") or {}, {}
        if not isinstance(told, Mapping):
            raise UserValueFault(f'state["metrics"] must be a mapping of names to numbers, got {type_name(told)}')
        for name, value in told.items():
            if isinstance(value, (int, float)) or getattr(value, "shape", None) == ():
                metrics[str(name)] = _finite(value, f"metric {name}")
        return Reward(number_of(reward), metrics=metrics)
    except UserValueFault as fault:
        return fault


def _finite(value: Any, who: str) -> float:
    """Return a number that a reward function returned, as verifiers takes it. Raises `UserValueFault`."""
    try:
        number = float(value)
    except Exception:
        raise UserValueFault(f"{who}: must return a number, got {type_name(value)}: {described(value)}") from None
    if not math.isfinite(number):
        raise UserValueFault(f"{who}: must return a finite number, got {number}")
    return number


# -- functions -------------------------------------------------------------------------------------------


def _remember_faults(rubric: Any) -> None:
    """Let the methods of a rubric's class that call its functions remember what those raise. Does nothing twice."""
    for cls in type(rubric).__mro__:
        for name in CALLS:
            method = vars(cls).get(name)
            if method is not None and not hasattr(method, "__wrapped__"):
                setattr(cls, name, _remembering(method))


def _remembering(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a method of rubrics that keeps the errors of the function that it calls.

    The method's second argument is the state that the function scores, or the list of all states of the row.
    """

    @functools.wraps(method)
    async def call(rubric: Any, func: Callable[..., Any], *args: Any, **named: Any) -> Any:
        scored = (*args, *named.values())[0]
        is_group = isinstance(scored, list)
        states = scored if is_group else [scored]
        errors: list[BaseException] = []
        returned = await method(rubric, _noting(func, errors, len(states) if is_group else None), *args, **named)
        if not errors:
            return returned
        faults = FAULTS.get({})
        for state in states:
            faults.setdefault(id(state), []).extend(errors)
        return [0.0] * len(states) if is_group else 0.0

    return call


def _noting(function: Callable[..., Any], errors: list[BaseException], n: int | None) -> Callable[..., Any]:
    """Return a function that notes its error, and a result other than a finite number, or `n` of them for a group."""
    name = getattr(function, "__name__", repr(function))

    @contextmanager
    def noted() -> Iterator[None]:
        try:
            yield
        except Exception as error:
            errors.append(error)
            raise FailedFunctionError(error_in_words(error)) from None

    async def awaited(result: Any) -> Any:
        with noted():
            return checked(await result)

    def checked(result: Any) -> Any:
        if n is None:
            return _finite(result, name)
        values = list(result) if isinstance(result, Sequence) or hasattr(result, "tolist") else None
        if values is None or len(values) != n:
            got = (
                f"{type_name(result)}: {described(result)}" if values is None else f"{len(values)}: {described(result)}"
            )
            raise UserValueFault(f"{name}: must return {n} numbers, one for each run of the row, got {got}")
        return [_finite(value, name) for value in values]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with noted():
            result = function(*args, **kwargs)
            return awaited(result) if inspect.isawaitable(result) else checked(result)

    return call


class FailedFunctionError(Exception):
    """The error that verifiers gets in place of the original one, whose traceback its frames would lengthen."""
