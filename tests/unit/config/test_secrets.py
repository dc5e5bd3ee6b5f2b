"""Values of secrets, from a dotenv file or the environment, and all problems with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest

from pytest_osmosis.config import SecretsSource
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.files.reading import FileFault


def no_stdin() -> str:
    raise AssertionError("stdin was read")


KEY_VALUE = 'must be KEY=VALUE, "export KEY=VALUE", a comment or blank'


def problems_of(
    names: list[str],
    file: Path | Literal["-"] | None = None,
    environ: dict[str, str] | None = None,
    read_stdin: Callable[[], str] = no_stdin,
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        SecretsSource(file, read_stdin).resolve(names, environ or {})
    return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        path = tmp_path / "secrets.env"
        path.write_bytes(text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=x", "x"),
        ("export A=x", "x"),
        ("  export \t A = x ", "x"),
        ("A=x y", "x y"),
        ("A=x # a comment", "x"),
        ("A=x#y", "x#y"),
        ("A=#x", "#x"),
        ("A=x=y", "x=y"),
        ("A='x # y'", "x # y"),
        (r"A='x\ny'", r"x\ny"),
        ("A='x' # a comment", "x"),
        ('A="x # y"', "x # y"),
        (r'A="x\ny\tz\"q\"\\"', 'x\ny\tz"q"\\'),
        ('A="x"# a comment', "x"),
        ("A=$B${C}", "$B${C}"),
        ('A="$B"', "$B"),
        ("A=it's", "it's"),
        ("A=x\r", "x"),
        ("\ufeffA=x", "x"),
        ("A=old\nA=x", "x"),
        ("# a comment\n\n  # another\nA=x", "x"),
    ],
)
def test_a_line_of_a_secrets_file_is_read(dotenv: Callable[[str], Path], line: str, value: str) -> None:
    assert SecretsSource(dotenv(line), no_stdin).resolve(["A"], {}) == {"A": value}


UNCLOSED = (
    "the quoted value must end with {} on the same line, with nothing but a comment after it "
    r"(a line break is written \n, in double quotes)"
)
ESCAPE = (
    r"unknown escape in a double-quoted value (valid: \n, \t, \", \\); "
    "use single quotes for a literal value"
)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("s3cr3t", KEY_VALUE),
        ("export s3cr3t", KEY_VALUE),
        ("1A=s3cr3t", KEY_VALUE),
        ('B="s3cr3t', UNCLOSED.format('"')),
        ("B='s3cr3t' more", UNCLOSED.format("'")),
        (r'B="s3cr3t\d"', ESCAPE),
        ("B=s3cr3t\0", "B: the value contains a NUL character, which an environment variable cannot hold"),
    ],
)
def test_a_bad_line_is_reported_without_its_content(dotenv: Callable[[str], Path], line: str, problem: str) -> None:
    assert problems_of(["A"], dotenv(f"# first\nA=x\n{line}\n")) == [f"secrets.env:3: {problem}"]


def test_all_bad_lines_and_missing_names_are_reported_at_once(dotenv: Callable[[str], Path]) -> None:
    assert problems_of(["A", "B", "C"], dotenv("bad\nB=x\nworse\n")) == [
        f"secrets.env:1: {KEY_VALUE}",
        f"secrets.env:3: {KEY_VALUE}",
        *(
            f"secret {name}: missing or empty in secrets.env and in the environment; "
            f"add a line {name}=... to secrets.env, or export {name}"
            for name in "AC"
        ),
    ]
    assert problems_of(["A"]) == [
        "secret A: missing or empty in the environment; "
        "export A=..., or use --osmosis-secrets-file=FILE with a line A=..."
    ]


@pytest.mark.parametrize(
    ("text", "environ", "found"),
    [
        ("A=file", {"A": "environment", "B": "environment"}, {"A": "file", "B": "environment"}),
        ("A=x\nB=y\nC=z", {"D": "z"}, {"A": "x", "B": "y"}),
        ("A=\nB=y", {"A": "x"}, {"A": "x", "B": "y"}),
    ],
    ids=["both", "only those that are required", "empty in the file"],
)
def test_the_secrets_file_takes_precedence_over_the_environment(
    dotenv: Callable[[str], Path], text: str, environ: dict[str, str], found: dict[str, str]
) -> None:
    assert SecretsSource(dotenv(text), no_stdin).resolve(["A", "B"], environ) == found


def test_a_value_that_is_empty_everywhere_is_missing(dotenv: Callable[[str], Path]) -> None:
    assert len(problems_of(["A", "B"], dotenv("A=''\nB= # a comment"), {"A": ""})) == 2


def test_stdin_is_read_once_whatever_was_in_it() -> None:
    for first in ("A=x", FileFault("is closed")):
        stdin = Mock(side_effect=[first, "A=y"])
        secrets = SecretsSource("-", stdin)
        for _ in range(2):
            if isinstance(first, FileFault):
                with pytest.raises(ConfigError, match="stdin: is closed"):
                    secrets.resolve(["A"], {"A": "z"})
            else:
                assert secrets.resolve(["A"], {}) == {"A": "x"}
        assert stdin.call_count == 1


def test_stdin_is_read_for_a_dash_and_a_bad_line_of_it_reported(dotenv: Callable[[str], Path]) -> None:
    assert SecretsSource("-", no_stdin).without_stdin.resolve(["A"], {"A": "x"}) == {"A": "x"}
    assert SecretsSource(dotenv("A=y"), no_stdin).without_stdin.resolve(["A"], {"A": "x"}) == {"A": "y"}
    assert SecretsSource("-", lambda: "A=x\n").resolve(["A"], {}) == {"A": "x"}
    assert problems_of([], "-", read_stdin=lambda: "\nbad") == [f"stdin:2: {KEY_VALUE}"]
    assert SecretsSource(None, no_stdin).resolve([], {}) == {}


VALID_SOURCE = "--osmosis-secrets-file takes a file with lines NAME=VALUE, or - to read them from standard input"


def test_a_secrets_file_that_is_missing_or_not_utf8_is_one_problem(dotenv: Callable[[str], Path]) -> None:
    path = dotenv("")
    path.write_bytes(b"A=\xff")
    assert problems_of(["A"], path) == [f"secrets.env:1: must be UTF-8 text, got the byte 0xff; {VALID_SOURCE}"]
    assert problems_of(["A", "B"], path.with_name("none.env")) == [f"none.env: no such file; {VALID_SOURCE}"]
