"""The lines of keys in a TOML file, the workspace of a config, paths inside it, and paths in messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.config import workspace_of
from pytest_osmosis.config.document import Lines, inside
from pytest_osmosis.text.names import shown

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


def line_of(text: str) -> int:
    """Return the number of the only line of TRICKY that starts with `text`."""
    numbers = [number for number, line in enumerate(TRICKY.splitlines(), 1) if line.startswith(text)]
    assert len(numbers) == 1
    return numbers[0]


@pytest.mark.parametrize(
    ("keys", "start"),
    [
        (("title",), "title"),
        (("evaluation",), "[evaluation]"),
        (("evaluation", "text"), "text"),
        (("evaluation", "literal"), "literal"),
        (("evaluation", "list"), "list"),
        (("evaluation", "n"), "n = 3"),
        (("evaluation", "quoted.key"), '"quoted.key"'),
        (("evaluation", "single"), "'single'"),
        (("evaluation", "single", "part"), "'single'"),
        (("evaluation", "when"), "when"),
        (("model", "headers"), "headers"),
        (("model", "headers", "A"), "headers"),
        (("model", "headers", "B C"), "headers"),
        (("model", "headers", "nested", "d", "e"), "headers"),
        (("model", "client"), "client"),
        (("model", "open", "second", 1), "open"),
        (("model", "quotes"), "quotes"),
        (("model", "after"), "after"),
        (("gate", "rewards:exact", "mean"), "mean"),
        (("gate", "rewards:exact"), '[gate."rewards:exact"]'),
        (("gate",), "[gate]"),  # its own header, not that of a subtable
    ],
)
def test_each_key_has_its_line(keys: tuple[str, ...], start: str) -> None:
    assert Lines(TRICKY).of(*keys) == line_of(start)


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
        (BROKEN, "a b", 2),
        (BROKEN, "d", 4),
        ("[a]\nb = 1\nc = " + "[" * 5000 + "]" * 5000 + "\n", "a b", 2),
    ],
)
def test_a_key_has_the_line_where_it_or_its_table_is_first_mentioned(text: str, key: str, line: int) -> None:
    assert Lines(text).of(*key.split()) == line


# -- workspaces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "workspace"),
    [
        ("/w/configs/eval/x.toml", "/w"),
        ("/w/configs/x.toml", "/w"),
        ("/w/configs/eval/deep/er/x.toml", "/w"),
        ("/w/configs/one/configs/eval/x.toml", "/w/configs/one"),
        ("/w/evals/x.toml", "/w/evals"),
        ("/w/configs.d/x.toml", "/w/configs.d"),
    ],
)
def test_the_workspace_is_the_parent_of_the_nearest_configs_folder_or_the_files_own_folder(
    path: str, workspace: str
) -> None:
    assert workspace_of(Path(path)) == Path(workspace)


def test_a_relative_path_is_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert workspace_of(Path("configs/eval/x.toml")) == tmp_path


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


def test_inside_follows_symlinks(tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    (tmp_path / "out.txt").write_text("")
    (home / "in.txt").write_text("")
    (home / "link_out").symlink_to(tmp_path / "out.txt")
    (home / "link_in").symlink_to(home / "in.txt")
    for path in ("link_out", "../out.txt", "/etc/hostname", "a/../../x"):
        assert inside(home, path) is None
    assert inside(home, "link_in") == inside(link, "in.txt") == (home / "in.txt").resolve()
