"""Options by the names of `prime eval`: --osmosis-num-examples and others."""

from __future__ import annotations

import pytest

from pytest_osmosis.config.named_keys import PRIME_KEYS
from pytest_osmosis.plugin import options
from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer, reply

IN_A_TOML = {"endpoint_id", "headers", "headers_from_state"}
"""Settings that have no flag in `prime eval` either."""


def test_every_setting_has_an_option() -> None:
    named = {option.name for option in options.OF_KEYS}
    assert {key.name for key in PRIME_KEYS.values() if key.option not in named} == IN_A_TOML
    assert [
        option.name for option in options.OF_PRIME if option.name not in {key.option for key in PRIME_KEYS.values()}
    ] == ["sampling-args"]


def test_names_of_prime_eval_set_our_keys(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_OSMOSIS_HEADER", "X-A: from a variable\nX-C: c: d")
    monkeypatch.setenv("PYTEST_OSMOSIS_NO_INTERLEAVE_SCORING", "1")
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=4, data={"rows": "0"}, model={"headers": {"X-B": "of the file"}})

        result = workspace.run(
            CONFIG,
            "--osmosis-num-examples=2",
            "--osmosis-rollouts-per-example=2",
            "--osmosis-max-concurrent=-1",
            "--osmosis-max-concurrent-scoring=3",
            "--osmosis-num-workers=auto",
            f"--osmosis-api-base-url={server.base_url}",
            '--osmosis-sampling-args={"temperature": 0.5, "n": 1, "seed": null, "min_p": 0.1}',
            "--osmosis-header=X-A: typed",
        )

        result.assert_outcomes(passed=4)
        body, headers = server.requests[-1].body, server.requests[-1].headers
    assert (body["temperature"], body["min_p"], "n" in body, "seed" in body) == (0.5, 0.1, False, False)
    assert (headers["x-a"], headers["x-b"], headers["x-c"]) == ("typed", "of the file", "c: d")
    result.stdout.fnmatch_lines(
        [
            "  2 rows x 2 runs = 4 rollouts, 4 in flight",
            "  overridden: *limit = 2 (--osmosis-num-examples)*n = 2 (--osmosis-rollouts-per-example)*",
        ]
    )


def test_no_limit_is_as_many_as_there_are(workspace: Workspace) -> None:
    workspace.eval(rows=4)

    for name in ("max-concurrent", "max-concurrent-generation"):
        result = workspace.run(CONFIG, f"--osmosis-{name}=-1", "--osmosis-n=2", "--osmosis-dry-run")
        result.stdout.fnmatch_lines(["  4 rows x 2 runs = 8 rollouts, 8 in flight*"])


def test_two_names_of_one_key_contradict_each_other(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval()
    monkeypatch.setenv("PYTEST_OSMOSIS_BATCH_SIZE", "2")
    monkeypatch.setenv("PYTEST_OSMOSIS_MAX_CONCURRENT", "2")
    result = workspace.run(
        CONFIG, "--osmosis-n=2", "--osmosis-rollouts-per-example=2", "--osmosis-temperature=1",
        '--osmosis-sampling-args={"temperature": 0}', exits=4,)  # fmt: skip
    assert [line for line in result.errlines if line] == [
        "ERROR: PYTEST_OSMOSIS_MAX_CONCURRENT: sets [evaluation] batch_size, as PYTEST_OSMOSIS_BATCH_SIZE does; "
        "leave out one of them",
        "ERROR: --osmosis-rollouts-per-example: sets [evaluation] n, as --osmosis-n does; leave out one of them",
        "ERROR: --osmosis-sampling-args: sets [sampling] temperature, as --osmosis-temperature does; "
        "leave out one of them",
    ]


def test_values_that_do_not_fit_name_their_options(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval()
    monkeypatch.setenv("PYTEST_OSMOSIS_SAVE_TO_HF_HUB", "1")
    monkeypatch.setenv("PYTEST_OSMOSIS_SAVE_RESULTS", "maybe")

    result = workspace.run(
        CONFIG,
        "--osmosis-num-examples=0",
        "--osmosis-sampling-args=[1]",
        "--osmosis-env-args={a",
        "--osmosis-num-workers=some",
        "--osmosis-header=Authorization Bearer abc",
        "--osmosis-max-concurrent=-2",
        exits=4,
    )

    assert sorted(line for line in result.errlines if line) == sorted(
        [
            'ERROR: PYTEST_OSMOSIS_SAVE_RESULTS: must be 1 or 0, got "maybe"',
            "ERROR: PYTEST_OSMOSIS_SAVE_TO_HF_HUB: cannot publish results; "
            "pass --osmosis-save-to-hf-hub on the command line",
            'ERROR: --osmosis-sampling-args: must be a JSON object, got "[1]"',
            "ERROR: --osmosis-env-args: must be JSON: Expecting property name enclosed in double quotes: "
            'line 1 column 2 (char 1), got "{a"',
            'ERROR: --osmosis-header: must be lines like "Name: Value"',
        ]
    )
