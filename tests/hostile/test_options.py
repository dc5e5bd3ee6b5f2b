"""Values of options, and files that are read back, with sequences that control a terminal or a runner of CI.

The search after each test looks for them in all that was printed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_osmosis.plugin import options
from tests.hostile.workspaces import CONFIG, HostileWorkspace
from tests.plugin.workspaces import read_json

NASTY = "a\x1b[31mb\x9bc\r\n::error::d \u202e##[error]e\x07"
SHOWN = "a\\x1b[31mb\\x9bc"


def test_values_of_all_options_are_shown_as_escapes_and_files_with_such_names_are_written(
    hostile: HostileWorkspace,
) -> None:
    hostile.eval(rows=1)
    writes = ("output", "markdown")
    alone = ("config", "from", "source", "env")
    named = [option for option in options.ALL if option.metavar is not None and option.name not in writes]
    others = [f"{option.flag}={NASTY}" for option in named if option.name not in alone]

    for name in alone:
        assert hostile.run(f"--osmosis-{name}={NASTY}").ret == 4
    assert hostile.run(CONFIG, *others).ret == 4
    words = [CONFIG, f"--osmosis-output={NASTY}.json", f"--osmosis-markdown={NASTY}.md"]
    assert hostile.run(*words).ret == 0
    assert (hostile.root / f"{NASTY}.json").exists()
    hostile.write(f"{NASTY}.json", "mine")
    assert hostile.run(*words).ret == 4


def test_addopts_that_name_an_eval_in_vain_are_shown_as_escapes(
    hostile: HostileWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.write("test_a.py", "def test_a(): pass\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"'--osmosis-config={NASTY}' '--osmosis-agent={NASTY}'")

    result = hostile.run("test_a.py")

    result.assert_outcomes(passed=1)
    assert f"osmosis: {SHOWN}" in result.stdout.str()


def test_results_that_are_read_back_are_shown_as_escapes(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2, baseline={"results": "base.json"}, gate={"max_regression": 0.1})
    assert hostile.run(CONFIG, "--osmosis-update-baseline").ret == 0

    def edit(data: dict[str, Any]) -> dict[str, Any]:
        data["provenance"]["started_at"] = "2026\x1b[31m-01-01" + NASTY
        data["provenance"]["run_dir"] = NASTY
        data["config"] |= {
            "model": NASTY,
            "name": NASTY,
            "decide": NASTY,
            "eval_fns": [NASTY],
            "sampling": {NASTY: NASTY},
        }
        return data

    hostile.write("base.json", json.dumps(edit(read_json(hostile.root / "base.json"))))
    results = hostile.run_dirs()[-1] / "results.json"
    data = read_json(results)
    data["provenance"]["started_at"] = "2026\x1b[31m-01-01"
    results.write_text(json.dumps(data, indent=2), encoding="utf-8")

    hostile.run(CONFIG, "-v")
    hostile.run("--osmosis-from=base.json")
    for words in (["runs"], ["show", NASTY, "row0-run0"], ["show", "latest", NASTY], ["init", NASTY], [NASTY]):
        hostile.cli(*words)
