"""`make matrix`: the wheel in an empty environment of every Python, and pytest's side of the tests.

Under every minor of pytest on the oldest Python; on every Python under the newest, and with the oldest release of
everything that pyproject.toml admits.

`nox -s wheel`, `nox -s "tests(python='3.11', pytest='9.0')"` run a part of it; what stands after `--` goes to pytest.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import nox
from packaging.requirements import Requirement

PYTHONS = ["3.11", "3.12", "3.13"]
PYTESTS = ["8.2", "8.3", "8.4", "9.0", "9.1", "9.2"]
"""From the oldest minor that pyproject.toml admits to the newest."""
PAIRS = [*((PYTHONS[0], pytest) for pytest in PYTESTS), *((python, PYTESTS[-1]) for python in PYTHONS[1:])]

FACING_PYTEST = ["tests/plugin", "tests/contract"]
FACING_LIBRARIES = ["tests/unit", "tests/host"]

nox.options.error_on_missing_interpreters = True
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True


@nox.session(python=PYTHONS, reuse_venv=False)
def wheel(session: nox.Session) -> None:
    """Install the wheel, and nothing else, into an empty environment; run evals from folders without the sources."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)  # outside of this project, whose settings are not everyone's
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
            session.run("python", "-m", "pytest_osmosis", "init", "sums")
            session.run("python", "-m", "pytest", "--osmosis-config=configs/eval/sums.toml")
            session.run("python", "-m", "pytest_osmosis", "show", "row0-run0")


@nox.session
@nox.parametrize("python,pytest", PAIRS)
def tests(session: nox.Session, pytest: str) -> None:
    """What pytest's version can change: the plugin's tests and the contracts."""
    _install(session, [f"pytest=={pytest}.*"])
    _test(session, FACING_PYTEST)


@nox.session(python=PYTHONS)
def oldest(session: nox.Session) -> None:
    """With the oldest release of every requirement, extra and companion; the other sessions have the newest."""
    _install(session, _oldest_admitted())
    _test(session, [*FACING_PYTEST, *FACING_LIBRARIES])


def _install(session: nox.Session, constraints: list[str]) -> None:
    """The package with what its tests need; its companions beside, where their tests alone see them."""
    file = Path(session.create_tmp(), "constraints.txt")
    file.write_text("\n".join(constraints), encoding="utf-8")
    constrained = ["--constraint", str(file)]
    session.install("--upgrade", "pip>=25.1")
    session.install("--editable", ".[all,lab,parquet]", "--group", "test", *constrained)
    companions = ["--upgrade", "--no-deps", "--target", f"{session.virtualenv.location}/companions"]
    session.install(*companions, "--group", "companions", *constrained)


def _test(session: nox.Session, folders: list[str]) -> None:
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", *(session.posargs or folders))


def _oldest_admitted() -> list[str]:
    """Constraints: `tomli>=2.4` becomes `tomli==2.4`. None for LiteLLM, which no session installs."""
    pyproject = nox.project.load_toml("pyproject.toml")
    project, companions = pyproject["project"], pyproject["dependency-groups"]["companions"]
    extras = [line for name in ("all", "lab", "parquet") for line in project["optional-dependencies"][name]]
    found = map(Requirement, [*project["dependencies"], *extras, *companions])
    return [f"{one.name}=={each.version}" for one in found for each in one.specifier if each.operator == ">="]
