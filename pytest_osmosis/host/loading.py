"""Loads user code in the host: agent, eval functions, Grader. A mistake is a `CodeError` with the user's traceback.

Import roots are the rollout's folder, the workspace and pytest's `pythonpath`. No conftest.py is loaded. Our own
modules for judges, MCP tools and classes of the Osmosis SDK take time to import, so only hosts that need them do.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_osmosis import seams
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import RUBRIC, CommitFields, HostCode, ReadyEvent, Setup
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
from pytest_osmosis.host.workflow_classes import (
    GRADER,
    WORKFLOW,
    check_function,
    configured,
    derives,
    grader_code,
    grader_in,
    max_concurrent,
    other_backend,
    workflow_agent,
    workflow_in,
)
from pytest_osmosis.rewards.graders import REWARD, EvalFunction, GraderCode, eval_function, function_of_check
from pytest_osmosis.rollouts import Agent
from pytest_osmosis.rollouts.agents import FunctionAgent, RecordedAgent, SingleTurn, ThreadedFunctionAgent
from pytest_osmosis.text.names import listed, shown, suggestion
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.recorded import RECORDED
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.text.user_code import (
    AGENT_LOOP,
    MAX_ERROR_CHARS,
    error_in_words,
    is_installed,
    module_advice,
    name_folder,
    user_traceback,
    with_names,
)

if TYPE_CHECKING:
    from pytest_osmosis.host.rubric_scorer import RubricScorer


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


@dataclass(frozen=True, slots=True)
class UserCode:
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
    rollout_code: Mapping[str, str] = field(default_factory=dict)
    environment: seams.EnvironmentCode | None = None
    files: Mapping[str, str] = field(default_factory=dict)

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
        """The answer to `setup`."""
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
    """Return the folders that hold the user's code."""
    environment = None if code.environment is None else code.environment.folder
    return [code.workspace, *code.roots, *filter(None, [mcp, environment])]


def _loaded(setup: Setup, loaded: seams.LoadedEnvironment | None) -> UserCode:
    roots, rolls = setup.code.roots, setup.code.role == "roll"
    mcp = setup.mcp if rolls else None
    if mcp is not None:
        from pytest_osmosis.host.mcp_server import import_fastmcp

        _reporting_errors("[agent] mcp", lambda: import_fastmcp(roots))
    add_roots(roots)
    errors, imports = _Errors(), _Imports()
    source = setup.code.environment
    environment: seams.EnvironmentCode | None = None
    if source is not None:  # first, as where it is loaded for its rows
        environment = errors.collect(
            lambda: seams.environment_code(source, loaded or seams.load_environment(source), setup)
        )
    file = setup.entrypoint if setup.agent is None or setup.grader is None else None  # else nothing of it is used
    entrypoint = errors.collect(lambda: _entrypoint(Path(file), setup)) if file else None
    own = tuple(filter(None, [errors.collect(partial(_function, imports, name)) for name in setup.eval_fns]))
    checks = [*map(function_of_check, setup.checks)]
    functions = (*own, *(function for function, _ in checks))
    grader = errors.collect(lambda: _grader_code(setup, imports, entrypoint))
    rubric = None
    if setup.code.judge is not None:
        from pytest_osmosis.host.rubric_scorer import RubricScorer

        rubric = RubricScorer.of(setup.code.judge)
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
        | ({RUBRIC: rubric.digest} if rubric is not None else {}),
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
    grader = grader_in(entrypoint) if entrypoint is not None else None
    return None if grader is None else grader_code(grader)


def _agent(setup: Setup, imports: _Imports, entrypoint: ModuleType | None) -> Agent | None:
    if setup.mcp is not None:
        from pytest_osmosis.host.mcp_server import mcp_agent

        return mcp_agent(Path(setup.mcp), _reporting_errors)
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
        return _agent_loop(name, value)
    raise CodeError(
        f"{name}: must be `async def rollout(ctx)`, a class that derives from AgentWorkflow, or a RolloutAgentLoop, "
        f"got {type(value).__name__}"
    )


def _agent_loop(name: str, value: Any) -> Agent:
    """Return the agent of a loop. A class is instantiated once, without arguments."""
    from pytest_osmosis.rollouts import agent_loop

    types = agent_loop.LoopTypes.of(value if inspect.isclass(value) else type(value))
    if types is None:
        raise CodeError(f"{name}: derives from a {AGENT_LOOP} that is not the one of osmosis_ai.rollout")
    if inspect.isabstract(value):
        raise CodeError(f"{name}: is abstract: it does not define {', '.join(sorted(value.__abstractmethods__))}")
    loop = _reporting_errors(name, value) if inspect.isclass(value) else value
    return agent_loop.AgentLoopAgent(name, loop, types)


def _module(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # another module, which this one imports
        raise CodeError(
            f'{name}: no module "{error.name}" in the rollout\'s folder, the workspace or pythonpath'
        ) from None


def _entrypoint(path: Path, setup: Setup) -> ModuleType:
    """Import a file under its own name (`main.py` is module `main`), never as `__main__`.

    One whose workflow would run elsewhere, by a backend of its own, is refused before.
    """
    if setup.code.role == "roll" and setup.agent is None:
        backend = other_backend(path, setup.code.roots)
        if backend is not None:
            raise CodeError(f"{path}: {backend}")
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
