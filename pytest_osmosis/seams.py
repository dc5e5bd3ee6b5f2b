"""The seams: where the core reaches its add-ons. Each imports its add-on when an eval, a test or a command needs it.

Nothing else in the core names an add-on. Without the folder `addons/` the core works, but for what is asked for here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_osmosis.addons.lab.decorator import RewardWarning as RewardWarning
    from pytest_osmosis.addons.lab.decorator import osmosis_reward as osmosis_reward
    from pytest_osmosis.addons.lab.marked_evals import TestEvals as TestEvals
    from pytest_osmosis.addons.lab.reward_files import RewardFiles as RewardFiles
    from pytest_osmosis.addons.lab.reward_files import outside_testpaths as outside_testpaths
    from pytest_osmosis.addons.lab.rollout import Rollout as Rollout
    from pytest_osmosis.addons.lab.rollout_tests import ModelSource as ModelSource
    from pytest_osmosis.addons.lab.rollout_tests import parametrize as parametrize
    from pytest_osmosis.addons.lab.rollout_tests import rollout_of as rollout_of
    from pytest_osmosis.addons.osmosis_sdk.agent_loop import agent_loop as agent_loop
    from pytest_osmosis.addons.osmosis_sdk.eval_files import export_osmosis_files as export_osmosis_files
    from pytest_osmosis.addons.osmosis_sdk.evaluate_rubric import MissingAPIKeyError as MissingAPIKeyError
    from pytest_osmosis.addons.osmosis_sdk.evaluate_rubric import ModelNotFoundError as ModelNotFoundError
    from pytest_osmosis.addons.osmosis_sdk.evaluate_rubric import ProviderRequestError as ProviderRequestError
    from pytest_osmosis.addons.osmosis_sdk.evaluate_rubric import RubricResult as RubricResult
    from pytest_osmosis.addons.osmosis_sdk.evaluate_rubric import evaluate_rubric as evaluate_rubric
    from pytest_osmosis.addons.osmosis_sdk.evaluate_rubric import osmosis_rubric as osmosis_rubric
    from pytest_osmosis.addons.osmosis_sdk.mcp_server import import_fastmcp as import_fastmcp
    from pytest_osmosis.addons.osmosis_sdk.mcp_server import mcp_agent as mcp_agent
    from pytest_osmosis.addons.osmosis_sdk.shim import SdkShim as SdkShim
    from pytest_osmosis.addons.osmosis_sdk.trajectories import TrajectoryRows as TrajectoryRows
    from pytest_osmosis.addons.osmosis_sdk.workflows import sdk_grader as sdk_grader
    from pytest_osmosis.addons.osmosis_sdk.workflows import sdk_workflow as sdk_workflow
    from pytest_osmosis.addons.ray.artifact_sender import ArtifactSender as ArtifactSender
    from pytest_osmosis.addons.ray.artifacts import Artifacts as Artifacts
    from pytest_osmosis.addons.ray.clusters import RayClusters as RayClusters
    from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode as EnvironmentCode
    from pytest_osmosis.addons.verifiers.hosted import environment_facts as environment_facts
    from pytest_osmosis.addons.verifiers.hosted import release as release
    from pytest_osmosis.addons.verifiers.load import LoadedEnvironment as LoadedEnvironment
    from pytest_osmosis.addons.verifiers.load import load_environment as load_environment
    from pytest_osmosis.addons.verifiers.prime_files import GrowingPrimeFiles as GrowingPrimeFiles
    from pytest_osmosis.addons.verifiers.prime_files import Heartbeat as Heartbeat
    from pytest_osmosis.addons.verifiers.prime_files import export_prime_files as export_prime_files
    from pytest_osmosis.addons.verifiers.prime_files import push_prime_files as push_prime_files
    from pytest_osmosis.addons.verifiers.prime_files import save_prime_files as save_prime_files
    from pytest_osmosis.addons.verifiers.prime_import import resumed_from as resumed_from
    from pytest_osmosis.addons.verifiers.processes import Environments as Environments
    from pytest_osmosis.addons.verifiers.shown_files import run_of_files as run_of_files
    from pytest_osmosis.addons.viewer.report import Kept
    from pytest_osmosis.addons.viewer.report import is_report as is_report
    from pytest_osmosis.config.tables import EnvironmentModule
    from pytest_osmosis.processes.child import PrestartedHost
    from pytest_osmosis.record.run_directory import RunDirectory
    from pytest_osmosis.text.redaction import Redaction

_NAMES: Mapping[str, tuple[str, ...]] = {
    # tests that users write: the decorator of reward functions, and the plugin of pytest that collects them from files
    "lab.decorator": ("RewardWarning", "osmosis_reward"),
    "lab.reward_files": ("RewardFiles", "outside_testpaths"),
    # tests over rollouts: each rollout, the source of models' rollouts for tests of a process, and the session's evals
    "lab.marked_evals": ("TestEvals",),
    "lab.rollout": ("Rollout",),
    "lab.rollout_tests": ("ModelSource", "parametrize", "rollout_of"),
    # the Osmosis SDK: agent loops, workflows and Graders, rubrics, MCP tools and files
    "osmosis_sdk.agent_loop": ("agent_loop",),
    "osmosis_sdk.eval_files": ("export_osmosis_files",),
    "osmosis_sdk.evaluate_rubric": (
        *("MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult"),
        *("evaluate_rubric", "osmosis_rubric"),
    ),
    "osmosis_sdk.mcp_server": ("import_fastmcp", "mcp_agent"),
    "osmosis_sdk.workflows": ("sdk_grader", "sdk_workflow"),
    # places for hosts, and the files that they send from there
    "ray.artifact_sender": ("ArtifactSender",),
    "ray.artifacts": ("Artifacts",),
    "ray.clusters": ("RayClusters",),
    # what loads an environment of verifiers, asks it and rolls out, and what releases one that does not
    "verifiers.hosted": ("EnvironmentCode", "environment_facts", "release"),
    "verifiers.load": ("load_environment",),
    # files and heartbeats of `prime eval`
    "verifiers.prime_files": (
        *("GrowingPrimeFiles", "Heartbeat"),
        *("export_prime_files", "push_prime_files", "save_prime_files"),
    ),
    "verifiers.prime_import": ("resumed_from",),
    "verifiers.shown_files": ("run_of_files",),
    # a check of HTML reports
    "viewer.report": ("is_report",),
}
"""The names of add-ons, by their modules. Whoever asks for one needs its add-on."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"pytest_osmosis.addons.{_HOMES[name]}"), name)


_MISSING = "the folder addons/ of pytest_osmosis, which is missing; install it again"


_MISSING = "the folder addons/ of pytest_osmosis, which is missing; install it again"


def _has_addons() -> bool:
    return find_spec("pytest_osmosis.addons") is not None


# -- the Osmosis SDK -------------------------------------------------------------------------------------


def sdk_shim() -> SdkShim | None:
    """Return what serves names of `osmosis_ai` that are not installed, None without the add-on."""
    if not _has_addons():
        return None
    from pytest_osmosis.addons.osmosis_sdk.shim import SdkShim

    return SdkShim()


def other_backend(entrypoint: Path, roots: Sequence[str]) -> str | None:
    """Return why a backend of the SDK would run an entrypoint's workflow elsewhere, None if none does."""
    if not _has_addons():
        return None
    from pytest_osmosis.addons.osmosis_sdk.workflows import other_backend

    return other_backend(entrypoint, roots)


# -- rows and rollouts -----------------------------------------------------------------------------------


def find_environment(env_id: str, folder: Path) -> EnvironmentModule:
    """Return the module of an environment: installed, or in the `folder` of environments.

    Raises `Unfound` if there is none, and `ConfigError` for defaults of its package that are not valid.
    """
    if not _has_addons():
        from pytest_osmosis.config.eval_kinds import Unfound

        raise Unfound(f"environments need {_MISSING}")
    from pytest_osmosis.addons.verifiers.find_module import find_module

    return find_module(env_id, folder)


def environments(
    pythonpath: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
    *,
    sdk_shim: bool = True,
    prestarted: PrestartedHost | None = None,
) -> Environments | None:
    """Return the environments of a session, which tell their rows, None without the add-on."""
    if not _has_addons():
        return None
    from pytest_osmosis.addons.verifiers.processes import Environments

    return Environments(pythonpath, say, sdk_shim=sdk_shim, prestarted=prestarted)


# -- files of Osmosis and Harbor ---------------------------------------------------------------------------


def trajectory_rows(folder: Path, display: str) -> TrajectoryRows:
    """Return the rows that a folder of trajectories holds. Raises `DatasetError`."""
    if not _has_addons():
        from pytest_osmosis.errors import DatasetError

        raise DatasetError.at(display, f"needs {_MISSING}")
    from pytest_osmosis.addons.osmosis_sdk.trajectories import trajectory_rows

    return trajectory_rows(folder, display)


# -- tests of reward functions ---------------------------------------------------------------------------

DECORATORS = ("pytest_osmosis.addons.lab.decorator", "osmosis_ai")
"""Modules that define decorators of reward functions. Without them no function can be decorated."""


def reward_tests(module: Any, name: str) -> list[Any] | None:
    """Return the tests of the function `name` of a module that pytest collects, None if it is no reward function."""
    if not any(each in sys.modules for each in DECORATORS) or not _has_addons():
        return None
    from pytest_osmosis.addons.lab.items import items_of

    return items_of(module, name)


# -- readers of stored eval runs -------------------------------------------------------------------------

COMMANDS = frozenset({"show", "html", "view", "list", "wait", "compare", "export"})
"""The commands of `pytest-osmosis` that the add-on has, each in a module with its name."""


def command(name: str) -> ModuleType:
    """Return the module of a command. Raises `OsmosisError` without the add-on."""
    if not _has_addons():
        from pytest_osmosis.errors import OsmosisError

        raise OsmosisError(f"{name}: needs {_MISSING}")
    return import_module(f"pytest_osmosis.addons.viewer.{name}")


def write_report(path: Path, runs: Mapping[RunDirectory, Kept], redaction: Redaction, key: str) -> list[Any]:
    """Write an HTML report on eval runs. Returns the lines that tell of it, in which `key` sets what it keeps."""
    from pytest_osmosis.addons.viewer.report import report, report_lines

    return list(report_lines(report(path, runs, redaction), key))
