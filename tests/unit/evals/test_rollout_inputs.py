"""An eval run goes on only with the inputs of its stored rollouts; what changed is named, without secrets."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from pytest_osmosis.errors import CodeError
from pytest_osmosis.evals.run_directory import changed_inputs, check_same_code, refusal
from pytest_osmosis.record.find_run import StoredEvalRun, stored
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.stored_rollouts import StoredProgress
from tests.raised import raised
from tests.unit.evals.conftest import CONFIG, Workspace, ran

AGENT = """
STYLE = "short"

async def rollout(ctx):
    reply = await ctx.chat([*ctx.prompt, {"role": "system", "content": STYLE}])
    return [*ctx.prompt, reply.message]
"""
VALUE, OTHER_VALUE = "a-value-of-a-variable", "another-value-of-it"
BASE = (
    CONFIG.replace("[evaluation]\n", "[evaluation]\nn = 2\n")
    + f"""
[sampling]
temperature = 0.5
[env]
STYLE = "{VALUE}"
GONE = "for now"
OPENAI_API_KEY = "sk-before-and-whole"
"""
)


@pytest.fixture
def run(workspace: Workspace) -> StoredEvalRun:
    workspace.config.write_text(BASE, encoding="utf-8")
    return stored(ran(workspace.prepare()).run.directory)


def changes(run: StoredEvalRun, workspace: Workspace, text: str = BASE) -> list[str]:
    workspace.config.write_text(text, encoding="utf-8")
    return list(changed_inputs(run, workspace.prepare(), StoredProgress(run.directory.journal)))


def replaced(old: str, new: str) -> str:
    assert old in BASE
    return BASE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (BASE, []),
        (replaced("batch_size = 8", "batch_size = 3"), []),
        (replaced("n = 2", "n = 3"), []),
        (replaced("sk-before-and-whole", "sk-rotated-and-other"), []),
        (replaced("[evaluation]\n", "[evaluation]\npass_threshold = 0.5\ngrader_timeout_s = 3\n"), []),
        (f"{BASE}[model]\nmax_retries = 9\n[gate]\npass_rate = '>= 0.5'\n[limits]\nmax_errors = 3\n", []),
        (replaced("temperature = 0.5", "temperature = 1.0"), ["[sampling] temperature: 0.5 -> 1.0"]),
        (
            replaced("temperature = 0.5", "seed = 3"),
            ["[sampling] temperature: 0.5 -> not set", "[sampling] seed: not set -> 3"],
        ),
        (
            replaced('"demo/arithmetic"', '"demo/judge"'),
            ['[experiment] model_path: "demo/arithmetic" -> "demo/judge"', '[model] model: "arithmetic" -> "judge"'],
        ),
        (replaced("n = 2", "n = 1"), ["[evaluation] n: 2 -> 1, and it may only grow"]),
        (
            replaced("[evaluation]\n", "[evaluation]\nagent_workflow_timeout_s = 9\n"),
            ["[evaluation] agent_workflow_timeout_s: 450.0 -> 9.0"],
        ),
        (f"{BASE}[agent]\nmax_turns = 3\n", ["[agent] max_turns: 10 -> 3"]),
        (f"{BASE}[limits.rollout]\ntokens = 9\n", ["[limits.rollout] tokens: not set -> 9"]),
        (replaced('rows = "all"', 'rows = "0-1"'), ["the selected rows: all 3 -> 2 rows of 3, without row 2"]),
    ],
)
def test_a_changed_input_is_named_with_both_values_unless_no_rollout_depends_on_it(
    run: StoredEvalRun, workspace: Workspace, text: str, lines: list[str]
) -> None:
    assert changes(run, workspace, text) == lines


def test_values_of_variables_are_compared_and_never_shown(workspace: Workspace, run: StoredEvalRun) -> None:
    other = stored(ran(workspace.prepare()).run.directory)
    found = changes(run, workspace, BASE.replace(VALUE, OTHER_VALUE).replace('GONE = "for now"', 'NEW = "x"'))

    assert found == [
        "[env] STYLE: a value -> another value",
        "[env] GONE: set -> not set",
        "[env] NEW: not set -> set",
    ]
    assert VALUE not in str(run.manifest.inputs)
    assert other.manifest.inputs["env"] != run.manifest.inputs["env"], "equal values have other digests"
    cast(Any, run.manifest.inputs)["agent"].pop("max_turns")
    assert changes(run, workspace) == ["[agent] max_turns: not set -> 10"], "a key that is there only now"


def test_changed_prompts_and_metadata_are_named_by_their_rows(workspace: Workspace) -> None:
    workspace.rows([{}] * 8)
    run = stored(ran(workspace.prepare()).run.directory)
    changed = [{"user_prompt": f"{row} * 3?"} for row in range(1, 6)]
    workspace.rows([{}, *changed, {}, {"metadata": {"a": 1}}])

    assert changes(run, workspace, CONFIG) == ["the prompt or metadata of rows 1, 2, 3, 4, 5 and 1 more: changed"]


@pytest.mark.parametrize("rows", [[{"ground_truth": "4"}] * 3, [{}] * 5], ids=["ground truth", "further rows"])
def test_ground_truths_may_change_and_further_rows_be_selected(
    run: StoredEvalRun, workspace: Workspace, rows: list[dict[str, str]]
) -> None:
    workspace.rows(rows)

    assert changes(run, workspace) == []


def test_changed_code_is_refused_with_the_names_of_its_files(workspace: Workspace) -> None:
    workspace.write("agents/short.py", AGENT)
    workspace.config.write_text(f'{CONFIG}\n[agent]\nagent = "agents.short:rollout"\n', encoding="utf-8")
    directory = ran(workspace.prepare()).run.directory
    then = StoredProgress(directory.journal).rollout_code
    assert then.keys() == {"agents/short.py"}
    code: Any = stored(directory).manifest.code
    assert code["rollouts"] is not None

    check_same_code(directory, then, dict(then))
    was, now = {**then, "gone.py": "old"}, {"agents/short.py": "other", "tools.py": "new"}

    assert str(raised(CodeError, check_same_code, directory, was, now)).splitlines() == [
        f"run {directory.name}: cannot be resumed, because its rollouts were made with other inputs; these changed:",
        "  agents/short.py: changed",
        "  gone.py: is not used any more",
        "  tools.py: was not used",
        "undo that, or begin a new eval run: under another name, or with --osmosis-fresh, which renames this one",
    ]
    assert refusal(["a: 1 -> 2"]).startswith(
        "cannot be resumed, because its rollouts were made with other inputs; this changed:\n  a: 1 -> 2\n"
    )


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_everything_in_a_run_directory_is_readable_by_its_owner_only(workspace: Workspace, umask: int) -> None:
    workspace.write("agents/short.py", AGENT.replace("reply =", "print(ctx.artifacts_dir, flush=True); reply ="))
    workspace.write("noisy.py", "import os\nos.write(2, b'loaded')\nfrom rewards import score\n")
    output = workspace.root / "out.json"
    config = CONFIG.replace("rewards:score", "noisy:score")
    workspace.config.write_text(
        f'{config}\n[agent]\nagent = "agents.short:rollout"\n[output]\nresults = "out.json"\n', encoding="utf-8"
    )
    before = os.umask(umask)
    try:
        directory: RunDirectory = ran(workspace.prepare()).run.directory
    finally:
        os.umask(before)

    modes = {str(path.relative_to(directory.path)): path.stat().st_mode & 0o777 for path in directory.path.rglob("*")}
    assert {"manifest.json", "journal.jsonl", "results.json", "host.log", "artifacts/row1-run0"} <= modes.keys()
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert {path: value for path, value in modes.items() if value & 0o077} == {}
    assert output.stat().st_mode & 0o777 == 0o666 & ~umask
