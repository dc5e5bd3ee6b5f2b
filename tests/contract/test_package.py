"""The package's promises to its users: names, metadata, the wheel, generated pages, and texts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

import pytest_osmosis
from docs.generate import DOCS, IN_CHINESE, PAGES
from docs.pages import api, chinese
from pytest_osmosis.config.tables import EXAMPLE_MODEL

REPOSITORY = Path(__file__).resolve().parents[2]


EACH_FIRST = """
import importlib, sys, traceback

def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytest_osmosis"]:
        del sys.modules[name]

for name in sys.argv[1:]:
    forget()
    package = importlib.import_module("pytest_osmosis")
    modules = [module for module in sys.modules if module.startswith("pytest_osmosis.")]
    try:
        problem = f"imports {modules}" if modules else "" if getattr(package, name) is not None else "is None"
    except Exception:
        problem = traceback.format_exc()
    if problem:
        print(f"{name}: {problem}")
"""
"""Import the package anew for each name and take that name first, because an import cycle may break only one of them.
The package by itself imports none of its modules."""


@pytest.mark.addon
def test_every_public_name_can_be_imported_first() -> None:
    command = [sys.executable, "-c", EACH_FIRST, *pytest_osmosis.__all__]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)

    assert done.stdout == ""


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'pytest_osmosis' has no attribute 'AgentWorkflov'"):
        _ = pytest_osmosis.AgentWorkflov


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The table [project] of pyproject.toml."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


def required(requirements: list[str]) -> set[str]:
    """Return the names in requirements, without extras and versions."""
    return {re.split(r"[\[<>=~! ;]", requirement, maxsplit=1)[0] for requirement in requirements}


def test_pytest_finds_the_plugin_by_its_entry_point_and_pyproject_has_its_version(project: dict[str, Any]) -> None:
    assert project["entry-points"] == {"pytest11": {"osmosis": "pytest_osmosis.plugin"}}
    assert "Framework :: Pytest" in project["classifiers"]
    assert [each.value for each in entry_points(group="pytest11", name="osmosis")] == ["pytest_osmosis.plugin"]
    assert project["version"] == pytest_osmosis.__version__


def test_only_what_every_user_needs_is_required(project: dict[str, Any]) -> None:
    assert required(project["dependencies"]) == {
        "pytest",
        "pytest-xdist",
        "openai",
        "anthropic",
        "aiohttp",
        "jsonschema",
        "msgspec",
        "tomli",
    }
    assert set(project["optional-dependencies"]) == {
        *("all", "asyncio", "parquet", "prices", "templates", "litellm", "lab", "mcp", "hub", "ray")
    }


def test_no_extra_brings_a_plugin_that_prints_in_every_pytest_run(project: dict[str, Any]) -> None:
    extras = (required(each) for name, each in project["optional-dependencies"].items() if name != "asyncio")
    plugins = {name for name in set().union(*extras) if name.startswith("pytest-")}

    assert plugins == {"pytest-json-report"}, "pytest-asyncio warns before a run that does not set one of its keys"


def test_the_page_of_limitations_has_the_oldest_release_of_each_requirement(project: dict[str, Any]) -> None:
    page = (REPOSITORY / "docs" / "explanation" / "limitations.md").read_text(encoding="utf-8")
    for name, release in re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"]), re.MULTILINE):
        assert f"{name} {release}" in page


FOLDERS = ("pytest_osmosis", "tests", "examples", "configs", "docs", "benchmarks", "viewer", ".ci", ".github")
MACHINE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/(work|root|tmp)/",
            r"(?<![\w.])/(home|Users)/\w+/",
            r"\b(pypi|test\.pypi|npmjs)\.org\b",
            r"\bpythonhosted\b",
            r"\b(artifactory|nexus|devpi)\b",
        ]
    )
)


def published_files() -> list[Path]:
    """Return all files of the repository, without the output of runs."""
    files = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*") if path.is_file()]
    files += [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / name for name in (".pre-commit-config.yaml", "pyproject.toml", "Makefile", "noxfile.py")),
    ]
    return [
        path
        for path in files
        if not {".osmosis", "__pycache__", "node_modules"} & {*path.parts} and path != Path(__file__)
    ]


def test_no_file_holds_a_machine_s_path_or_package_index() -> None:
    traces = [
        f"{path.relative_to(REPOSITORY)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path in published_files()
        if path.suffix != ".png"
        for text in [path.read_text(encoding="utf-8")]
        for match in MACHINE.finditer(text)
    ]

    assert not traces, "\n".join(traces)


ENDING = {
    "gpt-5": "2026-12-11",
    "gpt-5-mini": "2026-12-11",
    "gpt-5-nano": "2026-12-11",
    "o3": "2026-12-11",
    "gpt-4.1-mini": "2027-01-14",
}
"""Models of OpenAI, and the days on which they are shut down."""
SHOWN = ("README.md", "docs/", "examples/", "configs/", "rollouts/", "pytest_osmosis/")
FACTS = (
    "docs/reference/verifiers-differences.md",
    "pytest_osmosis/config/rules.py",
    "pytest_osmosis/addons/osmosis_sdk/evaluate_rubric.py",
)
"""Files that say what another system does with such a model."""


def test_nothing_that_users_see_names_a_model_that_is_shut_down() -> None:
    ending = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, ENDING))})(?![.-]?\w)")
    named = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]} ends on {ENDING[match[0]]}"
        for path in published_files()
        if (name := str(path.relative_to(REPOSITORY))).startswith(SHOWN) and name not in FACTS
        if path.suffix in {".md", ".py", ".toml", ".yml", ".txt", ".jsonl", ".json"}
        for text in [path.read_text(encoding="utf-8")]
        for match in ending.finditer(text)
    ]

    assert not named, "\n".join([f"name {EXAMPLE_MODEL} instead:", *named])


def test_the_readme_and_the_scaffold_name_the_model_of_messages() -> None:
    for path in ("README.md", "docs/zh/README.md", "pytest_osmosis/cli/template/eval.toml"):
        assert f'"{EXAMPLE_MODEL}"' in (REPOSITORY / path).read_text(encoding="utf-8"), path


@pytest.mark.nightly
def test_the_wheel_holds_exactly_the_files_of_the_package(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")

    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    published = {str(path.relative_to(REPOSITORY)) for path in published_files()}

    assert {"pytest_osmosis/py.typed", "pytest_osmosis/results.schema.json"} <= packed
    assert packed == {path for path in published if path.startswith("pytest_osmosis/")}


def test_ci_and_pre_commit_run_what_the_makefile_runs() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    workflows = [
        yaml.safe_load(file.read_text(encoding="utf-8")) for file in REPOSITORY.glob(".github/workflows/*.yml")
    ]
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    targets = {step["run"].split()[1] for job in jobs for step in job["steps"] if "run" in step}
    parts = [part for job in jobs for part in job.get("strategy", {}).get("matrix", {}).get("part", ())]
    tools = [hook["entry"].split(" --")[0].removeprefix(".venv/bin/") for hook in hooks]
    assert targets == {"setup", "browser", "test", "test-all", "test-core", "nightly", "viewer-check", "docs"}
    assert [target for target in targets if f"\n{target}: " not in makefile] == []
    assert f"\nNIGHTLY := {' '.join(parts)}\n" in makefile
    assert [tool for tool in tools if f"$(BIN)/{tool}" not in makefile] == []


WITHOUT_TOOLS = """
import sys
import pytest

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("hatchling", "hypothesis", "pyarrow", "trustme", "yaml"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_checkout_runs_its_own_config_without_the_tools_of_its_tests() -> None:
    words = ["--osmosis-config=configs/eval/multiply.toml", "--osmosis-dry-run", "-pno:hypothesispytest"]

    command = [sys.executable, "-c", WITHOUT_TOOLS, *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "osmosis: multiply (configs/eval/multiply.toml)" in done.stdout


PACKAGE = Path(pytest_osmosis.__file__).parent
PROMISES = re.compile(r"^\| (?!promise|---)(?P<promise>.+?) \| (?P<tests>[^|]*) \|$", re.MULTILINE)
WAYS_OUT = re.compile(r"\bprint\(|\bwarnings?\.warn\(|\.(?:write_line|write_sep|section)\(|\btw\.(?:write|line)\(")
KNOWN = {
    "cli/main.py": 1,  # an error of the system, which holds no text of others
    "cli/output.py": 5,  # JSON and a status line through a sanitizer, and lines painted after they passed it
    "demo.py": 3,  # a program of its own, which knows no secret
    "plugin/controller.py": 1,  # a constant
    "plugin/progress_line.py": 3,  # an empty line, and the line in place, whose name is escaped
    "plugin/terminal.py": 3,  # `write_line`, an escaped title, and one of ours
}


def test_no_module_prints_past_the_sanitizer() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        code = re.sub(r'r?"""[\s\S]*?"""|#.*', "", path.read_text(encoding="utf-8"))
        if times := len(WAYS_OUT.findall(code)):
            found[path.relative_to(PACKAGE).as_posix()] = times
    assert found == KNOWN


def test_each_promise_is_held_by_tests_that_exist() -> None:
    promises = PROMISES.findall((REPOSITORY / "SECURITY.md").read_text(encoding="utf-8"))
    named = [(promise, test) for promise, tests in promises for test in re.findall(r"`([^`]+)`", tests) or [""]]

    assert len(promises) >= 10
    assert [(promise, test) for promise, test in named if not exists(test)] == []


def exists(test: str) -> bool:
    """Return True if `path::name` is a test, or `path` alone a file of tests."""
    path, _, name = test.partition("::")
    file = REPOSITORY / path
    return file.is_file() and re.search(rf"def {name or 'test_'}", file.read_text(encoding="utf-8")) is not None


@pytest.mark.addon  # they have the commands of add-ons
@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")

    assert committed == PAGES[name](), "run python docs/generate.py"


@pytest.mark.addon
def test_the_table_of_chinese_sentences_has_those_of_the_pages_and_no_others() -> None:
    asked: dict[str, str] = {}
    for name in IN_CHINESE:
        chinese.translated(PAGES[name](), lambda sentence: asked.setdefault(sentence, sentence))

    assert chinese.sentences().keys() == asked.keys()


def test_the_api_page_has_every_public_name_once() -> None:
    shown = [name for section in api.SECTIONS for name in section.names]

    assert sorted(shown) == sorted(set(pytest_osmosis.__all__) - {"__version__"})


@pytest.mark.addon
def test_every_public_name_has_a_docstring_of_its_own() -> None:
    shown = {name: getattr(pytest_osmosis, name) for section in api.SECTIONS for name in section.names}

    assert [name for name, value in shown.items() if not api.text_of(value.__doc__ or "")] == []
    assert [name for name, value in shown.items() if (value.__doc__ or "").startswith(f"{name}(")] == []
