"""Code that was written for other libraries: recognised by parameters and missing modules, and what to do with it.

Sources: TRL calls `reward_func(prompts=..., completions=..., completion_ids=..., **columns) -> list[float]`, verl calls
`compute_score(data_source, solution_str, ground_truth, extra_info)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

Library = Literal["TRL", "verl"]

AGENT_LOOP = "RolloutAgentLoop"
"""The base class of the agents of osmosis_ai 0.2."""

_REWARDS_PAGE = "see docs/how-to/test-a-reward-function.md"
_DIFFERENCES: Mapping[Library, str] = {"TRL": "scores a batch of completions", "verl": "takes the data source first"}
_OF_MODULES: Mapping[str, str] = {
    "osmosis_ai": "pytest-osmosis stands in for the parts of it that agents and reward functions need, unless "
    "osmosis_compat = false turns that off; pytest_osmosis has evaluate_rubric and osmosis_rubric, and pip install "
    "osmosis-ai all others; see docs/how-to/osmosis-workspace.md",
    "verifiers": "install one that has environments (pip install 'verifiers<0.4'), and evaluate one with "
    "--osmosis-env=ID: see docs/how-to/verifiers-environments.md",
}
_SDK, _OURS = "osmosis_ai", "pytest_osmosis."


def library_of(parameters: Sequence[str]) -> Library | None:
    """Return the library that calls reward functions with these parameters, None if it is not known here.

    >>> library_of(["completions", "kwargs"]), library_of(["prompts", "completions", "answer", "kwargs"])
    ('TRL', 'TRL')
    >>> library_of(["data_source", "solution_str", "ground_truth", "extra_info"])
    'verl'
    >>> library_of(["solution_str", "ground_truth", "completions"]), library_of([])
    (None, None)
    """
    names = set(parameters)
    if not names or parameters[0] in ("solution_str", "messages"):
        return None
    if "completions" in names:
        return "TRL"
    return "verl" if {"data_source", "solution_str", "ground_truth"} <= names else None


def reward_advice(library: Library) -> str:
    """Return how the reward functions of a library differ from ours, and what to do."""
    fix = "write one that takes a single answer and calls it"
    return f"a reward function of {library} {_DIFFERENCES[library]}; {fix}: {_REWARDS_PAGE}"


def sdk_package(cls: type) -> str | None:
    """Return the package that defines a class's bases if that is the Osmosis SDK, or our copy of it; else None.

    >>> sdk_package(type("Mine", (type("AgentWorkflow", (), {"__module__": "osmosis_ai.rollout.agent_workflow"}),), {}))
    'osmosis_ai'
    >>> sdk_package(int)
    """
    for ancestor in cls.__mro__[1:]:
        above, found, _ = f"{ancestor.__module__}.".partition(f"{_SDK}.")
        if found and (not above or above.startswith(_OURS)):
            return f"{above}{_SDK}"
    return None


def module_advice(missing: object) -> str | None:
    """Return what to do if the module of this name is missing, None unless its library is known here.

    >>> module_advice("verifiers.envs")[-59:]
    '--osmosis-env=ID: see docs/how-to/verifiers-environments.md'
    >>> module_advice("numpy"), module_advice(None)
    (None, None)
    """
    return _OF_MODULES.get(missing.partition(".")[0]) if isinstance(missing, str) else None


def only_taken(cls: Callable[..., Any], **arguments: object) -> Any:
    """Return `cls(**arguments)` without the arguments that this version of the SDK does not know."""
    taken = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in arguments.items() if name in taken})
