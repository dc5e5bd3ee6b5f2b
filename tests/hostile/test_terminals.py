"""Terminals and pipes that cannot show what an eval holds."""

from __future__ import annotations

import shlex
import sys

import pytest

from tests.hostile.workspaces import HostileWorkspace
from tests.plugin.workspaces import PYTEST


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
