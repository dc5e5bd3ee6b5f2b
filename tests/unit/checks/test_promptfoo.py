"""Checks decide as promptfoo's deterministic assertions do.

`promptfoo.json` has assertions, and for each the answers with the verdicts of promptfoo. `make test-promptfoo` asks the
package itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.checks.kinds import Check, SeenRollout

HERE = Path(__file__).parent
ASSERTIONS: list[dict[str, Any]] = json.loads((HERE / "promptfoo.json").read_text(encoding="utf-8"))
PROMPTFOO = os.environ.get("PROMPTFOO")
"""A folder in which npm installed promptfoo."""


def check_of(assertion: Mapping[str, Any]) -> Check:
    """Return the check that says the same as an assertion of promptfoo."""
    name, negate = assertion["type"].removeprefix("not-"), assertion["type"].startswith("not-")
    value = assertion.get("value")
    declared: dict[str, Any] = {"negate": negate}
    match name:
        case "equals" | "regex":
            declared |= {"kind": name, "value": value}
        case "starts-with":
            declared |= {"kind": "starts_with", "value": value}
        case "is-json":
            declared |= {"kind": "json"} | ({} if value is None else {"schema": value})
        case "levenshtein":
            declared |= {"kind": "edit_distance", "value": value, "max": assertion["threshold"]}
        case "is-refusal":
            declared |= {"kind": "refusal"}
        case "word-count":
            declared |= {"kind": "length", "unit": "words"}
            declared |= value if isinstance(value, dict) else {"min": value, "max": value}
        case _:  # contains, icontains-any, ...
            match = "any" if name.endswith("-any") else "all"
            declared |= {"kind": "contains", "value": value, "match": match, "ignore_case": name.startswith("i")}
    return Check.of(declared)


def case_id(assertion: Mapping[str, Any]) -> str:
    return f"{assertion['type']} {json.dumps(assertion.get('value'))[:40]}"


@pytest.mark.parametrize("assertion", ASSERTIONS, ids=case_id)
def test_the_verdicts_are_those_of_promptfoo(assertion: dict[str, Any]) -> None:
    check = check_of(assertion)

    for answer, verdict in assertion["answers"].items():
        rollout = SeenRollout([{"role": "assistant", "content": answer}], 0)
        assert (check(rollout)["score"] == 1.0) is verdict, answer


@pytest.mark.nightly
@pytest.mark.skipif(PROMPTFOO is None, reason="make test-promptfoo installs promptfoo")
def test_promptfoo_itself_still_decides_so() -> None:
    assert PROMPTFOO is not None
    script = shutil.copy(HERE / "promptfoo.mjs", PROMPTFOO)
    asked = [
        {**{key: value for key, value in assertion.items() if key != "answers"}, "output": answer}
        for assertion in ASSERTIONS
        for answer in assertion["answers"]
    ]
    environ = {**os.environ, "PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}

    how: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "env": environ, "timeout": 300}
    done = subprocess.run(["node", script], input=json.dumps(asked), **how)

    verdicts = json.loads(done.stdout.splitlines()[-1])
    assert verdicts == [verdict for assertion in ASSERTIONS for verdict in assertion["answers"].values()]
