"""Loads user code in the host: agent, eval functions, Grader. A mistake is a `CodeError` with the user's traceback.

Import roots are the rollout's folder, the workspace and pytest's `pythonpath`. No conftest.py is loaded. Our own
modules for MCP tools and classes of the Osmosis SDK take time to import, so only hosts that need them do.

Classes of workflows and Graders are recognised by the names of their bases, so that ours and those of the SDK are
alike. That a host can call them is checked when they load: nothing is paid for yet.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import RUBRIC, CommitFields, HostCode, ReadyEvent, Setup, judge_digest
from pytest_osmosis.host.rollout_code import (
    add_roots,
    file_digests,
    module_file,
    module_of_file,
    read_anew,
    rollout_code,
    source_digest,
    unwrapped,
)
from pytest_osmosis.judges.judge import RubricScorer
from pytest_osmosis.rewards.graders import REWARD, EvalFunction, GraderCode, eval_function, function_of_check
from pytest_osmosis.rollouts.agents import (
    Agent,
    FunctionAgent,
    RecordedAgent,
    SingleTurn,
    ThreadedFunctionAgent,
    WorkflowAgent,
)
from pytest_osmosis.text.chat_messages import RECORDED
from pytest_osmosis.text.names import listed, shown, suggestion
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.text.user_code import (
    AGENT_LOOP,
    MAX_ERROR_CHARS,
    described,
    error_in_words,
    is_installed,
    module_advice,
    name_folder,
    sdk_package,
    user_traceback,
    with_names,
)


def use_worktree(commit: CommitFields) -> None:
    """Show files of the worktree as those of the commit, and import from it what was installed from the repository.

    Editable installs, and PYTHONPATH, put folders of the repository on `sys.path`.
    """
    name_folder(commit["worktree"], commit["name"])
    repository = Path(commit["repository"]).resolve()
    for index, entry in enumerate(sys.path):
        folder = Path(entry).resolve()
        if entry and folder.is_relative_to(repository) and not is_installed(entry):
            moved = Path(commit["worktree"], folder.relative_to(repository))
            if moved.is_dir():
                sys.path[index] = str(moved)


T = TypeVar("T")
MOST_TOOLS = 20


class UserCode(Struct, frozen=True):
    """The user's code, ready to run. `agent` is None in hosts that only score, `rubric` without an LLM judge.

    `digests` holds, by the name of a score, the digest of the source that computes it (`rollout_code`), and `files`
    those of all files that were read for that and to import the code. `notes` tell the user how the code was loaded.
    With `scored_apart` this process computes no score: its environment leads clients to the model under test, and
    reward functions that ask a model must get their own. Configs of the workflow and the Grader may limit how many
    rollouts and scorings are in flight, in all hosts together. `rollout_code` is that of the agent.
    """

    agent: Agent | None
    functions: tuple[EvalFunction, ...]
    grader: GraderCode | None
    digests: Mapping[str, str]
    rubric: RubricScorer | None = None
    notes: tuple[str, ...] = ()
    scored_apart: bool = False
    max_rollouts: int | None = None
    max_scorings: int | None = None
    rollout_code: Mapping[str, str] = {}
    environment: seams.EnvironmentCode | None = None
    files: Mapping[str, str] = {}

    @property
    def scorers(self) -> tuple[str, ...]:
        """The names of all scores, in the order of the results."""
        further = [*([REWARD] if self.grader or self.environment else []), *([RUBRIC] if self.rubric else [])]
        return (*(function.name for function in self.functions), *further)

    @property
    def synchronous(self) -> tuple[str, ...]:
        """The names of functions that block while they score, and therefore run in a process of their own."""
        if self.scored_apart:
            return tuple(name for name in self.scorers if name != RUBRIC)  # our own code got its client before
        return tuple(function.name for function in self.functions if not function.is_async)

    @property
    def grouped(self) -> tuple[str, ...]:
        """The names of scores for which all runs of a row are needed."""
        return (REWARD,) if self.environment is not None and self.environment.is_grouped else ()

    @property
    def scored_at_once(self) -> tuple[str, ...]:
        """The names of scores that follow each rollout, on the host's event loop."""
        later = (*self.synchronous, *self.grouped)
        return tuple(name for name in self.scorers if name not in later)

    def eval_function(self, name: str) -> EvalFunction | None:
        """Return the eval function of that name, or None if the Grader scores under it."""
        return next((function for function in self.functions if function.name == name), None)

    @property
    def ready(self) -> ReadyEvent:
        return {
            "ev": "ready",
            "scorers": self.scorers,
            "sync": self.synchronous,
            "digests": self.digests,
            "files": self.files,
            "notes": self.notes,
            "max_rollouts": self.max_rollouts,
            "max_scorings": self.max_scorings,
            "rollout_code": self.rollout_code,
            "grouped": self.grouped,
        }

    def function(self, name: str) -> object:
        """Return the user's function of that name, or the `grade` of their Grader. None for the judge."""
        function = self.eval_function(name)
        if function is not None:
            return function.function
        return self.grader.grader.grade if self.grader is not None and name == REWARD else None


def load_environment(code: HostCode) -> seams.LoadedEnvironment:
    """Load the environment of `code` alone; `load` then loads the rest in the same process. Raises `CodeError`."""
    assert code.environment is not None
    read_anew(_folders(code))
    add_roots(code.roots)
    return seams.load_environment(code.environment)


def load(setup: Setup, environment: seams.LoadedEnvironment | None = None) -> UserCode:
    """Load all code that `setup` names, but its environment if that is loaded already.

    The `CodeError` lists everything that does not load.
    """
    if environment is None:
        read_anew(_folders(setup.code, setup.mcp))
    if setup.code.commit is not None:
        use_worktree(setup.code.commit)
    try:
        code = _loaded(setup, environment)
    except CodeError as error:
        raise CodeError(with_names(str(error)), error.details) from error
    return replace(code, files=file_digests(_folders(setup.code, setup.mcp)))


def _folders(code: HostCode, mcp: str | None = None) -> list[str]:
    environment = None if code.environment is None else code.environment.folder
    return [code.workspace, *code.roots, *filter(None, [mcp, environment])]


def _loaded(setup: Setup, loaded: seams.LoadedEnvironment | None) -> UserCode:
    roots, rolls = setup.code.roots, setup.code.role == "roll"
    mcp = setup.mcp if rolls else None
    if mcp is not None:
        _reporting_errors("[agent] mcp", lambda: seams.import_fastmcp(roots))
    add_roots(roots)
    errors, imports = _Errors(), _Imports()
    source = setup.code.environment
    environment: seams.EnvironmentCode | None = None
    if source is not None:  # first, as where it is loaded for its rows
        environment = errors.collect(
            lambda: seams.EnvironmentCode(source, loaded or seams.load_environment(source), setup)
        )
    file = setup.entrypoint if setup.agent is None or setup.grader is None else None  # else nothing of it is used
    entrypoint = errors.collect(lambda: _entrypoint(Path(file), setup)) if file else None
    own = tuple(filter(None, [errors.collect(partial(_function, imports, name)) for name in setup.eval_fns]))
    checks = [*map(function_of_check, setup.checks)]
    functions = (*own, *(function for function, _ in checks))
    grader = errors.collect(lambda: _grader_code(setup, imports, entrypoint))
    rubric = None if setup.code.judge is None else RubricScorer.of(setup.code.judge)
    if not functions and grader is None and rubric is None and environment is None and not errors:
        raise CodeError(
            f"{setup.entrypoint}: nothing scores the runs: the module has no Grader, and [scoring] names no eval_fns, "
            "grader or rubric"
        )
    agent: Agent | None = environment.agent if environment is not None else None
    if source is None and rolls:
        agent = errors.collect(lambda: _agent(setup, imports, entrypoint))
    errors.raise_all()
    return UserCode(
        agent,
        functions,
        grader,
        {function.name: source_digest(function.function, roots) for function in own}
        | {function.name: digest for function, digest in checks}
        | ({REWARD: source_digest(grader.grader, roots)} if grader is not None else {})
        | ({REWARD: environment.digest} if environment is not None else {})
        | ({RUBRIC: judge_digest(setup.code.judge)} if setup.code.judge is not None else {}),
        rubric,
        notes=environment.notes if environment is not None else _notes(mcp, agent),
        scored_apart=setup.code.endpoint == "env",
        max_rollouts=max_concurrent("the workflow's config", getattr(agent, "config", None)),
        max_scorings=max_concurrent("the Grader's config", getattr(grader, "config", None)),
        rollout_code=_rollout_code(setup, own, grader, environment),
        environment=environment,
    )


def _notes(folder: str | None, agent: Any) -> tuple[str, ...]:
    """Return the note that lists the tools which the agent offers of a folder; none without a folder."""
    if folder is None:
        return ()
    names = [tool["function"]["name"] for tool in agent.tools]
    named = with_names(folder)
    where = shown(Path(folder)) if named == folder else named
    return (f"{plural(len(names), 'tool')} of {where}: {listed(names, MOST_TOOLS)}",)


class _Errors:
    """Collects `CodeError`s, each of them once."""

    def __init__(self) -> None:
        self._errors: list[CodeError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    def collect(self, action: Callable[[], T]) -> T | None:
        """Return what `action` returns, or None if it raises a `CodeError`."""
        try:
            return action()
        except CodeError as error:
            if error not in self._errors:
                self._errors.append(error)
        return None

    def raise_all(self) -> None:
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise CodeError("\n".join(f"{error}\n{error.details}".rstrip() for error in self._errors))


class _Imports:
    """Looks up "module:attribute". A module that cannot be imported is tried once."""

    def __init__(self) -> None:
        self._broken: dict[str, CodeError] = {}

    def __getitem__(self, name: str) -> Any:
        module_name, _, path = name.partition(":")
        if module_name in self._broken:
            raise self._broken[module_name]
        try:
            value: Any = _reporting_errors(name, lambda: _module(name, module_name))
        except CodeError as error:
            self._broken[module_name] = error
            raise
        for part in path.split("."):
            try:
                value = getattr(value, part)
            except AttributeError:
                hint = suggestion(part, [name for name in dir(value) if not name.startswith("_")])
                raise CodeError(f'{name}: module "{module_name}" has no "{path}"{hint}') from None
        return value


def _function(imports: _Imports, name: str) -> EvalFunction:
    value = imports[name]
    try:
        return eval_function(name, value)
    except CodeError:
        from pytest_osmosis.rewards.scorers import scorer_function

        scorer = _reporting_errors(name, lambda: scorer_function(name, value))
        if scorer is None:
            raise
        return scorer


def _grader_code(setup: Setup, imports: _Imports, entrypoint: ModuleType | None) -> GraderCode | None:
    name = setup.grader
    if name is not None:
        value = imports[name]
        if not inspect.isclass(value) or not derives(value, GRADER):
            raise CodeError(f"{name}: must be a class that derives from Grader, got {type(value).__name__}")
        return grader_code(configured(name, value, GRADER))
    grader = None if entrypoint is None else _class_in(entrypoint, GRADER, "grader")
    return None if grader is None else grader_code(grader)


def _agent(setup: Setup, imports: _Imports, entrypoint: ModuleType | None) -> Agent | None:
    if setup.mcp is not None:
        return seams.mcp_agent(Path(setup.mcp), _reporting_errors)
    if setup.agent == "chat":
        return SingleTurn()
    if setup.agent == RECORDED:
        return RecordedAgent()
    if setup.agent is not None:
        return _agent_of(setup.agent, imports[setup.agent])
    if entrypoint is None:  # setup names none, or it does not load
        return None
    return workflow_agent(workflow_in(entrypoint))


def _agent_of(name: str, value: object) -> Agent:
    if inspect.iscoroutinefunction(value):
        check_function(name, value)
        return FunctionAgent(name, value)
    if inspect.isroutine(value) and not (inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value)):
        check_function(name, value)
        return ThreadedFunctionAgent(name, value)
    if inspect.isclass(value) and derives(value, WORKFLOW):
        return workflow_agent(configured(name, value, WORKFLOW))
    if derives(value if inspect.isclass(value) else type(value), AGENT_LOOP):
        return seams.agent_loop(name, value, _reporting_errors)
    raise CodeError(
        f"{name}: must be `async def rollout(ctx)`, a class that derives from AgentWorkflow, or a RolloutAgentLoop, "
        f"got {type(value).__name__}"
    )


def _module(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # another module, which this one imports
        raise CodeError(
            f'{name}: no module "{error.name}" is installed, or in the rollout\'s folder, the workspace or pythonpath; '
            "write or install it, or correct the name"
        ) from None


def _entrypoint(path: Path, setup: Setup) -> ModuleType:
    """Import a file under its own name (`main.py` is module `main`), never as `__main__`.

    One whose workflow would run elsewhere, by a backend of its own, is refused before.
    """
    if setup.code.role == "roll" and setup.agent is None:
        backend = seams.other_backend(path, setup.code.roots)
        if backend is not None:
            raise CodeError(backend)
    is_taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"_osmosis_{path.stem}" if is_taken else path.stem
    module, execute = module_of_file(name, path)
    _reporting_errors(str(path), execute)
    return module


def _reporting_errors(name: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except CodeError:
        raise
    except ImportError as error:
        raise _does_not_load(name, error, module_advice(error.name)) from error
    except BaseException as error:
        raise _does_not_load(name, error) from error


def _does_not_load(name: str, error: BaseException, advice: str | None = None) -> CodeError:
    text = error_in_words(error)
    if issubclass(type(error), SyntaxError):  # its place is told too
        text = shortened("".join(traceback.format_exception_only(error)).strip(), MAX_ERROR_CHARS)
    return CodeError(f"{name}: does not load: {text}{'' if advice is None else f'; {advice}'}", user_traceback(error))


def _rollout_code(
    setup: Setup,
    functions: tuple[EvalFunction, ...],
    grader: GraderCode | None,
    environment: seams.EnvironmentCode | None,
) -> Mapping[str, str]:
    """Return the digests of the code of rollouts; none in a host that only scores, and for agents of our own."""
    if setup.code.role != "roll":
        return {}
    if environment is not None:
        return environment.rollout_code
    roots = list(setup.code.roots)
    if setup.mcp is not None:
        files, roots = [Path(setup.mcp, "main.py")], [setup.mcp, *roots]
    elif setup.agent is not None:
        module, _, attribute = setup.agent.partition(":")  # "chat" has no attribute, and no code of the user's
        files = [*filter(None, [module_file(module)])] if attribute else []
    else:
        files = [Path(setup.entrypoint)] if setup.entrypoint is not None else []
    scoring = [*(function.function for function in functions), *([grader.grader] if grader is not None else [])]
    names: dict[Path, frozenset[str]] = {}
    for code, file in map(unwrapped, scoring):
        name = getattr(code, "__qualname__", "").partition(".")[0]
        if file is not None:
            names[file] = names.get(file, frozenset()) | {name}
    return rollout_code(files, names, roots, setup.code.workspace)


# -- classes of workflows and Graders ---------------------------------------------------------------------


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


def _class_in(module: ModuleType, base: str, served: str) -> Configured | None:
    """Return the class that the backend of a module says it serves, or else its only one that derives from `base`.

    Raises `CodeError` if there are several.
    """
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
    if (package := sdk_package(workflow.cls)) is not None:
        return seams.sdk_workflow(workflow, package)
    check_class(workflow.name, workflow.cls, "run", passes_config=workflow.config is not None)
    return WorkflowAgent(workflow.cls, workflow.config)


def grader_code(grader: Configured) -> GraderCode:
    """Return the code that calls a Grader. Raises `CodeError` if it cannot be called."""
    if (package := sdk_package(grader.cls)) is not None:
        return seams.sdk_grader(grader, package)
    check_class(grader.name, grader.cls, "grade", passes_config=grader.config is not None)
    return GraderCode(grader.cls, grader.config)


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
