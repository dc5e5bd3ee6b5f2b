"""`make matrix`: the wheel on every Python, and the tests that depend on pytest with other versions.

These tests run with every minor of pytest on the oldest Python, and on every Python with the newest pytest and with the
oldest release of every requirement. The tests of clusters run with the oldest Ray and with the newest. Frameworks for
agents are resolved together with this package, and not installed. `make test-osmosis` runs the session `osmosis`.

`nox -s wheel` or `nox -s "tests(python='3.11', pytest='9.0')"` run one session. Arguments after `--` go to pytest.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import nox
from packaging.requirements import Requirement

PYTHONS = ["3.11", "3.12", "3.13"]
PYTESTS = ["8.2", "8.3", "8.4", "9.0", "9.1", "9.2"]
"""All minors that pyproject.toml admits."""
PAIRS = [*((PYTHONS[0], pytest) for pytest in PYTESTS), *((python, PYTESTS[-1]) for python in PYTHONS[1:])]

FACING_PYTEST = ["tests/plugin", "tests/contract"]
FACING_LIBRARIES = ["tests/unit", "tests/host"]
FACING_RAY = ["tests/cluster"]
FACING_OSMOSIS = ["tests/plugin/test_osmosis_release.py", "tests/host/test_sdk_workflows.py", "tests/unit/compat"]

FRAMEWORKS = ["crewai", "strands-agents[anthropic]", "browser-use", "agent-framework", "openhands-ai"]
"""They bound tomli, openai, anthropic or aiohttp tightly."""

nox.options.error_on_missing_interpreters = True
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True


@nox.session(python=PYTHONS, reuse_venv=False)
def wheel(session: nox.Session) -> None:
    """Install the wheel alone into an empty environment; run evals in folders without the sources."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)  # outside this project, so that its settings do not apply
        session.run("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".")
        session.install(*map(str, scratch.glob("*.whl")))
        shutil.copytree("examples", scratch / "examples")
        shutil.copytree("configs", scratch / "configs")
        demo = ["--osmosis-config=configs/eval/multiply.toml", "--osmosis-n=5", "--osmosis-batch-size=32"]
        with session.chdir(scratch):
            session.run("python", "-m", "pytest", *demo)
            session.run("python", "-m", "pytest", *demo, "-n", "2")
        (scratch / "new").mkdir()
        with session.chdir(scratch / "new"):
            session.run("pytest-osmosis", "init", "sums")
            session.run("python", "-m", "pytest", "--osmosis-config=configs/eval/sums.toml")
            session.run("pytest-osmosis", "show", "row0-run0")


@nox.session
@nox.parametrize("python,pytest", PAIRS)
def tests(session: nox.Session, pytest: str) -> None:
    """Run the tests that depend on pytest's version: the plugin's, and the contracts."""
    _install(session, [f"pytest=={pytest}.*"])
    _test(session, FACING_PYTEST)


@nox.session(python=PYTHONS)
def oldest(session: nox.Session) -> None:
    """Run with the oldest release of every requirement, extra and companion; the other sessions use the newest."""
    _install(session, _oldest_admitted())
    _test(session, [*FACING_PYTEST, *FACING_LIBRARIES])


@nox.session(python=PYTHONS[-1])
def beside(session: nox.Session) -> None:
    """Resolve the newest release of each framework alone and with this package, which must change nothing of it."""
    session.install("uv>=0.9")
    changed: dict[str, list[str]] = {}
    for framework in FRAMEWORKS:
        alone = _resolved(session, framework)
        session.log(f"{framework}: {', '.join(sorted(alone))}")
        changed[framework] = sorted(alone - _resolved(session, framework, f"pytest-osmosis @ {Path.cwd().as_uri()}"))
    if any(changed.values()):
        session.error(f"releases that cannot be installed beside pytest-osmosis: {changed}")


@nox.session(python="3.12", reuse_venv=False)
def osmosis(session: nox.Session) -> None:
    """Run workspaces with the SDK of Osmosis, which needs Python 3.12: without its extras, and beside a framework."""
    _install(session, [], "osmosis-ai==0.3.8")
    _test(session, FACING_OSMOSIS)
    session.install("openai-agents")
    _test(session, ["tests/endpoint/test_agent_examples.py", "-k", "of_the_sdk"])


@nox.session(python=[PYTHONS[0], PYTHONS[-1]])
@nox.parametrize("ray", ["oldest", "newest"])
def cluster(session: nox.Session, ray: str) -> None:
    """Run hosts on clusters of the oldest Ray that pyproject.toml admits, or of the newest."""
    groups = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "cluster")
    _install(session, _oldest_of(groups) if ray == "oldest" else [], "--group", "cluster")
    _test(session, FACING_RAY, ["-p", "no:xdist"])  # which share one cluster


def _resolved(session: nox.Session, *requirements: str) -> set[str]:
    """Return the packages that a resolver takes for requirements, like "openai==2.54.0"."""
    file = Path(session.create_tmp(), "requirements.in")
    file.write_text("\n".join(requirements), encoding="utf-8")
    lines = session.run("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", str(file), silent=True)
    return {line for line in str(lines).splitlines() if "==" in line}


def _install(session: nox.Session, constraints: list[str], *more: str) -> None:
    """Install the package with the tools of its tests, and the companions in a folder that only their tests see."""
    file = Path(session.create_tmp(), "constraints.txt")
    file.write_text("\n".join(constraints), encoding="utf-8")
    constrained = ["--constraint", str(file)]
    session.install("--upgrade", "pip>=25.1")
    session.install("--editable", ".[all,lab,parquet]", "--group", "test", *more, *constrained)
    companions = ["--upgrade", "--no-deps", "--target", f"{session.virtualenv.location}/companions"]
    session.install(*companions, "--group", "companions", *constrained)


def _test(session: nox.Session, folders: list[str], how: Sequence[str] = ("-n", "2", "--dist", "worksteal")) -> None:
    outside = {"TMPDIR": tempfile.gettempdir()}  # nox sets one in this project, whose settings of pytest would apply
    session.run("python", "-m", "pytest", *how, "-m", "not nightly", *(session.posargs or folders), env=outside)


def _oldest_admitted() -> list[str]:
    """Return constraints: `tomli>=2.0` becomes `tomli==2.0`. LiteLLM has none, because no session installs it."""
    pyproject = nox.project.load_toml("pyproject.toml")
    project, companions = pyproject["project"], pyproject["dependency-groups"]["companions"]
    extras = [line for name in ("all", "lab", "parquet") for line in project["optional-dependencies"][name]]
    return _oldest_of([*project["dependencies"], *extras, *companions])


def _oldest_of(requirements: Iterable[str]) -> list[str]:
    return [
        f"{requirement.name}=={specifier.version}"
        for requirement in map(Requirement, requirements)
        for specifier in requirement.specifier
        if specifier.operator == ">="
    ]
