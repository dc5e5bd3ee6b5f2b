"""The lines of keys in a TOML file, the workspace of a config and paths inside it; and values of secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from pytest_osmosis.config import SecretsSource, workspace_of
from pytest_osmosis.config.document import Lines, inside
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.files.reading import FileFault
from pytest_osmosis.text.names import shown
from tests import raised

TRICKY = '''\
# [fake] header in a comment
title = "x" # n = 1
[evaluation] # a comment = 1
text = """
n = 1
[model]
\\""" still text
"""
literal = \'\'\'
batch_size = 2\'\'\'
list = [
  "a = 1", # ] not the end
  { n = 5 },
  [1, 2],
  """
  ]
  """,
]
n = 3
"quoted.key" = 4
'single' . 'part' = 5
when = 1979-05-27 07:32:00 # a date with a space

[model]
headers = { A = "}", "B C" = "x", nested = {d.e = 1} }
client = "auto"
open = {
  first = 1, # a comment }
  second = [1,
    2],
  third = 3,
}
quotes = """a"""""
after = 1

[gate."rewards:exact"]
mean = 0.5
[gate]
pass_rate = ">= 0.7"
[[eval]]
name = "one"
[[eval]]
name = "two"
'''

KEYS: dict[str, tuple[tuple[str | int, ...], ...]] = {
    "title": (("title",),),
    "[evaluation]": (("evaluation",),),
    "text": (("evaluation", "text"),),
    "literal": (("evaluation", "literal"),),
    "list": (("evaluation", "list"),),
    "n = 3": (("evaluation", "n"),),
    '"quoted.key"': (("evaluation", "quoted.key"),),
    "'single'": (("evaluation", "single"), ("evaluation", "single", "part")),
    "when": (("evaluation", "when"),),
    "headers": tuple(("model", "headers", *below) for below in ((), ("A",), ("B C",), ("nested", "d", "e"))),
    "client": (("model", "client"),),
    "open": (("model", "open", "second", 1),),
    "quotes": (("model", "quotes"),),
    "after": (("model", "after"),),
    "mean": (("gate", "rewards:exact", "mean"),),
    '[gate."rewards:exact"]': (("gate", "rewards:exact"),),
    "[gate]": (("gate",),),  # its own header, not that of a subtable
}


def test_each_key_has_its_line() -> None:
    lines, text = Lines(TRICKY), TRICKY.splitlines()
    found = {start: {lines.of(*keys) for keys in each} for start, each in KEYS.items()}

    numbers = {start: {number for number, line in enumerate(text, 1) if line.startswith(start)} for start in KEYS}
    assert found == numbers


HEADERS = "# top\n[model]\nheaders = {}\n"
ARRAY = "\n[[eval]]\nname = 1\n[[eval]]\nname = 2\n"
BROKEN = "[a]\nb = 1\nc = \n[d]\n"


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("\n[a.b.c]\nd.e = 1\n", "a b", 2),
        (ARRAY, "eval", 2),
        (ARRAY, "eval name", 3),
        ("[evaluation]\nlist = [\n{n = 1},\n]\n", "evaluation n", 1),
        (HEADERS, "model nothing", 2),
        (HEADERS, "model headers X", 3),
        (HEADERS, "nothing at all", 1),
        ("[a]\r\nb = '''\r\n\r\n'''\r\nc = 1\r\n", "a c", 5),
        ('[a]\nx = 1\n"b\\u0041" = 2\n', "a bA", 3),
        (BROKEN, "d", 4),
        ("[a]\nb = 1\nc = " + "[" * 5000 + "]" * 5000 + "\n", "a b", 2),
    ],
)
def test_a_key_has_the_line_where_it_or_its_table_is_first_mentioned(text: str, key: str, line: int) -> None:
    assert Lines(text).of(*key.split()) == line


def test_the_workspace_is_the_parent_of_the_nearest_configs_folder_or_the_files_own_folder() -> None:
    workspaces = {
        "/w/configs/eval/x.toml": "/w",
        "/w/configs/x.toml": "/w",
        "/w/configs/eval/deep/er/x.toml": "/w",
        "/w/configs/one/configs/eval/x.toml": "/w/configs/one",
        "/w/evals/x.toml": "/w/evals",
        "/w/configs.d/x.toml": "/w/configs.d",
    }
    assert {path: str(workspace_of(Path(path))) for path in workspaces} == workspaces


@pytest.mark.parametrize(
    ("current", "path", "expected"),
    [
        ("w", "w/configs/x.toml", "configs/x.toml"),
        ("w/a", "w/configs/x.toml", "../configs/x.toml"),
        ("w/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z", "w/x.toml", None),
    ],
)
def test_paths_are_shown_relative_to_the_current_folder_if_that_is_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, current: str, path: str, expected: str | None
) -> None:
    (tmp_path / current).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / current)
    assert shown(tmp_path / path) == (expected or str(tmp_path / path))


def test_a_link_inside_and_a_link_to_the_folder_lead_inside(tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    (home / "link_in").symlink_to(home / "in.txt")
    assert inside(home, "link_in") == inside(link, "in.txt") == (home / "in.txt").resolve()


def no_stdin() -> str:
    raise AssertionError("stdin was read")


Dotenv = Callable[[str | bytes], SecretsSource]
KEY_VALUE = 'must be KEY=VALUE, "export KEY=VALUE", a comment or blank'


def problems_of(names: list[str], source: SecretsSource, environ: Mapping[str, str] | None = None) -> list[str]:
    return raised.problems_of(ConfigError, source.resolve, names, environ or {})


@pytest.fixture
def dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dotenv:
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes) -> SecretsSource:
        path = tmp_path / "secrets.env"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return SecretsSource(path, no_stdin)

    return write


VALUES = {
    "x": (
        *("A=x", "export A=x", "  export \t A = x ", "A=x # a comment", "A='x' # a comment", 'A="x"# a comment'),
        *("A=x\r", "\ufeffA=x", "A=old\nA=x", "# a comment\n\n  # another\nA=x"),
    ),
    "x # y": ("A='x # y'", 'A="x # y"'),
    "$B": ('A="$B"',),
    "$B${C}": ("A=$B${C}",),
    "x y": ("A=x y",),
    "x#y": ("A=x#y",),
    "#x": ("A=#x",),
    "x=y": ("A=x=y",),
    "it's": ("A=it's",),
    r"x\ny": (r"A='x\ny'",),
    'x\ny\tz"q"\\': (r'A="x\ny\tz\"q\"\\"',),
}


@pytest.mark.parametrize(("line", "value"), [(line, value) for value, lines in VALUES.items() for line in lines])
def test_a_line_of_a_secrets_file_is_read(dotenv: Dotenv, line: str, value: str) -> None:
    assert dotenv(line).resolve(["A"], {}) == {"A": value}


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
        ("export s3cr3t", KEY_VALUE),
        ("1A=s3cr3t", KEY_VALUE),
        ('B="s3cr3t', UNCLOSED.format('"')),
        ("B='s3cr3t' more", UNCLOSED.format("'")),
        (r'B="s3cr3t\d"', ESCAPE),
        ("B=s3cr3t\0", "B: the value contains a NUL character, which an environment variable cannot hold"),
    ],
)
def test_a_bad_line_is_reported_without_its_content(dotenv: Dotenv, line: str, problem: str) -> None:
    assert problems_of(["A"], dotenv(f"# first\nA=x\n{line}\n")) == [f"secrets.env:3: {problem}"]


def test_all_bad_lines_and_names_without_a_value_are_reported_at_once(dotenv: Dotenv) -> None:
    assert problems_of(["A", "B", "C"], dotenv("bad\nB=x\nworse\n")) == [
        f"secrets.env:1: {KEY_VALUE}",
        f"secrets.env:3: {KEY_VALUE}",
        *(
            f"secret {name}: missing or empty in secrets.env and in the environment; "
            f"add a line {name}=... to secrets.env, or export {name}"
            for name in "AC"
        ),
    ]
    assert problems_of(["A"], SecretsSource(None, no_stdin)) == [
        "secret A: missing or empty in the environment; "
        "export A=..., or use --osmosis-secrets-file=FILE with a line A=..."
    ]
    assert len(problems_of(["A", "B"], dotenv("A=''\nB= # a comment"), {"A": ""})) == 2


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
    dotenv: Dotenv, text: str, environ: dict[str, str], found: dict[str, str]
) -> None:
    assert dotenv(text).resolve(["A", "B"], environ) == found


def test_stdin_is_read_once_for_a_dash_whatever_was_in_it(dotenv: Dotenv) -> None:
    stdin, broken = Mock(side_effect=["A=x", "A=y"]), Mock(side_effect=[FileFault("is closed"), "A=y"])
    good, bad = SecretsSource("-", stdin), SecretsSource("-", broken)
    for _ in range(2):
        assert good.resolve(["A"], {}) == {"A": "x"}
        assert "stdin: is closed" in problems_of(["A"], bad, {"A": "z"})[0]
    assert stdin.call_count == broken.call_count == 1
    assert SecretsSource("-", no_stdin).without_stdin.resolve(["A"], {"A": "x"}) == {"A": "x"}
    assert dotenv("A=y").without_stdin.resolve(["A"], {"A": "x"}) == {"A": "y"}
    assert SecretsSource("-", lambda: "A=x\n").resolve(["A"], {}) == {"A": "x"}
    assert problems_of([], SecretsSource("-", lambda: "\nbad")) == [f"stdin:2: {KEY_VALUE}"]
    assert SecretsSource(None, no_stdin).resolve([], {}) == {}


def test_a_secrets_file_that_is_missing_or_not_utf8_is_one_problem(dotenv: Dotenv) -> None:
    valid_source = "--osmosis-secrets-file takes a file with lines NAME=VALUE, or - to read them from standard input"
    assert problems_of(["A"], dotenv(b"A=\xff")) == [
        f"secrets.env:1: must be UTF-8 text, got the byte 0xff; {valid_source}"
    ]
    assert problems_of(["A", "B"], SecretsSource(Path("none.env"))) == [f"none.env: no such file; {valid_source}"]
