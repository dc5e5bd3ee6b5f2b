"""Commands and options of other systems, and misspelt ones of ours: the error names what to type instead."""

from __future__ import annotations

import pytest

from pytest_osmosis import cli

RUN = "type pytest --osmosis-config=FILE, or pytest --osmosis-env=ID for an environment"
TAKES = "unrecognized argument; an eval takes"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("eval list --all", "eval list: no command; type pytest-osmosis runs list"),
        ("eval info nightly", "eval info: no command; type pytest-osmosis show NAME"),
        ("eval stop nightly --yes", "eval stop: no command; type pytest-osmosis runs stop"),
        ("eval submit x.toml", "eval submit: no command; type pytest-osmosis submit"),
        ("eval run x.toml --hosted", f"eval run: no command; {RUN}"),
        ("eval -m server:agent_loop", f"eval: no command; {RUN}"),
        ("eval gsm8k", f"eval: no command; {RUN}"),
        ("eval", f"eval: no command; {RUN}"),
        ("vf-eval gsm8k", f"vf-eval: no command; {RUN}"),
        (
            "eval retry nightly",
            "eval retry: no command; type pytest --osmosis-config=FILE --osmosis-run=NAME --osmosis-retry-failed",
        ),
        (
            "eval-rubric -d x.jsonl",
            "eval-rubric: no command; an eval with --osmosis-agent=recorded and [scoring] rubric scores recorded "
            "conversations",
        ),
        ("logs nightly", "logs: no command; type pytest-osmosis runs logs"),
        ("run x.toml", f"run: no command; {RUN}"),
        ("sbmit x.toml", 'sbmit: no command, did you mean "submit"?'),
        ("runs lgos nightly", 'runs lgos: no command, did you mean "logs"?'),
        ("runs submit x.toml", "runs submit: no command; type pytest-osmosis submit"),
        (
            "--hosted",
            "--hosted: unrecognized argument; not offered: evals run on your machine, and requests go only to the "
            "model",
        ),
        ("submit x.toml --limit 5", f"--limit: {TAKES} --osmosis-limit"),
        ("submit x.toml --limit=5 --other", f"--limit: {TAKES} --osmosis-limit\n--other: unrecognized argument"),
        ("show --api-key=sk-12345678", f"--api-key: {TAKES} --osmosis-api-key-env"),
        ("show --other", "unrecognized arguments: --other"),
    ],
)
def test_a_command_that_there_is_not_is_refused_with_its_equivalent(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(typed.split())

    assert capsys.readouterr().err.partition(": error: ")[2] == f"{said}\n"


@pytest.mark.parametrize("typed", ["--help", "--version", "evals", "runs --help"])
def test_other_words_are_argparse_s(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(typed.split())

    assert "no command" not in capsys.readouterr().err
