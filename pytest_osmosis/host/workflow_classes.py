"""Workflow and Grader classes: found in the module of an entrypoint, checked, and made ready to be called.

They are recognised by the names of their bases, so that ours and those of the Osmosis SDK are alike. `check_class` and
`check_function` see that a host can call Graders and agents, when they load: nothing is paid for yet.

Backends of the SDK that run a rollout elsewhere are refused. An entrypoint builds its backend where an eval does not
come, in `main()`, and imports what only that backend needs; so its source is read, and not run. A backend counts if the
entrypoint uses its class, or anything that leads to it in a module of the import roots (a class, function or variable).
Annotations, and classes that nothing uses, do not count. Source: osmosis_ai 0.3.8; its only other backend is
`LocalBackend`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from pytest_osmosis.errors import CodeError
from pytest_osmosis.files import private
from pytest_osmosis.host.rollout_code import files_needed_by, read_source
from pytest_osmosis.models.base import own_copy
from pytest_osmosis.rewards.graders import GraderCode, Reward, RolloutToGrade, no_reward, with_notes
from pytest_osmosis.rollouts import Agent
from pytest_osmosis.rollouts.agents import WorkflowAgent
from pytest_osmosis.text.recorded import label_of, metadata_of
from pytest_osmosis.text.user_code import UserValueFault, described, error_in_words, number_of, only_taken, sdk_package


def check_class(name: str, cls: type[Any], method: str, *, passes_config: bool) -> None:
    """Raise `CodeError` unless `cls(config)`, or without `passes_config` `cls()`, has an async `method(ctx)`."""
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise CodeError(f"{name}: is abstract: it does not define {missing}")
    given = (None,) if passes_config else ()
    fault = _fault(cls, given)
    if fault is not None:
        called = f"{cls.__name__}({'config' if given else ''})"
        raise CodeError(f"{name}: each run calls {called}, but its __init__ does not allow that: {fault}")
    static = inspect.getattr_static(cls, method, None)
    if static is None:
        raise CodeError(f"{name}: has no {method}: define `async def {method}(self, ctx)`")
    called = f"{cls.__name__}.{method}(ctx)"
    function = getattr(cls, method)
    if not callable(function) or _is_synchronous(function, method):
        raise CodeError(f"{name}: {called} must be awaitable: define `async def {method}(self, ctx)`")
    _check_call(name, called, function, (None, None) if isinstance(static, FunctionType) else (None,))


def check_function(name: str, function: Callable[..., Any]) -> None:
    """Raise `CodeError` unless a function can be called with the context alone."""
    _check_call(name, f"{name.rpartition(':')[2]}(ctx)", function, (None,))


def _check_call(name: str, called: str, function: Callable[..., Any], given: tuple[object, ...]) -> None:
    fault = _fault(function, given)
    if fault is not None:
        raise CodeError(f"{name}: each run calls {called}, but its parameters do not allow that: {fault}")


def _is_synchronous(function: Callable[..., Any], name: str) -> bool:
    """Return True for a method that is surely no coroutine function. A decorator's own function may return anything."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, FunctionType) or inspect.iscoroutinefunction(inner):
        return False
    return inner.__name__ == name or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def _fault(called: Callable[..., Any], given: tuple[object, ...]) -> str | None:
    """Return why a call with these arguments fails, None if it does not or this is unknown."""
    try:
        signature = inspect.signature(called, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        return str(error)
    return None


WORKFLOW, GRADER, BACKEND = "AgentWorkflow", "Grader", "LocalBackend"


class Configured(NamedTuple):
    """A class, its name in messages, and its config or None."""

    name: str
    cls: type[Any]
    config: object


def configured(name: str, cls: type[Any], base: str) -> Configured:
    """Return a class that derives from `base` with the config in its module. Raises `CodeError`."""
    return Configured(name, cls, _config_in(sys.modules[cls.__module__], base))


def workflow_in(module: ModuleType) -> Configured:
    """Return the workflow of an entrypoint: that of its `LocalBackend`, or its only class. Raises `CodeError`."""
    workflow = _class_in(module, WORKFLOW, "workflow")
    if workflow is None:
        raise CodeError(f"{module.__file__}: has no AgentWorkflow: define one class that derives from it")
    return workflow


def grader_in(module: ModuleType) -> Configured | None:
    """Return the Grader of an entrypoint as `workflow_in` does, None if it has none. Raises `CodeError`."""
    return _class_in(module, GRADER, "grader")


def _class_in(module: ModuleType, base: str, served: str) -> Configured | None:
    """Return the class that the backend of a module says it serves, or else its only one that derives from `base`."""
    backends = [backend for backend in _instances(module, BACKEND) if hasattr(backend, "workflow_cls")]
    backend = _at_most_one(module, BACKEND, backends)
    if backend is not None:
        cls, config = getattr(backend, f"{served}_cls"), getattr(backend, f"{served}_config", None)
    else:
        cls = _only(module, base)
        config = None if cls is None else _config_in(module, base)
    return None if cls is None else Configured(f"{module.__file__}: {cls.__name__}", cls, config)


def workflow_agent(workflow: Configured) -> Agent:
    """Return the agent that runs a workflow. Raises `CodeError` if it cannot be called."""
    package = _checked_package(workflow, "run")
    if package is None:
        return WorkflowAgent(workflow.cls, workflow.config)
    from pytest_osmosis.rollouts.sdk_workflow import SdkWorkflowAgent

    return SdkWorkflowAgent(workflow.cls, package, workflow.config)


def grader_code(grader: Configured) -> GraderCode:
    """Return the code that calls a Grader. Raises `CodeError` if it cannot be called."""
    package = _checked_package(grader, "grade")
    if package is None:
        return GraderCode(grader.cls, grader.config)
    return SdkGraderCode(grader.cls, grader.config, package=package)


def derives(cls: type[Any], base: str) -> bool:
    """Return True if a base class has that name."""
    return any(ancestor.__name__ == base for ancestor in cls.__mro__[1:])


def _config_in(module: ModuleType, base: str) -> Any:
    """Return the instance of a config class in `module`, or None. `CodeError` if there are several."""
    config = f"{base}Config"
    return _at_most_one(module, config, _instances(module, config))


def _at_most_one(module: ModuleType, kind: str, found: Sequence[Any]) -> Any:
    if len(found) > 1:
        raise CodeError(f"{module.__file__}: must hold at most one {kind}, found {len(found)}")
    return found[0] if found else None


def max_concurrent(name: str, config: object) -> int | None:
    """Return the `concurrency.max_concurrent` of a config, None without one. Raises `CodeError` for no whole number."""
    most = getattr(getattr(config, "concurrency", None), "max_concurrent", None)
    if most is None:
        return None
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        fix = "must be a whole number from 1 on, or None"
        raise CodeError(f"{name}: concurrency.max_concurrent {fix}, got {described(most)}")
    return most


def _checked_package(code: Configured, method: str) -> str | None:
    """Return the package of the SDK from which a class derives, None for another class.

    Raises `CodeError` if the package lacks what a rollout needs, or if `method` of the class cannot be called.
    """
    package = sdk_package(code.cls)
    for module in () if package is None else ("context", "types"):
        try:
            importlib.import_module(f"{package}.rollout.{module}")
        except ImportError as error:
            raise CodeError(
                f"{code.name}: derives from a class of {package}, but {package}.rollout.{module} cannot be imported "
                f"({error_in_words(error)}); install osmosis-ai 0.2.25 or newer"
            ) from error
    check_class(code.name, code.cls, method, passes_config=package is not None or code.config is not None)
    return package


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


CONTAINERS = "HarborBackend"
BASE = "ExecutionBackend"
"""The class from which users derive backends of their own."""
_CHECKS = ("isinstance", "issubclass", "cast")
_UNUSED = ("annotation", "returns", "bases")


class OtherBackend(NamedTuple):
    """The line of the entrypoint that uses `name`, which is or leads to the class `backend`."""

    line: int
    name: str
    backend: str

    def __str__(self) -> str:
        where = "in a container" if self.backend == CONTAINERS else "in a way of its own"
        leads = "" if self.name == self.backend else f" (by {self.name})"
        return (
            f"line {self.line} uses {self.backend}{leads}, which runs the workflow {where}, while an eval runs it on "
            "this machine; `osmosis eval run` evaluates it there; if it can run here, use LocalBackend, or name its "
            "classes in [agent] agent and [scoring] grader: see docs/how-to/osmosis-workspace.md"
        )


def other_backend(entrypoint: Path, roots: Sequence[str]) -> OtherBackend | None:
    """Return the first use of such a backend in an entrypoint, None if there is none."""
    sources = {path: read_source(path)[0] for path in files_needed_by([entrypoint], [Path(root) for root in roots])}
    leads = {CONTAINERS: CONTAINERS, BASE: BASE}
    if not any(name.encode() in source for source in sources.values() for name in leads):
        return None
    modules = {path: _Module(source) for path, source in sources.items()}
    while any(module.follow(leads) for module in modules.values()):
        pass
    return min(modules[entrypoint].uses(modules[entrypoint].tree, leads), default=None)


class _Module:
    """A module's source. Its `tree` lacks the parts that only name a class: annotations, bases, checks of types."""

    def __init__(self, source: bytes) -> None:
        self.tree = ast.parse(source)
        nodes = [*ast.walk(self.tree)]
        names = [alias for node in reversed(nodes) if isinstance(node, ast.ImportFrom) for alias in node.names]
        self._imported = {alias.asname or alias.name: alias.name for alias in names}
        self._defined = [(name, node, getattr(node, "bases", ())) for name, node in _definitions(self.tree)]
        self._own: dict[str, str] = {}
        for node in nodes:
            unused = ("args",) if isinstance(node, ast.Call) and _last_name(node.func) in _CHECKS else _UNUSED
            for name in unused:
                setattr(node, name, None)

    def follow(self, leads: dict[str, str]) -> bool:
        """Add the names that this module defines and that lead to a backend, and return True if there are more."""
        before = len(self._own)
        for name, node, bases in self._defined:
            of_base = [name if backend == BASE else backend for base in bases if (backend := self._led(base, leads))]
            for backend in (*of_base, *(use.backend for use in self.uses(node, leads))):
                leads.setdefault(name, self._own.setdefault(name, backend))
        return len(self._own) > before

    def uses(self, tree: ast.AST, leads: Mapping[str, str]) -> Iterator[OtherBackend]:
        for node in ast.walk(tree):
            backend = self._led(node, leads)
            if backend not in (None, BASE) and isinstance(node, ast.expr):
                yield OtherBackend(node.lineno, _last_name(node), backend)

    def _led(self, node: ast.AST, leads: Mapping[str, str]) -> str | None:
        """Return the backend to which an expression leads by its name, None for another."""
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                return leads.get(name)
            case ast.Name(id=name, ctx=ast.Load()):
                imported = self._imported.get(name, name if "*" in self._imported else "")
                return self._own.get(name) or leads.get(imported)
        return None


def _definitions(node: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that are defined when a module is imported, also in blocks, and the statements that do it."""
    for child in ast.iter_child_nodes(node):
        match child:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                yield name, child
            case ast.Assign(targets=targets):
                names = (each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
                yield from ((each.id, child) for each in names)
            case ast.stmt() | ast.ExceptHandler() | ast.match_case():
                yield from _definitions(child)


def _last_name(node: ast.AST) -> str:
    """Return the last name of an expression like `a.b`, "" for another."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


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
