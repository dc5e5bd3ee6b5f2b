"""The seams: where the core reaches its add-ons. Each imports its add-on when an eval, a test or a command needs it.

Nothing else in the core names an add-on. Without the folder `addons/` the core works, but for what is asked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_osmosis.addons.lab.items import RewardFiles
    from pytest_osmosis.addons.osmosis_sdk.shim import SdkShim as SdkShim
    from pytest_osmosis.addons.osmosis_sdk.trajectories import TrajectoryRows as TrajectoryRows
    from pytest_osmosis.addons.ray.clusters import RayClusters as RayClusters
    from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode as EnvironmentCode
    from pytest_osmosis.addons.verifiers.load import LoadedEnvironment as LoadedEnvironment
    from pytest_osmosis.addons.verifiers.prime_files import GrowingPrimeFiles as GrowingPrimeFiles
    from pytest_osmosis.addons.verifiers.processes import Environments as Environments
    from pytest_osmosis.addons.viewer.report import Kept
    from pytest_osmosis.config.environment_module import EnvironmentModule
    from pytest_osmosis.evals.prepared import Prepared
    from pytest_osmosis.git import Worktrees
    from pytest_osmosis.host.loading import Configured
    from pytest_osmosis.host.protocol import HostCode, Setup
    from pytest_osmosis.processes.child import PrestartedHost
    from pytest_osmosis.record.find_run import StoredEvalRun
    from pytest_osmosis.record.run_directory import RunDirectory
    from pytest_osmosis.record.run_id import RunId
    from pytest_osmosis.rewards.graders import GraderCode
    from pytest_osmosis.rollouts.context import Agent
    from pytest_osmosis.rollouts.environment import EnvironmentSource
    from pytest_osmosis.text.redaction import Redaction
    from pytest_osmosis.verdicts.pass_rule import PassRule


def _has_addons() -> bool:
    return find_spec("pytest_osmosis.addons") is not None


# -- the Osmosis SDK -------------------------------------------------------------------------------------


def sdk_shim() -> SdkShim | None:
    """Return what serves names of `osmosis_ai` that are not installed, None without the add-on."""
    if not _has_addons():
        return None
    from pytest_osmosis.addons.osmosis_sdk.shim import SdkShim

    return SdkShim()


def sdk_workflow(workflow: Configured, package: str) -> Agent:
    """Return the agent that runs a workflow of the SDK in `package`. Raises `CodeError` if it cannot be called."""
    from pytest_osmosis.addons.osmosis_sdk.workflows import workflow_agent

    return workflow_agent(workflow, package)


def sdk_grader(grader: Configured, package: str) -> GraderCode:
    """Return the code that calls a Grader of the SDK in `package`. Raises `CodeError` if it cannot be called."""
    from pytest_osmosis.addons.osmosis_sdk.workflows import grader_code

    return grader_code(grader, package)


def agent_loop(name: str, value: Any, reporting: Callable[[str, Callable[[], Any]], Any]) -> Agent:
    """Return the agent of a `RolloutAgentLoop`; `reporting` makes errors of its code a `CodeError`, as raised here."""
    from pytest_osmosis.addons.osmosis_sdk.agent_loop import agent_of

    return agent_of(name, value, reporting)


def other_backend(entrypoint: Path, roots: Sequence[str]) -> str | None:
    """Return why a backend of the SDK would run an entrypoint's workflow elsewhere, None if none does."""
    if not _has_addons():
        return None
    from pytest_osmosis.addons.osmosis_sdk.workflows import other_backend

    return other_backend(entrypoint, roots)


# -- places for hosts ------------------------------------------------------------------------------------


def ray_clusters(environ: Mapping[str, str], worktrees: Worktrees) -> RayClusters:
    """Return the clusters of a session. They start hosts of evals (`Spawn`)."""
    from pytest_osmosis.addons.ray.clusters import RayClusters

    return RayClusters(environ, worktrees)


# -- rows and rollouts -----------------------------------------------------------------------------------


def find_environment(env_id: str, folder: Path) -> EnvironmentModule:
    """Return the module of an environment: installed, or in the `folder` of environments.

    Raises `Unfound` if there is none, and `ConfigError` for defaults of its package that are not valid.
    """
    if not _has_addons():
        from pytest_osmosis.config.environment_module import Unfound

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


def load_environment(source: EnvironmentSource) -> LoadedEnvironment:
    """Load an environment in this process. Raises `CodeError`."""
    from pytest_osmosis.addons.verifiers.load import load

    return load(source)


def environment_facts(loaded: LoadedEnvironment, code: HostCode, rows: Path) -> Mapping[str, Any]:
    """Write the rows of an environment, and return the facts that go with them. Raises `CodeError`."""
    from pytest_osmosis.addons.verifiers.hosted import facts_told

    return facts_told(loaded, code, rows)


def environment_code(source: EnvironmentSource, loaded: LoadedEnvironment, setup: Setup) -> EnvironmentCode:
    """Return what rolls out and scores in a host."""
    from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode

    return EnvironmentCode(source, loaded, setup)


def release(loaded: LoadedEnvironment) -> None:
    """Release what an environment holds that does not roll out."""
    from pytest_osmosis.addons.verifiers.hosted import release

    release(loaded)


# -- files of Osmosis and Harbor ---------------------------------------------------------------------------


def trajectory_rows(folder: Path, display: str) -> TrajectoryRows:
    """Return the rows that a folder of trajectories holds. Raises `DatasetError`."""
    if not _has_addons():
        from pytest_osmosis.errors import DatasetError

        raise DatasetError.at(display, "needs the folder addons/ of pytest_osmosis, which is missing; install it again")
    from pytest_osmosis.addons.osmosis_sdk.trajectories import trajectory_rows

    return trajectory_rows(folder, display)


def export_osmosis_files(run: StoredEvalRun, folder: Path, named: str, redaction: Redaction) -> str:
    """Write what `osmosis eval upload` takes below a folder that a user `named`, and return the line that says so.

    Raises `OsmosisError`.
    """
    from pytest_osmosis.addons.osmosis_sdk.eval_files import export_osmosis_files

    return export_osmosis_files(run, folder, named, redaction)


# -- files of `prime eval` -------------------------------------------------------------------------------


def growing_prime_files(
    directory: RunDirectory, base: Path, runs: Iterable[RunId], rule: Callable[[], PassRule], redaction: Redaction
) -> GrowingPrimeFiles:
    """Return what writes the files while an eval run goes on."""
    from pytest_osmosis.addons.verifiers.prime_files import GrowingPrimeFiles

    return GrowingPrimeFiles(directory, base, runs, rule, redaction)


def save_prime_files(run: StoredEvalRun, base: Path, redaction: Redaction) -> Path:
    """Write the files below `base`, and return their folder. Raises `OsmosisError` and `OSError`."""
    from pytest_osmosis.addons.verifiers.prime_files import save_prime_files

    return save_prime_files(run, base, redaction)


def export_prime_files(run: StoredEvalRun, folder: Path, named: str, redaction: Redaction) -> str:
    """Write the files to a folder that a user `named`, and return the line that says so. Raises `OsmosisError`."""
    from pytest_osmosis.addons.verifiers.prime_files import export_prime_files

    return export_prime_files(run, folder, named, redaction)


def push_prime_files(folder: Path, name: str | None) -> str:
    """Push the files in a folder to the Hugging Face Hub, and return in a line what became of it."""
    from pytest_osmosis.addons.verifiers.prime_files import push

    return push(folder, name)


def resumed_from(prepared: Prepared, folder: Path, name: str | None) -> Prepared:
    """Return an eval that resumes the files in a folder; `name` is that of a new run. Raises `ProblemsError`."""
    from pytest_osmosis.addons.verifiers.prime_import import resumed_from

    return resumed_from(prepared, folder, name)


# -- tests of reward functions ---------------------------------------------------------------------------


def reward_files(config: Any) -> RewardFiles:
    """Return the plugin of pytest that collects the reward functions of files, for pytest's `config`."""
    from pytest_osmosis.addons.lab.items import RewardFiles

    return RewardFiles(config)


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


def is_report(path: Path) -> bool:
    """Return True for a file that an earlier report may be replaced in."""
    from pytest_osmosis.addons.viewer.report import is_report

    return is_report(path)
