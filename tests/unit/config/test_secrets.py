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


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("s3cr3t", 'must be KEY=VALUE, "export KEY=VALUE", a comment or blank'),
        ("export s3cr3t", 'must be KEY=VALUE, "export KEY=VALUE", a comment or blank'),
        ("1A=s3cr3t", 'must be KEY=VALUE, "export KEY=VALUE", a comment or blank'),
        (
            'B="s3cr3t',
            'the quoted value must end with " on the same line, with nothing but a comment after it '
            r"(a line break is written \n, in double quotes)",
        ),
        (
            "B='s3cr3t' more",
            "the quoted value must end with ' on the same line, with nothing but a comment after it "
            r"(a line break is written \n, in double quotes)",
        ),
        (
            r'B="s3cr3t\d"',
            r"unknown escape in a double-quoted value (valid: \n, \t, \", \\); "
            "use single quotes for a literal value",
        ),
        ("B=s3cr3t\0", "B: the value contains a NUL character, which an environment variable cannot hold"),
    ],
)
def test_a_bad_line_is_reported_without_its_content(dotenv: Callable[[str], Path], line: str, problem: str) -> None:
    assert problems_of(["A"], dotenv(f"# first\nA=x\n{line}\n")) == [f"secrets.env:3: {problem}"]


def test_all_bad_lines_and_missing_names_are_reported_at_once(dotenv: Callable[[str], Path]) -> None:
    assert problems_of(["A", "B", "C"], dotenv("bad\nB=x\nworse\n")) == [
        'secrets.env:1: must be KEY=VALUE, "export KEY=VALUE", a comment or blank',
        'secrets.env:3: must be KEY=VALUE, "export KEY=VALUE", a comment or blank',
        "secret A: missing or empty in secrets.env and in the environment; "
        "add a line A=... to secrets.env, or export A",
        "secret C: missing or empty in secrets.env and in the environment; "
        "add a line C=... to secrets.env, or export C",
    ]


def test_missing_names_without_a_file_are_reported_with_both_fixes() -> None:
    assert problems_of(["A"]) == [
        "secret A: missing or empty in the environment; "
        "export A=..., or use --osmosis-secrets-file=FILE with a line A=..."
    ]


def test_the_secrets_file_takes_precedence_over_the_environment(dotenv: Callable[[str], Path]) -> None:
    environ = {"A": "environment", "B": "environment"}
    assert SecretsSource(dotenv("A=file"), no_stdin).resolve(["A", "B"], environ) == {"A": "file", "B": "environment"}


def test_only_required_secrets_are_returned(dotenv: Callable[[str], Path]) -> None:
    assert SecretsSource(dotenv("A=x\nB=y"), no_stdin).resolve(["A"], {"C": "z"}) == {"A": "x"}


def test_an_empty_value_in_the_file_falls_back_to_the_environment(dotenv: Callable[[str], Path]) -> None:
    assert SecretsSource(dotenv("A="), no_stdin).resolve(["A"], {"A": "x"}) == {"A": "x"}


def test_a_value_that_is_empty_everywhere_is_missing(dotenv: Callable[[str], Path]) -> None:
    assert len(problems_of(["A", "B"], dotenv("A=''\nB= # a comment"), {"A": ""})) == 2


def test_stdin_is_read_for_a_dash() -> None:
    assert SecretsSource("-", lambda: "A=x\n").resolve(["A"], {}) == {"A": "x"}


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


def test_without_stdin_the_environment_and_a_file_are_left(dotenv: Callable[[str], Path]) -> None:
    assert SecretsSource("-", no_stdin).without_stdin.resolve(["A"], {"A": "x"}) == {"A": "x"}
    assert SecretsSource(dotenv("A=y"), no_stdin).without_stdin.resolve(["A"], {"A": "x"}) == {"A": "y"}


def test_a_bad_line_from_stdin_is_reported() -> None:
    assert problems_of([], "-", read_stdin=lambda: "\nbad") == [
        'stdin:2: must be KEY=VALUE, "export KEY=VALUE", a comment or blank'
    ]


def test_no_names_and_no_file_result_in_no_secrets() -> None:
    assert SecretsSource(None, no_stdin).resolve([], {}) == {}


VALID_SOURCE = "--osmosis-secrets-file takes a file with lines NAME=VALUE, or - to read them from standard input"


def test_a_missing_secrets_file_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert problems_of(["A", "B"], tmp_path / "none.env") == [f"none.env: no such file; {VALID_SOURCE}"]


def test_a_secrets_file_that_is_not_utf8_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secrets.env").write_bytes(b"A=\xff")
    assert problems_of(["A"], tmp_path / "secrets.env") == [
        f"secrets.env:1: must be UTF-8 text, got the byte 0xff; {VALID_SOURCE}"
    ]
