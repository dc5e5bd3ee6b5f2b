"""Files conftest.py that interfere with a session. No failed gate, and no eval that measured nothing, becomes green."""

from __future__ import annotations

import shutil

import pytest

from tests.hostile.workspaces import CONFIG, HostileWorkspace

OURS = "'x.toml' in item.nodeid"
INTERFERING = {
    "ignores the folder": "collect_ignore = ['configs']",
    "ignores the file": "def pytest_ignore_collect(collection_path): return collection_path.suffix == '.toml' or None",
    "reorders and duplicates": "def pytest_collection_modifyitems(items): items.reverse(); items.extend(items[:2])",
    "removes one": "def pytest_collection_modifyitems(items): del items[-1]",
    "removes all when they are selected": (
        f"def pytest_collection_finish(session): session.items[:] = [item for item in session.items if not {OURS}]"
    ),
    "renames": "def pytest_collection_modifyitems(items):\n    for item in items: item._nodeid += '@group'",
    "skips while the session starts": "import pytest\ndef pytest_sessionstart(): pytest.skip('no')",
    "skips in its module": "import pytest\npytest.skip('no', allow_module_level=True)",
    "skips every test": "import pytest\ndef pytest_runtest_setup(item): pytest.skip('no')",
    "marks every test to be skipped": (
        "import pytest\ndef pytest_collection_modifyitems(items):\n    for item in items: item.add_marker('skip')"
    ),
    "expects every test to fail": (
        "import pytest\ndef pytest_collection_modifyitems(items):\n    for item in items: item.add_marker('xfail')"
    ),
    "makes every report green": "def pytest_runtest_logreport(report): report.outcome = 'passed'",
    "raises in setup": "def pytest_runtest_setup(item): raise KeyError(item)",
    "raises in a report": "def pytest_runtest_logreport(report): raise KeyError(report)",
    "raises at the end": "def pytest_sessionfinish(): raise KeyError",
    "stops the session": "def pytest_runtest_teardown(item): item.session.shouldstop = 'enough'",
    "runs the tests itself": (
        "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item): return True"
    ),
}


UNCAUGHT = ("skips while the session starts", "skips in its module")
"""Interference that ends the process of a session, because pytest does not catch it."""
ASKED = ("skips every test", "makes every report green", "expects every test to fail")
"""Interference that the user asks for where there is no gate."""


@pytest.mark.parametrize("gate", [{"pass_rate": ">= 0.9"}, {}], ids=["gate", "no gate"])
def test_no_conftest_makes_a_failed_eval_green(hostile: HostileWorkspace, gate: dict[str, str]) -> None:
    hostile.eval(rows=[{"score": 0.0}] * 3, gate=gate)
    hostile.write("test_python.py", "def test_python(): pass\n")
    green = {}
    for case, conftest in INTERFERING.items():
        if not gate and case in ASKED:
            continue
        hostile.write("conftest.py", conftest)
        run = hostile.run_process if case in UNCAUGHT else hostile.run
        result = run(CONFIG, "test_python.py")
        if result.ret == 0:
            green[case] = result.stdout.str()
        shutil.rmtree(hostile.root / ".osmosis", ignore_errors=True)

    assert not green
