"""The seams: where the core reaches its add-ons. Each imports its add-on when an eval, a test or a command needs it.

Nothing else in the core names an add-on. Without the folder `addons/` the core works, but for what is asked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_osmosis.addons.lab.items import RewardFiles as RewardFiles
    from pytest_osmosis.addons.osmosis_sdk.agent_loop import agent_of
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
    from pytest_osmosis.addons.osmosis_sdk.workflows import grader_code, workflow_agent
    from pytest_osmosis.addons.ray.clusters import RayClusters as RayClusters
    from pytest_osmosis.addons.verifiers import load
    from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode as EnvironmentCode
    from pytest_osmosis.addons.verifiers.hosted import facts_told
    from pytest_osmosis.addons.verifiers.hosted import release as release
    from pytest_osmosis.addons.verifiers.load import LoadedEnvironment as LoadedEnvironment
    from pytest_osmosis.addons.verifiers.prime_files import GrowingPrimeFiles as GrowingPrimeFiles
    from pytest_osmosis.addons.verifiers.prime_files import export_prime_files as export_prime_files
    from pytest_osmosis.addons.verifiers.prime_files import push
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

    agent_loop, sdk_grader, sdk_workflow = agent_of, grader_code, workflow_agent
    environment_facts, load_environment, push_prime_files = facts_told, load.load, push

_HOMES: Mapping[str, str] = {
    # workflows, Graders, MCP tools, rubrics and files of the Osmosis SDK
    "agent_loop": "osmosis_sdk.agent_loop:agent_of",
    "export_osmosis_files": "osmosis_sdk.eval_files:export_osmosis_files",
    "import_fastmcp": "osmosis_sdk.mcp_server:import_fastmcp",
    "mcp_agent": "osmosis_sdk.mcp_server:mcp_agent",
    **{
        name: f"osmosis_sdk.evaluate_rubric:{name}"
        for name in (
            "MissingAPIKeyError",
            "ModelNotFoundError",
            "ProviderRequestError",
            "RubricResult",
            "evaluate_rubric",
            "osmosis_rubric",
        )
    },
    "sdk_grader": "osmosis_sdk.workflows:grader_code",
    "sdk_workflow": "osmosis_sdk.workflows:workflow_agent",
    # places for hosts
    "RayClusters": "ray.clusters:RayClusters",
    # environments of verifiers: what loads one, asks it and rolls out, and what releases one that does not
    "EnvironmentCode": "verifiers.hosted:EnvironmentCode",
    "environment_facts": "verifiers.hosted:facts_told",
    "load_environment": "verifiers.load:load",
    "release": "verifiers.hosted:release",
    # files of `prime eval`
    "GrowingPrimeFiles": "verifiers.prime_files:GrowingPrimeFiles",
    "export_prime_files": "verifiers.prime_files:export_prime_files",
    "push_prime_files": "verifiers.prime_files:push",
    "resumed_from": "verifiers.prime_import:resumed_from",
    "run_of_files": "verifiers.shown_files:run_of_files",
    "save_prime_files": "verifiers.prime_files:save_prime_files",
    # the plugin of pytest that collects reward functions of files, and a check of HTML reports
    "RewardFiles": "lab.items:RewardFiles",
    "is_report": "viewer.report:is_report",
}
"""The homes of what an add-on has under the same signature, by the names here. What asks for one needs its add-on."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _HOMES[name].partition(":")
        return getattr(import_module(f"pytest_osmosis.addons.{module}"), attribute)


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

        raise Unfound("environments need the folder addons/ of pytest_osmosis, which is missing; install it again")
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

        raise DatasetError.at(display, "needs the folder addons/ of pytest_osmosis, which is missing; install it again")
    from pytest_osmosis.addons.osmosis_sdk.trajectories import trajectory_rows

    return trajectory_rows(folder, display)


# -- tests of reward functions ---------------------------------------------------------------------------


def reward_tests(module: Any, name: str) -> list[Any] | None:
    """Return the tests of the function `name` of a module that pytest collects, None if it is no reward function."""
    if not _has_addons():
        return None
    from pytest_osmosis.addons.lab.items import items_of

    return items_of(module, name)


# -- readers of stored eval runs -------------------------------------------------------------------------

COMMANDS: Mapping[str, str] = {"html": "pytest_osmosis.addons.viewer.html", "view": "pytest_osmosis.addons.viewer.view"}
"""The commands of `pytest-osmosis` that an add-on has, and their modules."""


def write_report(path: Path, runs: Mapping[RunDirectory, Kept], redaction: Redaction, key: str) -> list[Any]:
    """Write an HTML report on eval runs. Returns the lines that tell of it, in which `key` sets what it keeps."""
    from pytest_osmosis.addons.viewer.report import report, report_lines

    return list(report_lines(report(path, runs, redaction), key))
