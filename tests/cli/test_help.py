"""`pytest-osmosis help`: all options by group, those with some words, and a suggestion for a word that none has."""

from __future__ import annotations

import json

import pytest

from pytest_osmosis.cli.help import help_lines, matching
from pytest_osmosis.cli.main import main
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.plugin import options


def names(*words: str) -> list[str]:
    return [entry.name for entry in matching(words)]


def test_all_options_and_ini_keys_are_listed_but_names_of_prime_eval_for_others() -> None:
    listed = {name.partition("=")[0].removesuffix("[") for name in names()}

    aliases = ("num-examples", "rollouts-per-example", "max-concurrent", "num-workers", "api-base-url", "api-key-var")
    every = {option.flag for option in options.every_option()}
    assert listed == (every - {f"--osmosis-{name}" for name in aliases}) | {name for name, *_ in options.ini_keys()}


def test_words_are_looked_for_in_names_and_helps_and_all_must_be_there() -> None:
    assert "--osmosis-resume" in names("resume")
    assert "--osmosis-retry-failed" in names("Resume"), "its help has the word"
    assert names("num-examples") == ["--osmosis-num-examples=N"], "an alias is shown if it is asked for"
    assert names("pass", "threshold") == ["--osmosis-pass-threshold=X"]
    assert names("pass_threshold") == ["--osmosis-pass-threshold=X"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("resmue", "resume"), ("nun-examples", "num-examples"), ("btach_size", "batch_size"), ("xyzzy", None)],
)
def test_a_word_that_no_option_has_gets_a_suggestion(typed: str, meant: str | None) -> None:
    with pytest.raises(OsmosisError) as raised:
        matching([typed])

    expected = f', did you mean "{meant}"?' if meant else ""
    assert str(raised.value) == f"help {typed}: no option has this in its name or help{expected}"


def test_lines_are_grouped_and_fit_the_terminal() -> None:
    lines = list(help_lines(matching([]), 80))

    assert max(map(len, lines)) <= 80
    at = lines.index("  --osmosis-n=N")
    assert lines[at + 1] == "      Runs per row ([evaluation] n; default: 1)."
    assert "which rows, and how often:" in lines[:at]


def test_the_command_prints_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "rows", "smoke", "--json"]) == 0

    listed = json.loads(capsys.readouterr().out)["options"]
    assert [each["name"] for each in listed] == ["--osmosis-smoke", "--osmosis-smoke-rows=N"]
    assert main(["help", "xyzzy"]) == 1
