"""Files that a session writes: never one over the other, never one that it reads, never a stranger's."""

from __future__ import annotations

import pytest

from tests.hostile.workspaces import CONFIG, HostileWorkspace
from tests.plugin.workspaces import read_json


def test_what_the_session_reads_is_never_overwritten(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=1, baseline={"results": "base.json"}, secrets={"required": ["TOKEN"]})
    hostile.write("pyproject.toml", "")
    hostile.write("secrets.env", "TOKEN=hunter2-hunter2\n")
    assert hostile.run(CONFIG, "--osmosis-update-baseline", "--osmosis-secrets-file=secrets.env").ret == 0
    inputs = {
        "data/x.jsonl": "the dataset of x (configs/eval/x.toml)",
        "configs/eval/x.toml": "the config of an eval",
        "rewards.py": "code",
        "secrets.env": "the secrets file",
        "pytest.ini": "pytest's configuration",
        "pyproject.toml": "the settings of the workspace",
        "base.json": "the baseline of x (configs/eval/x.toml)",
    }
    before = {path: (hostile.root / path).read_bytes() for path in inputs}
    for path, name in inputs.items():
        result = hostile.run(
            CONFIG,
            f"--osmosis-output={path}",
            f"--osmosis-markdown={path}",
            f"--osmosis-html={path}",
            "--osmosis-overwrite",
            "--osmosis-secrets-file=secrets.env",
            "--osmosis-dry-run",
        )
        assert result.ret == 4
        assert f"results file {path}: is {name}, which" in result.stderr.str()
        assert f"Markdown page {path}: is {name}, which" in result.stderr.str()
        assert f"HTML report {path}: is {name}, which" in result.stderr.str()
    assert before == {path: (hostile.root / path).read_bytes() for path in inputs}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema_version": 0, "status": "", "config": {}, "summary": {}, "provenance": {}}', []),
        ("{ damaged", ["--osmosis-overwrite"]),
    ],
)
def test_a_baseline_that_cannot_be_read_is_replaced_as_the_message_says(
    hostile: HostileWorkspace, text: str, words: list[str]
) -> None:
    hostile.eval(rows=1, baseline={"results": "base.json"})
    hostile.write("base.json", text)

    result = hostile.run(CONFIG)
    assert result.ret == 4
    assert "write it anew with --osmosis-update-baseline" in result.stderr.str()
    for word in words:
        result = hostile.run(CONFIG, "--osmosis-update-baseline")
        assert result.ret == 4
        fix = f"name another file, or replace it with {word}"
        assert f"baseline base.json: exists, and pytest-osmosis did not write it; {fix}" in result.stderr.str()

    assert hostile.run(CONFIG, "--osmosis-update-baseline", *words).ret == 0
    assert read_json(hostile.root / "base.json")["config"]["name"] == "x"
