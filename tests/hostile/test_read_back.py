"""Commands over what an earlier run left behind, damaged in every way: no traceback, the documented exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hostile.workspaces import HostileWorkspace

HUGE = "9" * 400
DAMAGES: dict[str, bytes] = {
    "empty": b"",
    "half": b'{"schema_version": 1, "status": "fin',
    "another version": b'{"schema_version": 99}',
    "not text": b"\xff\xfe\x00\x01",
    "nul": b"\0" * 1000,
    "a list": b"[1, 2]",
    "deep": b"[" * 100_000,
    "numbers": f'{{"schema_version": 1, "summary": {{"total_rows": {HUGE}}}, "x": 1e999}}'.encode(),
    "control": b'{"schema_version": "\\u001b[31m::error::"}',
}
"""Contents of a manifest, of results, or of a journal."""


def results_of(hostile: HostileWorkspace) -> list[Path]:
    return sorted(hostile.root.glob(".osmosis/runs/*/results.json"))


def command(hostile: HostileWorkspace, *words: str) -> pytest.RunResult:
    result = hostile.cli(*words)
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    return result


def test_damaged_results_and_manifests_are_said_once_and_ignored(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2)
    name = "--osmosis-config=configs/eval/x.toml"
    assert hostile.run(name).ret == 0
    digest = json.loads(results_of(hostile)[0].read_bytes())["provenance"]["plan_digest"]
    for number, (_, content) in enumerate(DAMAGES.items()):
        run = f".osmosis/runs/damaged-{number}"
        hostile.write_bytes(f"{run}/manifest.json", content)
        hostile.write_bytes(f"{run}/journal.jsonl", content)
        hostile.write_bytes(f"{run}/results.json", content + f'\n"{digest}"\n'.encode())

    result = hostile.run(name)

    assert result.ret == 0
    assert result.stdout.str().count("an earlier run is ignored: ") == 1
    assert "Traceback" not in result.stdout.str()
    assert command(hostile, "runs").stdout.str().count("unreadable") == len(DAMAGES)
    for number in range(len(DAMAGES)):
        assert command(hostile, "show", f"damaged-{number}", "row0-run0").ret == 1
        assert command(hostile, "show", f"damaged-{number}", "--json").ret == 1


def test_damaged_entries_of_pytests_cache_are_ignored(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2)
    failed, ids = (
        b'{"configs/eval/x.toml::x[row0-run0]": 3, "": null, "x": []}',
        b'["configs/eval/x.toml::x[row0-run0]", ""]',
    )
    for entries in ((failed, ids), (b'{"configs/eval', b'{"configs/eval/x.toml::x[row0-run0]": 1}')):
        for name, entry in zip(("lastfailed", "nodeids"), entries, strict=True):
            hostile.write_bytes(f".pytest_cache/v/cache/{name}", entry)

        result = hostile.run("--osmosis-config=configs/eval/x.toml")

        assert result.ret == 0
        assert "Traceback" not in result.stdout.str() + result.stderr.str()
