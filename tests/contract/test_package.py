"""The package's promises to its users: names, metadata, the wheel, pages, texts, and the schema of results."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import pytest_osmosis
from docs.generate import DOCS, IN_CHINESE, PAGES
from docs.pages import api, chinese
from pytest_osmosis.config.tables import EXAMPLE_MODEL
from tests.plugin.conftest import shell, workspace
from tests.plugin.workspaces import Workspace

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


__all__ = ["shell", "workspace"]

SCHEMA = json.loads((Path(pytest_osmosis.__file__).parent / "results.schema.json").read_text(encoding="utf-8"))

CONFIG = """
[experiment]
model_path = "demo/arithmetic"
dataset = "x"
[evaluation]
n = 2
batch_size = 4
limit = 7
[scoring]
eval_fns = ["answering:exact"]
[agent]
agent = "answering:rollout"
max_turns = 1
[gate]
pass_rate = ">= 0.1"
[limits]
max_errors = 100
[secrets]
required = []
"""

RECORDED = """
[experiment]
dataset = "r"
[data]
rows = "all"
[scoring]
eval_fns = ["answering:exact"]
score_ranges = {"answering:exact" = [-1, 1]}
rubric = "Right?"
[judge]
model_path = "demo/judge"
votes = 2
[agent]
agent = "recorded"
[secrets]
required = []
"""

CODE = """
from pytest_osmosis import AgentWorkflowOutput


async def rollout(ctx):
    word = ctx.prompt[-1]["content"].split()[0]
    if word == "raise":
        raise RuntimeError("the agent broke")
    if word == "loop":
        await ctx.chat(ctx.prompt)
    messages = [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]
    return AgentWorkflowOutput(messages, metrics={"turns": 1}, info={"plan": ["multiply"]})


def exact(solution_str, ground_truth):
    if ground_truth == "broken":
        raise ValueError("the scorer broke")
    score = float(ground_truth in solution_str)
    return {"score": score, "reason": "it looked", "metrics": {"length": len(solution_str)}}
"""

ROWS = [
    ("2 * 3?", "6"),
    ("2 * 4?", "7"),
    ("raise", "1"),
    ("2 * 5?", "broken"),
    ("2 * 6?", "12"),
    ("2 * 7?", "14"),
    ("loop", "1"),
]

Evaluate = Callable[..., Any]


@pytest.fixture
def evaluate(workspace: Workspace) -> Evaluate:
    workspace.write("answering.py", CODE)
    lines = [json.dumps({"user_prompt": prompt, "ground_truth": truth}) for prompt, truth in ROWS]
    workspace.write("data/x.jsonl", "\n".join(lines))

    def evaluate(config: str = CONFIG, *words: str) -> Any:
        path = workspace.write("x.toml", config)
        workspace.run(*(words or ["x.toml"]), "--osmosis-no-probe")
        return workspace.results(path.stem)

    return evaluate


def faults(results: object) -> list[str]:
    validator = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(results)]


def removing(config: str) -> str:
    """Return the config with a Grader that removes every run."""
    Path("taking.py").write_text(
        "from pytest_osmosis import Grader\n\n\nclass Out(Grader):\n"
        "    async def grade(self, ctx):\n        ctx.sample.remove_sample = True\n        ctx.set_reward(0.0)\n"
    )
    return config.replace('eval_fns = ["answering:exact"]', 'grader = "taking:Out"')


def test_the_schema_is_a_valid_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


OF_ENTRIES = {
    name for table in ("entries", "entry", "entry_difference") for name in SCHEMA["$defs"][table]["properties"]
} | {"comparison"}
"""Keys of evals that ran with others of their config: `unit/results/test_metrics.py` writes and reads them."""
ELSEWHERE = OF_ENTRIES | {
    *("repeated", "shards", "imported", "imported_from", "replicas", "left_out", "back"),
}
"""Also those of runs whose host crashed, and of merged shards, which `unit/results/test_merge.py` writes and reads; of
imported runs, which `plugin/test_prime_files.py` reads; and of replicas, which `plugin/test_baseline_results.py` does.
"""


@pytest.mark.slow
def test_results_of_every_kind_are_valid_and_use_every_key_of_the_schema(evaluate: Evaluate) -> None:
    whole = evaluate()
    again = evaluate()
    rescored = evaluate(CONFIG, "--osmosis-from=latest")
    partial = evaluate(CONFIG, "x.toml::x[row0-run0]")
    interrupted = evaluate(CONFIG, "x.toml", "--osmosis-set=limits.max_tokens=1")
    nowhere = '[model]\nbase_url = "http://127.0.0.1:9/v1"\nmax_retries = 0\n'  # port 9 is discard
    served = CONFIG.replace("demo/arithmetic", "served").replace("max_turns", 'prompt = "Be brief."\nmax_turns')
    stopped = evaluate(served + nowhere)
    removed = evaluate(removing(CONFIG))
    base = copy.deepcopy(whole)
    base["rows"][1]["runs"][0].update(passed=True, scores={"answering:exact": 1.0})
    Path("base.json").write_text(json.dumps(base))
    compared = evaluate(f'{CONFIG}[baseline]\nresults = "base.json"\n')
    judged = CONFIG.replace("[scoring]", '[judge]\nmodel_path = "demo/judge"\n[scoring]\nrubric = "Right?"')
    two_models = evaluate(f'{judged}[baseline]\nmodel_path = "demo/arithmetic"\n')

    answers = [{"solution_str": "42", "ground_truth": str(truth)} for truth in (42, 43)]
    Path("data/r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    recorded = evaluate(RECORDED)

    assert faults(recorded) == []
    shard = evaluate(f'{CONFIG}[baseline]\nresults = "base.json"\n', "x.toml", "--osmosis-shard=1/2")
    kept = evaluate(f'{CONFIG}[cassette]\nrecord = "new"\n')
    kinds = [whole, again, rescored, partial, interrupted, stopped, removed, compared, two_models, kept, shard]
    assert [faults(results) for results in kinds] == [[]] * len(kinds)
    assert [results for results in kinds if results["partial"]] == [partial, shard]
    statuses = {run["status"] for results in kinds for row in results["rows"] for run in row["runs"]}
    assert statuses == {"finished", "failed", "skipped"}
    assert {"agent", "reward", "provider"} == {name for results in kinds for name in results["summary"]["boundaries"]}
    assert [results["status"] for results in (stopped, interrupted)] == ["failed", "stopped"]
    assert interrupted["pending"]
    assert [results for results in kinds if results["last_run"] is not None] == [again, compared, kept]
    assert [results for results in kinds if results["rescored"] is not None] == [rescored]
    found = {key for results in (*kinds, recorded) for key in keys_of(results)}
    declared = {key for each in (SCHEMA, *SCHEMA["$defs"].values()) for key in each.get("properties", {})}
    assert found >= declared - ELSEWHERE


def keys_of(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for member in value.values():
            yield from keys_of(member)
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item)


def test_every_key_is_described() -> None:
    objects = {"results": SCHEMA, **SCHEMA["$defs"]}
    undescribed = [
        f"{title}.{name}"
        for title, schema in objects.items()
        for name, declared in {**schema.get("properties", {}), **schema.get("patternProperties", {})}.items()
        if not (declared.get("description") or SCHEMA["$defs"][declared["$ref"].rpartition("/")[2]].get("description"))
    ]
    assert undescribed == []


def test_an_unknown_key_is_invalid_in_every_object() -> None:
    declared = {name: each for name, each in SCHEMA["$defs"].items() if "properties" in each}
    parts = {"judge_sums", "judges"}  # of which other objects are made

    assert SCHEMA["additionalProperties"] is False
    assert {name for name, each in declared.items() if each.get("additionalProperties") is not False} == parts


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a missing table": (lambda results: results.pop("gates"), "gates"),
    "a missing key": (lambda results: results["rows"][0]["runs"][0].pop("tokens"), "tokens"),
    "a rate above 1": (lambda results: results["summary"].update(pass_rate=1.5), "pass_rate"),
    "stopped without a reason": (lambda results: results.update(status="stopped"), "stop_reason"),
}
"""Changes that break the format, and a name that the fault has."""


def test_results_that_break_the_format_are_invalid(evaluate: Evaluate) -> None:
    results = evaluate(CONFIG, "x.toml::x[row0-run0]")
    for name, (change, place) in CHANGES.items():
        changed = copy.deepcopy(results)
        change(changed)
        assert place in "".join(faults(changed)), name
