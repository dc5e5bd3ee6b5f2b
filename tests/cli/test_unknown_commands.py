"""Options of other systems: the error names what to type instead."""

from __future__ import annotations

import pytest

from pytest_osmosis import cli

TAKES = "unrecognized argument; an eval takes"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("submit x.toml --limit 5", f"--limit: {TAKES} --osmosis-limit"),
        ("submit x.toml --limit=5 --other", f"--limit: {TAKES} --osmosis-limit\n--other: unrecognized argument"),
        ("show --api-key=sk-12345678", f"--api-key: {TAKES} --osmosis-api-key-env"),
        ("show --other", "unrecognized arguments: --other"),
    ],
)
def test_an_option_that_a_command_lacks_is_refused_with_its_equivalent(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(typed.split())

    assert capsys.readouterr().err.partition(": error: ")[2] == f"{said}\n"
