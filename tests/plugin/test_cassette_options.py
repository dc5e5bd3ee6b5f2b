"""--osmosis-record and --osmosis-replay: what they accept, and what contradicts what."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace

KEEP = "an answer is recorded, or comes from the cassette; keep one of them"


def problems(result: pytest.RunResult) -> list[str]:
    assert result.ret == 4
    return [line.removeprefix("ERROR: ") for line in result.errlines if line]


@pytest.mark.slow
def test_contradictions_are_reported_all_at_once_and_those_of_variables_not_with_the_command_line(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.eval()

    result = workspace.run(CONFIG, "--osmosis-record=new", "--osmosis-replay", "--osmosis-n=0")

    assert problems(result) == [
        f"--osmosis-replay: contradicts --osmosis-record: {KEEP}",
    ]
    monkeypatch.setenv("PYTEST_OSMOSIS_REPLAY", "1")
    monkeypatch.setenv("PYTEST_OSMOSIS_RECORD", "all")

    assert problems(workspace.run(CONFIG)) == [
        f"PYTEST_OSMOSIS_REPLAY: contradicts PYTEST_OSMOSIS_RECORD: {KEEP}",
    ]
    for word, line in {
        "--osmosis-record=new": "  records into cassettes/x.jsonl: only what is missing is asked for",
        "--osmosis-replay": "  replays cassettes/x.jsonl: no model is asked",
    }.items():
        assert line in workspace.run(CONFIG, word, "--co").outlines


def test_the_config_records_unless_the_command_says_otherwise(workspace: Workspace) -> None:
    workspace.eval(cassette={"record": "new", "path": "mine/y.jsonl"})

    def lines(*words: str) -> list[str]:
        return [line for line in workspace.run(CONFIG, *words, "--co").outlines if ".jsonl: " in line]

    assert lines() == ["  records into mine/y.jsonl: only what is missing is asked for"]
    assert lines("--osmosis-replay") == ["  replays mine/y.jsonl: no model is asked"]
    assert lines("--osmosis-record=off") == []


REFUSED = {
    "--osmosis-record=x configs/eval/x.toml": '--osmosis-record: must be one of "off", "all", "new", got "x"',
    "--osmosis-from=latest --osmosis-record": "--osmosis-record: contradicts --osmosis-from, which does not change "
    "rollouts; leave out one of them",
    "--osmosis-source=reference --osmosis-record --osmosis-replay": "--osmosis-record, --osmosis-replay: "
    "--osmosis-source=reference requests no model, so no eval can run",
    "--osmosis-config=configs/training/t.toml --osmosis-replay": "--osmosis-replay: does not apply to a training "
    "config, whose preflight rolls out single runs of a few rows",
}


@pytest.mark.slow
def test_recording_needs_a_value_and_requests_of_rollouts(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("configs/training/t.toml", "[experiment]\n")
    workspace.run(CONFIG, exits=0)

    listed = workspace.run("--osmosis-record", "configs/eval/x.toml", "--co", exits=0)  # the value is optional

    assert "  records into cassettes/x.jsonl: every answer replaces the recorded one" in listed.outlines
    for typed, problem in REFUSED.items():
        assert problems(workspace.run(*typed.split())) == [problem]
