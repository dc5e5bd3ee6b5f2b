"""The pytest plugin of VS Code's Python extension, as far as it reads items and reports.

It makes a test's id from the item's path and what follows the first "::" of its node id, and its line from the item's
location. It reports outcomes under the same ids. Source: microsoft/vscode-python, commit 757def8,
python_files/vscode_pytest/__init__.py (`create_test_node`, `get_absolute_test_id`, `pytest_runtest_protocol`,
`pytest_report_teststatus`) and run_pytest_script.py, which passes the ids as arguments.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

TREE, OUTCOMES = "vscode-tree.json", "vscode-outcomes.json"

_paths: dict[str, Path] = {}
_outcomes: dict[str, str] = {}


def _id(nodeid: str, path: Path) -> str:
    return "::".join([str(path), *nodeid.split("::")[1:]])


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _paths[item.nodeid] = item.path
    if any(marker.name == "skip" for marker in item.own_markers):
        _outcomes.setdefault(_id(item.nodeid, item.path), "skipped")
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_report_teststatus(report: pytest.TestReport) -> Generator[None, object, object]:
    if report.when == "call" or (report.when == "setup" and report.skipped):
        _outcomes.setdefault(_id(report.nodeid, _paths.get(report.nodeid, Path.cwd())), report.outcome)
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        tests = []
        for item in session.items:
            line = item.location[1]
            assert line is not None
            tests.append([_id(item.nodeid, item.path), str(item.path), line + 1])
            assert not hasattr(item, "callspec") or ".py" in item.nodeid  # else discovery breaks
            assert item.parent is not None
            assert item.parent.path.is_file()
        Path(TREE).write_text(json.dumps(tests), encoding="utf-8")
    else:
        Path(OUTCOMES).write_text(json.dumps(_outcomes), encoding="utf-8")
