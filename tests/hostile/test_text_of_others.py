"""Text of models, rows, servers, user code, options and files does not control terminals, runners of CI, or readers.

The search after each test looks for control characters and workflow commands in everything that was printed, and in
XML and Markdown.
"""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_osmosis.plugin import options
from tests.hostile.sweep import commands
from tests.hostile.workspaces import API_KEY, CONFIG, PLAIN_AND_XDIST, HostileWorkspace
from tests.plugin.workspaces import PYTEST, read_json
from tests.servers import ChatServer, data, reply, status

NASTY = (
    "::error file=a,line=1::x\n  ::set-output name=a::b\n\u3000::add-mask::a\r::stop-commands::t\x85::debug::x\n"
    "a ##[error]b ##[set-env name=PATH;]c ##vso[task.setvariable variable=a]b ##VSO[task.complete]\n"
    "##teamcity[buildStop comment='x'] section_start:1:a[collapsed=true]\r\x1b[0K section_end:1:a\r\x1b[0K\n"
    "\x1b]0;title\x07\x1b[2J\x9b31m \x00\x08\x08\x7f \u202eevil\u2066\u2028\u200b\ufeff\U000e0041 e"
    + "\u0301"
    * 300
    + "\n"
    "</script><img src=x onerror=alert(1)> | a | b |\n```\n[x](javascript:alert(1)) ![x](http://evil/x.png) @team #1\n"
    "]]> &amp; \ud800 \ufffe <failure message='x'/>\n"
)
SAYS_EVERYTHING = f"""
import logging, sys, warnings
NASTY = {NASTY!r}
NASTY = NASTY.encode('utf-8', 'replace').decode()

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    print(NASTY)
    print(NASTY, file=sys.stderr)
    logging.error(NASTY)
    warnings.warn(NASTY)
    if extra_info.get('reward'):
        raise ValueError(NASTY)
    return 0.0
"""


@PLAIN_AND_XDIST
def test_text_of_models_rows_and_user_code_is_shown_as_escapes(hostile: HostileWorkspace) -> None:
    refusal = status(400, {"error": {"message": NASTY, "code": NASTY}})
    with ChatServer(reply(NASTY, model=NASTY), refusal, reply(NASTY)) as server:
        hostile.eval(
            rows=[{"user_prompt": NASTY, "ground_truth": NASTY}, {"user_prompt": NASTY}, {"reward": "x"}],
            model={"base_url": server.base_url},
            experiment={"model_path": "m"},
            gate={"pass_rate": ">= 0.1"} if not hostile.distributed else {},
        )
        hostile.write("rewards.py", SAYS_EVERYTHING)
        result = hostile.run(
            CONFIG,
            "--junitxml=junit.xml",
            "--osmosis-markdown=page.md",
            "-rA",
            "-vv",
            "--osmosis-no-probe",
            "--color=no",
        )
    assert result.ret in (1, 9)
    assert "\\::error" in result.stdout.str()
    assert "#\\#vso[" in result.stdout.str()
    ElementTree.parse(hostile.root / "junit.xml")
    page = (hostile.root / "page.md").read_text()
    assert "<img" not in page
    assert "](" not in page.replace("\\](", "")
    assert "://" not in page.partition("\n")[2]
    rows = [line for line in page.splitlines() if line.startswith("| row")]
    assert all(line.replace("\\|", "").count("|") == 3 for line in rows), rows
    hostile.show_everything("row0-run0", "row1-run0", "row2")


def test_problems_show_values_as_escapes(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=[{"user_prompt": [NASTY], NASTY: 1}, {"messages": [{"role": NASTY}]}])
    hostile.run(CONFIG)
    toml = json.dumps(NASTY.replace("\ud800", "").replace("\ufffe", "")).replace("\x7f", "")
    hostile.write("configs/eval/y.toml", f"[experiment]\n{toml} = {toml}\nmodel_path = {toml}\n[{toml}]\n[secrets]\n")
    hostile.run("--osmosis-config=configs/eval/y.toml", f"--osmosis-n={NASTY.replace(chr(0), '')[:400]}")
    hostile.write("configs/eval/z.toml", "x = \n::error::x ##[error] \x1b[31m")
    assert hostile.run("--osmosis-config=configs/eval/z.toml").ret == 4
    assert hostile.run("--osmosis-config=\x1b[31m##[error]::x.toml").ret == 4


def test_errors_of_code_that_does_not_load_are_shown_as_escapes_without_secrets(hostile: HostileWorkspace) -> None:
    hostile.eval()
    said = f"{NASTY}the key is {API_KEY}".encode(errors="replace")
    for end in (f"raise ValueError({NASTY!r})", "os._exit(3)"):
        hostile.write("rewards.py", f"import os\nos.write(2, {said!r})\n{end}\n")
        result = hostile.run(CONFIG, exits=4)
    assert "the key is " in result.stderr.str()


def test_nothing_is_a_command_on_a_runner_of_ci(hostile: HostileWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    page = hostile.root / "job.md"
    for name, value in (("GITHUB_ACTIONS", "true"), ("GITHUB_STEP_SUMMARY", str(page)), ("CI", "true")):
        monkeypatch.setenv(name, value)
    with ChatServer(reply(NASTY)) as server:
        hostile.eval(
            rows=[{"user_prompt": NASTY, "score": 0.0}, {"reward": "raises"}],
            model={"base_url": server.base_url},
            experiment={"model_path": "m"},
        )
        hostile.write("rewards.py", SAYS_EVERYTHING)
        result = hostile.run(CONFIG, "-rA", "-vv")
    assert not list(commands(result.stdout.str()))
    assert page.exists()


@pytest.mark.addon
def test_tests_over_rollouts_show_rollouts_as_escapes(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=[{"user_prompt": NASTY, "solution_str": NASTY.replace("\ud800", "")}])
    hostile.write("rewards.py", SAYS_EVERYTHING)
    hostile.write(
        "test_it.py",
        "import pytest\n"
        "pytestmark = pytest.mark.osmosis_eval('configs/eval/x.toml')\n"
        "def test_text(rollout):\n    assert rollout.solution_str == 'x'\n"
        "def test_raises(rollout):\n    raise ValueError(rollout.solution_str)\n"
        "def test_fails(rollout):\n    pytest.fail(rollout.solution_str)\n"
        "def test_skips(rollout):\n    pytest.skip(rollout.solution_str)\n"
        "def test_prints(rollout):\n    print(rollout.solution_str)\n    assert 0\n",
    )
    hostile.run("test_it.py", "--junitxml=junit.xml", "-rA", "-vv", "-l")
    ElementTree.parse(hostile.root / "junit.xml")


def test_names_of_rows_files_are_shown_as_escapes(hostile: HostileWorkspace) -> None:
    name = "data/a\x1b[31m##[error]\u202e\r::error::b.jsonl"
    hostile.eval(rows=[], data={"path": name})
    hostile.write(name, '{"user_prompt": "What is 1 * 2?", "ground_truth": "2", "score": 0.0}\n')
    result = hostile.run(CONFIG, "--osmosis-markdown=page.md", "--junitxml=junit.xml", "-rA")
    assert result.ret == 1
    hostile.write("pytest.ini", "[pytest]\naddopts = --osmosis-config=\x1b[31m##[error].toml\n")
    assert hostile.run().ret == 5


@pytest.mark.usefixtures("measured")
def test_a_very_long_line_is_shortened_wherever_it_is_shown(hostile: HostileWorkspace) -> None:
    long = "x" * 10_000_000
    with ChatServer(data({"choices": [{"message": {"role": "assistant", "content": long}}]})) as server:
        hostile.eval(rows=[{"score": 0.0}], model={"base_url": server.base_url}, experiment={"model_path": "m"})
        hostile.write(
            "rewards.py",
            "def score(solution_str, **kwargs):\n    print(solution_str)\n    raise ValueError(solution_str)\n",
        )
        result = hostile.run_process(CONFIG, "--junitxml=junit.xml", "--osmosis-markdown=page.md", "--osmosis-no-probe")
    assert result.ret == 9
    assert len(result.stdout.str()) < 300_000
    shown = hostile.cli("show", "row0-run0")
    assert shown.ret == 0
    assert len(shown.stdout.str()) < 500_000
    assert (hostile.root / "junit.xml").stat().st_size < 500_000
    assert (hostile.root / "page.md").stat().st_size < 100_000


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "caf\\xe9 \\u65e5"), ("latin-1", "\\u65e5")])
def test_an_eval_of_any_text_is_printed_with_escapes(
    hostile: HostileWorkspace, monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    hostile.eval("日é", rows=[{"user_prompt": "What is 2 * 2 café 日?", "score": 0.0}])
    monkeypatch.setenv("PYTHONIOENCODING", encoding)

    command = [*PYTEST, *hostile.arguments, "--osmosis-config=configs/eval/日é.toml", "-v"]
    convert = f"import sys; sys.stdout.buffer.write(sys.stdin.buffer.read().decode('{encoding}').encode())"
    result = hostile.command(
        "sh", "-c", f"{shlex.join(command)} | {shlex.quote(sys.executable)} -c {shlex.quote(convert)}"
    )

    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert f"user: What is 2 * 2 caf{'é' if encoding == 'latin-1' else chr(92) + 'xe9'} \\u65e5?" in result.stdout.str()
    assert shown in result.stdout.str()
    result.stdout.fnmatch_lines(["results: .osmosis/runs/*"])


WORD = "a\x1b[31mb\x9bc\r\n::error::d \u202e##[error]e\x07"
SHOWN = "a\\x1b[31mb\\x9bc"


def test_values_of_all_options_are_shown_as_escapes_and_files_with_such_names_are_written(
    hostile: HostileWorkspace,
) -> None:
    hostile.eval(rows=1)
    writes = ("output", "markdown")
    alone = ("config", "from", "source", "env")
    named = [option for option in options.ALL if option.metavar is not None and option.name not in writes]
    others = [f"{option.flag}={WORD}" for option in named if option.name not in alone]

    for name in alone:
        assert hostile.run(f"--osmosis-{name}={WORD}").ret == 4
    assert hostile.run(CONFIG, *others).ret == 4
    words = [CONFIG, f"--osmosis-output={WORD}.json", f"--osmosis-markdown={WORD}.md"]
    assert hostile.run(*words).ret == 0
    assert (hostile.root / f"{WORD}.json").exists()
    hostile.write(f"{WORD}.json", "mine")
    assert hostile.run(*words).ret == 4


def test_addopts_that_name_an_eval_in_vain_are_shown_as_escapes(
    hostile: HostileWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.write("test_a.py", "def test_a(): pass\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"'--osmosis-config={WORD}' '--osmosis-agent={WORD}'")

    result = hostile.run("test_a.py")

    result.assert_outcomes(passed=1)
    assert f"osmosis: {SHOWN}" in result.stdout.str()


def test_results_that_are_read_back_are_shown_as_escapes(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2, baseline={"results": "base.json"}, gate={"max_regression": 0.1})
    assert hostile.run(CONFIG, "--osmosis-update-baseline").ret == 0

    def edit(data: dict[str, Any]) -> dict[str, Any]:
        data["provenance"]["started_at"] = "2026\x1b[31m-01-01" + WORD
        data["provenance"]["run_dir"] = WORD
        data["config"] |= {
            "model": WORD,
            "name": WORD,
            "decide": WORD,
            "eval_fns": [WORD],
            "sampling": {WORD: WORD},
        }
        return data

    hostile.write("base.json", json.dumps(edit(read_json(hostile.root / "base.json"))))
    results = hostile.run_dirs()[-1] / "results.json"
    data = read_json(results)
    data["provenance"]["started_at"] = "2026\x1b[31m-01-01"
    results.write_text(json.dumps(data, indent=2), encoding="utf-8")

    hostile.run(CONFIG, "-v")
    hostile.run("--osmosis-from=base.json")
    for words in (["runs"], ["show", WORD, "row0-run0"], ["show", "latest", WORD], ["init", WORD], [WORD]):
        hostile.cli(*words)
