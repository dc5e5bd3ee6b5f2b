"""Workflow and Grader classes: found in the module of an entrypoint, checked, and made ready to be called.

They are recognised by the names of their bases, so that ours and those of the Osmosis SDK are alike.
"""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any, NamedTuple

from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.signatures import check_class
from pytest_osmosis.rewards.graders import GraderCode
from pytest_osmosis.rollouts import Agent
from pytest_osmosis.rollouts.agents import WorkflowAgent
from pytest_osmosis.text.user_code import described, error_in_words, sdk_package

WORKFLOW, GRADER, BACKEND = "AgentWorkflow", "Grader", "LocalBackend"


class Configured(NamedTuple):
    """A class, and its config or None."""

    cls: type[Any]
    config: object


def workflow_in(module: ModuleType) -> Configured:
    """Return the workflow of an entrypoint: that of its `LocalBackend`, or its only class. Raises `CodeError`."""
    backend = _backend(module)
    if backend is not None:
        return Configured(backend.workflow_cls, backend.workflow_config)
    workflow = _only(module, WORKFLOW)
    if workflow is None:
        raise CodeError(f"{module.__file__}: has no AgentWorkflow: define one class that derives from it")
    return Configured(workflow, config_in(module, WORKFLOW))


def grader_in(module: ModuleType) -> Configured | None:
    """Return the Grader of an entrypoint as `workflow_in` does, None if it has none. Raises `CodeError`."""
    backend = _backend(module)
    if backend is not None:
        return None if backend.grader_cls is None else Configured(backend.grader_cls, backend.grader_config)
    grader = _only(module, GRADER)
    return None if grader is None else Configured(grader, config_in(module, GRADER))


def workflow_agent(name: str, workflow: Configured) -> Agent:
    """Return the agent that runs a workflow. Raises `CodeError` if it cannot be called."""
    cls, config = workflow
    package = _usable_package(name, cls)
    check_class(name, cls, "run", passes_config=package is not None or config is not None)
    if package is None:
        return WorkflowAgent(cls, config)
    from pytest_osmosis.rollouts.sdk_workflow import SdkWorkflowAgent

    return SdkWorkflowAgent(cls, package, config)


def grader_code(name: str, grader: Configured) -> GraderCode:
    """Return the code that calls a Grader. Raises `CodeError` if it cannot be called."""
    cls, config = grader
    package = _usable_package(name, cls)
    check_class(name, cls, "grade", passes_config=package is not None or config is not None)
    if package is None:
        return GraderCode(cls, config)
    from pytest_osmosis.rewards.sdk_graders import SdkGraderCode

    return SdkGraderCode(cls, config, package=package)


def derives(cls: type[Any], base: str) -> bool:
    """Return True if a base class has that name."""
    return any(ancestor.__name__ == base for ancestor in cls.__mro__[1:])


def config_in(module: ModuleType, base: str) -> Any:
    """Return the instance of a config class in `module`, or None. `CodeError` if there are several."""
    config = f"{base}Config"
    configs = _instances(module, config)
    if len(configs) > 1:
        raise CodeError(f"{module.__file__}: must hold at most one {config}, found {len(configs)}")
    return configs[0] if configs else None


def max_concurrent(name: str, config: object) -> int | None:
    """Return the `concurrency.max_concurrent` of a config, None without one. Raises `CodeError` for no whole number."""
    most = getattr(getattr(config, "concurrency", None), "max_concurrent", None)
    if most is None:
        return None
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        fix = "must be a whole number from 1 on, or None"
        raise CodeError(f"{name}: concurrency.max_concurrent {fix}, got {described(most)}")
    return most


def _usable_package(name: str, cls: type[Any]) -> str | None:
    """Return the package of the SDK from which a class derives, None for another class.

    Raises `CodeError` if the package lacks what a rollout needs.
    """
    package = sdk_package(cls)
    if package is None:
        return None
    for module in ("context", "types"):
        try:
            importlib.import_module(f"{package}.rollout.{module}")
        except ImportError as error:
            raise CodeError(
                f"{name}: derives from a class of {package}, but {package}.rollout.{module} cannot be imported "
                f"({error_in_words(error)}); install osmosis-ai 0.2.25 or newer"
            ) from error
    return package


def _backend(module: ModuleType) -> Any:
    """Return the `LocalBackend` of the SDK in a module, which says what it serves; None without one."""
    backends = [backend for backend in _instances(module, BACKEND) if hasattr(backend, "workflow_cls")]
    if len(backends) > 1:
        raise CodeError(f"{module.__file__}: must hold at most one {BACKEND}, found {len(backends)}")
    return backends[0] if backends else None


def _instances(module: ModuleType, base: str) -> list[Any]:
    """Return the objects in `module` whose class, or a base of it, has that name, each of them once."""
    found = {
        id(value): value
        for value in vars(module).values()
        if not inspect.isclass(value) and any(cls.__name__ == base for cls in type(value).__mro__)
    }
    return list(found.values())


def _only(module: ModuleType, base: str) -> type[Any] | None:
    """Return the concrete class in `module` with a base class of that name, or None. `CodeError` if there are several.

    Classes from which another of them derives do not count.
    """
    classes = {
        value
        for value in vars(module).values()
        if inspect.isclass(value) and derives(value, base) and not inspect.isabstract(value)
    }
    leaves = [cls for cls in classes if not any(other is not cls and issubclass(other, cls) for other in classes)]
    if len(leaves) > 1:
        names = ", ".join(sorted(cls.__name__ for cls in leaves))
        raise CodeError(f"{module.__file__}: must hold one concrete {base}, found {len(leaves)}: {names}")
    return leaves[0] if leaves else None
