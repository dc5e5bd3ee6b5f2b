"""`pytest-osmosis` and `python -m pytest_osmosis`: begin a workspace, run it, and look at it."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pytest_osmosis import __version__, cli
from pytest_osmosis.cli.init import create_workspace
from pytest_osmosis.cli.main import argument_parser
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.plugin.options import GROUPS
from tests import tiers
from tests.cli.stored_runs import Cli
from tests.running import RUNNING


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if "pytest" in arguments:
        RUNNING.check_process()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120
    )
    return done


# -- init --------------------------------------------------------------------------------------------------


@pytest.mark.journey
def test_a_new_workspace_runs_green_and_warns_of_nothing(tmp_path: Path) -> None:
    began = python(tmp_path, "-m", "pytest_osmosis", "init", "sums")
    command = began.stdout.splitlines()[-1].split()
    assert command[0] == "pytest"

    ran = python(tmp_path, "-m", "pytest", *command[1:])
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert "40 rollouts" in ran.stdout
    assert "note:" not in ran.stdout
    assert "arning" not in ran.stdout
    if not tiers.HAS_ADDONS:
        return
    shown = python(tmp_path, "-m", "pytest_osmosis", "show", "row3-run1").stdout
    assert 'assistant:\n    -> add({"a": 56, "b": 37})' in shown
    assert "assistant:\n    56 + 37 = 93\n" in shown
    assert "  reward 1 >= 1\n" in shown


@pytest.mark.slow
def test_the_workflow_of_a_new_workspace_uploads_what_its_eval_writes(tmp_path: Path) -> None:
    create_workspace(tmp_path, "sums")
    workflow = yaml.safe_load((tmp_path / ".github/workflows/evals.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["eval"]["steps"]
    command = next(words for step in steps if (words := shlex.split(step.get("run", "")))[:1] == ["pytest"])
    (upload,) = (step["with"] for step in steps if step.get("uses", "").startswith("actions/upload-artifact@"))
    ran = python(tmp_path, "-m", *command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    uploaded = {pattern: [*tmp_path.glob(pattern)] for pattern in upload["path"].split()}
    assert set(uploaded) == {"results*.json", "junit.xml", "summary.md", ".osmosis/runs/"}
    assert [pattern for pattern, paths in uploaded.items() if not paths] == []
    assert upload["include-hidden-files"]
    cached = [step["with"]["cache-dependency-path"] for step in steps if "cache" in step.get("with", {})]
    assert all((tmp_path / path).is_file() for path in cached)
    page = (Path(__file__).parents[2] / "docs/how-to/gate-in-ci.md").read_text(encoding="utf-8")
    block = page.partition("```yaml file=.github/workflows/evals.yml\n")[2].partition("```")[0]
    of_the_page = yaml.safe_load(block)["jobs"]["eval"]["steps"]
    assert [each | {"env": None} for each in of_the_page] == [each | {"env": None} for each in steps]


@pytest.mark.slow
def test_the_action_runs_an_eval_comments_and_exits_as_it_did(tmp_path: Path) -> None:
    create_workspace(tmp_path, "sums")
    action = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))
    given = {name: each.get("default", "") for name, each in action["inputs"].items()}
    given |= {"config": "configs/eval/sums.toml", "comment": "failure", "package": ""}
    given["arguments"] = "--osmosis-set='gate.pass_rate=\">= 0.99\"' '--osmosis-limit=20'"
    gh = tmp_path / "bin/gh"
    gh.parent.mkdir()
    gh.write_text('#!/bin/sh\necho "$@" > "$0.args"\n')
    gh.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    env |= {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_REPOSITORY": "o/r", "NUMBER": "7"}
    env["PATH"] = f"{gh.parent}:{Path(sys.executable).parent}:{env['PATH']}"
    codes = []
    for step in action["runs"]["steps"]:
        if "run" not in step or "PACKAGE" in step["env"]:
            continue
        for name, value in step["env"].items():
            if found := re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value):
                env[name] = given[found[1]]
            elif "outputs.status" in value:
                env[name] = (tmp_path / "output").read_text().strip().removeprefix("status=")
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        codes.append(subprocess.run(bash, cwd=tmp_path, env=env, check=False, capture_output=True).returncode)

    assert codes[-1] == 1
    assert not any(codes[:-1])
    assert Path(f"{gh}.args").read_text().startswith("pr comment 7 --repo o/r --body-file comment.md")
    assert "sums: a gate fails" in (tmp_path / "comment.md").read_text()
    assert (tmp_path / "results.json").exists()


def test_the_agent_of_a_new_workspace_answers_every_call_of_a_tool(tmp_path: Path) -> None:
    create_workspace(tmp_path, "sums")
    main = runpy.run_path(str(tmp_path / "rollouts/sums/main.py"))
    calls = [("add", '{"a": 1, "b": 2}'), ("add", '{"a": 1}'), ("add", "no JSON"), ("multiply", "{}")]

    contents = [
        main["result_of"]({"id": "c1", "function": {"name": name, "arguments": arguments}})["content"]
        for name, arguments in calls
    ]

    assert contents[0] == "3"
    assert all(content.startswith("error: ") for content in contents[1:])


@pytest.mark.parametrize(("name", "n_rows"), [("my-sums", 20), ("support", 12)])
def test_init_writes_what_it_says_and_no_more(typed: Cli, tmp_path: Path, name: str, n_rows: int) -> None:
    said = typed("init", name)
    written = {line.split()[1] for line in said.splitlines() if line.startswith("written")}
    assert written == {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    rows = (tmp_path / f"data/{name}.jsonl").read_text().splitlines()
    assert len({json.loads(row)["user_prompt"] for row in rows}) == n_rows
    assert [path for path in written if re.search("@[a-z]+@", (tmp_path / path).read_text())] == []


def test_init_never_overwrites_an_eval(typed: Cli, tmp_path: Path) -> None:
    config = tmp_path / "configs/eval/sums.toml"
    config.parent.mkdir(parents=True)
    config.write_text("mine")
    assert typed("init", "sums", fails=1) == (
        "init sums: cannot overwrite configs/eval/sums.toml; choose another name or delete it\n"
    )
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["sums.toml"]
    assert config.read_text() == "mine"


@pytest.mark.slow
def test_a_second_eval_keeps_the_shared_files_and_still_runs(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("mine = 1\n")
    said = create_workspace(tmp_path, "sums")
    assert "kept     rewards.py (it exists already)" in said
    assert (tmp_path / "rewards.py").read_text() == "mine = 1\n"
    ran = python(tmp_path, "-m", "pytest", "-p", "no:asyncio", *said[-1].split()[1:])
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert "arning" not in ran.stdout


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "a b", "x.toml", "é"])
def test_init_takes_no_name_that_is_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(OsmosisError, match="a name holds letters"):
        create_workspace(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_schema_prints_the_schema_of_results_or_of_a_config(typed: Cli) -> None:
    assert json.loads(typed("schema"))["title"] == "Results of one eval run"
    assert typed("schema", "results") == typed("schema")
    assert json.loads(typed("schema", "config"))["title"] == "Eval config of pytest-osmosis"


@pytest.mark.addon
def test_a_skill_is_written_and_names_only_what_exists(
    typed: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("skill") == "written  .agents/skills/pytest-osmosis/SKILL.md\n"
    assert typed("skill", ".claude/skills") == "written  .claude/skills/pytest-osmosis/SKILL.md\n"

    text = (tmp_path / ".agents/skills/pytest-osmosis/SKILL.md").read_text(encoding="utf-8")
    _, front, _ = text.split("---\n", 2)
    assert yaml.safe_load(front)["name"] == "pytest-osmosis"  # agents want the name of the folder
    commands = [shlex.split(command) for command in re.findall(r"`(pytest[^`]* [^`]*)`", text)]
    for command in commands:
        if command[0] == "pytest-osmosis":
            argument_parser(command[1:]).parse_args(command[1:])
    known = {option.flag for options in GROUPS.values() for option in options}
    used = {word.partition("=")[0] for command in commands for word in command if word.startswith("--osmosis")}
    assert len(commands) > 9
    assert used
    assert used <= known


@pytest.mark.addon
def test_an_error_of_a_command_with_json_is_json_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("[evaluation]\nn = 0\n")
    for command, status, named in (
        (["show", "nix", "--json"], 1, 'eval run "nix"'),
        (["submit", "bad.toml", "--json"], 1, "bad.toml:2:"),
        (["runs", "wait", "nix", "--json"], 4, 'eval run "nix"'),
        (["merge", "nix.json", "--json"], 4, "nix.json"),
    ):
        assert cli.main(command) == status
        printed = capsys.readouterr()
        message = json.loads(printed.out)["error"]["message"]
        assert named in message
        assert printed.err == f"{message}\n"


def test_the_program_is_the_same_however_it_is_called(tmp_path: Path) -> None:
    assert python(tmp_path, "-m", "pytest_osmosis", "--version").stdout == f"pytest-osmosis {__version__}\n"
    done = python(tmp_path, "-m", "pytest_osmosis")
    assert (done.returncode, "usage: python -m pytest_osmosis" in done.stderr) == (2, True)
    script = Path(sys.executable).with_name("pytest-osmosis")
    done = subprocess.run([script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "usage: pytest-osmosis [-h] [--version] COMMAND ...")
    typed = [("pytest_osmosis", "demo"), ("pytest_osmosis.demo",)]
    helps = [python(tmp_path, "-m", *words, "--help").stdout for words in typed]
    assert [text.splitlines()[0].partition(" [")[0] for text in helps] == [
        "usage: python -m pytest_osmosis demo",
        "usage: python -m pytest_osmosis.demo",
    ]
    assert all("--api-key" in text for text in helps)


@pytest.mark.parametrize(
    "command",
    [
        *(["init", "x"], ["schema"], ["--help"]),
        *(pytest.param(command, marks=pytest.mark.addon) for command in (["runs"], ["show", "row0-run0"])),
    ],
)
def test_the_commands_need_no_pytest(tmp_path: Path, command: list[str]) -> None:
    code = (
        "import sys; sys.modules['pytest'] = sys.modules['_pytest'] = None\n"
        f"from pytest_osmosis.cli import main; sys.exit(main({command!r}))"
    )
    done = python(tmp_path, "-c", code)
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if command[0] == "show" else 0)


@pytest.mark.parametrize(
    "arguments",
    [["init", ""], *(pytest.param(["show", *names], marks=pytest.mark.addon) for names in (["", "row0-run0"], [" "]))],
)
def test_an_empty_argument_is_a_usage_error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "has an empty value" in capsys.readouterr().err


# -- standard output ---------------------------------------------------------------------------------------


def in_locale(folder: Path, command: str, encoding: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command line of the shell whose standard streams have an encoding."""
    env = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHON": sys.executable}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, check=False, timeout=120)


@pytest.mark.addon
@pytest.mark.parametrize(("encoding", "shown"), [("ascii", b"caf\\xe9 \\u2265"), ("latin-1", b"caf\xe9 \\u2265")])
def test_text_that_the_terminal_cannot_show_is_printed_as_escapes(tmp_path: Path, encoding: str, shown: bytes) -> None:
    done = in_locale(tmp_path, "$PYTHON -m pytest_osmosis show latest 'café ≥'", encoding)
    assert done.returncode == 1
    assert done.stderr.startswith(b'"' + shown + b'": must be a run like row3-run1')
    (tmp_path / ".osmosis/runs/café ≥-1").mkdir(parents=True)
    (tmp_path / ".osmosis/runs/café ≥-1/manifest.json").write_text("{}")
    done = in_locale(tmp_path, "$PYTHON -m pytest_osmosis runs", encoding)
    assert done.returncode == 0
    assert shown in done.stdout


READS = pytest.param("runs", marks=pytest.mark.addon)


@pytest.mark.parametrize("command", ["schema", READS, "--help"])
def test_a_broken_pipe_ends_a_command_quietly(tmp_path: Path, command: str) -> None:
    done = in_locale(tmp_path, f"$PYTHON -m pytest_osmosis {command} | true", "utf-8")
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    done = in_locale(tmp_path, "$PYTHON -m pytest_osmosis schema > /dev/full", "utf-8")
    assert (done.returncode, done.stderr) == (1, b"cannot print: No space left on device\n")


@pytest.mark.parametrize("command", ["schema", READS])
def test_commands_work_without_standard_output(tmp_path: Path, command: str) -> None:
    done = in_locale(tmp_path, f"$PYTHON -m pytest_osmosis {command} >&-", "utf-8")
    assert (done.returncode, done.stderr) == (0, b"")
