"""Outputs stay readable: few blocks of failures, the verdict below everything else, and colours by styles alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from tests.plugin.workspaces import CONFIG, PLAIN_AND_XDIST, Workspace, junit_cases
from tests.servers import ChatServer, reply, status

WRONG: Sequence[Mapping[str, object]] = [{"score": 0.0}] * 13
MORE = "and {} more: pytest-osmosis show"


def blocks(lines: Sequence[str]) -> list[str]:
    """Return the tests whose failures have a block, in order."""
    return [match[1] for line in lines if (match := re.fullmatch(r"_+ (?:ERROR at \w+ of )?(\S+) _+", line))]


def summary(lines: Sequence[str], word: str = "FAILED") -> list[str]:
    return [line for line in lines if line.startswith(f"{word} ")]


def section(lines: Sequence[str], title: str) -> list[str]:
    begin = next(number for number, line in enumerate(lines) if re.fullmatch(f"=+ {title} =+", line))
    end = next(n for n, line in enumerate(lines[begin + 1 :], begin + 1) if re.match("===|-+ osmosis: ", line))
    return list(lines[begin + 1 : end])


@PLAIN_AND_XDIST
def test_ten_failures_are_shown_the_others_counted_and_other_plugins_see_them_all(workspace: Workspace) -> None:
    workspace.eval(rows=WRONG)
    sees = "terminalreporter.write_line(f\"conftest sees {len(terminalreporter.stats['failed'])}\")"
    workspace.write("conftest.py", f"def pytest_terminal_summary(terminalreporter):\n    {sees}\n")
    workspace.write("test_python.py", "def test_python(): assert 0\n")
    lines = workspace.run(CONFIG, "test_python.py", "--junitxml=junit.xml").outlines
    ours = [test for test in blocks(lines) if test != "test_python"]
    assert len(ours) == 10
    assert "test_python" in blocks(lines)
    assert section(lines, "FAILURES")[-3:-2] == [MORE.format(3)]  # the last lines are JUnit's and the conftest.py's
    assert len(summary(lines)) == 11
    assert any("test_python.py::test_python" in line for line in summary(lines))
    assert section(lines, "short test summary info")[-1] == MORE.format(3)
    assert "14 failed" in lines[-1]
    assert "conftest sees 14" in lines
    cases = junit_cases(workspace.root / "junit.xml").values()
    assert sum(case.find("failure") is not None for case in cases) == 14


SHOWN = {
    "--osmosis-show-failures=2": (2, 2),
    "--osmosis-show-failures=0": (0, 0),
    "--osmosis-show-failures=all": (13, 13),
    "--osmosis-show-failures=2 -vv": (2, 2),
    "-v": (10, 10),
    "-vv": (13, 13),
    "--tb=no": (0, 10),
    "-rN": (10, 0),
    "-o osmosis_show_failures=3": (3, 3),
}
"""The blocks of failures, and the lines of the short summary."""


@pytest.mark.slow
def test_options_set_how_many_failures_are_shown(workspace: Workspace) -> None:
    workspace.eval(rows=WRONG)
    for typed, (n_blocks, n_lines) in SHOWN.items():
        lines = workspace.run(CONFIG, *typed.split()).outlines
        assert (len(blocks(lines)), len(summary(lines))) == (n_blocks, n_lines), typed
        none = typed == "--osmosis-show-failures=0"
        hidden = [] if none or typed == "--tb=no" else [13 - n_blocks]
        hidden += [] if typed == "-rN" else [13 - n_lines]
        first = "13 failures not listed" if none else "and {} more"
        notes = [line for line in lines if line.endswith(": pytest-osmosis show")]
        assert notes == [f"{first.format(n)}: pytest-osmosis show" for n in hidden if n], typed
    of_lines = section(workspace.run(CONFIG, "--tb=line").outlines, "FAILURES")
    assert sum("configs/eval/x.toml:3" in line and "score 0 < 1" in line for line in of_lines) == 10
    assert of_lines[-1] == MORE.format(3)


def test_errors_and_failures_share_the_bound(workspace: Workspace) -> None:
    workspace.eval(rows=[{"score": 0.0}] * 9 + [{"reward": "raises"}] * 9, limits={"max_errors": "100%"})

    lines = workspace.run(CONFIG).outlines

    assert [len(blocks(section(lines, title))) for title in ("ERRORS", "FAILURES")] == [5, 5]
    assert section(lines, "ERRORS")[-1] == section(lines, "FAILURES")[-1] == MORE.format(4)
    assert section(lines, "short test summary info")[-1] == MORE.format(8)


def test_a_failed_gate_is_always_listed_and_runs_that_it_excuses_are_bounded(workspace: Workspace) -> None:
    workspace.eval(rows=WRONG, gate={"pass_rate": ">= 0.9"})

    lines = workspace.run(CONFIG, "-rfx").outlines

    assert blocks(lines)[-1:] != ["x[row12-run0]"]
    assert [line.partition(" - ")[0] for line in summary(lines)] == [
        "FAILED configs/eval/x.toml::x[gate pass_rate >= 0.9]"
    ]
    assert len(summary(lines, "XFAIL")) == 10
    assert section(lines, "short test summary info")[-1] == MORE.format(3)


NOISE = """
import pytest

def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("a summary of another plugin")

@pytest.hookimpl(trylast=True)
def pytest_unconfigure():
    print("after everything")
"""


def test_the_verdict_is_printed_right_above_pytests_last_line(workspace: Workspace) -> None:
    workspace.eval(rows=[*WRONG, {}], evaluation={"n": 2}, gate={"pass_rate": ">= 0.9"})
    workspace.write("conftest.py", NOISE)
    workspace.write("test_python.py", "import warnings\ndef test_python():\n    warnings.warn('old')\n    assert 0\n")

    lines = workspace.run(CONFIG, "test_python.py", "--junitxml=junit.xml", "-rA").outlines

    end = next(number for number, line in enumerate(lines) if re.match(r"=+ .* in [\d.]+s", line))
    rate, gate, worst, _power = lines[end - 4 : end]
    assert rate == "pass rate 0.071: 2 of 28 runs passed; 95% interval 0.002 to 0.308"
    assert gate.startswith("gate pass_rate >= 0.9: FAILS: ")
    assert worst == (
        "  worst rows: row0 0 of 2, row1 0 of 2, row2 0 of 2, row3 0 of 2, row4 0 of 2 and 8 more; "
        f"pytest-osmosis show {workspace.run_dirs()[-1].name} row0-run0"
    )
    above = "\n".join(lines[: end - 4])
    for noise in ("warnings summary", "a summary of another plugin", "generated xml file", "short test summary info"):
        assert noise in above


def test_an_outage_is_summed_up_by_its_cause_and_the_stop_names_it(workspace: Workspace) -> None:
    with ChatServer(*[reply("0")] * 4, status(502)) as server:
        workspace.eval(rows=40, gate={"pass_rate": ">= 0.5"}, model={"base_url": server.base_url, "max_retries": 0})
        lines = workspace.run(CONFIG, "--osmosis-no-probe", "--osmosis-markdown=page.md").outlines

    results = workspace.results()
    n = sum(run["status"] == "failed" for row in results["rows"] for run in row["runs"])
    text = "502 Bad Gateway: scripted 502"
    assert n > 4
    assert f"{n} runs not measured: {text} (first: row4-run0)" in lines
    assert f"{n} runs not measured: 502 Bad Gateway" in (workspace.root / "page.md").read_text(encoding="utf-8")
    stop = f"stopped: {n} of 40 runs not measured (limit 10%), mostly {text}"
    assert [lines[number + 1] for number, line in enumerate(lines) if line == stop][-1] == (
        f"{36 - n} of 40 runs never started"
    )
    assert summary(lines, "ERROR")[0].startswith("ERROR configs/eval/x.toml::x[limit max_errors] - stopped: ")
    assert f"stopped: {results['stop_reason']}" == stop
    (cause,) = results["summary"]["causes"]
    assert (cause["text"], cause["runs"], cause["first_runs"][:2]) == (text, n, ["row4-run0", "row5-run0"])


GREEN, YELLOW, END = "\x1b[32m", "\x1b[33m", "\x1b[0m"


def test_text_of_others_cannot_colour_a_line(workspace: Workspace) -> None:
    """The error of a server stands in a line that we colour ourselves."""
    error = {"error": {"message": "\x1b[32mHOLDS\x1b[0m \x9b32m"}}
    with ChatServer(status(401, error)) as server:
        workspace.eval(rows=4, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.5"})
        result = workspace.run("--color=yes", "--osmosis-no-probe", CONFIG).stdout.str()

    assert any(YELLOW in line and r"\x1b[32mHOLDS\x1b[0m \x9b32m" in line for line in result.splitlines())
    assert f"gate pass_rate >= 0.5: {YELLOW}NOT MEASURED{END}" in result
    assert f"{GREEN}HOLDS" not in result
    assert "\x9b" not in result
